/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything lies in a pool's segment; see layout.h. */
#include "memory/layout.h"

#include "base/status.h"
#include "memory/classes.h"

#define LAYER "memory"

/*
 * Chunks, and with them spans, are small where the pool is: every thread may hold a span of each
 * class. All of these together take about 0.25, 1.3, or 4.5 MiB.
 */
static unsigned chunk_shift_for(uint64_t arena_pages)
{
    if (arena_pages < (8u << 20) >> SHMEMI_PAGE_SHIFT)
        return 0;
    return arena_pages < (512u << 20) >> SHMEMI_PAGE_SHIFT ? 2 : 4;
}

static shmem_status_t too_large(uint64_t bytes, uint32_t nodes)
{
    return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                       "pool of %llu bytes on %u nodes: an arena has at most 2^32 - 2 pages of "
                       "4 KiB; make several pools",
                       (unsigned long long)bytes, nodes);
}

/* Bookkeeping of one arena. The numbers are below 2^48: nothing here overflows. */
static void place_bookkeeping(shmemi_layout_t *l)
{
    uint64_t map_bytes = ((uint64_t)l->chunks + 7) / 8 * 8;
    l->charges = sizeof(shmemi_arena_control_t);
    l->map = l->charges + SHMEMI_TASKS * sizeof(shmemi_charge_t);
    l->pages = (l->map + map_bytes + 127) & ~(uint64_t)127;
    l->spans = (l->pages + sizeof(shmemi_page_t) * (uint64_t)l->arena_pages + 127) & ~(uint64_t)127;
    l->arena_stride =
        (l->spans + sizeof(shmemi_span_t) * (uint64_t)l->chunks + 4095) & ~(uint64_t)4095;
}

shmem_status_t shmemi_layout_compute(uint64_t bytes, uint32_t nodes, uint32_t chunk_shift,
                                     shmemi_layout_t *layout)
{
    bool known = chunk_shift <= 4 || chunk_shift == SHMEMI_CHUNK_BY_SIZE;
    if (!bytes || !nodes || nodes > SHMEMI_POOL_NODES || !known)
        return shmemi_fail(
            SHMEM_ERR_INVALID, LAYER,
            "pool of %llu bytes on %u nodes, chunks of 2^%u pages: want at least 1 byte, "
            "1 to %d nodes, at most 2^4 pages",
            (unsigned long long)bytes, nodes, chunk_shift, SHMEMI_POOL_NODES);
    uint64_t total = (bytes >> SHMEMI_PAGE_SHIFT) + ((bytes & (SHMEMI_PAGE - 1)) != 0);
    uint64_t arena_pages = total / nodes + (total % nodes != 0);
    if (arena_pages > UINT32_MAX - 1)
        return too_large(bytes, nodes);
    shmemi_layout_t l = {.nodes = nodes, .arena_pages = (uint32_t)arena_pages};
    l.chunk_shift = chunk_shift <= 4 ? chunk_shift : chunk_shift_for(arena_pages);
    l.chunks = (uint32_t)((arena_pages + (1u << l.chunk_shift) - 1) >> l.chunk_shift);
    l.tasks = sizeof(shmemi_pool_header_t);
    l.fallbacks = l.tasks + SHMEMI_TASKS * sizeof(shmemi_task_t);
    l.arenas = (l.fallbacks + 8ull * SHMEM_POOL_WHYS * nodes * nodes + 4095) & ~4095ull;
    place_bookkeeping(&l);
    uint64_t align = (uint64_t)SHMEMI_PAGE << shmemi_log2_ceil(arena_pages);
    if (align > SHMEMI_DATA_ALIGN)
        align = SHMEMI_DATA_ALIGN;
    l.data = (l.arenas + l.arena_stride * nodes + align - 1) & ~(align - 1);
    l.data_stride = ((arena_pages << SHMEMI_PAGE_SHIFT) + align - 1) & ~(align - 1);
    l.segment_bytes = l.data + l.data_stride * (nodes - 1) + (arena_pages << SHMEMI_PAGE_SHIFT);
    *layout = l;
    return SHMEM_OK;
}

uint32_t shmemi_layout_hash(void)
{
    const uint64_t parts[] = {SHMEMI_POOL_VERSION,    sizeof(shmemi_pool_header_t),
                              sizeof(shmemi_page_t),  sizeof(shmemi_span_t),
                              sizeof(shmemi_task_t),  sizeof(shmemi_charge_t),
                              SHMEMI_JOURNAL_ENTRIES, sizeof(shmemi_arena_control_t),
                              SHMEMI_STATE_HEADS,     SHMEMI_PAGE_SHIFT,
                              SHMEMI_CLASSES,         SHMEMI_POOL_NODES};
    uint64_t hash = 14695981039346656037ull;
    for (size_t i = 0; i < SHMEMI_COUNT(parts); i++)
        hash = (hash ^ parts[i]) * 1099511628211ull;
    return (uint32_t)(hash ^ hash >> 32);
}
