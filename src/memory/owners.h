/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners of small objects. As long as no object of a span was given or held, all belong to the
 * span's client and there is nothing here. The first one that is takes a page of words for its
 * span: word i names the owner of object i; the last word names the span (for the walker).
 *
 *   Invariants  word of an allocated object: 0, it belongs to the span's client; SHMEMI_OWNER_POOL,
 *               to the pool; else the client that holds it, with the task of its view
 *               a word with the FREEING bit is claimed by who frees the object: nobody else
 *               changes it any more, and should that client die the object is freed for it
 *               bit set in `free`    =>  word == 0
 *               bit set in `remote`  =>  word == 0, or FREEING by a client that is done with it
 *               a span of the pool itself has a page of owners and, but for a moment, an object
 *
 * Words change by compare-and-swap; so at every instant an object has one owner, and two who free,
 * give or hold it cannot both succeed. The page of words stays theirs as long as the span has an
 * object: who changes one that may vanish at any time, because it belongs to another client, does
 * so under the arena's lock. Freeing another's object is: claim the word,
 * then set the bit; only the span's own thread, when it collects the bit, makes the word 0, before
 * the bit goes. So whoever finds the word of a dead client and no bit, and wins the swap, knows
 * that the object was not freed.
 *
 * What it does not do: know what a pointer names (give.c), or find what the dead held (recover.c).
 */
#ifndef SHMEMI_MEMORY_OWNERS_H
#define SHMEMI_MEMORY_OWNERS_H

#include "memory/span.h"

enum {
    SHMEMI_OWNERS_SPAN = 511, /* index of the word that holds the span's chunk + 1 */
    SHMEMI_OWNERS_FREEING = 0x8000,
    SHMEMI_OWNERS_TASK = 0x7f
};
_Static_assert(SHMEMI_SPAN_WORDS * 64 < SHMEMI_OWNERS_SPAN, "a word for each object");
_Static_assert(SHMEMI_TASKS - 1 == SHMEMI_OWNERS_TASK, "a task fits into a word");

/* The words of a span; NULL: it has none. CORRUPT. */
shmem_status_t shmemi_owners_find(const shmemi_arena_t *arena, const shmemi_span_t *span,
                                  _Atomic uint64_t **words);

/* Make the words of the span that begins at `chunk`, unless it has them. Wants the lock; the words
 * can be found after the commit. `page` is where the page of words is. NOMEM without a detail,
 * CORRUPT. */
shmem_status_t shmemi_owners_create_locked(shmemi_arena_t *arena, uint32_t chunk);

/* Give the span's words back, if it has some. Wants the lock; part of dissolving the span. */
shmem_status_t shmemi_owners_destroy_locked(shmemi_arena_t *arena, const shmemi_span_t *span);

/* An object of a span that has words, and who asks. */
typedef struct shmemi_object {
    shmemi_arena_t *arena;
    const shmemi_actor_t *actor;
    uint64_t client; /* as in a page's word */
    uint32_t chunk, index;
    unsigned class;
} shmemi_object_t;

/* Make `to` the owner of an allocated object; with the FREEING bit: claim it, to be freed by
 * another than the span's thread. Takes the lock where the object could be gone, and its span with
 * it, because somebody just died: not for what is the caller's or the pool's. DOUBLE_FREE without a
 * detail: it is free, or somebody frees it; CORRUPT, errors of the lock. */
shmem_status_t shmemi_owners_change(const shmemi_object_t *object, uint64_t to);

/* The span's own thread is going to free the object: it belongs to its client again. False: it is
 * being freed. */
bool shmemi_owners_drop(_Atomic uint64_t *words, uint32_t index);

/* The span's own thread collects these bits of `remote`: their words become 0. */
void shmemi_owners_clear(_Atomic uint64_t *words, uint32_t first, uint64_t bits);

#endif
