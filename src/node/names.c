/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of segments as clients ask for them: taking one away, listing them.
 *
 * A list comes in answers of a few entries each, newest first. The cursor between them is an id, so
 * that whatever comes and goes meanwhile, no entry is listed twice and none that stays is missed.
 */
#include <string.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/server_core.h"

#define LAYER "node"

static shmem_status_t find(shmem_server_t server, const shmemi_wire_unlink_t *request,
                           shmemi_entry_t **entry)
{
    char name[SHMEMI_WIRE_NAME];
    if (!shmemi_wire_name(request->name, sizeof request->name, request->name_bytes, name) ||
        !shmemi_wire_name_is_valid(name) || request->zero)
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "the name of the segment to unlink is not one");
    shmemi_entry_t *found = shmemi_table_find(&server->table, name);
    bool another = found && request->id && found->id != request->id;
    *entry = another ? NULL : found;
    if (*entry || server->redoing) /* a predecessor has done it */
        return SHMEM_OK;
    return shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER,
                        another ? "segment '%s' is another one by now"
                                : "no segment '%s' at this node server",
                        name);
}

void shmemi_names_unlink(shmem_server_t server, shmemi_peer_t *peer,
                         const shmemi_wire_unlink_t *request)
{
    shmemi_wire_message_t answer;
    shmemi_entry_t *entry = NULL;
    shmem_status_t status = find(server, request, &entry);
    if (status == SHMEM_OK && entry)
        status = shmemi_rights_check_owner(peer, &entry->spec);
    if (status) {
        shmemi_connection_refuse(server, peer, request->header.sequence, status);
        return;
    }
    if (entry)
        shmemi_table_unlink(&server->table, entry);
    SHMEMI_KILL_POINT("node.unlink.unlinked");
    shmemi_wire_begin(&answer, SHMEMI_WIRE_DONE, request->header.sequence);
    shmemi_connection_answer(server, peer, &answer, -1);
}

static bool is_wanted(const shmemi_entry_t *entry, const char *prefix)
{
    const char *name = entry->spec.name;
    return entry->fd >= 0 && name[0] && strncmp(name, prefix, strlen(prefix)) == 0;
}

static void fill(const shmemi_entry_t *entry, shmemi_wire_entry_t *out)
{
    out->bytes = entry->bytes;
    out->first = entry->spec.bytes;
    out->kind = entry->spec.kind;
    out->uid = entry->spec.uid;
    out->gid = entry->spec.gid;
    out->access = entry->spec.access;
    out->users = entry->users;
    memcpy(out->name, entry->spec.name, sizeof out->name);
}

void shmemi_names_list(shmem_server_t server, shmemi_peer_t *peer,
                       const shmemi_wire_list_t *request)
{
    shmemi_wire_message_t answer;
    char prefix[SHMEMI_WIRE_NAME];
    if (!shmemi_wire_name(request->prefix, sizeof request->prefix, request->prefix_bytes, prefix) ||
        request->zero) {
        shmemi_connection_refuse(server, peer, request->header.sequence,
                                 shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                                              "the beginning of the names to list is not one"));
        return;
    }
    shmemi_wire_begin(&answer, SHMEMI_WIRE_ENTRIES, request->header.sequence);
    for (const shmemi_entry_t *e = server->table.all; e; e = e->newer) {
        if ((request->cursor && e->id >= request->cursor) || !is_wanted(e, prefix))
            continue;
        if (answer.entries.count == SHMEMI_WIRE_LISTED)
            break;
        fill(e, &answer.entries.entries[answer.entries.count++]);
        answer.entries.cursor = e->id;
    }
    if (answer.entries.count < SHMEMI_WIRE_LISTED)
        answer.entries.cursor = 0;
    shmemi_connection_answer(server, peer, &answer, -1);
}
