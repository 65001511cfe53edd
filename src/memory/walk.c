/* SPDX-License-Identifier: Apache-2.0 */
/* Visiting every block: heads of the arenas one after the other, and the objects of spans. */
#include "memory/walk.h"

#include "base/status.h"
#include "memory/charge.h"
#include "memory/owners.h"

#define LAYER "memory"

typedef struct walk {
    shmemi_pool_t *pool;
    shmemi_arena_t *arena;
    void (*visit)(void *arg, const shmemi_walked_t *block);
    void *arg;
} walk_t;

static shmem_status_t impossible(const walk_t *w, uint32_t page)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: impossible block at page %u; shared memory was overwritten, make "
                       "a new pool",
                       w->arena->index, page);
}

static shmem_status_t visit_objects(const walk_t *w, uint32_t page, uint64_t head)
{
    const shmemi_arena_t *arena = w->arena;
    uint32_t chunk = page >> arena->chunk_shift, first, task = shmemi_charge_task(arena, page);
    const shmemi_span_t *span = &arena->span[chunk];
    unsigned class;
    _Atomic uint64_t *words;
    if (!shmemi_span_find(arena, chunk, &first, &class) || first != chunk)
        return impossible(w, page);
    const shmemi_class_t *c = &w->pool->classes.class[class];
    shmem_status_t status = shmemi_owners_find(arena, span, &words);
    for (uint32_t i = 0; i < c->count && !status; i++) {
        /* SYNC owners-word: acquire, pairs with release in swap() */
        uint64_t word = words ? atomic_load_explicit(&words[i], memory_order_acquire) : 0;
        if (word & SHMEMI_OWNERS_FREEING)
            continue;
        bool own = word && shmemi_word_owner(word) != SHMEMI_OWNER_POOL;
        const shmemi_walked_t block = {
            arena->data + ((uint64_t)page << SHMEMI_PAGE_SHIFT) + (uint64_t)i * c->size, c->size,
            shmemi_word_owner(word ? word : head), own ? word & SHMEMI_OWNERS_TASK : task,
            shmemi_span_is_free(span, i)};
        w->visit(w->arg, &block);
    }
    return status;
}

static shmem_status_t visit_locked(const walk_t *w)
{
    const shmemi_arena_t *arena = w->arena;
    shmem_status_t status = SHMEM_OK;
    for (uint64_t page = 0; page < arena->pages && !status;) {
        uint32_t p = (uint32_t)page;
        uint64_t word = shmemi_arena_get(&arena->page[p].word);
        uint32_t pages = shmemi_buddy_length(arena, p, word);
        if (!pages)
            return impossible(w, p);
        const shmemi_walked_t block = {
            arena->data + (page << SHMEMI_PAGE_SHIFT), (uint64_t)pages << SHMEMI_PAGE_SHIFT,
            shmemi_word_owner(word), shmemi_charge_task(arena, p), false};
        if (shmemi_word_kind(word) == SHMEMI_PAGE_USED)
            w->visit(w->arg, &block);
        else if (shmemi_word_kind(word) == SHMEMI_PAGE_SPAN)
            status = visit_objects(w, p, word);
        page += pages;
    }
    return status;
}

shmem_status_t shmemi_walk_blocks(shmemi_pool_t *pool,
                                  void (*visit)(void *arg, const shmemi_walked_t *block), void *arg)
{
    shmem_status_t status = SHMEM_OK;
    for (uint32_t i = 0; i < pool->nodes && !status; i++) {
        const walk_t walk = {pool, &pool->arenas[i].arena, visit, arg};
        status = shmemi_arena_lock(walk.arena, pool->actor, SHMEMI_FOREVER);
        if (!status)
            status = shmemi_arena_unlock(walk.arena, pool->actor, visit_locked(&walk));
    }
    return status;
}
