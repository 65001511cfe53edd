/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changing the owner of a block: to the pool (give), to the caller (hold).
 *
 * Blocks of whole pages have their owner in their record (large.c), small ones in the words of
 * their span (owners.h), which are made here when the first one is needed.
 */
#include "base/status.h"
#include "memory/charge.h"
#include "memory/grow.h"
#include "memory/owners.h"
#include "memory/quota.h"

#define LAYER "memory"

/* ---- the words of a span ---- */

static shmem_status_t words_take(shmemi_pool_t *pool, const shmemi_place_t *place,
                                 const void *block, uint32_t task)
{
    shmemi_arena_t *arena = &pool->arenas[place->arena].arena;
    uint32_t first;
    unsigned class;
    shmem_status_t status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
    if (status)
        return status;
    if (shmemi_charge_task(arena, place->chunk << arena->chunk_shift) != task ||
        !shmemi_span_find(arena, place->chunk, &first, &class) || first != place->chunk ||
        class != place->class)
        status = shmemi_place_double_free(block); /* its owner died: the span is gone */
    else
        status = shmemi_owners_create_locked(arena, first);
    return shmemi_arena_unlock(arena, pool->actor, status);
}

/* The page is charged to the span's task, whoever asks. */
static shmem_status_t words_make(shmemi_pool_t *pool, const shmemi_place_t *place,
                                 const void *block)
{
    const shmemi_arena_t *arena = &pool->arenas[place->arena].arena;
    uint32_t task = shmemi_charge_task(arena, place->chunk << arena->chunk_shift);
    bool entered, ever;
    uint64_t delay;
    if (task >= SHMEMI_TASKS)
        return shmemi_place_double_free(block);
    shmem_status_t status = shmemi_quota_enter(pool, task, 1, &entered);
    if (status)
        return status == SHMEM_ERR_QUOTA ? shmemi_quota_refuse(pool, task, 1, &delay, &ever)
                                         : status;
    status = words_take(pool, place, block, task);
    shmemi_quota_leave(pool, task, entered);
    return status;
}

static shmem_status_t no_page(uint32_t arena)
{
    return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER,
                        "arena %u has no free page of 4 KiB for the owners of small blocks: free "
                        "blocks or make a larger pool",
                        arena);
}

static shmem_status_t words_need(shmemi_heap_t *heap, const shmemi_place_t *place,
                                 const void *block)
{
    shmemi_pool_t *pool = heap->pool;
    shmem_pool_why_t why;
    shmem_status_t status = words_make(pool, place, block);
    if (status == SHMEM_ERR_NOMEM &&
        shmemi_recover_sweep(pool, false) + shmemi_heap_relieve(heap) != 0)
        status = words_make(pool, place, block);
    if (status == SHMEM_ERR_NOMEM && shmemi_grow_possible(pool, place->arena) &&
        !shmemi_grow(pool, place->arena, 1, 0, &why))
        status = words_make(pool, place, block);
    SHMEMI_KILL_POINT("memory.give.words");
    return status == SHMEM_ERR_NOMEM ? no_page(place->arena) : status;
}

/* ---- both kinds of blocks ---- */

/* `to`: SHMEMI_OWNER_POOL or the caller. */
static shmem_status_t change_object(shmemi_heap_t *heap, const shmemi_place_t *place,
                                    const void *block, uint64_t to)
{
    shmemi_pool_t *pool = heap->pool;
    shmemi_arena_t *arena = &pool->arenas[place->arena].arena;
    const shmemi_span_t *span = &arena->span[place->chunk];
    shmemi_object_t object = {arena, pool->actor, pool->owner, place->chunk, 0, place->class};
    uint32_t head = place->chunk << arena->chunk_shift;
    bool is_owner = shmemi_word_owner(shmemi_arena_get(&arena->page[head].word)) == to &&
                    shmemi_charge_task(arena, head) == pool->task;
    _Atomic uint64_t *words = NULL;
    shmem_status_t status = shmemi_place_object(pool, place, block, &object.index);
    if (!status && shmemi_span_is_free(span, object.index))
        status = shmemi_place_double_free(block);
    if (!status)
        status = shmemi_owners_find(arena, span, &words);
    if (!status && !words && is_owner)
        return SHMEM_OK;
    if (!status && !words)
        status = words_need(heap, place, block);
    if (status)
        return status;
    if (to != SHMEMI_OWNER_POOL)
        to |= pool->task;
    status = shmemi_owners_change(&object, to);
    return status == SHMEM_ERR_DOUBLE_FREE ? shmemi_place_double_free(block) : status;
}

static shmem_status_t change(shmemi_pool_t *pool, const void *block, uint64_t to)
{
    shmemi_place_t place;
    shmemi_heap_t *heap = shmemi_heap_get(pool);
    if (!heap)
        return shmem_error_detail()->status;
    if (!block)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "give or hold of NULL");
    shmem_status_t status = shmemi_place_of(pool, block, &place);
    if (status)
        return status;
    if (place.in_span)
        return change_object(heap, &place, block, to);
    return shmemi_large_change(heap, place.arena, place.offset, to);
}

shmem_status_t shmemi_pool_give(shmemi_pool_t *pool, void *block)
{
    return change(pool, block, SHMEMI_OWNER_POOL);
}

shmem_status_t shmemi_pool_hold(shmemi_pool_t *pool, void *block)
{
    return change(pool, block, pool->owner);
}
