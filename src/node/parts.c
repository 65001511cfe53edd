/* SPDX-License-Identifier: Apache-2.0 */
/* Segments and counts, as the client asks for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/client_core.h"
#include "os/identity.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "node"

#define NS_PER_BYTE 15 /* 1 s for 64 MiB: the slowest machine known needs a fifth of it */

static shmem_status_t bad_name(const char *name)
{
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                       "'%.140s' is no segment name: 1 to %d visible ASCII characters, no '..' "
                       "between slashes",
                       name ? name : "(null)", SHMEMI_NAME_MAX);
}

/* What the server claims about a segment, before any of it is used. */
static shmem_status_t answer_check(const shmemi_client_t *client,
                                   const shmemi_wire_segment_t *answer, int fd)
{
    uint64_t page = answer->page_bytes;
    if (fd < 0 || !answer->first || answer->first > answer->bytes ||
        answer->offset % SHMEMI_SPACE_UNIT || !answer->bytes ||
        !shmemi_range_inside(answer->offset, answer->bytes, SHMEMI_SPACE_BYTES) ||
        !shmemi_is_power_of_two(page) || answer->bytes % page || answer->created > 1 ||
        (answer->rights != SHMEMI_RIGHTS_READ && answer->rights != SHMEMI_RIGHTS_WRITE))
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER,
                           "the server at %s handed out an impossible segment: %llu bytes at %llx, "
                           "pages of %llu, descriptor %d",
                           client->address, (unsigned long long)answer->bytes,
                           (unsigned long long)answer->offset, (unsigned long long)page, fd);
    return shmemi_segment_verify(fd, answer->bytes);
}

static void tell_closed(shmemi_client_t *client, uint64_t id)
{
    shmemi_wire_message_t message;
    shmemi_wire_begin(&message, SHMEMI_WIRE_SEGMENT_CLOSE, 0);
    message.close.id = id;
    shmemi_client_request(client, &message, SHMEMI_WIRE_DONE, NULL,
                          shmemi_deadline_in(SHMEMI_REQUEST_NS));
}

/* Note the segment that came, so that detach closes it. On failure it is closed again. */
static shmem_status_t take(shmemi_client_t *client, const shmemi_wire_segment_t *answer, int fd,
                           shmemi_segment_t *segment)
{
    shmemi_opened_t *opened = NULL;
    shmem_status_t status = answer_check(client, answer, fd);
    if (status)
        goto close_fd;
    opened = SHMEMI_FAULT("node.client.opened") ? NULL : malloc(sizeof *opened);
    if (!opened) {
        status = shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory to note an open segment");
        goto tell;
    }
    opened->id = answer->id;
    status = shmemi_handle_init(&opened->handle, fd);
    if (status)
        goto free_opened;
    pthread_mutex_lock(&client->lock);
    opened->next = client->opened;
    client->opened = opened;
    pthread_mutex_unlock(&client->lock);
    *segment = (shmemi_segment_t){.id = answer->id,
                                  .offset = answer->offset,
                                  .bytes = answer->bytes,
                                  .first = answer->first,
                                  .page_bytes = answer->page_bytes,
                                  .fd = fd,
                                  .created = answer->created == 1,
                                  .rights = (int)answer->rights,
                                  .uid = answer->uid,
                                  .gid = answer->gid,
                                  .access = answer->access};
    return SHMEM_OK;
free_opened:
    free(opened);
tell:
    tell_closed(client, answer->id);
close_fd:
    if (fd >= 0)
        close(fd);
    return status;
}

static shmem_status_t ask_for_segment(shmemi_client_t *client, shmemi_wire_message_t *message,
                                      int64_t patience, shmemi_segment_t *segment)
{
    int fd = -1;
    shmem_status_t status = shmemi_client_request(client, message, SHMEMI_WIRE_SEGMENT, &fd,
                                                  shmemi_deadline_in(patience));
    if (status == SHMEM_OK)
        return take(client, &message->segment, fd, segment);
    if (status == SHMEM_ERR_LIMIT && message->header.type == SHMEMI_WIRE_SEGMENT) {
        char text[256]; /* the answer came without its descriptor: the server counts it as open */
        snprintf(text, sizeof text, "%s", shmem_error_detail()->text);
        tell_closed(client, message->segment.id);
        return shmemi_quiet(status, LAYER, "%s", text);
    }
    return status;
}

shmem_status_t shmemi_client_segment_create(shmemi_client_t *client,
                                            const shmemi_segment_request_t *request,
                                            shmemi_segment_t *segment)
{
    shmemi_wire_message_t message;
    if (request->name && !shmemi_wire_name_is_valid(request->name))
        return bad_name(request->name);
    uint64_t limit = request->limit > request->bytes ? request->limit : request->bytes;
    if (request->bytes == 0 || limit > SHMEMI_SPACE_BYTES)
        return shmemi_fail(request->bytes ? SHMEM_ERR_LIMIT : SHMEM_ERR_INVALID, LAYER,
                           "a segment of %llu bytes; 1 to %llu are possible",
                           (unsigned long long)limit, SHMEMI_SPACE_BYTES);
    shmemi_wire_begin(&message, SHMEMI_WIRE_SEGMENT_CREATE, 0);
    message.create.bytes = request->bytes;
    message.create.limit = request->limit;
    message.create.access = request->access;
    message.create.node = request->bind ? request->node : -1;
    message.create.kind = request->kind;
    message.create.huge = (uint32_t)request->huge;
    message.create.flags = (request->reserve ? SHMEMI_CREATE_RESERVE : 0u) |
                           (request->open_existing ? SHMEMI_CREATE_OPEN : 0u);
    if (request->name) {
        message.create.name_bytes = (uint32_t)strlen(request->name);
        memcpy(message.create.name, request->name, message.create.name_bytes);
    }
    int64_t patience = SHMEMI_REQUEST_NS;
    if (request->reserve)
        patience += (int64_t)(request->bytes * NS_PER_BYTE); /* bytes < 2^48: no overflow */
    return ask_for_segment(client, &message, patience, segment);
}

shmem_status_t shmemi_client_segment_open(shmemi_client_t *client, const char *name, int rights,
                                          shmemi_segment_t *segment)
{
    shmemi_wire_message_t message;
    if (!name || !shmemi_wire_name_is_valid(name))
        return bad_name(name);
    shmemi_wire_begin(&message, SHMEMI_WIRE_SEGMENT_OPEN, 0);
    message.open.name_bytes = (uint32_t)strlen(name);
    message.open.rights = (uint32_t)rights;
    memcpy(message.open.name, name, message.open.name_bytes);
    return ask_for_segment(client, &message, SHMEMI_REQUEST_NS, segment);
}

shmem_status_t shmemi_client_segment_grow(shmemi_client_t *client, const shmemi_segment_t *segment,
                                          uint64_t bytes)
{
    shmemi_wire_message_t message;
    uint64_t bounded = bytes < segment->bytes ? bytes : segment->bytes;
    shmemi_wire_begin(&message, SHMEMI_WIRE_SEGMENT_GROW, 0);
    message.grow.id = segment->id;
    message.grow.bytes = bytes;
    return shmemi_client_request(
        client, &message, SHMEMI_WIRE_DONE, NULL,
        shmemi_deadline_in(SHMEMI_REQUEST_NS + (int64_t)(bounded * NS_PER_BYTE)));
}

shmem_status_t shmemi_client_segment_unlink(shmemi_client_t *client, const char *name, uint64_t id)
{
    shmemi_wire_message_t message;
    if (!name || !shmemi_wire_name_is_valid(name))
        return bad_name(name);
    shmemi_wire_begin(&message, SHMEMI_WIRE_SEGMENT_UNLINK, 0);
    message.unlink.id = id;
    message.unlink.name_bytes = (uint32_t)strlen(name);
    memcpy(message.unlink.name, name, message.unlink.name_bytes);
    return shmemi_client_request(client, &message, SHMEMI_WIRE_DONE, NULL,
                                 shmemi_deadline_in(SHMEMI_REQUEST_NS));
}

static shmemi_opened_t *opened_remove(shmemi_client_t *client, const shmemi_segment_t *segment)
{
    shmemi_opened_t **link = &client->opened;
    while (*link && ((*link)->id != segment->id || (*link)->handle.fd != segment->fd))
        link = &(*link)->next;
    shmemi_opened_t *opened = *link;
    if (opened)
        *link = opened->next;
    return opened;
}

void shmemi_client_segment_close(shmemi_client_t *client, shmemi_segment_t *segment)
{
    if (!client || !segment || segment->fd < 0)
        return;
    bool is_child = client->fork_generation != shmemi_fork_generation();
    if (!is_child) /* in a child the lock may be held for ever, and nobody else is here */
        pthread_mutex_lock(&client->lock);
    shmemi_opened_t *opened = opened_remove(client, segment);
    if (!is_child)
        pthread_mutex_unlock(&client->lock);
    if (!opened)
        return;
    shmemi_handle_close(&opened->handle);
    free(opened);
    if (!is_child && !shmemi_client_server_lost(client))
        tell_closed(client, segment->id);
    segment->fd = -1;
}

uint64_t shmemi_client_names_gone(const shmemi_client_t *client)
{
    /* SYNC names-gone: acquire, pairs with release in shmemi_table_unlink() */
    return atomic_load_explicit(&client->roster->names_gone, memory_order_acquire);
}

static shmem_status_t bad_list(shmemi_client_t *client)
{
    return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER,
                       "the server at %s answered with an impossible list of segments",
                       client->address);
}

/* One answer's entries into the caller's room. False: broken. */
static bool list_take(const shmemi_wire_entries_t *answer, shmemi_segment_entry_t *entries,
                      size_t room, size_t *found)
{
    if (answer->count > SHMEMI_WIRE_LISTED)
        return false;
    for (uint32_t i = 0; i < answer->count; i++, ++*found) {
        const shmemi_wire_entry_t *e = &answer->entries[i];
        if (e->kind >= SHMEMI_SEGMENT_KINDS || !memchr(e->name, 0, sizeof e->name))
            return false;
        if (*found >= room)
            continue;
        shmemi_segment_entry_t *out = &entries[*found];
        *out = (shmemi_segment_entry_t){.bytes = e->bytes,
                                        .first = e->first,
                                        .kind = (shmemi_segment_kind_t)e->kind,
                                        .uid = e->uid,
                                        .gid = e->gid,
                                        .access = e->access,
                                        .users = e->users};
        strcpy(out->name, e->name); /* both have SHMEMI_WIRE_NAME bytes */
    }
    return true;
}

shmem_status_t shmemi_client_segment_list(shmemi_client_t *client, const char *prefix,
                                          shmemi_segment_entry_t *entries, size_t room,
                                          size_t *count)
{
    shmemi_wire_message_t message;
    uint64_t cursor = 0, next;
    size_t found = 0, length = strlen(prefix);
    if (length > SHMEMI_NAME_MAX)
        return bad_name(prefix);
    do {
        shmemi_wire_begin(&message, SHMEMI_WIRE_SEGMENT_LIST, 0);
        message.list.cursor = cursor;
        message.list.prefix_bytes = (uint32_t)length;
        memcpy(message.list.prefix, prefix, length);
        shmem_status_t status = shmemi_client_request(client, &message, SHMEMI_WIRE_ENTRIES, NULL,
                                                      shmemi_deadline_in(SHMEMI_REQUEST_NS));
        if (status)
            return status;
        next = message.entries.cursor;
        if (!list_take(&message.entries, entries, room, &found) ||
            (next && cursor && next >= cursor)) /* ids descend: it ends */
            return bad_list(client);
        cursor = next;
    } while (cursor);
    *count = found;
    return SHMEM_OK;
}

shmem_status_t shmemi_client_counts(shmemi_client_t *client, shmemi_server_counts_t *counts)
{
    shmemi_wire_message_t message;
    shmemi_wire_begin(&message, SHMEMI_WIRE_STATUS, 0);
    shmem_status_t status = shmemi_client_request(client, &message, SHMEMI_WIRE_COUNTS, NULL,
                                                  shmemi_deadline_in(SHMEMI_REQUEST_NS));
    if (status)
        return status;
    const shmemi_wire_counts_t *c = &message.counts;
    *counts =
        (shmemi_server_counts_t){c->clients, c->suspects,         c->segments,    c->segment_bytes,
                                 c->deaths,  c->reclaimed_blocks, c->thread_limit};
    return SHMEM_OK;
}

shmem_status_t shmemi_client_grow(shmemi_client_t *client)
{
    shmemi_wire_message_t message;
    shmemi_wire_begin(&message, SHMEMI_WIRE_GROW_ROSTER, 0);
    return shmemi_client_request(client, &message, SHMEMI_WIRE_GROWN, NULL,
                                 shmemi_deadline_in(SHMEMI_REQUEST_NS));
}
