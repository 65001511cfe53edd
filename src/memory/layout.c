/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything lies in a pool's segment; see layout.h. */
#include "memory/layout.h"

#include "base/status.h"
#include "memory/classes.h"

#define LAYER "memory"

/* Chunks are small where the pool is: a span must not take a large part of it. */
static unsigned chunk_shift_for(uint64_t arena_pages)
{
    if (arena_pages <= 256)
        return 0;
    return arena_pages < 16384 ? 2 : 4;
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
    l->map = sizeof(shmemi_arena_control_t);
    l->pages = (l->map + map_bytes + 127) & ~(uint64_t)127;
    l->spans = (l->pages + sizeof(shmemi_page_t) * (uint64_t)l->arena_pages + 127) & ~(uint64_t)127;
    l->arena_stride =
        (l->spans + sizeof(shmemi_span_t) * (uint64_t)l->chunks + 4095) & ~(uint64_t)4095;
}

shmem_status_t shmemi_layout_compute(uint64_t bytes, uint32_t nodes, shmemi_layout_t *layout)
{
    if (!bytes || !nodes || nodes > SHMEMI_POOL_NODES)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "pool of %llu bytes on %u nodes: want at least 1 byte and 1 to %d nodes",
                           (unsigned long long)bytes, nodes, SHMEMI_POOL_NODES);
    uint64_t total = (bytes >> SHMEMI_PAGE_SHIFT) + ((bytes & (SHMEMI_PAGE - 1)) != 0);
    uint64_t arena_pages = total / nodes + (total % nodes != 0);
    if (arena_pages > UINT32_MAX - 1)
        return too_large(bytes, nodes);
    shmemi_layout_t l = {.nodes = nodes, .arena_pages = (uint32_t)arena_pages};
    l.chunk_shift = chunk_shift_for(arena_pages);
    l.chunks = (uint32_t)((arena_pages + (1u << l.chunk_shift) - 1) >> l.chunk_shift);
    l.fallbacks = sizeof(shmemi_pool_header_t);
    l.arenas = (l.fallbacks + 8ull * nodes * nodes + 4095) & ~4095ull;
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
                              SHMEMI_JOURNAL_ENTRIES, sizeof(shmemi_arena_control_t),
                              SHMEMI_STATE_HEADS,     SHMEMI_PAGE_SHIFT,
                              SHMEMI_CLASSES,         SHMEMI_POOL_NODES};
    uint64_t hash = 14695981039346656037ull;
    for (size_t i = 0; i < SHMEMI_COUNT(parts); i++)
        hash = (hash ^ parts[i]) * 1099511628211ull;
    return (uint32_t)(hash ^ hash >> 32);
}
