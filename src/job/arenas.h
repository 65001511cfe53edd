/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arenas of a context as the objects of a job see them: pools, symmetric memory and regions
 * say here what they have mapped, and let go of it through here.
 *
 *     after mapping      shmemi_arenas_add(context, &source)
 *     after growing      shmemi_arenas_grown(context, owner)
 *     instead of undoing shmemi_arenas_remove(context, owner, undo, arg)
 *
 * remove() calls undo(arg) when no operation in flight needs the memory any more: before it returns
 * when there is no pin, else in the thread that takes the last pin away. What undo() does (give
 * blocks back, unmap, close the segment) must not need the handle, which is closed for its user at
 * once.
 *
 * Locks: add, grown and remove may call engines and `list`, and take the lock of the registry
 * meanwhile. undo() runs without that lock. The caller may hold a lock of its own as long as
 * neither its `list`, `keep` nor its undo() takes it.
 */
#ifndef SHMEMI_JOB_ARENAS_H
#define SHMEMI_JOB_ARENAS_H

#include <stdbool.h>

#include "node/client.h"
#include "shmem/arena.h"

typedef struct shmemi_arenas shmemi_arenas_t; /* the registry of a context */

/* A range of an object that has memory. */
typedef struct shmemi_arena_range {
    char *base;
    uint64_t bytes;
    int node; /* -1: not known */
    int rank; /* of symmetric memory; else -1 */
} shmemi_arena_range_t;

/* Takes the ranges that an object has now, ascending. */
typedef struct shmemi_arena_taker {
    void (*take)(struct shmemi_arena_taker *taker, const shmemi_arena_range_t *range);
} shmemi_arena_taker_t;

/* An object that is mapped. */
typedef struct shmemi_arena_source {
    const void *owner; /* the handle: what grown() and remove() name it by */
    shmem_arena_kind_t kind;
    const char *name;                /* as its users know it; NULL: none */
    const shmemi_segment_t *segment; /* copied */
    void *base;                      /* where the segment is mapped */
    bool writable;
    /* Name all ranges that have memory now. NULL: all of the segment. */
    void (*list)(const void *owner, shmemi_arena_taker_t *taker);
    /* From now on (until `keep` is false) the memory that it has must not go away, whoever shrinks
     * the object. NULL: it never does. Called before `list`. */
    void (*keep)(const void *owner, bool keep);
} shmemi_arena_source_t;

/* At the start of a context; STATE, BUSY at its end, in this order: no more pins (BUSY: there are
 * some, nothing changed), withdraw everything from the engines and forget these, free. */
shmem_status_t shmemi_arenas_create(shmem_context_t context);
shmem_status_t shmemi_arenas_quiesce(shmem_context_t context);
void shmemi_arenas_withdraw_all(shmem_context_t context);
void shmemi_arenas_destroy(shmem_context_t context);

/* Announce an object's ranges. Two owners with one segment share its arenas. NOMEM, LIMIT: nothing
 * was added. */
shmem_status_t shmemi_arenas_add(shmem_context_t context, const shmemi_arena_source_t *source);

/* The object may have more memory than before: announce what is new. */
void shmemi_arenas_grown(shmem_context_t context, const void *owner);

/* Withdraw what no other owner needs, then undo(arg): see above. An owner that was never added is
 * undone at once. */
void shmemi_arenas_remove(shmem_context_t context, const void *owner, void (*undo)(void *),
                          void *arg);

/* Close a segment that was mapped at some time: now, or after the last operation that has memory
 * of it pinned (until then nobody else may get its place). */
void shmemi_arenas_segment_close(shmem_context_t context, shmemi_segment_t *segment);

#endif
