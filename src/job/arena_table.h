/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arenas of a context, sorted by address, readable without a lock.
 *
 * A writer (one at a time: the caller locks) makes the number `version` odd, changes what it wants,
 * and makes it even again. A reader copies what it needs and looks whether the number was even and
 * is the same afterwards; else it tries again. All words that it may meet are atomic, and memory
 * that it may still look at is reused, but not freed, before the table is destroyed.
 *
 *   Invariants  entry[i].end <= entry[i + 1].base        base < end
 *               count <= capacity of the block that it stands in
 *
 * What it does not do: it knows nothing of engines, objects and pins, whose numbers it carries.
 */
#ifndef SHMEMI_JOB_ARENA_TABLE_H
#define SHMEMI_JOB_ARENA_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/util.h"
#include "shmem/arena.h"

enum { SHMEMI_ENGINES = 8 };

/* What is known of an arena: copied in and out word by word. */
typedef struct shmemi_arena_facts {
    shmem_arena_info_t info;
    uint32_t object, object_epoch;
    void *key[SHMEMI_ENGINES];
    int64_t said[SHMEMI_ENGINES]; /* the engine's answer, SHMEM_OK too where it was not asked */
} shmemi_arena_facts_t;

enum { SHMEMI_ARENA_WORDS = sizeof(shmemi_arena_facts_t) / 8 };
_Static_assert(sizeof(shmemi_arena_facts_t) % 8 == 0, "facts are whole words");

typedef struct shmemi_known {
    _Atomic uint64_t word[SHMEMI_ARENA_WORDS];
    /* under the writers' lock: */
    shmemi_arena_facts_t facts;           /* the same */
    struct shmemi_known *earlier, *later; /* in the order of announcement */
    struct shmemi_known *next;            /* of its object; of the unused ones */
} shmemi_known_t;

typedef struct shmemi_arena_entry {
    _Atomic uint64_t base, end;
    shmemi_known_t *_Atomic arena;
} shmemi_arena_entry_t;

typedef struct shmemi_arena_block {
    struct shmemi_arena_block *older;
    uint32_t capacity;
    _Atomic uint32_t count;
    shmemi_arena_entry_t entry[];
} shmemi_arena_block_t;

typedef struct shmemi_arena_table {
    _Atomic uint64_t version;
    shmemi_arena_block_t *_Atomic block; /* or NULL: empty */
    shmemi_known_t *unused;
} shmemi_arena_table_t;

/* ---- readers: any thread ---- */

/* What a lookup wants to know. */
typedef struct shmemi_arena_found {
    shmem_arena_info_t info;
    uint32_t object, object_epoch;
    void *key;
    int64_t said;
} shmemi_arena_found_t;

/* The arena that contains `pointer`, with the key of engine number `engine` (negative: none).
 * False: there is none. */
bool shmemi_arena_table_find(shmemi_arena_table_t *table, const void *pointer, int engine,
                             shmemi_arena_found_t *found);

/* ---- writers ---- */

/* An arena that is in no table yet, and back. NULL: no memory. */
shmemi_known_t *shmemi_arena_table_new(shmemi_arena_table_t *table);
void shmemi_arena_table_free(shmemi_arena_table_t *table, shmemi_known_t *arena);

/* Room for one more: false: no memory. insert() cannot fail then. */
bool shmemi_arena_table_reserve(shmemi_arena_table_t *table);
void shmemi_arena_table_insert(shmemi_arena_table_t *table, shmemi_known_t *arena);
void shmemi_arena_table_remove(shmemi_arena_table_t *table, shmemi_known_t *arena);
/* The facts of an arena in the table have changed. */
void shmemi_arena_table_update(shmemi_arena_table_t *table, shmemi_known_t *arena);

/* First arena that ends behind `address`, or NULL. */
shmemi_known_t *shmemi_arena_table_behind(shmemi_arena_table_t *table, uint64_t address);

void shmemi_arena_table_fini(shmemi_arena_table_t *table);

#endif
