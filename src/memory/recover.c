/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back what a client held: after its death (by the server, or by any client that runs out
 * of memory), and when it closes the pool.
 *
 * The holdings are found by walking the heads of the arena's blocks, whose records name their
 * owner, and the owners' words of the spans that have some. A block of whole pages changes hands by
 * compare-and-swap first: it is then cached by the caller, and should the caller die as well, it is
 * found again as the caller's. So does a small object of a span with owners: it is then being freed
 * by the caller. What others hold of the client's spans, or was given, keeps its span, which
 * becomes the pool's. Each block is an operation of its own, and the lock is free for others after
 * every so many: a large arena has millions.
 *
 *   Invariant  after a reclaim without error no record names the client, and no word of an
 *              allocated object
 */
#include "base/status.h"
#include "memory/charge.h"
#include "memory/owners.h"
#include "memory/pool.h"

#define LAYER "memory"

/* A turn under the lock, about a millisecond or two: blocks looked at, and what giving one back
 * counts besides. */
enum { TURN = 1 << 14, GIVEN = 4 };

/* Does this reclaim concern what this owner has, charged to this task? */
static bool is_concerned(const shmemi_reclaim_t *reclaim, uint64_t owner, uint32_t task)
{
    if (reclaim->owner)
        return owner == reclaim->owner && (reclaim->task == SHMEMI_TASKS || reclaim->task == task);
    return owner != SHMEMI_OWNER_POOL &&
           !shmemi_actor_sees(reclaim->actor, shmemi_word_slot(owner), shmemi_word_epoch(owner));
}

static bool is_wanted(const shmemi_arena_t *arena, const shmemi_reclaim_t *reclaim, uint32_t page,
                      uint64_t word)
{
    unsigned kind = shmemi_word_kind(word);
    if (kind == SHMEMI_PAGE_ABSENT)
        return shmemi_word_owner(word) && reclaim->task == SHMEMI_TASKS &&
               is_concerned(reclaim, shmemi_word_owner(word), SHMEMI_TASKS);
    if (kind != SHMEMI_PAGE_USED && kind != SHMEMI_PAGE_CACHED && kind != SHMEMI_PAGE_SPAN)
        return false;
    return is_concerned(reclaim, shmemi_word_owner(word), shmemi_charge_task(arena, page));
}

/* ---- small objects ---- */

/* What a walk over an arena works on. */
typedef struct walk {
    shmemi_arena_t *arena;
    shmemi_reclaim_t *reclaim;
    uint64_t mine; /* the caller, as an owner */
    int32_t left;  /* of the turn */
    shmemi_classes_t classes;
} walk_t;

/* Free object `i` if it belongs to the client; `whole`: also if it belongs to the span's. */
static void free_object(walk_t *w, shmemi_span_t *span, _Atomic uint64_t *words, uint32_t i,
                        bool whole)
{
    /* SYNC owners-word: acquire, pairs with release in swap() */
    uint64_t word = atomic_load_explicit(&words[i], memory_order_acquire);
    uint64_t bit = (uint64_t)1 << i % 64;
    if (word ? !is_concerned(w->reclaim, shmemi_word_owner(word), word & SHMEMI_OWNERS_TASK)
             : !whole)
        return;
    /* SYNC span-remote: acquire, if the span's thread took the bit away the word is clear, too, and
     * the exchange fails; pairs with release in collect_word() */
    uint64_t bits = atomic_load_explicit(&span->remote[i / 64], memory_order_acquire) |
                    atomic_load_explicit(&span->free[i / 64], memory_order_relaxed);
    if (bits & bit)
        return;
    /* SYNC owners-word: acquire and release, pairs with acquire in read_word() */
    if (!atomic_compare_exchange_strong_explicit(&words[i], &word, w->mine | SHMEMI_OWNERS_FREEING,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    SHMEMI_KILL_POINT("memory.recover.object");
    shmemi_span_free_remote(span, i);
    w->reclaim->blocks += !whole;
}

/* The span at `page`: what the client holds in it, and, if `whole`, the span itself. */
static shmem_status_t take_objects(walk_t *w, uint32_t page, bool whole)
{
    shmemi_arena_t *arena = w->arena;
    uint32_t chunk = page >> arena->chunk_shift, first;
    shmemi_span_t *span = &arena->span[chunk];
    unsigned class;
    _Atomic uint64_t *words;
    shmem_status_t status = shmemi_owners_find(arena, span, &words);
    if (status)
        return status;
    if (!words)
        return whole ? shmemi_span_dissolve_locked(arena, page) : SHMEM_OK;
    if (!shmemi_span_find(arena, chunk, &first, &class) || first != chunk)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "arena %u: impossible span at chunk %u; shared memory was overwritten, "
                           "make a new pool",
                           arena->index, chunk);
    const shmemi_class_t *c = &w->classes.class[class];
    w->left -= (int32_t)c->count;
    for (uint32_t i = 0; i < c->count; i++)
        free_object(w, span, words, i, whole);
    const uint64_t ours = SHMEMI_OWNER_POOL | SHMEMI_PAGE_SPAN;
    if (whole) {
        atomic_store_explicit(&span->owner, 0, memory_order_relaxed);
        if (!shmemi_arena_set(arena, &arena->page[page].word, ours))
            return SHMEM_ERR_CORRUPT;
        shmemi_arena_commit(arena);
        SHMEMI_KILL_POINT("memory.recover.kept");
    }
    /* SYNC span-left: full fence, the span is the pool's before we look at the bits; pairs with the
     * one in shmemi_span_leave() */
    shmemi_full_fence();
    if (shmemi_arena_get(&arena->page[page].word) == ours && shmemi_span_is_empty(span, c))
        return shmemi_span_dissolve_locked(arena, page);
    return SHMEM_OK;
}

/* ---- whole pages ---- */

/* Give back the block at `page`; false in *gone: somebody else freed it meanwhile. */
static shmem_status_t take_pages(walk_t *w, uint32_t page, uint64_t word, bool *gone)
{
    uint64_t mine = w->mine | SHMEMI_PAGE_CACHED;
    uint32_t pages = shmemi_buddy_length(w->arena, page, word);
    /* SYNC page-word: acquire and release, pairs with acquire in look() and with a free that runs
     * at the same time */
    if (!atomic_compare_exchange_strong_explicit(&w->arena->page[page].word, &word, mine,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        *gone = false;
        return SHMEM_OK;
    }
    SHMEMI_KILL_POINT("memory.recover.claimed");
    return shmemi_buddy_free(w->arena, page, pages);
}

static shmem_status_t take_back(walk_t *w, uint32_t page, uint64_t word)
{
    bool gone = true, wanted = is_wanted(w->arena, w->reclaim, page, word);
    unsigned kind = shmemi_word_kind(word);
    shmem_status_t status = SHMEM_OK;
    if (!wanted && kind != SHMEMI_PAGE_SPAN)
        return SHMEM_OK;
    if (kind == SHMEMI_PAGE_SPAN)
        status = take_objects(w, page, wanted);
    else if (kind == SHMEMI_PAGE_ABSENT) /* it was growing into it, or shrinking */
        status = shmemi_arena_set(w->arena, &w->arena->page[page].word, SHMEMI_PAGE_ABSENT)
                     ? SHMEM_OK
                     : SHMEM_ERR_CORRUPT;
    else
        status = take_pages(w, page, word, &gone);
    if (status)
        return status;
    shmemi_arena_commit(w->arena);
    w->reclaim->blocks += wanted && gone;
    w->left -= wanted ? GIVEN : 0;
    SHMEMI_KILL_POINT("memory.recover.block");
    return SHMEM_OK;
}

/* The block that contains `page` now; *next: the page behind it. */
static shmem_status_t around(const shmemi_arena_t *arena, uint32_t page, uint32_t *head,
                             uint64_t *next)
{
    uint64_t word;
    uint32_t length = shmemi_buddy_locate(arena, page, head, &word);
    if (!length)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "arena %u: page %u belongs to no block; shared memory was overwritten, "
                           "make a new pool",
                           arena->index, page);
    *next = (uint64_t)*head + length;
    return SHMEM_OK;
}

static shmem_status_t walk_locked(walk_t *w, uint32_t *next)
{
    uint32_t page = *next, head;
    uint64_t behind = page;
    shmem_status_t status = SHMEM_OK;
    if (page && page < w->arena->pages) /* a larger block may be there by now */
        status = around(w->arena, page, &page, &behind);
    while (!status && page < w->arena->pages && w->left-- > 0) {
        /* SYNC page-word: acquire, pairs with release in shmemi_large_alloc() and others: the owner
         * is looked up in the roster after its name was read */
        uint64_t word = atomic_load_explicit(&w->arena->page[page].word, memory_order_acquire);
        status = take_back(w, page, word);
        if (!status)
            status = around(w->arena, page, &head, &behind);
        if (!status)
            *next = page = (uint32_t)behind;
    }
    return status;
}

shmem_status_t shmemi_recover_turn(shmemi_arena_t *arena, shmemi_reclaim_t *reclaim, uint32_t *next)
{
    walk_t walk = {.arena = arena, .reclaim = reclaim, .left = TURN};
    walk.mine = shmemi_owner(reclaim->actor->slot, reclaim->actor->epoch);
    shmemi_classes_init(&walk.classes, arena->chunk_shift, arena->pages);
    shmem_status_t status = shmemi_arena_lock(arena, reclaim->actor, reclaim->deadline);
    if (status)
        return status;
    status = walk_locked(&walk, next);
    status = shmemi_arena_unlock(arena, reclaim->actor, status);
    return !status && *next < arena->pages ? SHMEM_ERR_BUSY : status;
}

shmem_status_t shmemi_recover_arena(shmemi_arena_t *arena, shmemi_reclaim_t *reclaim)
{
    uint32_t next = 0;
    shmem_status_t status = SHMEM_ERR_BUSY;
    while (status == SHMEM_ERR_BUSY)
        status = shmemi_recover_turn(arena, reclaim, &next);
    return status;
}

uint64_t shmemi_recover_sweep(shmemi_pool_t *pool, bool always)
{
    shmemi_reclaim_t reclaim = {pool->actor, 0, SHMEMI_TASKS, SHMEMI_FOREVER, 0};
    /* SYNC roster-deaths: acquire, pairs with release in shmemi_roster_client_remove() */
    uint32_t deaths = atomic_load_explicit(&pool->actor->roster->deaths, memory_order_acquire);
    if (!always && atomic_load_explicit(&pool->deaths_swept, memory_order_relaxed) == deaths)
        return 0;
    for (uint32_t i = 0; i < pool->nodes; i++)
        shmemi_recover_arena(&pool->arenas[i].arena, &reclaim);
    atomic_store_explicit(&pool->deaths_swept, deaths, memory_order_relaxed);
    return reclaim.blocks;
}
