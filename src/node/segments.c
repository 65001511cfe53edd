/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments as clients ask for them: create, open, close, wait for one that is being made.
 *
 *   Invariant  for every peer: hold_count = sum over its holds of count
 *              for every entry: opens = sum over all peers of their counts of it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/server_core.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "node"

#define INLINE_BYTES 0x800000ull /* more than 8 MiB are reserved by a thread of their own */

/* ---- holds ---- */

static shmemi_hold_t **hold_find(shmemi_peer_t *peer, uint64_t id)
{
    shmemi_hold_t **link = &peer->holds;
    while (*link && (*link)->entry->id != id)
        link = &(*link)->next;
    return link;
}

static shmem_status_t hold_add(shmemi_peer_t *peer, shmemi_entry_t *entry)
{
    if (peer->hold_count >= SHMEMI_HOLDS)
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                            "this client has %d segments open already; close some", SHMEMI_HOLDS);
    shmemi_hold_t *hold = *hold_find(peer, entry->id);
    if (!hold) {
        hold = SHMEMI_FAULT("node.hold.add") ? NULL : malloc(sizeof *hold);
        if (!hold)
            return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER,
                                "the node server has no memory to note an "
                                "open segment");
        *hold = (shmemi_hold_t){peer->holds, entry, 0};
        peer->holds = hold;
    }
    hold->count++;
    entry->opens++;
    peer->hold_count++;
    return SHMEM_OK;
}

static void hold_drop(shmem_server_t server, shmemi_peer_t *peer, shmemi_hold_t **link,
                      uint32_t count)
{
    shmemi_hold_t *hold = *link;
    shmemi_entry_t *entry = hold->entry;
    hold->count -= count;
    entry->opens -= count;
    peer->hold_count -= count;
    if (!hold->count) {
        *link = hold->next;
        free(hold);
    }
    if (!entry->opens)
        shmemi_death_forget(server, entry);
    shmemi_table_drop_unused(&server->table, entry);
}

/* ---- answers ---- */

/* Open a READY entry for the peer and hand it over. */
static void hand_over(shmem_server_t server, shmemi_peer_t *peer, shmemi_entry_t *entry,
                      uint32_t sequence, bool created)
{
    shmemi_wire_message_t answer;
    shmem_status_t status = hold_add(peer, entry);
    if (status) {
        shmemi_connection_refuse(server, peer, sequence, status);
        return;
    }
    SHMEMI_KILL_POINT("node.segment.held");
    shmemi_wire_begin(&answer, SHMEMI_WIRE_SEGMENT, sequence);
    answer.segment.id = entry->id;
    answer.segment.offset = entry->offset;
    answer.segment.bytes = entry->bytes;
    answer.segment.page_bytes = entry->page_bytes;
    answer.segment.created = created;
    answer.segment.kind = entry->kind;
    shmemi_connection_answer(server, peer, &answer, entry->fd);
}

static void await(shmemi_peer_t *peer, shmemi_entry_t *entry, uint32_t sequence, bool creates)
{
    peer->awaited = entry;
    peer->awaited_sequence = sequence;
    peer->awaited_creates = creates;
    entry->waiting++;
}

static void hand_over_or_await(shmem_server_t server, shmemi_peer_t *peer, shmemi_entry_t *entry,
                               uint32_t sequence)
{
    if (entry->fd < 0)
        await(peer, entry, sequence, false);
    else
        hand_over(server, peer, entry, sequence, false);
}

void shmemi_segments_settle(shmem_server_t server, shmemi_entry_t *entry, shmem_status_t status,
                            const char *text)
{
    shmemi_wire_message_t answer;
    entry->waiting++; /* stays while we look at it */
    for (shmemi_peer_t *peer = server->attached.first; peer; peer = peer->next) {
        if (peer->awaited != entry)
            continue;
        peer->awaited = NULL;
        entry->waiting--;
        if (status == SHMEM_OK) {
            hand_over(server, peer, entry, peer->awaited_sequence, peer->awaited_creates);
        } else {
            shmemi_wire_error(&answer, peer->awaited_sequence, status, text);
            shmemi_connection_answer(server, peer, &answer, -1);
        }
    }
    entry->waiting--;
    shmemi_table_drop_unused(&server->table, entry);
}

/* ---- create ---- */

static shmem_status_t create_check(const shmemi_wire_create_t *request, char *name)
{
    if (!shmemi_wire_name(request->name, sizeof request->name, request->name_bytes, name))
        return shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER, "a segment name that is not well formed");
    if (request->name_bytes && !shmemi_wire_name_is_valid(name))
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "'%s' is no segment name: 1 to %d visible ASCII characters, no '..' "
                            "between slashes",
                            name, SHMEMI_NAME_MAX);
    if (request->bytes == 0)
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER, "a segment of 0 bytes");
    if (request->kind > SHMEMI_SEGMENT_POOL || request->huge > SHMEMI_HUGE_OFF ||
        request->flags & ~(uint32_t)SHMEMI_CREATE_FLAGS)
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "segment '%s': kind %u, huge pages %u or flags %x are unknown", name,
                            request->kind, request->huge, request->flags);
    return SHMEM_OK;
}

static shmem_status_t may_open(const shmemi_peer_t *peer, const shmemi_entry_t *entry)
{
    if (peer->who.uid == entry->uid || peer->who.uid == 0)
        return SHMEM_OK;
    return shmemi_quiet(SHMEM_ERR_ACCESS, LAYER, "segment '%s' belongs to user %u, not to user %u",
                        entry->name, (unsigned)entry->uid, (unsigned)peer->who.uid);
}

/* An entry of the wanted name is there: may the request have it? */
static shmem_status_t create_compare(const shmemi_peer_t *peer, const shmemi_wire_create_t *request,
                                     const shmemi_entry_t *entry)
{
    shmem_status_t status = may_open(peer, entry);
    if (status)
        return status;
    if (!(request->flags & SHMEMI_CREATE_OPEN))
        return shmemi_quiet(SHMEM_ERR_EXISTS, LAYER,
                            "a segment '%s' of %llu bytes exists; open it or choose another name",
                            entry->name, (unsigned long long)entry->asked);
    if (entry->asked != request->bytes || entry->kind != (shmemi_segment_kind_t)request->kind)
        return shmemi_quiet(
            SHMEM_ERR_MISMATCH, LAYER,
            "segment '%s' was created with %llu bytes as kind %d; this request says "
            "%llu bytes, kind %u",
            entry->name, (unsigned long long)entry->asked, (int)entry->kind,
            (unsigned long long)request->bytes, request->kind);
    return SHMEM_OK;
}

static shmem_status_t make_now(shmem_server_t server, shmemi_entry_t *entry, int huge, int reserve)
{
    char name[SHMEMI_WIRE_NAME + 16];
    int fd;
    uint64_t bytes, page_bytes;
    snprintf(name, sizeof name, "shmem-%s", entry->name);
    shmemi_segment_params_t params = {name, entry->asked, huge, reserve};
    shmem_status_t status = shmemi_segment_create(&params, &fd, &bytes, &page_bytes);
    if (status)
        return status;
    SHMEMI_KILL_POINT("node.segment.made");
    shmemi_table_ready(&server->table, entry, fd, bytes, page_bytes);
    return SHMEM_OK;
}

static void create_new(shmem_server_t server, shmemi_peer_t *peer,
                       const shmemi_wire_create_t *request, const char *name)
{
    uint32_t sequence = request->header.sequence;
    shmemi_entry_t *entry;
    int reserve = request->flags & SHMEMI_CREATE_RESERVE ? 1 : 0;
    shmem_status_t status =
        shmemi_table_add(&server->table, name, request->bytes, (shmemi_segment_kind_t)request->kind,
                         peer->who.uid, &entry);
    if (status) {
        shmemi_connection_refuse(server, peer, sequence, status);
        return;
    }
    if (reserve && request->bytes > INLINE_BYTES &&
        shmemi_reserve_start(server, entry, (int)request->huge) == SHMEM_OK) {
        await(peer, entry, sequence, true);
        return;
    }
    status = make_now(server, entry, (int)request->huge, reserve);
    if (status == SHMEM_OK)
        hand_over(server, peer, entry, sequence, true);
    else
        shmemi_connection_refuse(server, peer, sequence, status);
    shmemi_table_drop_unused(&server->table, entry);
}

void shmemi_segments_create(shmem_server_t server, shmemi_peer_t *peer,
                            const shmemi_wire_create_t *request)
{
    char name[SHMEMI_WIRE_NAME];
    shmem_status_t status = create_check(request, name);
    shmemi_entry_t *entry = NULL;
    if (status == SHMEM_OK && name[0] && (entry = shmemi_table_find(&server->table, name)) != NULL)
        status = create_compare(peer, request, entry);
    if (status)
        shmemi_connection_refuse(server, peer, request->header.sequence, status);
    else if (entry)
        hand_over_or_await(server, peer, entry, request->header.sequence);
    else
        create_new(server, peer, request, name);
}

/* ---- open, close ---- */

void shmemi_segments_open(shmem_server_t server, shmemi_peer_t *peer,
                          const shmemi_wire_open_t *request)
{
    char name[SHMEMI_WIRE_NAME];
    shmemi_entry_t *entry = NULL;
    shmem_status_t status;
    if (!shmemi_wire_name(request->name, sizeof request->name, request->name_bytes, name) ||
        !shmemi_wire_name_is_valid(name))
        status =
            shmemi_quiet(SHMEM_ERR_INVALID, LAYER, "the name of the segment to open is not one");
    else if (!(entry = shmemi_table_find(&server->table, name)))
        status = shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER,
                              "no segment '%s' at this node server: is its "
                              "creator running, with the same SHMEM_SERVER?",
                              name);
    else
        status = may_open(peer, entry);
    if (status)
        shmemi_connection_refuse(server, peer, request->header.sequence, status);
    else
        hand_over_or_await(server, peer, entry, request->header.sequence);
}

void shmemi_segments_close(shmem_server_t server, shmemi_peer_t *peer,
                           const shmemi_wire_close_t *request)
{
    shmemi_wire_message_t answer;
    shmemi_hold_t **link = hold_find(peer, request->id);
    if (!*link) {
        shmemi_connection_refuse(server, peer, request->header.sequence,
                                 shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER,
                                              "this client has no segment number %llu open",
                                              (unsigned long long)request->id));
        return;
    }
    hold_drop(server, peer, link, 1);
    SHMEMI_KILL_POINT("node.close.dropped");
    shmemi_wire_begin(&answer, SHMEMI_WIRE_DONE, request->header.sequence);
    shmemi_connection_answer(server, peer, &answer, -1);
}

void shmemi_segments_wait_no_more(shmemi_peer_t *peer)
{
    if (!peer->awaited)
        return;
    peer->awaited->waiting--; /* the thread that makes it still counts: it stays */
    peer->awaited = NULL;
}

void shmemi_segments_release(shmem_server_t server, shmemi_peer_t *peer)
{
    shmemi_segments_wait_no_more(peer);
    while (peer->holds)
        hold_drop(server, peer, &peer->holds, peer->holds->count);
}
