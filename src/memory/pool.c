/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of a pool: which allocator serves a request, which block a pointer names.
 *
 * Sizes up to the largest class come from spans (slab.c), others are whole pages (large.c). A small
 * request for which no span can be had takes whole pages as well: NOMEM means that no page is free.
 *
 * Looking at all spans of the thread for what others freed takes as long as there are spans. Near
 * the end of a pool it is done once for every so many requests that single pages can serve instead,
 * in proportion to the spans looked at, and for each one that nothing can serve.
 *
 *   Invariant  spans looked at, without those for shmemi_heap_listen() and shmemi_pool_trim(),
 *              <= SHMEMI_TRIM_SHARE * requests without a span + spans of the thread * (requests
 *              that nothing served + spans that trims gave back + 1)
 */
#include <string.h>

#include "base/status.h"
#include "memory/owners.h"
#include "memory/pool.h"

#define LAYER "memory"

/* A checked request. */
typedef struct request {
    uint64_t bytes, alignment;
    uint32_t pages;
    unsigned class; /* SHMEMI_CLASSES: none, whole pages */
} request_t;

static shmem_status_t last_status(void)
{
    return shmem_error_detail()->status;
}

void shmemi_pool_note_high(shmemi_pool_t *pool)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < pool->nodes; i++)
        used += shmemi_arena_used(&pool->arenas[i].arena);
    uint64_t high = shmemi_arena_get(&pool->header->high_pages);
    while (used > high &&
           !atomic_compare_exchange_weak_explicit(&pool->header->high_pages, &high, used,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* ---- allocation ---- */

static shmem_status_t request_make(const shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                   request_t *r)
{
    if (!bytes || (alignment && !shmemi_is_power_of_two(alignment)) ||
        alignment > SHMEMI_DATA_ALIGN)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "a block of %zu bytes, alignment %zu: want at least 1 byte, and a power "
                           "of two up to 2 MiB",
                           bytes, alignment);
    uint64_t rounded;
    *r = (request_t){bytes, alignment, 0, SHMEMI_CLASSES};
    if (alignment < SHMEMI_CACHE_LINE)
        r->alignment = SHMEMI_CACHE_LINE;
    if (bytes > pool->arena_bytes || !shmemi_round_up(bytes, r->alignment, &rounded) ||
        (r->alignment > SHMEMI_PAGE && r->alignment > pool->arena_bytes))
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "a block of %zu bytes, alignment %zu: an arena of this pool has %llu "
                           "bytes",
                           bytes, alignment, (unsigned long long)pool->arena_bytes);
    r->pages = (uint32_t)((r->bytes + SHMEMI_PAGE - 1) >> SHMEMI_PAGE_SHIFT);
    if (rounded <= pool->classes.largest && r->alignment <= SHMEMI_PAGE)
        r->class = shmemi_class_of(rounded);
    return SHMEM_OK;
}

/* Bytes that a block of this request has, for the statistics. */
static uint64_t request_size(const shmemi_pool_t *pool, const request_t *r, unsigned class)
{
    return class < SHMEMI_CLASSES ? pool->classes.class[class].size
                                  : (uint64_t)r->pages << SHMEMI_PAGE_SHIFT;
}

static inline void count_alloc(shmemi_heap_t *heap, uint64_t bytes)
{
    shmemi_stats_add(heap->stats, SHMEMI_STAT_allocs, 1);
    shmemi_stats_add(heap->stats, SHMEMI_STAT_alloc_bytes, bytes);
}

static shmem_status_t try_arena(shmemi_heap_t *heap, const request_t *r, unsigned class,
                                uint32_t index, void **block)
{
    if (class < SHMEMI_CLASSES)
        return shmemi_slab_alloc(heap, index, class, block);
    return shmemi_large_alloc(heap, index, r->pages, r->alignment, block);
}

/* Try the arenas in turn; the wanted one again without what the thread keeps there before another.
 * NOMEM without a detail. */
static shmem_status_t try_arenas(shmemi_heap_t *heap, const request_t *r, unsigned class,
                                 const uint32_t *order, uint32_t n, void **block)
{
    shmem_status_t status = SHMEM_ERR_NOMEM;
    for (uint32_t i = 0; i < n && status == SHMEM_ERR_NOMEM; i++) {
        status = try_arena(heap, r, class, order[i], block);
        if (status == SHMEM_ERR_NOMEM && !i && n > 1 && shmemi_heap_flush(heap, order[0]))
            status = try_arena(heap, r, class, order[0], block);
        if (status)
            continue;
        shmemi_policy_served(heap, order[0], order[i], SHMEM_POOL_WHY_FULL);
        count_alloc(heap, request_size(heap->pool, r, class));
    }
    return status;
}

static shmem_status_t no_memory(const shmemi_pool_t *pool, const request_t *r,
                                const uint32_t *order, uint32_t n)
{
    uint64_t largest = 0, free = 0;
    for (uint32_t i = 0; i < n; i++) {
        const shmemi_arena_t *arena = &pool->arenas[order[i]].arena;
        uint64_t here = shmemi_buddy_largest(arena), used = shmemi_arena_used(arena);
        largest = here > largest ? here : largest;
        free += used < arena->pages ? arena->pages - used : 0;
    }
    return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER,
                        "asked for %llu bytes, alignment %llu; largest free block %llu, free in "
                        "all %llu bytes in %u of %u arenas: free blocks or make a larger pool",
                        (unsigned long long)r->bytes, (unsigned long long)r->alignment,
                        (unsigned long long)largest << SHMEMI_PAGE_SHIFT,
                        (unsigned long long)free << SHMEMI_PAGE_SHIFT, n, pool->nodes);
}

/* Nothing at first sight. A span if one can be had with little effort, single pages, a span with
 * all effort, single pages again. */
static shmem_status_t try_harder(shmemi_heap_t *heap, const request_t *r, const uint32_t *order,
                                 uint32_t n, void **block)
{
    bool small = r->class < SHMEMI_CLASSES;
    shmem_status_t status = SHMEM_ERR_NOMEM;
    uint64_t found = shmemi_recover_sweep(heap->pool, false);
    for (uint32_t i = 0; i < n; i++)
        found += shmemi_heap_flush(heap, order[i]);
    if (found)
        status = try_arenas(heap, r, r->class, order, n, block);
    if (status == SHMEM_ERR_NOMEM && small && heap->wait) {
        heap->wait--;
        status = try_arenas(heap, r, SHMEMI_CLASSES, order, n, block);
    }
    if (status == SHMEM_ERR_NOMEM && shmemi_heap_relieve(heap))
        status = try_arenas(heap, r, r->class, order, n, block);
    if (status == SHMEM_ERR_NOMEM && small)
        status = try_arenas(heap, r, SHMEMI_CLASSES, order, n, block);
    return status;
}

static shmem_status_t alloc_request(shmemi_heap_t *heap, const request_t *r,
                                    shmem_pool_policy_t policy, uint32_t wanted, void **block)
{
    uint32_t order[SHMEMI_POOL_NODES];
    shmemi_pool_t *pool = heap->pool;
    uint32_t n = shmemi_policy_order(pool, policy, wanted, order);
    shmem_status_t status = try_arenas(heap, r, r->class, order, n, block);
    if (status != SHMEM_ERR_NOMEM)
        return status;
    status = try_harder(heap, r, order, n, block);
    if (status != SHMEM_ERR_NOMEM)
        return status;
    atomic_fetch_add_explicit(&pool->header->pressure, 1, memory_order_relaxed);
    return no_memory(pool, r, order, n);
}

shmem_status_t shmemi_pool_alloc(shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                 shmem_pool_policy_t policy, int node, void **block)
{
    request_t request;
    uint32_t wanted;
    if (!block)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "alloc: where to put the block is NULL");
    shmemi_heap_t *heap = shmemi_heap_get(pool);
    if (!heap)
        return last_status();
    shmem_status_t status = request_make(pool, bytes, alignment, &request);
    if (!status)
        status = shmemi_policy_wanted(heap, policy, node, &wanted);
    if (status)
        return status;
    status = alloc_request(heap, &request, policy, wanted, block);
    if (!status && policy == pool->policy && node == pool->node &&
        policy != SHMEM_POOL_INTERLEAVE && heap->arena[wanted] &&
        shmemi_policy_is_home(pool, wanted))
        heap->here = heap->arena[wanted];
    return status;
}

shmem_status_t shmemi_pool_alloc_aligned(shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                         void **block)
{
    return shmemi_pool_alloc(pool, bytes, alignment, pool->policy, pool->node, block);
}

/* By the pool's policy, but not from the thread's cache. */
static __attribute__((noinline)) shmem_status_t alloc_slow(shmemi_pool_t *pool, size_t bytes,
                                                           void **block)
{
    shmemi_heap_t *heap = shmemi_heap_get(pool);
    if (heap && block && bytes - 1 < pool->classes.largest && pool->nodes == 1) {
        unsigned class = shmemi_class_of(bytes);
        if (!shmemi_slab_alloc(heap, 0, class, block)) {
            count_alloc(heap, pool->classes.class[class].size);
            heap->here = heap->arena[0];
            return SHMEM_OK;
        }
    }
    return shmemi_pool_alloc(pool, bytes, 0, pool->policy, pool->node, block);
}

/* The common case in line, without a call. */
shmem_status_t shmemi_pool_alloc_default(shmemi_pool_t *pool, size_t bytes, void **block)
{
    if (__builtin_expect(
            shmemi_heap_cache.pool_id != pool->id || !block || bytes - 1 >= SHMEMI_SMALL_MAX, 0))
        return alloc_slow(pool, bytes, block);
    shmemi_heap_t *heap = shmemi_heap_cache.heap;
    shmemi_heap_class_t *c = &heap->here->class[pool->classes.of[(bytes - 1) / 128]];
    if (__builtin_expect(!shmemi_slab_take_hot(c, block) && !shmemi_slab_take(c, block), 0))
        return alloc_slow(pool, bytes, block);
    count_alloc(heap, c->size);
    return SHMEM_OK;
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
    if (!status && owners)
        status = shmemi_owners_claim(span, owners, index, pool->owner | pool->task);
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

/* An object in a span of the calling thread, some objects of which have owners: it belongs to the
 * span's client again. False: somebody frees it. */
static __attribute__((noinline)) bool drop_owner(shmemi_pool_t *pool, const shmemi_heap_class_t *c,
                                                 const shmemi_span_t *span, uint32_t object)
{
    _Atomic uint64_t *owners;
    shmem_status_t status = shmemi_owners_find(&pool->arenas[c->arena].arena, span, &owners);
    return !status && (!owners || shmemi_owners_drop(owners, object));
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
    if (__builtin_expect(atomic_load_explicit(&span->owners, memory_order_relaxed) != 0, 0) &&
        !drop_owner(pool, c, span, object))
        return free_slow(pool, block);
    atomic_store_explicit(word, bits | bit, memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.slab.freed");
    shmemi_stats_t *stats = heap->stats;
    shmemi_stats_add(stats, SHMEMI_STAT_frees, 1);
    shmemi_stats_add(stats, SHMEMI_STAT_free_bytes, size);
    if (c->span == span) {
        --*c->used;
        c->hot = block;
        c->hot_bits = word;
        c->hot_mask = bit;
        return SHMEM_OK;
    }
    uint32_t used = --pool->spans[node->offset >> pool->chunk_bits].used;
    if (__builtin_expect(!used || used == c->count - 1, 0))
        return shmemi_slab_settle(heap, c, node->first);
    return SHMEM_OK;
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
    request_t request;
    uint64_t old;
    if (!block || !*block)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "resize of NULL: use alloc");
    shmemi_heap_t *heap = shmemi_heap_get(pool);
    if (!heap)
        return last_status();
    shmem_status_t status = request_make(pool, bytes, 0, &request);
    if (!status)
        status = shmemi_place_of(pool, *block, &place);
    if (!status)
        status = shmemi_place_bytes(pool, &place, *block, &old);
    if (status)
        return status;
    uint64_t want = request_size(pool, &request, request.class);
    if (want == old || (want < old && want > old / 2 && place.in_span))
        return SHMEM_OK;
    if (!place.in_span && request.class == SHMEMI_CLASSES) {
        status = shmemi_large_resize(heap, place.arena, place.offset, request.pages);
        if (status != SHMEM_ERR_NOMEM)
            return status;
    }
    status = resize_by_moving(pool, block, old, bytes);
    if (status == SHMEM_ERR_NOMEM && want < old) /* it fits where it is */
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

shmem_status_t shmemi_pool_describe(shmemi_pool_t *pool, shmem_pool_info_t *info)
{
    if (!info || info->size < sizeof *info)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "pool info: NULL, or its size is not set to %zu", sizeof *info);
    uint64_t used = 0;
    for (uint32_t i = 0; i < pool->nodes; i++)
        used += shmemi_arena_used(&pool->arenas[i].arena) << SHMEMI_PAGE_SHIFT;
    *info = (shmem_pool_info_t){
        .size = info->size,
        .bytes = pool->arena_bytes * pool->nodes,
        .used_bytes = used,
        .high_water = shmemi_arena_get(&pool->header->high_pages) << SHMEMI_PAGE_SHIFT,
        .fallbacks = shmemi_arena_get(&pool->header->fallbacks),
        .nodes = (int)pool->nodes,
        .base = pool->data,
    };
    return SHMEM_OK;
}
