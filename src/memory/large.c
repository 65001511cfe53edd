/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of whole pages, and the few that each thread keeps for its next request.
 *
 *   FREE  --alloc (lock)-->  USED(client)  --claim (compare-and-swap)-->  CACHED(freeing client)
 *   CACHED  --alloc from the cache-->  USED      CACHED  --give back (lock)-->  FREE
 *
 *   Invariants  whoever turns USED into CACHED is the only one to touch the record afterwards: two
 *               frees of one block cannot both succeed, and the block's owner at every instant
 *               is the client whose death gives it back
 *               cached bytes of a thread <= the view's cache_limit; what is taken from the cache
 *               is charged to the view's task
 */
#include "base/status.h"
#include "memory/charge.h"
#include "memory/pool.h"
#include "memory/quota.h"

#define LAYER "memory"

static uint64_t bytes_of(uint32_t pages)
{
    return (uint64_t)pages << SHMEMI_PAGE_SHIFT;
}

/* ---- what is wrong with a pointer ---- */

/* The block that contains the page, looked up under the lock; kind INTERIOR: none. */
static shmem_status_t locate(shmemi_pool_t *pool, shmemi_arena_t *arena, uint32_t page,
                             uint32_t *head, unsigned *kind)
{
    shmem_status_t status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
    if (status)
        return status;
    uint64_t word;
    *kind = SHMEMI_PAGE_INTERIOR;
    if (shmemi_buddy_locate(arena, page, head, &word))
        *kind = shmemi_word_kind(word);
    return shmemi_arena_unlock(arena, pool->actor, SHMEM_OK);
}

static shmem_status_t diagnose(shmemi_pool_t *pool, shmemi_arena_t *arena, uint64_t offset)
{
    uint32_t page = (uint32_t)(offset >> SHMEMI_PAGE_SHIFT), head = 0;
    unsigned kind;
    const void *block = arena->data + offset;
    shmem_status_t status = locate(pool, arena, page, &head, &kind);
    if (status)
        return status;
    bool start = head == page && !(offset & (SHMEMI_PAGE - 1));
    if (kind == SHMEMI_PAGE_INTERIOR)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "arena %u: page %u belongs to no block; shared memory was overwritten, "
                           "make a new pool",
                           arena->index, page);
    if (start || kind == SHMEMI_PAGE_FREE)
        return shmemi_fail(SHMEM_ERR_DOUBLE_FREE, LAYER,
                           "%p is in free memory of the pool: freed before, or never allocated",
                           block);
    return shmemi_fail(SHMEM_ERR_INTERIOR_POINTER, LAYER,
                       "%p lies %llu bytes behind the start of a block; pass what alloc returned",
                       block, (unsigned long long)(offset - bytes_of(head)));
}

static shmem_status_t impossible(const shmemi_arena_t *arena, uint32_t page)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: the block at page %u has an impossible length; shared memory was "
                       "overwritten, make a new pool",
                       arena->index, page);
}

/* The word of a USED block that begins at `offset`. */
static shmem_status_t look(shmemi_pool_t *pool, shmemi_arena_t *arena, uint64_t offset,
                           uint64_t *word, uint32_t *pages)
{
    uint32_t page = (uint32_t)(offset >> SHMEMI_PAGE_SHIFT);
    /* SYNC page-word: acquire, pairs with release in shmemi_arena_set() and cache_take() */
    *word = atomic_load_explicit(&arena->page[page].word, memory_order_acquire);
    if (shmemi_word_kind(*word) != SHMEMI_PAGE_USED || offset & (SHMEMI_PAGE - 1))
        return diagnose(pool, arena, offset);
    *pages = shmemi_buddy_length(arena, page, *word);
    return *pages ? SHMEM_OK : impossible(arena, page);
}

/* USED by anybody -> CACHED by the calling client. */
static shmem_status_t claim(shmemi_pool_t *pool, shmemi_arena_t *arena, uint64_t offset,
                            uint64_t *before, uint32_t *pages)
{
    uint32_t page = (uint32_t)(offset >> SHMEMI_PAGE_SHIFT);
    uint64_t word, mine = pool->owner | SHMEMI_PAGE_CACHED;
    for (;;) {
        shmem_status_t status = look(pool, arena, offset, &word, pages);
        if (status)
            return status;
        /* SYNC page-word: acquire and release, pairs with acquire in look() */
        if (atomic_compare_exchange_strong_explicit(&arena->page[page].word, &word, mine,
                                                    memory_order_acq_rel, memory_order_relaxed))
            break;
    }
    *before = word;
    SHMEMI_KILL_POINT("memory.large.claimed");
    /* nobody else changes the length from here on; before, another free could have */
    *pages = shmemi_buddy_length(arena, page, mine);
    return *pages ? SHMEM_OK : impossible(arena, page);
}

/* ---- the thread's cache: oldest first ---- */

static void cache_remove(shmemi_heap_t *heap, uint32_t i)
{
    heap->cached_bytes -= bytes_of(heap->cache[i].pages);
    heap->cached--;
    for (; i < heap->cached; i++)
        heap->cache[i] = heap->cache[i + 1];
}

static bool cache_take(shmemi_heap_t *heap, uint32_t index, uint32_t pages, uint64_t alignment,
                       void **block)
{
    shmemi_arena_t *arena = &heap->pool->arenas[index].arena;
    for (uint32_t i = heap->cached; i-- > 0;) {
        shmemi_cached_block_t *b = &heap->cache[i];
        if (b->pages < pages || b->pages > pages + pages / 8 || b->arena != index ||
            bytes_of(b->page) & (alignment - 1) ||
            shmemi_charge_task(arena, b->page) != heap->pool->task)
            continue;
        uint32_t page = b->page;
        *block = arena->data + bytes_of(page);
        cache_remove(heap, i);
        /* SYNC page-word: release, pairs with acquire in look() */
        atomic_store_explicit(&arena->page[page].word, heap->pool->owner | SHMEMI_PAGE_USED,
                              memory_order_release);
        SHMEMI_KILL_POINT("memory.large.reused");
        return true;
    }
    return false;
}

/* A claimed block goes back to the arena. */
static shmem_status_t give_back(shmemi_pool_t *pool, const shmemi_cached_block_t *b)
{
    shmemi_arena_t *arena = &pool->arenas[b->arena].arena;
    shmem_status_t status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
    if (status)
        return status;
    status = shmemi_buddy_free(arena, b->page, b->pages);
    return shmemi_arena_unlock(arena, pool->actor, status);
}

static shmem_status_t cache_put(shmemi_heap_t *heap, const shmemi_cached_block_t *b)
{
    uint64_t bytes = bytes_of(b->pages), limit = heap->pool->cache_limit;
    shmemi_heap_listen(heap);
    const shmemi_arena_t *arena = &heap->pool->arenas[b->arena].arena;
    if (bytes > limit / 2 || shmemi_charge_task(arena, b->page) != heap->pool->task)
        return give_back(heap->pool, b);
    while (heap->cached == SHMEMI_CACHE_BLOCKS || heap->cached_bytes + bytes > limit) {
        shmemi_cached_block_t oldest = heap->cache[0];
        cache_remove(heap, 0);
        shmem_status_t status = give_back(heap->pool, &oldest);
        if (status)
            return status;
    }
    heap->cache[heap->cached++] = *b;
    heap->cached_bytes += bytes;
    return SHMEM_OK;
}

static void flush_one(shmemi_heap_t *heap, uint32_t i)
{
    shmemi_cached_block_t block = heap->cache[i];
    cache_remove(heap, i);
    SHMEMI_KILL_POINT("memory.large.flush");
    give_back(heap->pool, &block);
}

uint32_t shmemi_large_flush(shmemi_heap_t *heap, uint32_t index)
{
    uint32_t before = heap->cached;
    for (uint32_t i = before; i-- > 0;)
        if (heap->cache[i].arena == index)
            flush_one(heap, i);
    return before - heap->cached;
}

uint32_t shmemi_large_flush_all(shmemi_heap_t *heap)
{
    uint32_t before = heap->cached;
    while (heap->cached)
        flush_one(heap, heap->cached - 1);
    return before;
}

/* ---- operations ---- */

/* From the arena. NOMEM without a detail. */
static shmem_status_t take(shmemi_pool_t *pool, shmemi_arena_t *arena, uint32_t pages,
                           uint64_t alignment, bool sure, uint32_t *page)
{
    unsigned align = alignment > SHMEMI_PAGE ? shmemi_log2_floor(alignment) - SHMEMI_PAGE_SHIFT : 0;
    unsigned order = shmemi_log2_ceil(pages);
    if (!sure && !shmemi_arena_may_have(arena, order > align ? order : align))
        return SHMEM_ERR_NOMEM;
    shmem_status_t status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
    if (status)
        return status;
    status =
        shmemi_buddy_alloc(arena, pages, align, pool->owner | SHMEMI_PAGE_USED, pool->task, page);
    return shmemi_arena_unlock(arena, pool->actor, status);
}

shmem_status_t shmemi_large_alloc(shmemi_heap_t *heap, uint32_t index, uint32_t pages,
                                  uint64_t alignment, bool sure, void **block)
{
    shmemi_pool_t *pool = heap->pool;
    shmemi_arena_t *arena = &pool->arenas[index].arena;
    uint32_t page;
    bool entered;
    if (cache_take(heap, index, pages, alignment, block))
        return SHMEM_OK;
    shmem_status_t status = shmemi_quota_enter(pool, pool->task, pages, &entered);
    if (status)
        return status;
    status = take(pool, arena, pages, alignment, sure, &page);
    shmemi_quota_leave(pool, pool->task, entered);
    if (status)
        return status;
    SHMEMI_KILL_POINT("memory.large.taken");
    shmemi_pool_note_high(pool);
    *block = arena->data + bytes_of(page);
    return SHMEM_OK;
}

shmem_status_t shmemi_large_free(shmemi_heap_t *heap, uint32_t index, uint64_t offset)
{
    shmemi_arena_t *arena = &heap->pool->arenas[index].arena;
    shmemi_cached_block_t b = {index, (uint32_t)(offset >> SHMEMI_PAGE_SHIFT), 0};
    uint64_t before;
    shmem_status_t status = claim(heap->pool, arena, offset, &before, &b.pages);
    if (status)
        return status;
    shmemi_stats_add(heap->stats, SHMEMI_STAT_frees, 1);
    shmemi_stats_add(heap->stats, SHMEMI_STAT_free_bytes, bytes_of(b.pages));
    return cache_put(heap, &b);
}

shmem_status_t shmemi_large_bytes(shmemi_pool_t *pool, uint32_t index, uint64_t offset,
                                  uint64_t *bytes)
{
    uint64_t word;
    uint32_t pages;
    shmem_status_t status = look(pool, &pool->arenas[index].arena, offset, &word, &pages);
    if (!status)
        *bytes = bytes_of(pages);
    return status;
}

/* ---- owners ---- */

/* The caller becomes the owner, and, if it `moves`, his task is charged for the block, in the same
 * operation: undone together if he is killed before it ends, but for the owner's word; then the
 * block is his, charged to the task that it was. *again: what the caller saw of the block was not
 * so, or changed meanwhile. */
static shmem_status_t hold_locked(shmemi_pool_t *pool, shmemi_arena_t *arena, uint32_t page,
                                  uint32_t pages, uint64_t word, bool moves, bool *again)
{
    *again = shmemi_arena_get(&arena->page[page].word) != word ||
             shmemi_buddy_length(arena, page, word) != pages ||
             (shmemi_charge_task(arena, page) != pool->task) != moves;
    if (*again)
        return SHMEM_OK;
    shmem_status_t status = moves ? shmemi_charge_move(arena, page, pages, pool->task) : SHMEM_OK;
    /* SYNC page-word: acquire and release, pairs with acquire in look() */
    *again = !status && !atomic_compare_exchange_strong_explicit(
                            &arena->page[page].word, &word, pool->owner | SHMEMI_PAGE_USED,
                            memory_order_acq_rel, memory_order_relaxed);
    if (!status && *again)
        status = shmemi_arena_rollback(arena);
    SHMEMI_KILL_POINT("memory.large.held");
    return status;
}

static shmem_status_t refused(shmemi_pool_t *pool, uint32_t pages, shmem_status_t status)
{
    uint64_t delay;
    bool ever;
    return status == SHMEM_ERR_QUOTA ? shmemi_quota_refuse(pool, pool->task, pages, &delay, &ever)
                                     : status;
}

/* Whom a block is charged to is certain only under the lock: another may just be holding it. */
static shmem_status_t hold(shmemi_heap_t *heap, shmemi_arena_t *arena, uint32_t page,
                           uint32_t pages, uint64_t word, bool *again)
{
    shmemi_pool_t *pool = heap->pool;
    bool entered = false, moves = shmemi_charge_task(arena, page) != pool->task;
    SHMEMI_KILL_POINT("memory.large.holding");
    shmem_status_t status =
        moves ? shmemi_quota_enter(pool, pool->task, pages, &entered) : SHMEM_OK;
    if (status == SHMEM_ERR_QUOTA && shmemi_heap_relieve(heap))
        status = shmemi_quota_enter(pool, pool->task, pages, &entered);
    if (status)
        return refused(pool, pages, status);
    status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
    if (!status) {
        status = hold_locked(pool, arena, page, pages, word, moves, again);
        status = shmemi_arena_unlock(arena, pool->actor, status);
    }
    shmemi_quota_leave(pool, pool->task, entered);
    return status;
}

shmem_status_t shmemi_large_change(shmemi_heap_t *heap, uint32_t index, uint64_t offset,
                                   uint64_t to)
{
    shmemi_pool_t *pool = heap->pool;
    shmemi_arena_t *arena = &pool->arenas[index].arena;
    uint32_t page = (uint32_t)(offset >> SHMEMI_PAGE_SHIFT), pages;
    for (bool again = true; again;) {
        uint64_t word;
        shmem_status_t status = look(pool, arena, offset, &word, &pages);
        if (!status && to != SHMEMI_OWNER_POOL)
            status = hold(heap, arena, page, pages, word, &again);
        else if (!status)
            /* SYNC page-word: acquire and release, pairs with acquire in look() */
            again = !atomic_compare_exchange_strong_explicit(
                &arena->page[page].word, &word, to | SHMEMI_PAGE_USED, memory_order_acq_rel,
                memory_order_relaxed);
        if (status)
            return status;
    }
    SHMEMI_KILL_POINT("memory.large.changed");
    return SHMEM_OK;
}

/* ---- sizes ---- */

/* A block that was claimed to be resized is somebody's again. Whose it was keeps it, if he still
 * lives, when nothing came of it, and when another task than the caller's is charged for it: then
 * closing the caller's view would not find it. Under the lock, so that who gives back what the dead
 * had, which begins after they are known to be dead, finds all that was left to them here. */
static void settle_locked(shmemi_pool_t *pool, shmemi_arena_t *arena, uint32_t page,
                          uint64_t before, bool failed)
{
    uint64_t after = pool->owner | SHMEMI_PAGE_USED;
    if ((failed || shmemi_charge_task(arena, page) != pool->task) &&
        (shmemi_word_owner(before) == SHMEMI_OWNER_POOL ||
         shmemi_roster_client_alive(pool->actor->roster, shmemi_word_slot(before),
                                    shmemi_word_epoch(before))))
        after = before;
    SHMEMI_KILL_POINT("memory.large.settling");
    /* SYNC page-word: release, pairs with acquire in look() */
    atomic_store_explicit(&arena->page[page].word, after, memory_order_release);
}

/* The lock is held. The block has its new length for good before it is anybody's. */
static shmem_status_t resize_locked(shmemi_pool_t *pool, shmemi_arena_t *arena,
                                    const shmemi_cached_block_t *b, uint32_t pages, uint64_t before)
{
    shmem_status_t status = shmemi_buddy_resize(arena, b->page, b->pages, pages);
    SHMEMI_KILL_POINT("memory.large.resized");
    if (status)
        shmemi_arena_rollback(arena);
    else
        shmemi_arena_commit(arena);
    settle_locked(pool, arena, b->page, before, status != SHMEM_OK);
    return status;
}

/* What is charged to another task does not grow: the caller's task pays for a new block. */
static shmem_status_t resize_claimed(shmemi_pool_t *pool, shmemi_arena_t *arena,
                                     const shmemi_cached_block_t *b, uint32_t pages,
                                     uint64_t before)
{
    bool entered = false, grows = pages > b->pages;
    shmem_status_t allowed = SHMEM_OK;
    if (grows && shmemi_charge_task(arena, b->page) != pool->task)
        allowed = SHMEM_ERR_NOMEM;
    else if (grows)
        allowed = shmemi_quota_enter(pool, pool->task, pages - b->pages, &entered);
    shmem_status_t status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
    if (!status) {
        status = allowed;
        if (allowed)
            settle_locked(pool, arena, b->page, before, true);
        else
            status = resize_locked(pool, arena, b, pages, before);
        status = shmemi_arena_unlock(arena, pool->actor, status);
    }
    if (!allowed)
        shmemi_quota_leave(pool, pool->task, entered);
    return status;
}

shmem_status_t shmemi_large_resize(shmemi_heap_t *heap, uint32_t index, uint64_t offset,
                                   uint32_t pages)
{
    shmemi_pool_t *pool = heap->pool;
    shmemi_arena_t *arena = &pool->arenas[index].arena;
    shmemi_cached_block_t b = {index, (uint32_t)(offset >> SHMEMI_PAGE_SHIFT), 0};
    uint64_t before;
    shmem_status_t status = claim(pool, arena, offset, &before, &b.pages);
    if (!status)
        status = resize_claimed(pool, arena, &b, pages, before);
    if (status)
        return status;
    if (pages < b.pages) {
        shmemi_stats_add(heap->stats, SHMEMI_STAT_free_bytes, bytes_of(b.pages - pages));
    } else {
        shmemi_stats_add(heap->stats, SHMEMI_STAT_alloc_bytes, bytes_of(pages - b.pages));
        shmemi_pool_note_high(pool);
    }
    return SHMEM_OK;
}
