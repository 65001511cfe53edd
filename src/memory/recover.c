/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back what a client held: after its death (by the server, or by any client that runs out
 * of memory), and when it closes the pool.
 *
 * The holdings are found by walking the heads of the arena's blocks, whose records name their
 * owner. A block changes hands by compare-and-swap first: it is then cached by the caller, and
 * should the caller die as well, it is found again as the caller's. Each block is an operation of
 * its own.
 *
 *   Invariant  after a reclaim without error no record names the client
 */
#include "base/status.h"
#include "memory/pool.h"

#define LAYER "memory"

static bool is_wanted(const shmemi_reclaim_t *reclaim, uint64_t word)
{
    unsigned kind = shmemi_word_kind(word);
    if (kind != SHMEMI_PAGE_USED && kind != SHMEMI_PAGE_CACHED && kind != SHMEMI_PAGE_SPAN)
        return false;
    if (reclaim->owner)
        return shmemi_word_owner(word) == reclaim->owner;
    return !shmemi_roster_client_alive(reclaim->actor->roster, shmemi_word_slot(word),
                                       shmemi_word_epoch(word));
}

/* Give back the block at `page`; false in *gone: somebody else freed it meanwhile. */
static shmem_status_t take_back(shmemi_arena_t *arena, const shmemi_reclaim_t *reclaim,
                                uint32_t page, uint64_t word, uint32_t pages, bool *gone)
{
    *gone = true;
    if (shmemi_word_kind(word) == SHMEMI_PAGE_SPAN)
        return shmemi_span_dissolve_locked(arena, page);
    uint64_t mine = shmemi_owner(reclaim->actor->slot, reclaim->actor->epoch) | SHMEMI_PAGE_CACHED;
    /* SYNC page-word: acquire and release, pairs with acquire in look() and with a free that runs
     * at the same time */
    if (!atomic_compare_exchange_strong_explicit(&arena->page[page].word, &word, mine,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        *gone = false;
        return SHMEM_OK;
    }
    SHMEMI_KILL_POINT("memory.recover.claimed");
    return shmemi_buddy_free(arena, page, pages);
}

/* Where the walk goes on: behind the block that contains `page` now. */
static shmem_status_t skip(const shmemi_arena_t *arena, uint32_t page, uint64_t *next)
{
    uint32_t head;
    if (shmemi_buddy_locate(arena, page, &head)) {
        uint64_t word = shmemi_arena_get(&arena->page[head].word);
        *next = (uint64_t)head + shmemi_buddy_length(arena, head, word);
        return SHMEM_OK;
    }
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: page %u belongs to no block; shared memory was overwritten, make "
                       "a new pool",
                       arena->index, page);
}

static shmem_status_t walk_locked(shmemi_arena_t *arena, shmemi_reclaim_t *reclaim)
{
    for (uint64_t page = 0; page < arena->pages;) {
        uint32_t p = (uint32_t)page;
        /* SYNC page-word: acquire, pairs with release in shmemi_large_alloc() and others: the owner
         * is looked up in the roster after its name was read */
        uint64_t word = atomic_load_explicit(&arena->page[p].word, memory_order_acquire);
        bool gone = false;
        if (is_wanted(reclaim, word)) {
            uint32_t pages = shmemi_buddy_length(arena, p, word);
            shmem_status_t status = take_back(arena, reclaim, p, word, pages, &gone);
            if (status)
                return status;
            shmemi_arena_commit(arena);
            reclaim->blocks += gone;
            SHMEMI_KILL_POINT("memory.recover.block");
        }
        shmem_status_t status = skip(arena, p, &page);
        if (status)
            return status;
    }
    return SHMEM_OK;
}

shmem_status_t shmemi_recover_arena(shmemi_arena_t *arena, shmemi_reclaim_t *reclaim)
{
    shmem_status_t status = shmemi_arena_lock(arena, reclaim->actor, reclaim->deadline);
    if (status)
        return status;
    status = walk_locked(arena, reclaim);
    return shmemi_arena_unlock(arena, reclaim->actor, status);
}

uint64_t shmemi_recover_sweep(shmemi_pool_t *pool, bool always)
{
    shmemi_reclaim_t reclaim = {pool->actor, 0, SHMEMI_FOREVER, 0};
    /* SYNC roster-deaths: acquire, pairs with release in shmemi_roster_client_remove() */
    uint32_t deaths = atomic_load_explicit(&pool->actor->roster->deaths, memory_order_acquire);
    if (!always && atomic_load_explicit(&pool->deaths_swept, memory_order_relaxed) == deaths)
        return 0;
    for (uint32_t i = 0; i < pool->nodes; i++)
        shmemi_recover_arena(&pool->arenas[i].arena, &reclaim);
    atomic_store_explicit(&pool->deaths_swept, deaths, memory_order_relaxed);
    return reclaim.blocks;
}
