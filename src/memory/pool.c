/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of a pool but allocation (alloc.c): giving back, changing sizes, roots, and what
 * is told about a pool.
 */
#include <string.h>

#include "base/params.h"
#include "base/status.h"
#include "memory/grow.h"
#include "memory/owners.h"
#include "memory/quota.h"
#include "memory/request.h"

#define LAYER "memory"

static shmem_status_t last_status(void)
{
    return shmem_error_detail()->status;
}

void shmemi_pool_note_high(shmemi_pool_t *pool)
{
    shmemi_quota_note_high(pool);
    uint64_t used = 0;
    for (uint32_t i = 0; i < pool->nodes; i++)
        used += shmemi_arena_used(&pool->arenas[i].arena);
    uint64_t high = shmemi_arena_get(&pool->header->high_pages);
    while (used > high &&
           !atomic_compare_exchange_weak_explicit(&pool->header->high_pages, &high, used,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* ---- free ---- */

/* An object in a span of another thread or process. */
static shmem_status_t free_remote(shmemi_heap_t *heap, const shmemi_place_t *place, uint32_t index,
                                  const void *block)
{
    shmemi_pool_t *pool = heap->pool;
    shmemi_arena_t *arena = &pool->arenas[place->arena].arena;
    shmemi_span_t *span = &arena->span[place->chunk];
    _Atomic uint64_t *owners;
    shmem_status_t status = shmemi_owners_find(arena, span, &owners);
    const shmemi_object_t object = {arena,        pool->actor, pool->owner,
                                    place->chunk, index,       place->class};
    if (!status && owners)
        status = shmemi_owners_change(&object, pool->owner | pool->task | SHMEMI_OWNERS_FREEING);
    if (!status)
        status = shmemi_span_free_remote(span, index);
    if (status)
        return status == SHMEM_ERR_DOUBLE_FREE ? shmemi_place_double_free(block) : status;
    shmemi_stats_add(heap->stats, SHMEMI_STAT_frees, 1);
    shmemi_stats_add(heap->stats, SHMEMI_STAT_free_bytes, pool->classes.class[place->class].size);
    shmemi_stats_add(heap->stats, SHMEMI_STAT_remote_frees, 1);
    if (!owners)
        return SHMEM_OK;
    return shmemi_span_leave(arena, pool->actor, &pool->classes, place->class, place->chunk);
}

static shmem_status_t free_object(shmemi_heap_t *heap, const shmemi_place_t *place,
                                  const void *block)
{
    shmemi_arena_view_t *view = &heap->pool->arenas[place->arena];
    uint32_t index;
    shmem_status_t status = shmemi_place_object(heap->pool, place, block, &index);
    if (status)
        return status;
    if (atomic_load_explicit(&view->nodes[place->chunk].heap, memory_order_relaxed) == heap)
        return shmemi_place_double_free(block); /* or shmemi_pool_free() would have done it */
    return free_remote(heap, place, index, block);
}

/* All but an object in a span of the calling thread; and that, if the thread used another pool
 * before. */
static __attribute__((noinline)) shmem_status_t free_slow(shmemi_pool_t *pool, void *block)
{
    shmemi_place_t place;
    if (!block)
        return SHMEM_OK;
    if (shmemi_heap_cache.pool_id != pool->id)
        return shmemi_heap_lookup(pool) ? shmemi_pool_free(pool, block) : last_status();
    shmemi_heap_t *heap = shmemi_heap_cache.heap;
    shmem_status_t status = shmemi_place_of(pool, block, &place);
    if (status)
        return status;
    if (!place.in_span)
        return shmemi_large_free(heap, place.arena, place.offset);
    return free_object(heap, &place, block);
}

/* An allocated object of the span that `node` belongs to, one of the calling thread; `bits` are
 * those of its word now. */
static inline shmem_status_t put_back(shmemi_heap_t *heap, const shmemi_span_node_t *node,
                                      uint32_t object, uint64_t bits, void *block)
{
    shmemi_heap_class_t *c = node->home;
    shmemi_span_t *span = node->span;
    _Atomic uint64_t *word = &span->free[object / 64];
    uint64_t bit = (uint64_t)1 << object % 64;
    atomic_store_explicit(word, bits | bit, memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.slab.freed");
    shmemi_stats_t *stats = heap->stats;
    shmemi_stats_add(stats, SHMEMI_STAT_frees, 1);
    shmemi_stats_add(stats, SHMEMI_STAT_free_bytes, c->size);
    if (c->span == span) {
        --*c->used;
        c->hot = block;
        c->hot_bits = word;
        c->hot_mask = bit;
        return SHMEM_OK;
    }
    shmemi_pool_t *pool = heap->pool;
    uint32_t used = --pool->spans[node->offset >> pool->chunk_bits].used;
    if (__builtin_expect(!used || used == c->count - 1, 0))
        return shmemi_slab_settle(heap, c, node->first);
    return SHMEM_OK;
}

/* The same for a span some objects of which have owners. */
static __attribute__((noinline)) shmem_status_t
free_owned(shmemi_pool_t *pool, const shmemi_span_node_t *node, uint32_t object, void *block)
{
    _Atomic uint64_t *owners;
    shmem_status_t status =
        shmemi_owners_find(&pool->arenas[node->home->arena].arena, node->span, &owners);
    if (status || (owners && !shmemi_owners_drop(owners, object)))
        return free_slow(pool, block); /* which says what is wrong, or that somebody frees it */
    uint64_t bits = atomic_load_explicit(&node->span->free[object / 64], memory_order_relaxed);
    return put_back(shmemi_heap_cache.heap, node, object, bits, block);
}

/* The common case in line, without a call: an object in a span of the calling thread. Whatever is
 * unusual about it, also what is wrong, is left to free_slow(). */
shmem_status_t shmemi_pool_free(shmemi_pool_t *pool, void *block)
{
    shmemi_heap_t *heap = shmemi_heap_cache.heap;
    uint64_t offset = (uint64_t)((unsigned char *)block - pool->data);
    shmemi_span_node_t *node = &pool->spans[offset >> pool->chunk_bits];
    if (__builtin_expect(shmemi_heap_cache.pool_id != pool->id || offset >= pool->data_bytes ||
                             atomic_load_explicit(&node->heap, memory_order_relaxed) != heap,
                         0))
        return free_slow(pool, block);
    shmemi_heap_class_t *c = node->home;
    shmemi_span_t *span = node->span;
    uint64_t inside = offset - node->offset;
    uint32_t object = (uint32_t)(inside * c->magic >> 36), size = c->size;
    _Atomic uint64_t *word = &span->free[object / 64];
    uint64_t bit = (uint64_t)1 << object % 64;
    if (__builtin_expect((uint64_t)object * size != inside || object >= c->count, 0))
        return free_slow(pool, block);
    uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);
    uint64_t remote = atomic_load_explicit(&span->remote[object / 64], memory_order_relaxed);
    if (__builtin_expect(((bits | remote) & bit) != 0, 0))
        return free_slow(pool, block);
    if (__builtin_expect(atomic_load_explicit(&span->owners, memory_order_relaxed) != 0, 0))
        return free_owned(pool, node, object, block);
    return put_back(heap, node, object, bits, block);
}

shmem_status_t shmemi_pool_block_bytes(shmemi_pool_t *pool, const void *block, size_t *bytes)
{
    shmemi_place_t place;
    uint64_t found;
    if (!block || !bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "block_bytes of NULL, or into NULL");
    shmem_status_t status = shmemi_place_of(pool, block, &place);
    if (!status)
        status = shmemi_place_bytes(pool, &place, block, &found);
    if (!status)
        *bytes = found;
    return status;
}

/* ---- resize ---- */

static shmem_status_t resize_by_moving(shmemi_pool_t *pool, void **block, uint64_t old,
                                       size_t bytes)
{
    void *moved;
    shmem_status_t status = shmemi_pool_alloc_default(pool, bytes, &moved);
    if (status)
        return status;
    memcpy(moved, *block, old < bytes ? old : bytes);
    SHMEMI_KILL_POINT("memory.pool.moved");
    status = shmemi_pool_free(pool, *block);
    if (status)
        shmemi_pool_free(pool, moved);
    else
        *block = moved;
    return status;
}

shmem_status_t shmemi_pool_resize(shmemi_pool_t *pool, void **block, size_t bytes)
{
    shmemi_place_t place;
    shmemi_request_t request;
    uint64_t old;
    if (!block || !*block)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "resize of NULL: use alloc");
    shmemi_heap_t *heap = shmemi_heap_get(pool);
    if (!heap)
        return last_status();
    shmem_status_t status = shmemi_request_make(pool, bytes, 0, &request);
    if (!status)
        status = shmemi_place_of(pool, *block, &place);
    if (!status)
        status = shmemi_place_bytes(pool, &place, *block, &old);
    if (status)
        return status;
    uint64_t want = shmemi_request_size(pool, &request, request.class);
    if (want == old || (want < old && want > old / 2 && place.in_span))
        return SHMEM_OK;
    bool closed = atomic_load_explicit(&pool->header->destroyed, memory_order_relaxed);
    if (!place.in_span && request.class == SHMEMI_CLASSES && (want < old || !closed)) {
        status = shmemi_large_resize(heap, place.arena, place.offset, request.pages);
        shmemi_grow_tell(pool);
        if (status != SHMEM_ERR_NOMEM && status != SHMEM_ERR_QUOTA)
            return status;
    }
    status = resize_by_moving(pool, block, old, bytes);
    bool is_short = status == SHMEM_ERR_NOMEM || status == SHMEM_ERR_QUOTA;
    if (is_short && want < old) /* it fits where it is */
        status = place.in_span
                     ? SHMEM_OK
                     : shmemi_large_resize(heap, place.arena, place.offset, request.pages);
    return status;
}

/* ---- the rest ---- */

shmem_status_t shmemi_pool_trim(shmemi_pool_t *pool)
{
    shmemi_heap_t *heap = shmemi_heap_get(pool);
    if (!heap)
        return last_status();
    shmemi_heap_relieve(heap);
    return SHMEM_OK;
}

shmem_status_t shmemi_pool_root_set(shmemi_pool_t *pool, void *block)
{
    uint64_t root = 0;
    size_t bytes;
    if (!shmemi_self(pool->actor)) /* a forked child's, for one */
        return shmem_error_detail()->status;
    shmem_status_t status = block ? shmemi_pool_block_bytes(pool, block, &bytes) : SHMEM_OK;
    if (status)
        return status;
    if (block)
        root = (uint64_t)((unsigned char *)block - pool->data) + 1;
    /* SYNC pool-root: release, what the block holds is complete; pairs with acquire in
     * shmemi_pool_root_get() */
    atomic_store_explicit(&pool->header->root, root, memory_order_release);
    return SHMEM_OK;
}

shmem_status_t shmemi_pool_root_get(shmemi_pool_t *pool, void **block)
{
    if (!block)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "root of a pool into NULL");
    /* SYNC pool-root: acquire, pairs with release in shmemi_pool_root_set() */
    uint64_t root = atomic_load_explicit(&pool->header->root, memory_order_acquire);
    if (root > pool->data_bytes)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "the root of the pool lies behind its end; shared memory was "
                           "overwritten, make a new pool");
    *block = root ? pool->data + root - 1 : NULL;
    return SHMEM_OK;
}

/* ---- what there is ---- */

shmem_status_t shmemi_pool_describe(shmemi_pool_t *pool, shmem_pool_info_t *info)
{
    const shmemi_pool_header_t *h = pool->header;
    shmem_status_t status =
        shmemi_params_check(info, offsetof(shmem_pool_info_t, limit), "shmem_pool_info_t");
    if (status)
        return status;
    uint64_t used = 0, there = 0;
    for (uint32_t i = 0; i < pool->nodes; i++) {
        used += shmemi_arena_used(&pool->arenas[i].arena) << SHMEMI_PAGE_SHIFT;
        there += shmemi_arena_present(&pool->arenas[i].arena) << SHMEMI_PAGE_SHIFT;
    }
    const shmem_pool_info_t own = {
        .bytes = there,
        .used_bytes = used,
        .high_water = atomic_load_explicit(&h->high_pages, memory_order_relaxed)
                      << SHMEMI_PAGE_SHIFT,
        .fallbacks = atomic_load_explicit(&h->fallbacks, memory_order_relaxed),
        .nodes = (int)pool->nodes,
        .base = pool->data,
        .limit = pool->arena_bytes * pool->nodes,
        .bytes_high = atomic_load_explicit(&h->capacity_high, memory_order_relaxed)
                      << SHMEMI_PAGE_SHIFT,
        .grown = shmemi_pool_growths(pool),
        .returned_bytes = atomic_load_explicit(&h->returned_pages, memory_order_relaxed)
                          << SHMEMI_PAGE_SHIFT,
        .debug = h->debug != 0,
    };
    shmemi_params_give(info, &own, sizeof own);
    return SHMEM_OK;
}

shmem_status_t shmemi_pool_node_info(shmemi_pool_t *pool, int node, shmem_pool_node_info_t *info)
{
    shmem_status_t status = shmemi_params_check(info, sizeof *info, "shmem_pool_node_info_t");
    if (status)
        return status;
    if (node < 0 || (uint32_t)node >= pool->nodes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "node %d: the pool has nodes 0 to %u", node,
                           pool->nodes - 1);
    const shmemi_arena_t *arena = &pool->arenas[node].arena;
    const shmem_pool_node_info_t own = {
        .bytes = shmemi_arena_present(arena) << SHMEMI_PAGE_SHIFT,
        .limit = pool->arena_bytes,
        .used_bytes = shmemi_arena_used(arena) << SHMEMI_PAGE_SHIFT,
        .largest_free = (uint64_t)shmemi_buddy_largest(arena) << SHMEMI_PAGE_SHIFT,
        .span_bytes = shmemi_arena_get(&arena->control->state[SHMEMI_STATE_SPAN_PAGES])
                      << SHMEMI_PAGE_SHIFT,
        .pages_moved = atomic_load_explicit(&pool->places[node].moved, memory_order_relaxed),
    };
    shmemi_params_give(info, &own, sizeof own);
    return SHMEM_OK;
}
