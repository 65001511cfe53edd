/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the pages of an arena are charged to.
 *
 *   Invariant  charge[t].held = sum of the pages of USED, CACHED and SPAN blocks with tag t
 *
 * The tag of a block stands in its record's link; the counters are words of the arena's
 * bookkeeping. Both change with the block, under the arena's lock, in one operation of its journal:
 * so the refund goes to whoever was charged, whoever frees, once, and a kill changes nothing of
 * that.
 *
 * What it does not do: limits (quota.h).
 */
#ifndef SHMEMI_MEMORY_CHARGE_H
#define SHMEMI_MEMORY_CHARGE_H

#include "memory/arena.h"

/* The task that the block at `page` is charged to; not checked. */
static inline uint32_t shmemi_charge_task(const shmemi_arena_t *arena, uint32_t page)
{
    return (uint32_t)(shmemi_arena_get(&arena->page[page].link) >> 32);
}

/* Charge `pages` pages more to a task, or fewer. CORRUPT. */
shmem_status_t shmemi_charge_add(shmemi_arena_t *arena, uint32_t task, int64_t pages);

/* Charge the block of `pages` pages at `page` to `task` instead. CORRUPT. */
shmem_status_t shmemi_charge_move(shmemi_arena_t *arena, uint32_t page, uint32_t pages,
                                  uint32_t task);

#endif
