/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions that grow: their pages are reserved here, and their size is published in their last page.
 *
 *   Invariant  the first spec.bytes of the file are reserved; the published size is spec.bytes, or
 *              an older one while an answer is due (who reads less memory than there is, is right)
 *
 * One growth of an entry at a time: those who want it to grow meanwhile wait, and get what they
 * want by it or by the next one. A growth that failed leaves nothing reserved. Whoever asked may
 * die: the region has grown all the same.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/server_core.h"
#include "os/segment.h"

#define LAYER "node"

#define INLINE_BYTES 0x800000ull /* more than 8 MiB are reserved by a thread of their own */

shmem_status_t shmemi_growing_publish(int fd, uint64_t file_bytes, uint64_t bytes)
{
    shmemi_region_page_t *page = SHMEMI_FAULT("node.growing.page")
                                     ? MAP_FAILED
                                     : mmap(NULL, SHMEMI_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
                                            fd, (off_t)(file_bytes - SHMEMI_PAGE));
    if (page == MAP_FAILED)
        return shmemi_fail_errno(LAYER, "cannot map the page that holds a region's size");
    /* SYNC region-bytes: release, pairs with acquire in shmemi_region_bytes() */
    atomic_store_explicit(&page->bytes, bytes, memory_order_release);
    munmap(page, SHMEMI_PAGE);
    return SHMEM_OK;
}

/* `bytes` in whole pages: inside the file, so it does not overflow. */
static uint64_t pages_end(uint64_t bytes)
{
    return (bytes + SHMEMI_PAGE - 1) / SHMEMI_PAGE * SHMEMI_PAGE;
}

static void release(int fd, uint64_t from, uint64_t to)
{
    if (pages_end(from) < pages_end(to))
        shmemi_segment_release(fd, pages_end(from), pages_end(to) - pages_end(from));
}

shmem_status_t shmemi_growing_reserve(const shmemi_spec_t *spec, int fd, uint64_t bytes)
{
    uint64_t start = pages_end(spec->bytes), end = pages_end(bytes);
    if (start >= end)
        return SHMEM_OK;
    shmem_status_t status =
        SHMEMI_FAULT("node.growing.reserve")
            ? shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "injected at node.growing.reserve")
            : shmemi_making_afford(spec, end - start);
    if (status == SHMEM_OK)
        status = shmemi_segment_reserve_huge(fd, start, end - start, spec->huge);
    if (status == SHMEM_OK)
        return SHMEM_OK;
    char text[SHMEMI_WIRE_TEXT];
    snprintf(text, sizeof text, "%s", shmem_error_detail()->text);
    release(fd, spec->bytes, bytes);
    return shmemi_quiet(status, LAYER, "%s", text);
}

/* The pages are there. */
static shmem_status_t grown(shmem_server_t server, shmemi_entry_t *entry, uint64_t bytes)
{
    uint64_t before = entry->spec.bytes;
    SHMEMI_KILL_POINT("node.growing.reserved");
    shmemi_table_grown(&server->table, entry, bytes);
    SHMEMI_KILL_POINT("node.growing.noted");
    shmem_status_t status = shmemi_growing_publish(entry->fd, entry->bytes, bytes);
    if (status) {
        shmemi_table_grown(&server->table, entry, before);
        release(entry->fd, before, bytes);
    }
    return status;
}

static void answer(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence,
                   shmem_status_t status, const char *text)
{
    shmemi_wire_message_t message;
    if (status)
        shmemi_wire_error(&message, sequence, status, text);
    else
        shmemi_wire_begin(&message, SHMEMI_WIRE_DONE, sequence);
    shmemi_connection_answer(server, peer, &message, -1);
}

static void await(shmemi_peer_t *peer, shmemi_entry_t *entry, uint32_t sequence, uint64_t bytes)
{
    peer->awaited = entry;
    peer->awaited_bytes = bytes;
    peer->wish.sequence = sequence;
    entry->waiting++;
}

/* Make it at least so large, for the peer. */
static void grow(shmem_server_t server, shmemi_peer_t *peer, shmemi_entry_t *entry,
                 uint32_t sequence, uint64_t bytes)
{
    uint64_t from = entry->spec.bytes;
    shmem_status_t status = SHMEM_OK;
    if (entry->growing ||
        (bytes > from + INLINE_BYTES && shmemi_reserve_growth(server, entry, bytes) == SHMEM_OK)) {
        await(peer, entry, sequence, bytes);
        return;
    }
    if (bytes > from) {
        status = shmemi_growing_reserve(&entry->spec, entry->fd, bytes);
        if (status == SHMEM_OK)
            status = grown(server, entry, bytes);
    }
    answer(server, peer, sequence, status, shmem_error_detail()->text);
}

void shmemi_growing_settle(shmem_server_t server, shmemi_entry_t *entry, uint64_t bytes,
                           shmem_status_t status, const char *text)
{
    if (status == SHMEM_OK) {
        status = grown(server, entry, bytes);
        text = shmem_error_detail()->text;
    }
    entry->waiting++; /* stays while we look at it */
    for (shmemi_peer_t *peer = server->attached.first; peer; peer = peer->next) {
        uint64_t wanted = peer->awaited_bytes;
        if (peer->awaited != entry || !wanted)
            continue;
        peer->awaited = NULL;
        peer->awaited_bytes = 0;
        entry->waiting--;
        if (status && wanted == bytes)
            answer(server, peer, peer->wish.sequence, status, text);
        else
            grow(server, peer, entry, peer->wish.sequence, wanted);
    }
    entry->waiting--;
    shmemi_table_drop_unused(&server->table, entry);
}

/* What the request may not ask for. */
static shmem_status_t check(shmem_server_t server, const shmemi_peer_t *peer,
                            const shmemi_entry_t *entry, uint64_t bytes)
{
    const shmemi_spec_t *spec = &entry->spec;
    if (spec->kind != SHMEMI_SEGMENT_REGION)
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER, "segment '%s' is no region: it cannot grow",
                            spec->name);
    if (bytes > entry->bytes - SHMEMI_PAGE)
        return shmemi_quiet(SHMEM_ERR_OVERFLOW, LAYER,
                            "region '%s' of %llu bytes shall grow to %llu, but its limit is %llu",
                            spec->name, (unsigned long long)spec->bytes, (unsigned long long)bytes,
                            (unsigned long long)(entry->bytes - SHMEMI_PAGE));
    if (bytes < spec->bytes && !server->redoing)
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "region '%s' has %llu bytes and cannot shrink to %llu: others may use "
                            "its end",
                            spec->name, (unsigned long long)spec->bytes, (unsigned long long)bytes);
    return shmemi_rights_check_open(peer, spec, SHMEMI_RIGHTS_WRITE);
}

void shmemi_growing_request(shmem_server_t server, shmemi_peer_t *peer,
                            const shmemi_wire_grow_t *request)
{
    uint32_t sequence = request->header.sequence;
    shmemi_hold_t *hold = *shmemi_hold_find(peer, request->id);
    shmem_status_t status = hold ? check(server, peer, hold->entry, request->bytes)
                                 : shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER,
                                                "this client has no segment number %llu open",
                                                (unsigned long long)request->id);
    if (status == SHMEM_OK && request->bytes <= hold->entry->spec.bytes) /* perhaps not published */
        status =
            shmemi_growing_publish(hold->entry->fd, hold->entry->bytes, hold->entry->spec.bytes);
    if (status)
        shmemi_connection_refuse(server, peer, sequence, status);
    else
        grow(server, peer, hold->entry, sequence, request->bytes);
}
