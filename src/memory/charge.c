/* SPDX-License-Identifier: Apache-2.0 */
/* Charging and refunding; see charge.h. */
#include "memory/charge.h"

#include "base/status.h"

#define LAYER "memory"

static shmem_status_t corrupt(const shmemi_arena_t *arena, uint32_t task)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: a block is charged to task %u, which is none or holds less; "
                       "shared memory was overwritten, make a new pool",
                       arena->index, task);
}

shmem_status_t shmemi_charge_add(shmemi_arena_t *arena, uint32_t task, int64_t pages)
{
    if (task >= SHMEMI_TASKS)
        return corrupt(arena, task);
    shmemi_charge_t *charge = &arena->charge[task];
    uint64_t held = shmemi_arena_get(&charge->held);
    if (pages < 0 ? held < (uint64_t)-pages : held > arena->pages)
        return corrupt(arena, task);
    if (!shmemi_arena_set(arena, &charge->held, held + (uint64_t)pages))
        return corrupt(arena, task);
    SHMEMI_KILL_POINT("memory.charge.held");
    if (pages < 0)
        arena->given[task / 64] |= (uint64_t)1 << task % 64;
    else if (!shmemi_arena_set(arena, &charge->taken,
                               shmemi_arena_get(&charge->taken) + (uint64_t)pages))
        return corrupt(arena, task);
    return SHMEM_OK;
}

shmem_status_t shmemi_charge_move(shmemi_arena_t *arena, uint32_t page, uint32_t pages,
                                  uint32_t task)
{
    shmem_status_t status =
        shmemi_charge_add(arena, shmemi_charge_task(arena, page), -(int64_t)pages);
    if (!status)
        status = shmemi_charge_add(arena, task, pages);
    if (!status && !shmemi_arena_set(arena, &arena->page[page].link, (uint64_t)task << 32 | pages))
        status = corrupt(arena, task);
    SHMEMI_KILL_POINT("memory.charge.moved");
    return status;
}
