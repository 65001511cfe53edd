/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments as clients ask for them: create, open, close, wait for one that is being made.
 *
 * A predecessor may have been killed when it had done what a request asks for, and before it
 * answered: a hold that the request changed says so.
 */
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/server_core.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "node"

#define INLINE_BYTES 0x800000ull /* more than 8 MiB are reserved by a thread of their own */

/* ---- answers ---- */

static void answer_fill(shmemi_wire_message_t *answer, const shmemi_entry_t *entry,
                        const shmemi_wish_t *wish)
{
    const shmemi_spec_t *spec = &entry->spec;
    shmemi_wire_begin(answer, SHMEMI_WIRE_SEGMENT, wish->sequence);
    answer->segment.id = entry->id;
    answer->segment.offset = entry->offset;
    answer->segment.bytes = entry->bytes;
    answer->segment.first = spec->bytes;
    answer->segment.page_bytes = entry->page_bytes;
    answer->segment.created = wish->creates;
    answer->segment.kind = spec->kind;
    answer->segment.uid = spec->uid;
    answer->segment.gid = spec->gid;
    answer->segment.access = spec->access;
    answer->segment.rights = wish->rights;
}

/* Open a READY entry for the peer and hand it over, with a descriptor that can do what was wished
 * for and no more. */
static void hand_over(shmem_server_t server, shmemi_peer_t *peer, shmemi_entry_t *entry,
                      const shmemi_wish_t *wish)
{
    shmemi_wire_message_t answer;
    int fd = entry->fd;
    bool reads = wish->rights == SHMEMI_RIGHTS_READ;
    shmem_status_t status = reads ? shmemi_segment_read_only(entry->fd, &fd) : SHMEM_OK;
    if (status == SHMEM_OK) {
        if (!server->redoing || !shmemi_hold_of_request(peer, wish->sequence))
            status = shmemi_hold_add(server, peer, entry, wish);
        if (status && reads)
            close(fd);
    }
    if (status) {
        shmemi_connection_refuse(server, peer, wish->sequence, status);
        return;
    }
    SHMEMI_KILL_POINT("node.segment.held");
    answer_fill(&answer, entry, wish);
    status = shmemi_connection_answer(server, peer, &answer, fd);
    if (reads)
        close(fd);
    if (!status)
        return;
    entry->waiting++; /* stays for the caller */
    shmemi_hold_drop(server, peer, shmemi_hold_find(peer, entry->id), 1, wish->sequence);
    entry->waiting--;
    shmemi_connection_refuse(server, peer, wish->sequence, status);
}

/* A create or open that a predecessor has done is only answered: with what is still allowed. */
static bool done_before(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence,
                        uint32_t rights)
{
    const shmemi_hold_t *hold = server->redoing ? shmemi_hold_of_request(peer, sequence) : NULL;
    if (!hold)
        return false;
    shmemi_entry_t *entry = hold->entry;
    shmem_status_t status = shmemi_rights_check_open(peer, &entry->spec, rights);
    if (status)
        shmemi_connection_refuse(server, peer, sequence, status);
    else
        hand_over(server, peer, entry, &(shmemi_wish_t){sequence, rights, hold->created});
    shmemi_table_drop_unused(&server->table, entry);
    return true;
}

static void hand_over_or_await(shmem_server_t server, shmemi_peer_t *peer, shmemi_entry_t *entry,
                               shmemi_wish_t wish)
{
    if (entry->fd >= 0) {
        hand_over(server, peer, entry, &wish);
        return;
    }
    peer->awaited = entry;
    peer->wish = wish;
    entry->waiting++;
    shmemi_state_await(peer->record, entry->id, &wish);
}

void shmemi_segments_settle(shmem_server_t server, shmemi_entry_t *entry, shmem_status_t status,
                            const char *text)
{
    shmemi_wire_message_t answer;
    entry->waiting++; /* stays while we look at it */
    for (shmemi_peer_t *peer = server->attached.first; peer; peer = peer->next) {
        if (peer->awaited != entry || peer->awaited_bytes)
            continue;
        peer->awaited = NULL;
        entry->waiting--;
        if (status == SHMEM_OK) {
            hand_over(server, peer, entry, &peer->wish);
        } else {
            shmemi_wire_error(&answer, peer->wish.sequence, status, text);
            shmemi_connection_answer(server, peer, &answer, -1);
        }
    }
    entry->waiting--;
    shmemi_table_drop_unused(&server->table, entry);
}

/* ---- create ---- */

static shmem_status_t name_check(const shmemi_wire_create_t *request, char *name)
{
    if (!shmemi_wire_name(request->name, sizeof request->name, request->name_bytes, name))
        return shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER, "a segment name that is not well formed");
    if (request->name_bytes && !shmemi_wire_name_is_valid(name))
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "'%s' is no segment name: 1 to %d visible ASCII characters, no '..' "
                            "between slashes",
                            name, SHMEMI_NAME_MAX);
    return SHMEM_OK;
}

/* What is asked for, as far as numbers can tell. */
static shmem_status_t create_check(const shmemi_wire_create_t *request, shmemi_spec_t *spec)
{
    shmem_status_t status = name_check(request, spec->name);
    if (status)
        return status;
    if (request->bytes == 0 || (request->limit && request->limit < request->bytes))
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "segment '%s' of %llu bytes with a limit of %llu", spec->name,
                            (unsigned long long)request->bytes, (unsigned long long)request->limit);
    if (request->kind >= SHMEMI_SEGMENT_KINDS || request->huge > SHMEMI_HUGE_OFF ||
        request->flags & ~(uint32_t)SHMEMI_CREATE_FLAGS || request->node < -1)
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "segment '%s': kind %u, huge pages %u, flags %x or node %d are unknown",
                            spec->name, request->kind, request->huge, request->flags,
                            (int)request->node);
    if (!shmemi_rights_access_is_valid(request->access))
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "segment '%s': access 0%o has other bits than reading and writing for "
                            "group and others, or writing without reading",
                            spec->name, request->access);
    spec->bytes = request->bytes;
    spec->limit = request->limit ? request->limit : request->bytes;
    spec->kind = (shmemi_segment_kind_t)request->kind;
    spec->huge = (int)request->huge;
    spec->reserve = request->flags & SHMEMI_CREATE_RESERVE ? 1 : 0;
    spec->node = request->node;
    spec->access = request->access;
    return SHMEM_OK;
}

/* An entry of the wanted name is there: may the request have it? */
static shmem_status_t create_compare(const shmemi_peer_t *peer, uint32_t flags,
                                     const shmemi_spec_t *wanted, const shmemi_spec_t *there)
{
    if (!(flags & SHMEMI_CREATE_OPEN))
        return shmemi_quiet(SHMEM_ERR_EXISTS, LAYER,
                            "a segment '%s' of %llu bytes exists, of user %u; open it or choose "
                            "another name",
                            there->name, (unsigned long long)there->bytes, (unsigned)there->uid);
    shmem_status_t status = shmemi_rights_check_open(peer, there, SHMEMI_RIGHTS_WRITE);
    if (status)
        return status;
    if (there->bytes != wanted->bytes || there->limit != wanted->limit ||
        there->kind != wanted->kind)
        return shmemi_quiet(
            SHMEM_ERR_MISMATCH, LAYER,
            "segment '%s' was created with %llu bytes as kind %d; this request says "
            "%llu bytes, kind %d",
            there->name, (unsigned long long)there->bytes, (int)there->kind,
            (unsigned long long)wanted->bytes, (int)wanted->kind);
    return SHMEM_OK;
}

static shmem_status_t make_now(shmem_server_t server, shmemi_entry_t *entry)
{
    int fd;
    uint64_t bytes, page_bytes;
    shmem_status_t status = shmemi_making_run(&entry->spec, &fd, &bytes, &page_bytes);
    if (status)
        return status;
    SHMEMI_KILL_POINT("node.segment.made");
    shmemi_table_ready(&server->table, entry, fd, bytes, page_bytes);
    return SHMEM_OK;
}

/* Looking for a node takes as long as filling. */
static bool takes_long(const shmemi_spec_t *spec)
{
    return (spec->reserve && spec->bytes > INLINE_BYTES) || spec->node >= 0;
}

static void create_new(shmem_server_t server, shmemi_peer_t *peer, const shmemi_spec_t *spec,
                       uint32_t sequence)
{
    shmemi_entry_t *entry;
    shmem_status_t status = shmemi_table_add(&server->table, spec, &entry);
    if (status) {
        shmemi_connection_refuse(server, peer, sequence, status);
        return;
    }
    if (takes_long(spec) && shmemi_reserve_start(server, entry) == SHMEM_OK)
        shmemi_state_segment_save(server->state, entry);
    else
        status = make_now(server, entry);
    if (status == SHMEM_OK)
        hand_over_or_await(server, peer, entry,
                           (shmemi_wish_t){sequence, SHMEMI_RIGHTS_WRITE, true});
    else
        shmemi_connection_refuse(server, peer, sequence, status);
    shmemi_table_drop_unused(&server->table, entry);
}

void shmemi_segments_continue(shmem_server_t server, shmemi_entry_t *entry)
{
    shmem_status_t status = SHMEM_OK;
    if (entry->fd < 0 && shmemi_reserve_start(server, entry) == SHMEM_OK)
        return;
    if (entry->fd < 0)
        status = make_now(server, entry);
    shmemi_segments_settle(server, entry, status, shmem_error_detail()->text);
}

void shmemi_segments_create(shmem_server_t server, shmemi_peer_t *peer,
                            const shmemi_wire_create_t *request)
{
    shmemi_spec_t spec = {
        .uid = peer->who.uid, .gid = peer->who.gid, .slot = peer->slot, .epoch = peer->epoch};
    uint32_t sequence = request->header.sequence;
    shmem_status_t status = create_check(request, &spec);
    shmemi_entry_t *entry = NULL;
    if (status == SHMEM_OK && done_before(server, peer, sequence, SHMEMI_RIGHTS_WRITE))
        return;
    if (status == SHMEM_OK && spec.name[0])
        entry = shmemi_table_find(&server->table, spec.name);
    if (entry)
        status = create_compare(peer, request->flags, &spec, &entry->spec);
    if (status)
        shmemi_connection_refuse(server, peer, sequence, status);
    else if (entry)
        hand_over_or_await(server, peer, entry,
                           (shmemi_wish_t){sequence, SHMEMI_RIGHTS_WRITE, false});
    else
        create_new(server, peer, &spec, sequence);
}

/* ---- open, close ---- */

void shmemi_segments_open(shmem_server_t server, shmemi_peer_t *peer,
                          const shmemi_wire_open_t *request)
{
    char name[SHMEMI_WIRE_NAME];
    shmemi_entry_t *entry = NULL;
    shmem_status_t status;
    bool known = request->rights == SHMEMI_RIGHTS_READ || request->rights == SHMEMI_RIGHTS_WRITE;
    if (known && done_before(server, peer, request->header.sequence, request->rights))
        return;
    if (!known)
        status = shmemi_quiet(SHMEM_ERR_INVALID, LAYER, "rights %u to open a segment are unknown",
                              request->rights);
    else if (!shmemi_wire_name(request->name, sizeof request->name, request->name_bytes, name) ||
             !shmemi_wire_name_is_valid(name))
        status =
            shmemi_quiet(SHMEM_ERR_INVALID, LAYER, "the name of the segment to open is not one");
    else if (!(entry = shmemi_table_find(&server->table, name)))
        status = shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER,
                              "no segment '%s' at this node server: is its "
                              "creator running, with the same SHMEM_SERVER?",
                              name);
    else
        status = shmemi_rights_check_open(peer, &entry->spec, request->rights);
    if (status)
        shmemi_connection_refuse(server, peer, request->header.sequence, status);
    else
        hand_over_or_await(server, peer, entry,
                           (shmemi_wish_t){request->header.sequence, request->rights, false});
}

void shmemi_segments_close(shmem_server_t server, shmemi_peer_t *peer,
                           const shmemi_wire_close_t *request)
{
    shmemi_wire_message_t answer;
    uint32_t sequence = request->header.sequence;
    shmemi_hold_t **link = shmemi_hold_find(peer, request->id);
    if (!*link && !server->redoing) {
        shmemi_connection_refuse(server, peer, sequence,
                                 shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER,
                                              "this client has no segment number %llu open",
                                              (unsigned long long)request->id));
        return;
    }
    if (*link && !(server->redoing && (*link)->sequence == sequence))
        shmemi_hold_drop(server, peer, link, 1, sequence);
    SHMEMI_KILL_POINT("node.close.dropped");
    shmemi_wire_begin(&answer, SHMEMI_WIRE_DONE, sequence);
    shmemi_connection_answer(server, peer, &answer, -1);
}

void shmemi_segments_wait_no_more(shmemi_peer_t *peer)
{
    if (!peer->awaited)
        return;
    peer->awaited->waiting--; /* the thread that makes it still counts: it stays */
    peer->awaited = NULL;
    peer->awaited_bytes = 0;
}

void shmemi_segments_release(shmem_server_t server, shmemi_peer_t *peer)
{
    shmemi_segments_wait_no_more(peer);
    while (peer->holds)
        shmemi_hold_drop(server, peer, &peer->holds, peer->holds->count, 0);
}
