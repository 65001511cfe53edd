/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for absent pages; see grow.h. */
#include "memory/grow.h"

#include "base/log.h"
#include "base/status.h"
#include "memory/absent.h"
#include "memory/keepers.h"
#include "os/segment.h"

#define LAYER "memory"

enum {
    UNIT_ORDER = 9,        /* what is returned: 2 MiB at least */
    STEP_MOST = 1 << 18,   /* 1 GiB, unless more is asked for */
    SHARE = 8,             /* of what is there: this part more */
    WAITS = 20,            /* slices for which others may be at work */
    STUCK_NS = 1000000000, /* before an arena is tried again at which others are stuck */
    PAUSE_NS = 100000000   /* before a system without memory is asked again */
};

/* A stretch of an arena on which this thread works. */
typedef struct work {
    shmemi_pool_t *pool;
    shmemi_arena_t *arena;
    shmemi_absent_owner_t owner;
    uint32_t begin, end;
} work_t;

static shmem_status_t work_init(work_t *w, shmemi_pool_t *pool, uint32_t index)
{
    const shmemi_self_t *self = shmemi_self(pool->actor);
    *w = (work_t){.pool = pool, .arena = &pool->arenas[index].arena};
    if (!self)
        return shmem_error_detail()->status;
    w->owner = (shmemi_absent_owner_t){pool->owner, self->row};
    return SHMEM_OK;
}

static uint64_t place_of(const work_t *w, uint32_t page)
{
    return (uint64_t)(w->arena->data - (unsigned char *)w->pool->header) +
           ((uint64_t)page << SHMEMI_PAGE_SHIFT);
}

static void raise_high(shmemi_pool_t *pool)
{
    uint64_t there = 0, high = shmemi_arena_get(&pool->header->capacity_high);
    for (uint32_t i = 0; i < pool->nodes; i++)
        there += shmemi_arena_present(&pool->arenas[i].arena);
    while (there > high &&
           !atomic_compare_exchange_weak_explicit(&pool->header->capacity_high, &high, there,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* ---- growing ---- */

/* Pages by which the arena should grow at least. */
static uint32_t step_of(const shmemi_arena_t *arena)
{
    uint64_t step = shmemi_arena_present(arena) / SHARE;
    if (step > STEP_MOST)
        step = STEP_MOST;
    if (step < SHMEMI_ABSENT_UNIT)
        step = SHMEMI_ABSENT_UNIT;
    return step < arena->pages ? (uint32_t)step : arena->pages;
}

static shmem_status_t claim(work_t *w, uint32_t pages, unsigned align)
{
    shmem_status_t status = shmemi_arena_lock(w->arena, w->pool->actor, SHMEMI_FOREVER);
    if (status)
        return status;
    status = shmemi_absent_claim(w->arena, w->owner, pages, align, step_of(w->arena), &w->begin,
                                 &w->end);
    return shmemi_arena_unlock(w->arena, w->pool->actor, status);
}

/* Memory for pages that this thread has claimed. */
static shmem_status_t reserve(const work_t *w, uint32_t page, uint32_t pages)
{
    const shmemi_pool_t *pool = w->pool;
    uint64_t bytes = (uint64_t)pages << SHMEMI_PAGE_SHIFT, offset = place_of(w, page);
    unsigned char *address = (unsigned char *)pool->header + offset;
    if (SHMEMI_FAULT("memory.grow.reserve"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "injected at memory.grow.reserve");
    int node = pool->places[w->arena->index].node;
    shmem_status_t status = shmemi_segment_afford(bytes);
    if (!status && node >= 0)
        status = shmemi_topo_afford(pool->topology, node, bytes);
    if (!status)
        status = shmemi_segment_reserve_huge(pool->fd, offset, bytes, pool->huge);
    SHMEMI_KILL_POINT("memory.grow.reserved");
    if (!status)
        status = shmemi_segment_populate(address, bytes, pool->huge, 1, NULL);
    if (!status && pool->lock_pages)
        shmemi_segment_lock(address, bytes); /* a refusal is logged there */
    if (status)
        shmemi_segment_release(pool->fd, offset, bytes);
    return status;
}

uint64_t shmemi_pool_growths(const shmemi_pool_t *pool)
{
    /* SYNC pool-growths: acquire, pairs with release in came_locked() */
    return atomic_load_explicit(&pool->header->growths, memory_order_acquire);
}

/* A piece has memory: it is free when the operation ends. Whoever then allocates from it, or lists
 * what is there, does so under the lock, and sees that something came. */
static shmem_status_t came_locked(const work_t *w, uint32_t page, uint32_t pages)
{
    shmem_status_t status = shmemi_absent_fill(w->arena, page, pages);
    if (status)
        return status;
    /* SYNC pool-growths: release, pairs with acquire in shmemi_pool_growths() */
    atomic_fetch_add_explicit(&w->pool->header->growths, 1, memory_order_release);
    SHMEMI_KILL_POINT("memory.grow.counted");
    return SHMEM_OK;
}

/* The lock is held: what became of a piece. */
static shmem_status_t finish_locked(const work_t *w, uint32_t page, uint32_t pages,
                                    shmem_status_t reserved)
{
    shmem_status_t status =
        reserved ? shmemi_absent_disown(w->arena, page, pages) : came_locked(w, page, pages);
    if (status)
        return status;
    shmemi_arena_commit(w->arena);
    SHMEMI_KILL_POINT("memory.grow.piece");
    shmemi_bell_ring(w->pool->actor->roster, &w->pool->header->bell, NULL);
    return SHMEM_OK;
}

/* Piece by piece. After the first one that cannot be had the others are disowned; *pieces: those
 * that came. */
static shmem_status_t fill(work_t *w, uint32_t *pieces, shmem_status_t *reserved)
{
    uint32_t page, pages;
    *reserved = SHMEM_OK;
    *pieces = 0;
    shmem_status_t status = shmemi_arena_lock(w->arena, w->pool->actor, SHMEMI_FOREVER);
    if (status)
        return status;
    while (!status && shmemi_absent_next(w->arena, w->owner, w->begin, w->end, &page, &pages)) {
        if (!*reserved) {
            shmemi_arena_unlock(w->arena, w->pool->actor, SHMEM_OK);
            *reserved = reserve(w, page, pages);
            status = shmemi_arena_lock(w->arena, w->pool->actor, SHMEMI_FOREVER);
            if (status)
                return status;
        }
        status = finish_locked(w, page, pages, *reserved);
        *pieces += !status && !*reserved;
        w->begin = page + pages;
    }
    return shmemi_arena_unlock(w->arena, w->pool->actor, status);
}

/* Others work on what this thread needs. */
typedef struct others {
    const shmemi_arena_t *arena;
    uint64_t present;
} others_t;

static bool others_got_on(void *arg)
{
    const others_t *o = arg;
    return shmemi_arena_present(o->arena) != o->present;
}

static bool wait_for_others(shmemi_pool_t *pool, uint32_t index)
{
    const shmemi_arena_t *arena = &pool->arenas[index].arena;
    others_t o = {arena, shmemi_arena_present(arena)};
    const shmemi_wait_t wait = {others_got_on, NULL, &o, SHMEMI_WAIT_BELL, pool->header};
    shmem_status_t status = shmemi_wait_until(pool->actor, &pool->header->bell, &wait,
                                              shmemi_deadline_in(SHMEMI_SLICE_NS));
    if (status)
        shmemi_recover_sweep(pool, false);
    return !status;
}

/* 0: none. */
static void pause_growth(shmemi_pool_t *pool, uint32_t index, int64_t ns)
{
    atomic_store_explicit(&pool->arenas[index].grow_after, ns ? shmemi_deadline_in(ns) : 0,
                          memory_order_relaxed);
}

shmem_status_t shmemi_grow(shmemi_pool_t *pool, uint32_t index, uint32_t pages, unsigned align,
                           shmem_pool_why_t *why)
{
    work_t w;
    uint32_t pieces;
    shmem_status_t reserved, status = work_init(&w, pool, index);
    for (int i = 0; !status && (status = claim(&w, pages, align)) == SHMEM_ERR_BUSY; i++) {
        status = SHMEM_OK;
        if (wait_for_others(pool, index))
            return SHMEM_OK;
        if (i == WAITS) {
            pause_growth(pool, index, STUCK_NS);
            return SHMEM_ERR_NOMEM;
        }
    }
    SHMEMI_KILL_POINT("memory.grow.claimed");
    if (!status)
        status = fill(&w, &pieces, &reserved);
    if (status)
        return status;
    if (pieces)
        raise_high(pool);
    pause_growth(pool, index, reserved ? PAUSE_NS : 0);
    if (!reserved)
        return SHMEM_OK;
    *why = SHMEM_POOL_WHY_NO_MEMORY;
    return pieces ? SHMEM_OK : SHMEM_ERR_NOMEM;
}

/* ---- shrinking ---- */

/* The arena with the most idle pages among those not `done`; false: none. */
static bool idlest(const shmemi_pool_t *pool, const bool *done, uint32_t *index)
{
    uint64_t best = 0;
    for (uint32_t i = 0; i < pool->nodes; i++) {
        const shmemi_arena_t *arena = &pool->arenas[i].arena;
        uint64_t there = shmemi_arena_present(arena), used = shmemi_arena_used(arena);
        if (done[i] || there <= used || there - used <= best)
            continue;
        best = there - used;
        *index = i;
    }
    return best != 0;
}

static shmem_status_t release(const work_t *w, uint32_t page, uint32_t pages)
{
    if (SHMEMI_FAULT("memory.shrink.release"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "injected at memory.shrink.release");
    return shmemi_segment_release(w->pool->fd, place_of(w, page),
                                  (uint64_t)pages << SHMEMI_PAGE_SHIFT);
}

/* Return one piece of at most `most` pages; *pages: how many. NOMEM: there is none. */
static shmem_status_t return_piece(work_t *w, uint32_t most, uint32_t *pages)
{
    const shmemi_actor_t *actor = w->pool->actor;
    unsigned least = w->arena->pages < SHMEMI_ABSENT_UNIT ? 0 : UNIT_ORDER;
    uint32_t page;
    shmem_status_t status = shmemi_arena_lock(w->arena, actor, SHMEMI_FOREVER);
    if (status)
        return status;
    status = shmemi_pool_is_kept(w->pool)
                 ? SHMEM_ERR_NOMEM
                 : shmemi_absent_withdraw(w->arena, w->owner, least, most, &page, pages);
    status = shmemi_arena_unlock(w->arena, actor, status);
    if (status)
        return status;
    SHMEMI_KILL_POINT("memory.shrink.withdrawn");
    shmem_status_t released = release(w, page, *pages);
    SHMEMI_KILL_POINT("memory.shrink.released");
    status = shmemi_arena_lock(w->arena, actor, SHMEMI_FOREVER);
    if (status)
        return status;
    status = released ? came_locked(w, page, *pages) : shmemi_absent_disown(w->arena, page, *pages);
    status = shmemi_arena_unlock(w->arena, actor, status);
    return status ? status : released;
}

static uint64_t present_pages(const shmemi_pool_t *pool)
{
    uint64_t there = 0;
    for (uint32_t i = 0; i < pool->nodes; i++)
        there += shmemi_arena_present(&pool->arenas[i].arena);
    return there;
}

shmem_status_t shmemi_pool_shrink(shmemi_pool_t *pool, uint64_t keep, uint64_t *returned)
{
    bool done[SHMEMI_POOL_NODES] = {false};
    uint64_t keep_pages = (keep >> SHMEMI_PAGE_SHIFT) + !!(keep & (SHMEMI_PAGE - 1));
    uint64_t there, sum = 0;
    uint32_t index = 0, pages;
    shmem_status_t status = shmemi_pool_trim(pool);
    if (!status && pool->fd < 0)
        status = shmemi_fail(SHMEM_ERR_STATE, LAYER,
                             "shrink: this process has no descriptor of the pool's segment");
    while (!status && (there = present_pages(pool)) > keep_pages && idlest(pool, done, &index)) {
        uint64_t most = there - keep_pages;
        work_t w;
        status = work_init(&w, pool, index);
        if (!status)
            status = return_piece(&w, most < UINT32_MAX ? (uint32_t)most : UINT32_MAX, &pages);
        if (status == SHMEM_ERR_NOMEM) {
            done[index] = true;
            status = SHMEM_OK;
        } else if (!status) {
            sum += pages;
            atomic_fetch_add_explicit(&pool->header->returned_pages, pages, memory_order_relaxed);
        }
    }
    if (returned && !status)
        *returned = sum << SHMEMI_PAGE_SHIFT;
    return status;
}
