/* SPDX-License-Identifier: Apache-2.0 */
/* The table of arenas: binary search under a version number. */
#include "job/arena_table.h"

#include <stdlib.h>
#include <string.h>

/*
 * Order without fences: a writer's stores are releases, hence come after the odd version; a
 * reader's loads are acquires, hence come before its second look. Who has read anything that a
 * writer stored sees its odd version, or a later one, at the second look.
 */
static void put(_Atomic uint64_t *word, uint64_t value)
{
    /* SYNC arena-table: release, pairs with acquire in get() */
    atomic_store_explicit(word, value, memory_order_release);
}

static uint64_t get(const _Atomic uint64_t *word)
{
    /* SYNC arena-table: acquire, pairs with release in put() */
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)word, memory_order_acquire);
}

static void change_begin(shmemi_arena_table_t *t)
{
    uint64_t version = atomic_load_explicit(&t->version, memory_order_relaxed);
    atomic_store_explicit(&t->version, version + 1, memory_order_relaxed);
}

static void change_end(shmemi_arena_table_t *t)
{
    uint64_t version = atomic_load_explicit(&t->version, memory_order_relaxed);
    put(&t->version, version + 1);
}

static shmemi_arena_block_t *block_of(shmemi_arena_table_t *t)
{
    /* SYNC arena-block: acquire, pairs with release in shmemi_arena_table_reserve() */
    return atomic_load_explicit(&t->block, memory_order_acquire);
}

/* ---- readers ---- */

/* Index of the first entry that ends behind `address`; count: none. */
static uint32_t search(shmemi_arena_block_t *b, uint32_t count, uint64_t address)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (get(&b->entry[middle].end) > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void copy_words(void *to, const shmemi_known_t *from, size_t offset, size_t bytes)
{
    unsigned char *at = to;
    for (size_t i = offset / 8; i < (offset + bytes) / 8; i++, at += 8) {
        uint64_t word = get(&from->word[i]);
        memcpy(at, &word, 8);
    }
}

/* False: there is none, or it changed meanwhile. */
static bool find_once(shmemi_arena_table_t *t, uint64_t address, int engine,
                      shmemi_arena_found_t *found)
{
    shmemi_arena_block_t *b = block_of(t);
    if (!b)
        return false;
    /* SYNC arena-count: acquire, pairs with release in set_count() */
    uint32_t count = atomic_load_explicit(&b->count, memory_order_acquire);
    uint32_t i = search(b, count, address);
    if (i >= count || get(&b->entry[i].base) > address)
        return false;
    /* SYNC arena-entry: acquire, pairs with release in entry_set() */
    shmemi_known_t *a = atomic_load_explicit(&b->entry[i].arena, memory_order_acquire);
    if (!a)
        return false;
    /* the numbers of the object follow the info in both structs */
    copy_words(found, a, 0, offsetof(shmemi_arena_facts_t, key));
    found->key = NULL;
    found->said = SHMEM_OK;
    if (engine >= 0) {
        copy_words(&found->key, a, offsetof(shmemi_arena_facts_t, key) + 8 * (size_t)engine, 8);
        copy_words(&found->said, a, offsetof(shmemi_arena_facts_t, said) + 8 * (size_t)engine, 8);
    }
    return true;
}
_Static_assert(offsetof(shmemi_arena_found_t, key) == offsetof(shmemi_arena_facts_t, key),
               "find_once() copies both at once");

bool shmemi_arena_table_find(shmemi_arena_table_t *t, const void *pointer, int engine,
                             shmemi_arena_found_t *found)
{
    for (;;) {
        uint64_t version = get(&t->version);
        if (version & 1)
            continue; /* a handful of stores */
        bool is = find_once(t, (uintptr_t)pointer, engine, found);
        if (atomic_load_explicit(&t->version, memory_order_relaxed) == version)
            return is;
    }
}

/* ---- writers ---- */

shmemi_known_t *shmemi_arena_table_new(shmemi_arena_table_t *t)
{
    shmemi_known_t *a = t->unused;
    if (!a)
        return calloc(1, sizeof *a);
    t->unused = a->next;
    a->next = a->earlier = a->later = NULL;
    memset(&a->facts, 0, sizeof a->facts);
    return a;
}

void shmemi_arena_table_free(shmemi_arena_table_t *t, shmemi_known_t *a)
{
    a->next = t->unused;
    t->unused = a;
}

bool shmemi_arena_table_reserve(shmemi_arena_table_t *t)
{
    shmemi_arena_block_t *old = block_of(t);
    uint32_t count = old ? atomic_load_explicit(&old->count, memory_order_relaxed) : 0;
    if (old && count < old->capacity)
        return true;
    uint32_t capacity = count ? 2 * count : 16;
    shmemi_arena_block_t *b = calloc(1, sizeof *b + capacity * sizeof b->entry[0]);
    if (!b)
        return false;
    b->older = old;
    b->capacity = capacity;
    if (old)
        memcpy((void *)b->entry, (void *)old->entry, count * sizeof b->entry[0]);
    atomic_init(&b->count, count);
    /* SYNC arena-block: release, pairs with acquire in block_of() */
    atomic_store_explicit(&t->block, b, memory_order_release);
    return true;
}

static void set_count(shmemi_arena_block_t *b, uint32_t count)
{
    /* SYNC arena-count: release, pairs with acquire in find_once() */
    atomic_store_explicit(&b->count, count, memory_order_release);
}

static void entry_set(shmemi_arena_entry_t *e, uint64_t base, uint64_t end, shmemi_known_t *arena)
{
    put(&e->base, base);
    put(&e->end, end);
    /* SYNC arena-entry: release, pairs with acquire in find_once() */
    atomic_store_explicit(&e->arena, arena, memory_order_release);
}

static void entry_copy(shmemi_arena_entry_t *to, shmemi_arena_entry_t *from)
{
    entry_set(to, atomic_load_explicit(&from->base, memory_order_relaxed),
              atomic_load_explicit(&from->end, memory_order_relaxed),
              atomic_load_explicit(&from->arena, memory_order_relaxed));
}

static void words_write(shmemi_known_t *a)
{
    const unsigned char *from = (const unsigned char *)&a->facts;
    for (size_t i = 0; i < SHMEMI_ARENA_WORDS; i++, from += 8) {
        uint64_t word;
        memcpy(&word, from, 8);
        put(&a->word[i], word);
    }
}

void shmemi_arena_table_insert(shmemi_arena_table_t *t, shmemi_known_t *a)
{
    shmemi_arena_block_t *b = block_of(t);
    uint64_t base = (uintptr_t)a->facts.info.base;
    uint32_t count = atomic_load_explicit(&b->count, memory_order_relaxed);
    uint32_t at = search(b, count, base);
    change_begin(t);
    words_write(a);
    for (uint32_t i = count; i > at; i--)
        entry_copy(&b->entry[i], &b->entry[i - 1]);
    entry_set(&b->entry[at], base, base + a->facts.info.bytes, a);
    set_count(b, count + 1);
    change_end(t);
}

void shmemi_arena_table_remove(shmemi_arena_table_t *t, shmemi_known_t *a)
{
    shmemi_arena_block_t *b = block_of(t);
    uint32_t count = b ? atomic_load_explicit(&b->count, memory_order_relaxed) : 0;
    uint32_t at = b ? search(b, count, (uintptr_t)a->facts.info.base) : 0;
    if (at >= count || atomic_load_explicit(&b->entry[at].arena, memory_order_relaxed) != a)
        return;
    change_begin(t);
    for (uint32_t i = at; i + 1 < count; i++)
        entry_copy(&b->entry[i], &b->entry[i + 1]);
    set_count(b, count - 1);
    change_end(t);
}

void shmemi_arena_table_update(shmemi_arena_table_t *t, shmemi_known_t *a)
{
    change_begin(t);
    words_write(a);
    change_end(t);
}

shmemi_known_t *shmemi_arena_table_behind(shmemi_arena_table_t *t, uint64_t address)
{
    shmemi_arena_block_t *b = block_of(t);
    uint32_t count = b ? atomic_load_explicit(&b->count, memory_order_relaxed) : 0;
    uint32_t at = b ? search(b, count, address) : 0;
    return at < count ? atomic_load_explicit(&b->entry[at].arena, memory_order_relaxed) : NULL;
}

void shmemi_arena_table_fini(shmemi_arena_table_t *t)
{
    shmemi_arena_block_t *b = block_of(t);
    while (b) {
        shmemi_arena_block_t *older = b->older;
        free(b);
        b = older;
    }
    while (t->unused) {
        shmemi_known_t *a = t->unused;
        t->unused = a->next;
        free(a);
    }
    *t = (shmemi_arena_table_t){0};
}
