/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation: which allocator serves a request, and what is tried when none does at first sight.
 *
 * Sizes up to the largest class come from spans (slab.c), others are whole pages (large.c). A small
 * request for which no span can be had takes whole pages as well: NOMEM means that no page is free,
 * QUOTA that the task may not have one more.
 *
 * In this order: the arenas that the policy allows; the same without what the thread caches and the
 * dead left; growth of the wanted arena; the other arenas, each with its growth; single pages. An
 * arena that can grow does so before another node serves.
 *
 * Looking at all spans of the thread for what others freed takes as long as there are spans. Near
 * the end of a pool it is done once for every so many requests that single pages can serve instead,
 * in proportion to the spans looked at, once for each growth, and for each request that nothing can
 * serve.
 *
 *   Invariant  spans looked at, without those for shmemi_heap_listen() and shmemi_pool_trim(),
 *              <= SHMEMI_TRIM_SHARE * requests without a span + spans of the thread * (requests
 *              that nothing served + growths + spans that trims gave back + 1)
 */
#include <stdio.h>

#include "base/status.h"
#include "memory/grow.h"
#include "memory/quota.h"
#include "memory/request.h"

#define LAYER "memory"

enum { GROWTHS = 16 }; /* for one request: others may take what came */

/* A request on its way. */
typedef struct attempt {
    shmemi_heap_t *heap;
    const shmemi_request_t *r;
    uint32_t order[SHMEMI_POOL_NODES];
    uint32_t n;
    bool sure;            /* the last try: hints do not count */
    shmem_pool_why_t why; /* what was in the way in the wanted arena */
    char reason[160];     /* of the system, or "" */
} attempt_t;

static shmem_status_t last_status(void)
{
    return shmem_error_detail()->status;
}

static bool is_short(shmem_status_t status)
{
    return status == SHMEM_ERR_NOMEM || status == SHMEM_ERR_QUOTA;
}

/* ---- requests ---- */

shmem_status_t shmemi_request_make(const shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                   shmemi_request_t *r)
{
    if (!bytes || (alignment && !shmemi_is_power_of_two(alignment)) ||
        alignment > SHMEMI_DATA_ALIGN)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "a block of %zu bytes, alignment %zu: want at least 1 byte, and a power "
                           "of two up to 2 MiB",
                           bytes, alignment);
    uint64_t rounded;
    *r = (shmemi_request_t){bytes, alignment, 0, SHMEMI_CLASSES};
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

uint64_t shmemi_request_size(const shmemi_pool_t *pool, const shmemi_request_t *r, unsigned class)
{
    return class < SHMEMI_CLASSES ? pool->classes.class[class].size
                                  : (uint64_t)r->pages << SHMEMI_PAGE_SHIFT;
}

static inline void count_alloc(shmemi_heap_t *heap, uint64_t bytes)
{
    shmemi_stats_add(heap->stats, SHMEMI_STAT_allocs, 1);
    shmemi_stats_add(heap->stats, SHMEMI_STAT_alloc_bytes, bytes);
}

/* ---- arenas ---- */

static shmem_status_t try_arena(const attempt_t *a, unsigned class, uint32_t index, void **block)
{
    if (class < SHMEMI_CLASSES)
        return shmemi_slab_alloc(a->heap, index, class, block);
    return shmemi_large_alloc(a->heap, index, a->r->pages, a->r->alignment, a->sure, block);
}

static void served(const attempt_t *a, unsigned class, uint32_t index)
{
    shmemi_policy_served(a->heap, a->order[0], index, a->why);
    count_alloc(a->heap, shmemi_request_size(a->heap->pool, a->r, class));
}

/* The first n arenas in turn; the wanted one again without what the thread keeps there before
 * another. NOMEM, QUOTA without a detail. */
static shmem_status_t try_arenas(const attempt_t *a, unsigned class, uint32_t n, void **block)
{
    shmem_status_t status = SHMEM_ERR_NOMEM;
    for (uint32_t i = 0; i < n && status == SHMEM_ERR_NOMEM; i++) {
        status = try_arena(a, class, a->order[i], block);
        if (status == SHMEM_ERR_NOMEM && !i && n > 1 && shmemi_heap_flush(a->heap, a->order[0]))
            status = try_arena(a, class, a->order[0], block);
        if (!status)
            served(a, class, a->order[i]);
    }
    return status;
}

/* What a request takes from an arena: pages of a block, or of a span. */
static uint32_t pages_of(const attempt_t *a, unsigned class, unsigned *align)
{
    const shmemi_pool_t *pool = a->heap->pool;
    *align = pool->layout.chunk_shift;
    if (class < SHMEMI_CLASSES)
        return pool->classes.class[class].pages;
    bool more = a->r->alignment > SHMEMI_PAGE;
    *align = more ? shmemi_log2_floor(a->r->alignment) - SHMEMI_PAGE_SHIFT : 0;
    return a->r->pages;
}

/* Let an arena grow until it serves the request. */
static shmem_status_t try_growth(attempt_t *a, unsigned class, uint32_t i, void **block)
{
    unsigned align;
    uint32_t pages = pages_of(a, class, &align);
    shmem_pool_why_t why = SHMEM_POOL_WHY_FULL;
    shmem_status_t status = SHMEM_ERR_NOMEM;
    for (int n = 0; n < GROWTHS && status == SHMEM_ERR_NOMEM; n++) {
        if (!shmemi_grow_possible(a->heap->pool, a->order[i]))
            return status;
        status = shmemi_grow(a->heap->pool, a->order[i], pages, align, &why);
        if (why == SHMEM_POOL_WHY_NO_MEMORY)
            snprintf(a->reason, sizeof a->reason, "%.150s", shmem_error_detail()->text);
        if (!i)
            a->why = why;
        if (status)
            return status;
        status = try_arena(a, class, a->order[i], block);
        if (!status)
            served(a, class, a->order[i]);
    }
    return status;
}

/* All arenas, each with its growth before the next one. */
static shmem_status_t try_growths(attempt_t *a, unsigned class, void **block)
{
    shmem_status_t status = try_growth(a, class, 0, block);
    for (uint32_t i = 1; i < a->n && status == SHMEM_ERR_NOMEM; i++) {
        status = try_arena(a, class, a->order[i], block);
        if (!status)
            served(a, class, a->order[i]);
        else if (status == SHMEM_ERR_NOMEM)
            status = try_growth(a, class, i, block);
    }
    return status;
}

/* ---- when nothing serves at first sight ---- */

static shmem_status_t no_memory(const attempt_t *a)
{
    const shmemi_pool_t *pool = a->heap->pool;
    uint64_t largest = 0, free = 0, there = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const shmemi_arena_t *arena = &pool->arenas[a->order[i]].arena;
        uint64_t here = shmemi_buddy_largest(arena), used = shmemi_arena_used(arena);
        uint64_t present = shmemi_arena_present(arena);
        largest = here > largest ? here : largest;
        free += used < present ? present - used : 0;
        there += present;
    }
    return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER,
                        "asked for %llu bytes, alignment %llu; largest free block %llu, free in "
                        "all %llu bytes in %u of %u arenas, which have %llu and may grow to %llu: "
                        "%s",
                        (unsigned long long)a->r->bytes, (unsigned long long)a->r->alignment,
                        (unsigned long long)largest << SHMEMI_PAGE_SHIFT,
                        (unsigned long long)free << SHMEMI_PAGE_SHIFT, a->n, pool->nodes,
                        (unsigned long long)there << SHMEMI_PAGE_SHIFT,
                        (unsigned long long)(pool->arena_bytes * a->n),
                        a->reason[0] ? a->reason : "free blocks or make a larger pool");
}

/* A span if one can be had with little effort, single pages, a span with all effort, one by growth,
 * single pages again. */
static shmem_status_t try_harder(attempt_t *a, shmem_status_t status, bool growing, void **block)
{
    shmemi_heap_t *heap = a->heap;
    unsigned class = a->r->class;
    bool small = class < SHMEMI_CLASSES;
    uint32_t n = growing ? 1 : a->n;
    uint64_t found = shmemi_recover_sweep(heap->pool, false);
    for (uint32_t i = 0; i < a->n; i++)
        found += shmemi_heap_flush(heap, a->order[i]);
    if (found)
        status = try_arenas(a, class, n, block);
    if (is_short(status) && small && heap->wait && !(growing && status == SHMEM_ERR_NOMEM)) {
        heap->wait--;
        status = try_arenas(a, SHMEMI_CLASSES, n, block);
    }
    if (is_short(status) && shmemi_heap_relieve(heap))
        status = try_arenas(a, class, n, block);
    if (status == SHMEM_ERR_NOMEM && growing)
        status = try_growths(a, class, block);
    if (is_short(status) && small)
        status = try_arenas(a, SHMEMI_CLASSES, a->n, block);
    if (status == SHMEM_ERR_NOMEM && small && growing)
        status = try_growths(a, SHMEMI_CLASSES, block);
    return status;
}

static shmem_status_t destroyed(void)
{
    return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                       "the pool was destroyed (shmem_pool_destroy()): nothing is allocated from "
                       "it any more");
}

/* *delay and *ever as in shmemi_quota_refuse(). */
static shmem_status_t give_up(const attempt_t *a, shmem_status_t status, uint64_t *delay,
                              bool *ever)
{
    shmemi_pool_t *pool = a->heap->pool;
    if (status == SHMEM_ERR_NOMEM) {
        atomic_fetch_add_explicit(&pool->header->pressure, 1, memory_order_relaxed);
        return no_memory(a);
    }
    if (status != SHMEM_ERR_QUOTA)
        return status;
    shmemi_task_t *task = &pool->arenas[0].arena.tasks[pool->task];
    atomic_fetch_add_explicit(&task->pressure, 1, memory_order_relaxed);
    return shmemi_quota_refuse(pool, pool->task, a->r->pages, delay, ever);
}

static shmem_status_t serve(shmemi_heap_t *heap, const shmemi_request_t *r,
                            shmem_pool_policy_t policy, uint32_t wanted, void **block,
                            uint64_t *delay, bool *ever)
{
    attempt_t a = {.heap = heap, .r = r};
    shmemi_pool_t *pool = heap->pool;
    *delay = UINT64_MAX;
    *ever = true;
    if (atomic_load_explicit(&pool->header->destroyed, memory_order_relaxed))
        return destroyed();
    a.n = shmemi_policy_order(pool, policy, wanted, a.order);
    bool growing = false;
    for (uint32_t i = 0; i < a.n; i++)
        growing |= shmemi_grow_possible(pool, a.order[i]);
    shmem_status_t status = try_arenas(&a, r->class, growing ? 1 : a.n, block);
    if (is_short(status))
        status = try_harder(&a, status, growing, block);
    a.sure = true;
    if (status == SHMEM_ERR_NOMEM)
        status = try_arenas(&a, SHMEMI_CLASSES, a.n, block);
    return is_short(status) ? give_up(&a, status, delay, ever) : status;
}

/* ---- operations ---- */

/* With what a refusal says of waiting. */
static shmem_status_t allocate(shmemi_pool_t *pool, size_t bytes, size_t alignment,
                               shmem_pool_policy_t policy, int node, void **block, uint64_t *delay,
                               bool *ever)
{
    shmemi_request_t request;
    uint32_t wanted;
    if (!block)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "alloc: where to put the block is NULL");
    shmemi_heap_t *heap = shmemi_heap_get(pool);
    if (!heap)
        return last_status();
    shmem_status_t status = shmemi_request_make(pool, bytes, alignment, &request);
    if (!status)
        status = shmemi_policy_wanted(heap, policy, node, &wanted);
    if (status)
        return status;
    status = serve(heap, &request, policy, wanted, block, delay, ever);
    shmemi_grow_tell(pool);
    if (!status && policy == pool->policy && node == pool->node &&
        policy != SHMEM_POOL_INTERLEAVE && heap->arena[wanted] &&
        shmemi_policy_is_home(pool, wanted))
        heap->here = heap->arena[wanted];
    return status;
}

shmem_status_t shmemi_pool_alloc(shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                 shmem_pool_policy_t policy, int node, void **block)
{
    uint64_t delay;
    bool ever;
    return allocate(pool, bytes, alignment, policy, node, block, &delay, &ever);
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
    if (heap && block && bytes - 1 < pool->classes.largest && pool->nodes == 1 &&
        !atomic_load_explicit(&pool->header->destroyed, memory_order_relaxed)) {
        unsigned class = shmemi_class_of(bytes);
        if (!shmemi_slab_alloc(heap, 0, class, block)) {
            shmemi_grow_tell(pool);
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

/* ---- waiting ---- */

/* What a waiter sees change. */
typedef struct watch {
    const shmemi_pool_t *pool;
    uint64_t seen;
    int64_t until; /* then time alone may suffice */
    bool quota;    /* waits for its task's memory; else for any */
} watch_t;

static uint64_t returned(const watch_t *w)
{
    uint64_t sum = w->quota ? 0 : shmemi_pool_growths(w->pool);
    for (uint32_t i = 0; i < w->pool->nodes; i++) {
        const shmemi_arena_t *arena = &w->pool->arenas[i].arena;
        shmemi_charge_t *charge = &arena->charge[w->pool->task];
        sum += w->quota ? shmemi_arena_get(&charge->taken) - shmemi_arena_get(&charge->held)
                        : shmemi_arena_get(&arena->control->state[SHMEMI_STATE_RETURNED]);
    }
    return sum;
}

static bool may_succeed(void *arg)
{
    const watch_t *w = arg;
    return returned(w) != w->seen || shmemi_clock_now() >= w->until;
}

/* Until something comes back, tokens suffice, or a slice is over: then what died is swept. */
static void wait_a_while(shmemi_pool_t *pool, watch_t *w, uint64_t delay,
                         shmemi_deadline_t deadline)
{
    int64_t now = shmemi_clock_now(), slice = now + SHMEMI_SLICE_NS;
    w->until = delay < SHMEMI_SLICE_NS ? now + (int64_t)delay : slice;
    if (slice > deadline)
        slice = deadline;
    if (slice > w->until)
        slice = w->until;
    shmemi_bell_t *bell =
        w->quota ? &pool->arenas[0].arena.tasks[pool->task].bell : &pool->header->bell;
    const shmemi_wait_t wait = {may_succeed, NULL, w, SHMEMI_WAIT_BELL, pool->header};
    shmemi_wait_until(pool->actor, bell, &wait, slice);
}

shmem_status_t shmemi_pool_alloc_timed(shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                       int64_t timeout, void **block)
{
    shmemi_deadline_t deadline = shmemi_deadline_in(timeout);
    for (;;) {
        uint64_t delay = 0;
        bool ever = false; /* unless it is the pool that has no memory */
        watch_t quota = {.pool = pool, .quota = true}, room = {.pool = pool};
        quota.seen = returned(&quota);
        room.seen = returned(&room);
        shmem_status_t status =
            allocate(pool, bytes, alignment, pool->policy, pool->node, block, &delay, &ever);
        if (!is_short(status) || !ever)
            return status;
        if (shmemi_deadline_passed(deadline)) {
            char missing[256];
            snprintf(missing, sizeof missing, "%.250s", shmem_error_detail()->text);
            return shmemi_quiet(SHMEM_ERR_TIMEOUT, LAYER, "%s", missing);
        }
        wait_a_while(pool, status == SHMEM_ERR_QUOTA ? &quota : &room, delay, deadline);
    }
}
