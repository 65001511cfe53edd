/* SPDX-License-Identifier: Apache-2.0 */
/* The words that name the owners of a span's objects; see owners.h. */
#include "memory/owners.h"

#include <string.h>

#include "base/status.h"

#define LAYER "memory"

static shmem_status_t corrupt(const shmemi_arena_t *arena, const char *what, uint32_t value)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: %s %u; shared memory was overwritten, make a new pool",
                       arena->index, what, value);
}

static _Atomic uint64_t *words_at(const shmemi_arena_t *arena, uint32_t page)
{
    return (_Atomic uint64_t *)(void *)(arena->data + ((uint64_t)page << SHMEMI_PAGE_SHIFT));
}

shmem_status_t shmemi_owners_find(const shmemi_arena_t *arena, const shmemi_span_t *span,
                                  _Atomic uint64_t **words)
{
    /* SYNC span-owners: acquire, pairs with release in store_after() */
    uint32_t owners = atomic_load_explicit(&span->owners, memory_order_acquire);
    if (!owners) {
        *words = NULL;
        return SHMEM_OK;
    }
    if (owners > arena->pages ||
        shmemi_arena_get(&arena->page[owners - 1].word) != (SHMEMI_OWNER_POOL | SHMEMI_PAGE_OWNERS))
        return corrupt(arena, "a span's owners are not at page", owners - 1);
    *words = words_at(arena, owners - 1);
    return SHMEM_OK;
}

shmem_status_t shmemi_owners_create_locked(shmemi_arena_t *arena, uint32_t chunk)
{
    shmemi_span_t *span = &arena->span[chunk];
    uint32_t head = chunk << arena->chunk_shift, page;
    if (atomic_load_explicit(&span->owners, memory_order_relaxed))
        return SHMEM_OK;
    shmem_status_t status =
        shmemi_buddy_alloc(arena, 1, 0, SHMEMI_OWNER_POOL | SHMEMI_PAGE_OWNERS,
                           (uint32_t)(shmemi_arena_get(&arena->page[head].link) >> 32), &page);
    if (status)
        return status;
    _Atomic uint64_t *words = words_at(arena, page);
    for (uint32_t i = 0; i < SHMEMI_PAGE / 8; i++)
        atomic_store_explicit(&words[i], 0, memory_order_relaxed);
    atomic_store_explicit(&words[SHMEMI_OWNERS_SPAN], chunk + 1, memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.owners.filled");
    uint64_t class = atomic_load_explicit(&span->class, memory_order_relaxed);
    if (!shmemi_arena_set_after(arena, (_Atomic uint64_t *)(void *)&span->class,
                                class | (uint64_t)(page + 1) << 32))
        return corrupt(arena, "the journal is full at page", page);
    return SHMEM_OK;
}

shmem_status_t shmemi_owners_destroy_locked(shmemi_arena_t *arena, const shmemi_span_t *span)
{
    _Atomic uint64_t *words;
    shmem_status_t status = shmemi_owners_find(arena, span, &words);
    if (status || !words)
        return status;
    /* that of the checked pointer: the span's record may say something else by now */
    uint64_t offset = (uint64_t)((unsigned char *)words - arena->data);
    SHMEMI_KILL_POINT("memory.owners.going");
    return shmemi_buddy_free(arena, (uint32_t)(offset >> SHMEMI_PAGE_SHIFT), 1);
}

/* ---- changing the owner ---- */

static bool swap(const shmemi_object_t *o, _Atomic uint64_t *words, uint64_t *word, uint64_t to)
{
    /* SYNC owners-word: acquire and release, pairs with itself and with acquire in read_word() */
    return atomic_compare_exchange_strong_explicit(&words[o->index], word, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static uint64_t read_word(const shmemi_object_t *o, _Atomic uint64_t *words)
{
    /* SYNC owners-word: acquire, pairs with release in swap() and in shmemi_owners_clear() */
    return atomic_load_explicit(&words[o->index], memory_order_acquire);
}

/* Does the object keep its span as long as the caller may use it, whoever else dies? */
static bool is_kept(const shmemi_object_t *o, uint64_t word)
{
    uint64_t head = shmemi_arena_get(&o->arena->page[o->chunk << o->arena->chunk_shift].word);
    uint64_t owner = shmemi_word_owner(word ? word : head);
    return !(word & SHMEMI_OWNERS_FREEING) &&
           (owner == o->client || (word && owner == SHMEMI_OWNER_POOL));
}

/* Without the lock; false: it is wanted to say what to do. */
static bool change_kept(const shmemi_object_t *o, uint64_t to)
{
    const shmemi_span_t *span = &o->arena->span[o->chunk];
    _Atomic uint64_t *words, *again;
    if (shmemi_owners_find(o->arena, span, &words) || !words)
        return false;
    SHMEMI_KILL_POINT("memory.owners.found");
    uint64_t word = read_word(o, words);
    /* what was read is a word only if the page is still theirs */
    if (!is_kept(o, word) || shmemi_span_is_free(span, o->index) ||
        shmemi_owners_find(o->arena, span, &again) || again != words)
        return false;
    return swap(o, words, &word, to);
}

/* While the arena is locked no span is dissolved. */
static shmem_status_t change_locked(const shmemi_object_t *o, uint64_t to)
{
    const shmemi_span_t *span = &o->arena->span[o->chunk];
    uint32_t first;
    unsigned class;
    _Atomic uint64_t *words;
    if (!shmemi_span_find(o->arena, o->chunk, &first, &class) || first != o->chunk ||
        class != o->class)
        return SHMEM_ERR_DOUBLE_FREE; /* its owner died: the span is gone */
    shmem_status_t status = shmemi_owners_find(o->arena, span, &words);
    if (status || !words)
        return status ? status : SHMEM_ERR_DOUBLE_FREE;
    uint64_t word = read_word(o, words);
    do {
        if (word & SHMEMI_OWNERS_FREEING || shmemi_span_is_free(span, o->index))
            return SHMEM_ERR_DOUBLE_FREE;
    } while (!swap(o, words, &word, to));
    return SHMEM_OK;
}

shmem_status_t shmemi_owners_change(const shmemi_object_t *o, uint64_t to)
{
    if (!change_kept(o, to)) {
        shmem_status_t status = shmemi_arena_lock(o->arena, o->actor, SHMEMI_FOREVER);
        if (status)
            return status;
        status = shmemi_arena_unlock(o->arena, o->actor, change_locked(o, to));
        if (status)
            return status;
    }
    SHMEMI_KILL_POINT("memory.owners.changed");
    return SHMEM_OK;
}

bool shmemi_owners_drop(_Atomic uint64_t *words, uint32_t index)
{
    uint64_t word = atomic_load_explicit(&words[index], memory_order_relaxed);
    /* SYNC owners-word: acquire and release, pairs with acquire in read_word() */
    while (word && !(word & SHMEMI_OWNERS_FREEING) &&
           !atomic_compare_exchange_weak_explicit(&words[index], &word, 0, memory_order_acq_rel,
                                                  memory_order_relaxed))
        ;
    SHMEMI_KILL_POINT("memory.owners.dropped");
    return !(word & SHMEMI_OWNERS_FREEING);
}

void shmemi_owners_clear(_Atomic uint64_t *words, uint32_t first, uint64_t bits)
{
    for (; bits; bits &= bits - 1) {
        uint32_t index = first + (uint32_t)__builtin_ctzll(bits);
        /* SYNC owners-word: release, pairs with acquire in read_word() */
        atomic_store_explicit(&words[index], 0, memory_order_release);
        SHMEMI_KILL_POINT("memory.owners.cleared");
    }
}
