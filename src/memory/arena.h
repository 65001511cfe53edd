/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena as one process sees it: its lock and its journal.
 *
 * The bookkeeping words (state, span map, page records) change only while the arena's lock is held,
 * each through shmemi_arena_set(), which first writes the word's old value into the journal.
 *
 *   Invariants  journal_count == 0  <=>  the words are a state between two operations.
 *               Undoing entries count-1 ... 0 restores exactly the state before the operation.
 *               An operation ends with one store (journal_count = 0): it happened or it did not.
 *
 * So who gets the lock after its holder was killed restores the old state, whatever instruction the
 * holder had reached, in time proportional to one operation. Undoing is idempotent: a rescuer may
 * be killed as well. Errors in the middle of an operation (corrupted lists) are undone in the same
 * way.
 *
 * What it does not do: know what the words mean (buddy.h, span.h).
 */
#ifndef SHMEMI_MEMORY_ARENA_H
#define SHMEMI_MEMORY_ARENA_H

#include <stdbool.h>

#include "base/fault.h"
#include "memory/layout.h"
#include "os/clock.h"
#include "sync/roster.h"

typedef struct shmemi_arena {
    shmemi_arena_control_t *control;
    _Atomic uint64_t *map; /* a byte for each chunk, eight in a word; see span.h */
    shmemi_page_t *page;
    shmemi_span_t *span;
    unsigned char *data;
    uint32_t pages;
    uint32_t chunks;
    unsigned chunk_shift;
    unsigned top; /* order that covers the whole arena */
    uint32_t index;
    shmemi_charge_t *charge;         /* of each task */
    shmemi_pool_header_t *header;    /* of the pool */
    shmemi_task_t *tasks;            /* of the pool */
    uint64_t given[2];               /* bits: tasks that got something back, under the lock */
    uint64_t map_index, pages_index; /* journal indices of map[0] and of page[0].word */
    uint64_t journal_end;            /* first index behind the page records */
    uint64_t spans_index;            /* of span[0] */
} shmemi_arena_t;

/* Fill in the view of arena `index` of the pool mapped at `memory`. */
void shmemi_arena_init(shmemi_arena_t *arena, void *memory, const shmemi_layout_t *layout,
                       uint32_t index);

/* Take the lock; undo what a dead holder left unfinished. TIMEOUT (quiet), CORRUPT (the lock or the
 * journal holds impossible values), STATE, LIMIT. */
shmem_status_t shmemi_arena_lock(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                 shmemi_deadline_t deadline);

/* The operation is complete. A holder may commit several before it unlocks. */
void shmemi_arena_commit(shmemi_arena_t *arena);

/* Undo everything since the last commit. CORRUPT: the journal holds impossible values. */
shmem_status_t shmemi_arena_rollback(shmemi_arena_t *arena);

/* Commit if `status` is SHMEM_OK, else roll back; unlock; wake those who wait for what was given
 * back; returns `status`. */
shmem_status_t shmemi_arena_unlock(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                   shmem_status_t status);

static inline uint64_t shmemi_arena_get(_Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Change a bookkeeping word under the lock. False: the journal is full (corrupted lists). */
bool shmemi_arena_set(shmemi_arena_t *arena, _Atomic uint64_t *word, uint64_t value);

/*
 * Let the commit of this operation make one more store, to a span's word of class and owners, at
 * most one an operation. Others act on that word without the lock: before the commit they must not
 * see a value that may be undone, and after it the value may not be missing. So the store is noted
 * in the state through the journal; it is made after the commit, by whoever gets the lock next if
 * the holder is killed before. False: the journal is full.
 */
bool shmemi_arena_set_after(shmemi_arena_t *arena, _Atomic uint64_t *word, uint64_t value);

/* A counter of the arena, under the lock; false: the journal is full. */
static inline bool shmemi_arena_count(shmemi_arena_t *arena, unsigned state, int64_t n)
{
    _Atomic uint64_t *word = &arena->control->state[state];
    return shmemi_arena_set(arena, word, shmemi_arena_get(word) + (uint64_t)n);
}

/* Pages that have memory; a moment old without the lock. */
static inline uint64_t shmemi_arena_present(const shmemi_arena_t *arena)
{
    uint64_t absent = shmemi_arena_get(&arena->control->state[SHMEMI_STATE_ABSENT]);
    return absent < arena->pages ? arena->pages - absent : 0;
}

/* Pages in blocks and caches; a moment old without the lock. */
static inline uint64_t shmemi_arena_used(const shmemi_arena_t *arena)
{
    return shmemi_arena_get(&arena->control->state[SHMEMI_STATE_USED]);
}

/* Could an allocation of 2^order pages succeed now? Smaller free blocks beside each other may do. A
 * hint without the lock: while somebody holds it the mask may lack a block that he is just cutting,
 * so then it says yes. It can still be wrong in either direction. */
static inline bool shmemi_arena_may_have(const shmemi_arena_t *arena, unsigned order)
{
    unsigned least = order > 2 ? order - 2 : 0;
    return shmemi_arena_get(&arena->control->state[SHMEMI_STATE_MASK]) >> least ||
           shmemi_arena_get(&arena->control->lock.word) != SHMEMI_MUTEX_FREE;
}

#endif
