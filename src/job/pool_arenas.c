/* SPDX-License-Identifier: Apache-2.0 */
/* What engines get to know of a pool: the memory that it has, node by node. */
#include "job/arenas.h"
#include "job/pool_handle.h"
#include "memory/keepers.h"

static void list_present(const void *owner, shmemi_arena_taker_t *taker)
{
    const shmemi_pool_view_t *view = owner;
    shmemi_pool_t *pool = view->core;
    for (uint32_t i = 0; i < pool->nodes; i++) {
        uint64_t start = pool->layout.data + i * pool->layout.data_stride;
        uint64_t end = start + pool->arena_bytes, from = start, offset, length;
        while (from < end && shmemi_pool_present(pool, from, &offset, &length) && offset < end) {
            uint64_t first = offset < start ? start : offset, behind = offset + length;
            behind = behind > end ? end : behind;
            const shmemi_arena_range_t range = {(char *)view->memory + first, behind - first,
                                                (int)i, -1};
            taker->take(taker, &range);
            from = behind;
        }
    }
}

static void keep(const void *owner, bool keep)
{
    const shmemi_pool_view_t *view = owner;
    shmemi_pool_keep(view->core, keep);
}

static void grown(void *owner)
{
    const shmemi_pool_view_t *view = owner;
    shmemi_arenas_grown(view->context, view);
}

shmem_status_t shmemi_pool_arenas_add(shmemi_pool_view_t *view)
{
    view->core->growths_told = shmemi_pool_growths(view->core);
    view->core->grown_arg = view;
    view->core->grown = grown;
    const shmemi_arena_source_t source = {.owner = view,
                                          .kind = SHMEM_ARENA_POOL,
                                          .name = view->name,
                                          .segment = &view->segment,
                                          .base = view->memory,
                                          .writable = true,
                                          .list = list_present,
                                          .keep = keep};
    return shmemi_arenas_add(view->context, &source);
}
