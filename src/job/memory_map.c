/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapping symmetric memory, and finding objects from addresses.
 *
 * An object is mapped once per context; shmem_memory_map() counts. Creation leaves it mapped, which
 * the first map call takes over; the last unmap really unmaps.
 */
#include "job/memory.h"

#include "base/fault.h"
#include "base/status.h"
#include "job/arenas.h"
#include "job/mapped.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "job"

#define PEERS_POPULATE_MAX                                                                         \
    (1ull << 30) /* more than this of the peers' parts comes at first touch */

static shmem_status_t usable(shmem_memory_t memory)
{
    shmem_status_t status = shmemi_memory_check(memory);
    if (!status && !shmemi_self(memory->context->actor))
        status = shmem_error_detail()->status;
    return status;
}

static shmem_status_t map_locked(shmem_memory_t m)
{
    shmem_context_t c = m->context;
    if (SHMEMI_FAULT("job.memory.map"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "mapping symmetric memory: injected");
    if (!m->base) {
        void *address;
        shmem_status_t status =
            shmemi_space_map(m->segment.offset, m->segment.bytes, m->segment.fd, 1, &address);
        if (status)
            return status;
        m->base = address;
    }
    uint64_t bytes = m->stride * (uint64_t)c->size;
    int huge = m->stride < SHMEMI_SPACE_UNIT ? SHMEMI_HUGE_OFF : (int)c->settings.huge_pages;
    char *from = m->base;
    if (bytes > PEERS_POPULATE_MAX) {
        from = shmemi_memory_part(m, c->rank);
        bytes = m->stride;
    }
    return shmemi_segment_populate(from, bytes, huge, (int)c->settings.fill_threads, NULL);
}

/* Every PE's part is an arena. */
static void list_parts(const void *owner, shmemi_arena_taker_t *taker)
{
    const struct shmem_memory *m = owner;
    for (int r = 0; r < m->context->size; r++) {
        const shmemi_arena_range_t part = {shmemi_memory_part(m, r), m->stride, -1, r};
        taker->take(taker, &part);
    }
}

static shmem_status_t map_first_locked(shmem_memory_t m)
{
    shmem_status_t status = map_locked(m);
    if (status)
        return status;
    const shmemi_arena_source_t source = {.owner = m,
                                          .kind = SHMEM_ARENA_SYMMETRIC,
                                          .segment = &m->segment,
                                          .base = m->base,
                                          .writable = true,
                                          .list = list_parts};
    status = shmemi_arenas_add(m->context, &source);
    if (!status)
        shmemi_mapped_add_locked(m);
    return status;
}

void *shmem_memory_map(shmem_memory_t memory)
{
    if (usable(memory))
        return NULL;
    void *address = NULL;
    shmemi_mapped_lock();
    if (memory->maps || map_first_locked(memory) == SHMEM_OK) {
        memory->maps++;
        address = shmemi_memory_part(memory, memory->context->rank);
    }
    shmemi_mapped_unlock();
    return address;
}

static void unmap(void *base)
{
    shmemi_space_unmap(base);
}

shmem_status_t shmem_memory_unmap(void *address)
{
    shmemi_mapped_lock();
    shmem_memory_t m = shmemi_mapped_find_locked(address);
    shmem_status_t status = SHMEM_OK;
    if (!m)
        status = shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                             "no symmetric memory is mapped at %p: give what shmem_memory_map() "
                             "returned, once for each map",
                             address);
    else if (!shmemi_self(m->context->actor))
        status = shmem_error_detail()->status;
    else if (--m->maps == 0) {
        shmemi_mapped_remove_locked(m);
        shmemi_arenas_remove(m->context, m, unmap, m->base);
        m->base = NULL;
    }
    shmemi_mapped_unlock();
    return status;
}

size_t shmem_memory_bytes(shmem_memory_t memory)
{
    return shmemi_memory_check(memory) ? 0 : memory->bytes;
}

void *shmem_memory_address(shmem_memory_t memory, int rank)
{
    if (shmemi_memory_check(memory) || rank < 0 || rank >= memory->context->size ||
        !shmemi_memory_is_mapped(memory))
        return NULL;
    return shmemi_memory_part(memory, rank);
}

shmemi_place_t shmemi_memory_locate(shmem_context_t c, const void *buffer, uint64_t bytes)
{
    for (struct shmem_memory *m = c->memories; m; m = m->next) {
        if (!shmemi_memory_is_mapped(m))
            continue;
        uintptr_t part = (uintptr_t)shmemi_memory_part(m, c->rank), at = (uintptr_t)buffer;
        if (at >= part && shmemi_range_inside(at - part, bytes, m->bytes))
            return (shmemi_place_t){m->id, at - part};
    }
    return (shmemi_place_t){0, 0};
}

char *shmemi_memory_resolve(shmem_context_t c, const shmemi_place_t *place, int rank,
                            uint64_t bytes)
{
    for (struct shmem_memory *m = c->memories; m; m = m->next)
        if (m->id == place->id && shmemi_memory_is_mapped(m) &&
            shmemi_range_inside(place->offset, bytes, m->bytes))
            return shmemi_memory_part(m, rank) + place->offset;
    return NULL;
}
