/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools by name: taking a name away, listing them.
 *
 * Destroying marks the pool first, then asks the server for the name: who is killed in between
 * leaves a name whose pool gives nothing, and destroying it once more completes it. The name is
 * taken away only if it is still that of the pool that was marked: somebody else may have destroyed
 * it meanwhile and made another.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "job/pool_handle.h"
#include "os/space.h"

#define LAYER "job"

/* ---- destroy ---- */

/* Whoever may write to a pool could mark it; its owner and root are meant to. */
static shmem_status_t may_destroy(const shmemi_segment_t *segment, const char *name)
{
    if (geteuid() == segment->uid || geteuid() == 0)
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                       "pool '%s' belongs to user %u: he and root may destroy it, not user %u",
                       name, segment->uid, (unsigned)geteuid());
}

shmem_status_t shmem_pool_destroy(shmem_context_t context, const char *name)
{
    char full[SHMEMI_NAME_MAX + 1];
    shmemi_pool_view_t view = {.context = context, .segment.fd = -1};
    if (!context || !name)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_pool_destroy wants a context and a name");
    shmem_status_t status = shmemi_context_check(context, "shmem_pool_destroy");
    if (!status)
        status = shmemi_named_make(&shmemi_pool_named, name, full);
    if (!status)
        status =
            shmemi_client_segment_open(context->client, full, SHMEMI_RIGHTS_WRITE, &view.segment);
    if (status)
        return shmemi_named_translate(&shmemi_pool_named, context, name, status);
    status = may_destroy(&view.segment, name);
    if (!status)
        status = shmemi_pool_pages_map(&view);
    if (status)
        goto close;
    bool already = shmemi_pool_mark_destroyed(view.memory, true);
    SHMEMI_KILL_POINT("job.pool.marked");
    status = shmemi_client_segment_unlink(context->client, full, view.segment.id);
    SHMEMI_KILL_POINT("job.pool.unlinked");
    if (status == SHMEM_ERR_ACCESS && !already) /* to the server this user is another one */
        shmemi_pool_mark_destroyed(view.memory, false);
    shmemi_space_unmap(view.memory);
close:
    shmemi_client_segment_close(context->client, &view.segment);
    return status ? shmemi_named_translate(&shmemi_pool_named, context, name, status) : SHMEM_OK;
}

/* ---- list ---- */

static void entry_fill(shmem_pool_entry_t *to, const shmemi_segment_entry_t *from)
{
    memset(to, 0, sizeof *to);
    shmemi_named_user_name(&shmemi_pool_named, from, to->name);
    to->bytes = from->bytes;
    to->uid = from->uid;
    to->access = from->access;
    to->users = from->users;
}

shmem_status_t shmem_pool_list(shmem_context_t context, shmem_pool_entry_t *entries, size_t room,
                               size_t *count)
{
    shmemi_segment_entry_t *all;
    size_t listed, found;
    shmem_status_t status =
        shmemi_named_list(&shmemi_pool_named, context, entries, room, count, &all, &listed, &found);
    if (status)
        return status;
    for (size_t i = 0; i < listed; i++)
        entry_fill(&entries[i], &all[i]);
    free(all);
    *count = found;
    return SHMEM_OK;
}
