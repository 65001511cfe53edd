/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of a context: its objects with their arenas, and its engines.
 *
 *   Invariants  an arena is in the table <=> its object is in the list `open`
 *               an object in it is CLOSING <=> the context is ending: no more pins
 *               an arena is in the list `first` to `last` <=> it was announced and not withdrawn;
 *               the list is in the order of announcements, that is of info.id
 *               an object is freed when it is CLOSING and has no pins
 *               engine_pins[e] counts the pins that engine e took
 *   state of an object: epoch << 32 | CLOSING | pins. A pin is one compare-and-swap that sees the
 *   epoch it found in the table and no CLOSING, so it can be taken only while the object is open;
 *   who sets CLOSING, or takes the last pin of a CLOSING object away, sees so in the value that he
 *   changed, and finishes it if nobody else did (`undo` says so, under the lock).
 *
 * Objects are used again, and freed with the registry only: a stale pin is recognized by its epoch.
 */
#ifndef SHMEMI_JOB_ARENA_CORE_H
#define SHMEMI_JOB_ARENA_CORE_H

#include <pthread.h>

#include "job/arena_table.h"
#include "job/arenas.h"

enum {
    SHMEMI_ENGINE_NAME = 32,
    SHMEMI_OBJECT_CHUNK = 64, /* objects that are allocated at once */
    SHMEMI_OBJECT_CHUNKS = 1024
};
#define SHMEMI_OBJECT_CLOSING ((uint64_t)1 << 31)
#define SHMEMI_OBJECT_PINS    (SHMEMI_OBJECT_CLOSING - 1)
#define SHMEMI_ENGINE_CLOSING ((uint64_t)1 << 63)

struct shmem_engine {
    shmem_context_t context; /* NULL: unregistered */
    shmem_engine_ops_t ops;
    void *user;
    int index;
    char name[SHMEMI_ENGINE_NAME];
};

/* Who has the object open. */
typedef struct shmemi_arena_member {
    const void *owner;
    void (*list)(const void *owner, shmemi_arena_taker_t *taker);
    void (*keep)(const void *owner, bool keep);
    struct shmemi_arena_member *next;
} shmemi_arena_member_t;

/* A segment that is closed after the last mapping of it that operations have pinned. */
typedef struct shmemi_arena_segment {
    shmemi_segment_t segment;
    struct shmemi_arena_segment *next;
} shmemi_arena_segment_t;

typedef struct shmemi_arena_object {
    _Atomic uint64_t state;
    uint32_t index;
    bool kept;        /* its first member was told to keep its memory, */
    bool kept_lately; /* by the registration that is under way */
    bool writable;
    shmem_arena_kind_t kind;
    char name[64];
    uint64_t segment, bytes;
    char *base;       /* NULL: unused */
    uint64_t file[2]; /* identity of the segment's file */
    uint32_t generation;
    shmemi_arena_member_t *members; /* the first one lists for all */
    shmemi_known_t *arenas;         /* newest first */
    void (*undo)(void *);           /* of a CLOSING object */
    void *undo_arg;
    shmemi_arena_segment_t *segments; /* to be closed then */
    struct shmemi_arena_object *next; /* of the open, the closing, or the unused ones */
} shmemi_arena_object_t;

struct shmemi_arenas {
    pthread_mutex_t lock;
    const void *_Atomic holder; /* mark of the thread that holds it */
    bool ending;                /* no more pins: the context is finalizing */
    unsigned finishing;         /* objects whose undo() is running */
    shmemi_arena_table_t table;
    shmemi_known_t *first, *last;
    shmemi_arena_object_t *open, *closing, *unused; /* closing: those with pins */
    shmemi_arena_object_t *_Atomic chunk[SHMEMI_OBJECT_CHUNKS];
    uint32_t chunks;
    uint64_t next_id;
    unsigned engines; /* how many */
    shmem_engine_t engine[SHMEMI_ENGINES];
    _Atomic uint64_t engine_pins[SHMEMI_ENGINES];
};

/* STATE with a detail: the calling thread is inside of a callback. */
shmem_status_t shmemi_arenas_lock(shmemi_arenas_t *arenas, const char *what);
void shmemi_arenas_unlock(shmemi_arenas_t *arenas);

/* An object without pins: from now on it is another one for pins. */
void shmemi_arenas_reopen_locked(shmemi_arenas_t *arenas, shmemi_arena_object_t *object);

/* Learn and announce what the object has now. NOMEM. */
shmem_status_t shmemi_arenas_refresh_locked(shmemi_arenas_t *arenas, shmemi_arena_object_t *object);
/* The open object that `pointer` lies in, or the one of a segment; NULL: none. */
shmemi_arena_object_t *shmemi_arenas_at_locked(shmemi_arenas_t *arenas, const void *pointer);
shmemi_arena_object_t *shmemi_arenas_of_locked(shmemi_arenas_t *arenas, uint64_t segment);
/* The object of a pin, NULL: there is no such object. */
shmemi_arena_object_t *shmemi_arenas_object(shmemi_arenas_t *arenas, uint32_t index);

/* Withdraw and forget what is known of an object. */
void shmemi_arenas_forget_locked(shmemi_arenas_t *arenas, shmemi_arena_object_t *object);

/* An object that was CLOSING with this epoch had no pin left. */
void shmemi_arenas_finish(shmem_context_t context, shmemi_arena_object_t *object, uint32_t epoch);

/* ---- arena_engine.c ---- */

/* Tell all engines of an arena that is not in the table yet, or that it goes. */
void shmemi_engines_announce_locked(shmemi_arenas_t *arenas, shmemi_known_t *arena);
void shmemi_engines_withdraw_locked(shmemi_arenas_t *arenas, shmemi_known_t *arena);
/* Withdraw everything, forget the engines. */
void shmemi_engines_drop_all_locked(shmemi_arenas_t *arenas);
/* "2 by engine ucx, 1 without an engine" of `pins` into text. */
void shmemi_engines_describe_pins(shmemi_arenas_t *arenas, uint64_t pins, char *text, size_t bytes);

#endif
