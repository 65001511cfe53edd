/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what with a segment: the rules of files, applied to the kernel's word on who connected
 * (user, group and supplementary groups at that moment).
 *
 *   its creator's user, and root: everything
 *   else who is in its group: as the group bits say; else: as the other bits say
 */
#include "base/status.h"
#include "node/server_core.h"
#include "shmem/context.h"

#define LAYER "node"

_Static_assert(SHMEM_ACCESS_GROUP_READ == 0040 && SHMEM_ACCESS_GROUP_WRITE == 0020 &&
                   SHMEM_ACCESS_OTHER_READ == 0004 && SHMEM_ACCESS_OTHER_WRITE == 0002,
               "access bits are those of file modes");

bool shmemi_rights_access_is_valid(uint32_t access)
{
    return !(access & ~(uint32_t)(SHMEM_ACCESS_GROUP_READ | SHMEM_ACCESS_GROUP_WRITE |
                                  SHMEM_ACCESS_OTHER_READ | SHMEM_ACCESS_OTHER_WRITE)) &&
           (!(access & SHMEM_ACCESS_GROUP_WRITE) || access & SHMEM_ACCESS_GROUP_READ) &&
           (!(access & SHMEM_ACCESS_OTHER_WRITE) || access & SHMEM_ACCESS_OTHER_READ);
}

static bool is_owner(const shmemi_peer_t *peer, const shmemi_spec_t *spec)
{
    return peer->who.uid == spec->uid || peer->who.uid == 0;
}

shmem_status_t shmemi_rights_check_open(const shmemi_peer_t *peer, const shmemi_spec_t *spec,
                                        uint32_t rights)
{
    if (is_owner(peer, spec))
        return SHMEM_OK;
    bool in_group =
        spec->gid != SHMEMI_NO_GROUP &&
        (peer->who.gid == spec->gid || shmemi_identity_in_group(peer->socket.fd, spec->gid));
    uint32_t mode = in_group ? spec->access >> 3 : spec->access;
    uint32_t wanted = rights == SHMEMI_RIGHTS_WRITE ? 06 : 04;
    if ((mode & wanted) == wanted)
        return SHMEM_OK;
    return shmemi_quiet(SHMEM_ERR_ACCESS, LAYER,
                        "'%s' belongs to user %u, group %u, with access 0%o; user %u, group %u%s, "
                        "wants to %s it",
                        spec->name, (unsigned)spec->uid, (unsigned)spec->gid, 0600 | spec->access,
                        (unsigned)peer->who.uid, (unsigned)peer->who.gid,
                        in_group ? "" : ", not in its group",
                        rights == SHMEMI_RIGHTS_WRITE ? "write" : "read");
}

shmem_status_t shmemi_rights_check_owner(const shmemi_peer_t *peer, const shmemi_spec_t *spec)
{
    if (is_owner(peer, spec))
        return SHMEM_OK;
    return shmemi_quiet(SHMEM_ERR_ACCESS, LAYER,
                        "'%s' belongs to user %u: user %u cannot take its name away", spec->name,
                        (unsigned)spec->uid, (unsigned)peer->who.uid);
}
