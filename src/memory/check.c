/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariant walker: goes through every structure of an arena while it holds the lock.
 *
 *   tiling    heads follow each other without gap to the last page; other pages are INTERIOR
 *   buddies   free blocks have the order of their size and no free buddy
 *   lists     each free block is in the list of its order, once, with matching links; the mask says
 *             which lists are not empty
 *   counters  used pages, absent pages, number of spans are exact
 *   charges   what each task holds is the sum of the blocks that are charged to it
 *   spans     class, length and map agree; no bit behind the last object; no map byte without span
 *   owners    every block, and every object that was given or held, belongs to a client of the
 *             roster or to the pool; pages of owners and their spans name each other
 *
 * What it cannot see: which objects of a span are cached by whom (private lists), and the bitmaps
 * of spans in use at the same time.
 */
#include "memory/check.h"

#include "base/status.h"
#include "memory/owners.h"
#include "memory/pool.h"

#define LAYER "memory"

enum { TRIES = 3 };

typedef struct walk {
    shmemi_arena_t *arena;
    const shmemi_classes_t *classes;
    const shmemi_roster_t *roster;
    uint64_t used, absent, spans, span_pages, marks;
    uint64_t owners_pages, owners_found; /* by their heads; by their spans */
    uint64_t held[SHMEMI_TASKS];
    uint32_t free_blocks[SHMEMI_ORDERS];
} walk_t;

static shmem_status_t violation(const walk_t *w, const char *what, uint64_t where)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER, "arena %u: %s (at %llu)", w->arena->index, what,
                       (unsigned long long)where);
}

static uint64_t record(const walk_t *w, uint64_t page)
{
    return shmemi_arena_get(&w->arena->page[page].word);
}

static shmem_status_t check_free(walk_t *w, uint32_t page, uint64_t word)
{
    unsigned order = shmemi_word_order(word);
    w->free_blocks[order]++;
    for (unsigned k = order; k < w->arena->top; k++) {
        uint64_t buddy = page ^ (uint64_t)1 << k;
        if (buddy >= w->arena->pages)
            continue;
        uint32_t extent = shmemi_buddy_extent(w->arena, (uint32_t)buddy, k);
        if (record(w, buddy) == shmemi_word_free(shmemi_log2_ceil(extent)))
            return violation(w, "a free block was not merged with its buddy, page", page);
        break;
    }
    return SHMEM_OK;
}

/* Can a block belong to this owner? */
static bool is_owner(const walk_t *w, uint64_t owner)
{
    return owner == SHMEMI_OWNER_POOL || !w->roster ||
           shmemi_roster_client_alive(w->roster, shmemi_word_slot(owner), shmemi_word_epoch(owner));
}

/* The words of a span's objects; `given`: the span is the pool's. */
static shmem_status_t check_words(walk_t *w, const shmemi_span_t *span, const shmemi_class_t *class,
                                  const _Atomic uint64_t *words, bool given, uint32_t chunk)
{
    for (uint32_t i = 0; i < class->count; i++) {
        uint64_t word = shmemi_arena_get((_Atomic uint64_t *)&words[i]);
        uint64_t more = word & 0xffff & ~(uint64_t)(SHMEMI_OWNERS_FREEING | SHMEMI_OWNERS_TASK);
        bool free = shmemi_span_is_free(span, i);
        if (more || (word && !free && !is_owner(w, shmemi_word_owner(word))))
            return violation(w, "an object belongs to no living client, chunk", chunk);
        if (given && !free && !word)
            return violation(w, "an object of the pool's span has no owner, chunk", chunk);
    }
    return SHMEM_OK;
}

static shmem_status_t check_owners(walk_t *w, uint32_t chunk, const shmemi_class_t *class,
                                   bool given)
{
    const shmemi_span_t *span = &w->arena->span[chunk];
    _Atomic uint64_t *words;
    shmem_status_t status = shmemi_owners_find(w->arena, span, &words);
    if (status)
        return status;
    if (!words)
        return given ? violation(w, "a span of the pool has no owners, chunk", chunk) : SHMEM_OK;
    if (shmemi_arena_get(&words[SHMEMI_OWNERS_SPAN]) != chunk + 1)
        return violation(w, "a page of owners belongs to another span than that at chunk", chunk);
    w->owners_found++;
    return check_words(w, span, class, words, given, chunk);
}

static shmem_status_t check_span(walk_t *w, uint32_t page, uint64_t word, uint32_t pages)
{
    const shmemi_arena_t *a = w->arena;
    uint32_t first = page >> a->chunk_shift;
    const shmemi_span_t *span = &a->span[first];
    uint32_t index = atomic_load_explicit(&span->class, memory_order_relaxed);
    if (page & ((1u << a->chunk_shift) - 1))
        return violation(w, "a span does not begin on a chunk border, page", page);
    if (index >= SHMEMI_CLASSES || w->classes->class[index].pages != pages)
        return violation(w, "a span's class and length differ, page", page);
    uint32_t chunks = (pages + (1u << a->chunk_shift) - 1) >> a->chunk_shift;
    for (uint32_t i = 0; i < chunks; i++)
        if (shmemi_span_mark(a, first + i) != shmemi_span_mark_of(index, i))
            return violation(w, "the map disagrees with a span, chunk", first + i);
    for (uint32_t i = 0; i < SHMEMI_SPAN_WORDS; i++) {
        uint64_t bits = shmemi_arena_get((_Atomic uint64_t *)&span->free[i]) |
                        shmemi_arena_get((_Atomic uint64_t *)&span->remote[i]);
        if (bits & ~shmemi_class_mask(&w->classes->class[index], i))
            return violation(w, "a span has free objects behind its end, chunk", first);
    }
    w->spans++;
    w->span_pages += pages;
    w->marks += chunks;
    return check_owners(w, first, &w->classes->class[index],
                        shmemi_word_owner(word) == SHMEMI_OWNER_POOL);
}

static shmem_status_t check_taken(walk_t *w, uint32_t page, uint64_t word, uint32_t pages)
{
    uint64_t task = shmemi_arena_get(&w->arena->page[page].link) >> 32;
    w->used += pages;
    if (task >= SHMEMI_TASKS)
        return violation(w, "a block is charged to no task, page", page);
    w->held[task] += pages;
    unsigned order = shmemi_log2_ceil(pages), spare = SHMEMI_BUDDY_BORDER;
    if (order > spare && page & ((1u << (order - spare)) - 1))
        return violation(w, "a block is not aligned as its size demands, page", page);
    unsigned kind = shmemi_word_kind(word);
    uint64_t owner = shmemi_word_owner(word);
    if (!is_owner(w, owner) || (owner == SHMEMI_OWNER_POOL && kind == SHMEMI_PAGE_CACHED))
        return violation(w, "a block belongs to no living client, page", page);
    if (kind == SHMEMI_PAGE_OWNERS)
        w->owners_pages++;
    return kind == SHMEMI_PAGE_SPAN ? check_span(w, page, word, pages) : SHMEM_OK;
}

static shmem_status_t check_absent(walk_t *w, uint32_t page, uint64_t word, uint32_t pages)
{
    w->absent += pages;
    if (page & ((1ull << shmemi_log2_ceil(pages)) - 1))
        return violation(w, "an absent block is not aligned to its size, page", page);
    if (page < shmemi_arena_get(&w->arena->control->state[SHMEMI_STATE_ABSENT_FROM]))
        return violation(w, "an absent block lies before the first one, page", page);
    if (w->roster && shmemi_word_owner(word) &&
        !shmemi_roster_client_alive(w->roster, shmemi_word_slot(word), shmemi_word_epoch(word)))
        return violation(w, "who brings memory for a block is dead, page", page);
    return SHMEM_OK;
}

static shmem_status_t check_block(walk_t *w, uint32_t page, uint64_t word, uint32_t pages)
{
    switch (shmemi_word_kind(word)) {
    case SHMEMI_PAGE_FREE:
        return check_free(w, page, word);
    case SHMEMI_PAGE_ABSENT:
        return check_absent(w, page, word, pages);
    default:
        return check_taken(w, page, word, pages);
    }
}

static shmem_status_t check_tiling(walk_t *w)
{
    for (uint64_t page = 0; page < w->arena->pages;) {
        uint32_t p = (uint32_t)page;
        uint64_t word = record(w, page);
        uint32_t pages = shmemi_buddy_length(w->arena, p, word);
        if (!pages)
            return violation(w, "impossible block at page", page);
        shmem_status_t status = check_block(w, p, word, pages);
        if (status)
            return status;
        for (uint64_t i = page + 1; i < page + pages; i++)
            if (shmemi_word_kind(record(w, i)) != SHMEMI_PAGE_INTERIOR)
                return violation(w, "a block begins inside another, page", i);
        page += pages;
    }
    return SHMEM_OK;
}

static shmem_status_t check_list(walk_t *w, unsigned order)
{
    const shmemi_arena_control_t *c = w->arena->control;
    uint64_t entry = shmemi_arena_get((_Atomic uint64_t *)&c->state[SHMEMI_STATE_HEADS + order]);
    uint64_t mask = shmemi_arena_get((_Atomic uint64_t *)&c->state[SHMEMI_STATE_MASK]);
    uint32_t previous = 0, n = 0;
    if ((mask >> order & 1) != (entry != 0))
        return violation(w, "the mask disagrees with the free list of order", order);
    for (; entry; n++) {
        if (entry > w->arena->pages || n >= w->free_blocks[order] ||
            record(w, entry - 1) != shmemi_word_free(order))
            return violation(w, "wrong entry in the free list of order", order);
        uint64_t link = shmemi_arena_get(&w->arena->page[entry - 1].link);
        if ((uint32_t)link != previous)
            return violation(w, "broken back link at page", entry - 1);
        previous = (uint32_t)entry;
        entry = link >> 32;
    }
    if (n != w->free_blocks[order])
        return violation(w, "free blocks are missing in the list of order", order);
    return SHMEM_OK;
}

static shmem_status_t check_counters(walk_t *w)
{
    const shmemi_arena_control_t *c = w->arena->control;
    uint64_t marks = 0;
    if (shmemi_arena_used(w->arena) != w->used)
        return violation(w, "wrong number of used pages", shmemi_arena_used(w->arena));
    if (shmemi_arena_present(w->arena) + w->absent != w->arena->pages)
        return violation(w, "wrong number of absent pages", w->absent);
    if (shmemi_arena_get((_Atomic uint64_t *)&c->state[SHMEMI_STATE_SPANS]) != w->spans ||
        shmemi_arena_get((_Atomic uint64_t *)&c->state[SHMEMI_STATE_SPAN_PAGES]) != w->span_pages)
        return violation(w, "wrong number of spans or of their pages", w->spans);
    for (uint32_t i = 0; i < SHMEMI_TASKS; i++)
        if (shmemi_arena_get(&w->arena->charge[i].held) != w->held[i])
            return violation(w, "wrong number of pages held by task", i);
    if (w->owners_pages != w->owners_found)
        return violation(w, "pages of owners without a span", w->owners_pages);
    for (uint32_t i = 0; i < w->arena->chunks; i++)
        marks += shmemi_span_mark(w->arena, i) != 0;
    return marks == w->marks ? SHMEM_OK : violation(w, "map bytes without a span", marks);
}

shmem_status_t shmemi_check_arena_locked(shmemi_arena_t *arena, const shmemi_classes_t *classes,
                                         const shmemi_roster_t *roster)
{
    walk_t walk = {.arena = arena, .classes = classes, .roster = roster};
    shmem_status_t status = check_tiling(&walk);
    for (unsigned k = 0; k < SHMEMI_ORDERS && !status; k++)
        status = check_list(&walk, k);
    return status ? status : check_counters(&walk);
}

static shmem_status_t check_arenas(shmemi_pool_t *pool)
{
    shmem_status_t result = SHMEM_OK;
    for (uint32_t i = 0; i < pool->nodes && !result; i++) {
        shmemi_arena_t *arena = &pool->arenas[i].arena;
        shmem_status_t status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
        if (status)
            return status;
        result = shmemi_check_arena_locked(arena, &pool->classes, pool->actor->roster);
        shmemi_arena_unlock(arena, pool->actor, SHMEM_OK);
    }
    return result;
}

shmem_status_t shmemi_pool_check(shmemi_pool_t *pool)
{
    shmem_status_t result = SHMEM_OK;
    for (int i = 0; i < TRIES; i++) { /* a client may die between the sweep and the walk */
        shmemi_recover_sweep(pool, true);
        result = check_arenas(pool);
        if (result != SHMEM_ERR_CORRUPT)
            break;
    }
    return result;
}
