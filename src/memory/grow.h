/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing into absent pages and returning idle ones to the system.
 *
 * The segment has the size of the limit from the beginning and every process maps all of it: what
 * changes is which of its pages have memory. So nobody needs to be told.
 *
 *   Invariants  a page that is not in an ABSENT block has memory; but for a moment, one that is
 *               has none
 *               memory is reserved and returned outside of the lock, in pieces
 *
 * An arena grows by what is asked for, an eighth of what is there, and 2 MiB, whichever is most.
 */
#ifndef SHMEMI_MEMORY_GROW_H
#define SHMEMI_MEMORY_GROW_H

#include "memory/pool.h"

/*
 * Bring memory into an arena, for a block of `pages` pages on a border of 2^align pages. SHMEM_OK:
 * something came, perhaps by others; try the allocation again. NOMEM without a detail: the arena
 * cannot grow for that. NOMEM with the system's reason in the detail, and *why set to NO_MEMORY:
 * the system has no memory. CORRUPT, errors of the lock.
 */
shmem_status_t shmemi_grow(shmemi_pool_t *pool, uint32_t index, uint32_t pages, unsigned align,
                           shmem_pool_why_t *why);

/* Could it be worth a try? */
static inline bool shmemi_grow_possible(const shmemi_pool_t *pool, uint32_t index)
{
    const shmemi_arena_control_t *control = pool->arenas[index].arena.control;
    if (pool->fd < 0 ||
        !atomic_load_explicit(&control->state[SHMEMI_STATE_ABSENT], memory_order_relaxed))
        return false;
    int64_t after = atomic_load_explicit(&pool->arenas[index].grow_after, memory_order_relaxed);
    return !after || shmemi_clock_now() >= after;
}

/* Before a block is handed out, or becomes larger, that may lie in memory that came lately, through
 * whomever. */
static inline void shmemi_grow_tell(shmemi_pool_t *pool)
{
    uint64_t growths = shmemi_pool_growths(pool);
    if (!pool->grown || atomic_load_explicit(&pool->growths_told, memory_order_relaxed) == growths)
        return;
    pool->grown(pool->grown_arg);
    atomic_store_explicit(&pool->growths_told, growths, memory_order_relaxed);
}

#endif
