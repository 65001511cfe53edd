/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas and engines: how one-sided engines (RDMA libraries, copy engines) get to know the shared
 * memory of a context.
 *
 * An arena is a range of shared memory that is there and does not move: what a pool has on a node,
 * a PE's part of symmetric memory, a region. An engine registers two callbacks with a context; the
 * library announces each arena to it once before its first use (those that are there already when
 * the engine registers; then each one when its object is created, opened or mapped) and withdraws
 * it once after its last. Any buffer inside an announced arena is then legal as a local or remote
 * address of the engine. What an object gains when it grows is an arena of its own: it is announced
 * before an allocation or a lookup of this process returns a pointer into it, whoever made the
 * object grow. Arenas are withdrawn in the reverse order of their announcements.
 *
 * Pins. An operation in flight pins its arena. Closing, unmapping or destroying an object with pins
 * closes it at once for everything else, but its arenas stay announced and mapped, and its blocks
 * are not given back, until the last pin is taken away. A pin keeps an arena, not a block: do not
 * free a block that an operation still uses.
 *
 * Memory of a pool that was announced or looked up is not returned to the system by
 * shmem_pool_shrink(), of whatever process, until the process that did so closes the pool, or
 * unregisters its last engine (not if it has memory of the pool pinned then: until it closes the
 * pool, or registers and unregisters an engine once more).
 *
 * Callbacks run in the thread whose call causes them (registering, creating, opening, mapping,
 * allocating, looking up, closing, unpinning), one at a time for a context. Locks of the library
 * are held: a callback must not call functions that take this context or an object of it (those of
 * this page give STATE; others may hang). It may block; then the call that causes it does, too.
 *
 * Threads: all functions may be called from any thread. A lookup of memory that is announced takes
 * no lock. Processes: engines belong to the process; a forked child has none of its parent's (its
 * calls give STATE) and its exit or finalize withdraws nothing. The death of a peer changes
 * nothing: the memory stays.
 */
#ifndef SHMEM_ARENA_H
#define SHMEM_ARENA_H

#include <shmem/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shmem_arena_kind {
    SHMEM_ARENA_POOL = 1,  /* of a pool: whole pages that lie on one node */
    SHMEM_ARENA_SYMMETRIC, /* one PE's part of symmetric memory */
    SHMEM_ARENA_REGION     /* of a mapped region: whole pages */
} shmem_arena_kind_t;

typedef struct shmem_arena_info {
    size_t size;      /* sizeof(shmem_arena_info_t), set by the caller */
    uint64_t id;      /* of the arena: counts the arenas of the context from 1, never reused */
    void *base;       /* first byte, the same in all processes */
    uint64_t bytes;   /* a buffer may go on in the next arena of the object: look further */
    uint64_t segment; /* number of the object's segment at the node server */
    uint64_t offset;  /* of `base` in the segment */
    shmem_arena_kind_t kind;
    int node;            /* NUMA node, as in shmem/topology.h; -1: not known */
    int rank;            /* SYMMETRIC: whose part; else -1 */
    int writable;        /* 0: mapped for reading only */
    uint32_t generation; /* 0 for what an object had at first, counts its growths after that */
    char name[64];       /* of the pool or region; "" without a name */
} shmem_arena_info_t;

typedef struct shmem_engine *shmem_engine_t;

typedef struct shmem_engine_ops {
    size_t size;      /* sizeof(shmem_engine_ops_t) */
    const char *name; /* for messages; copied, at most 31 bytes count */
    /* Get to know an arena; *key (NULL at first) is what lookups shall give for it. `arena` is
     * valid during the call. Anything but SHMEM_OK: the engine has no key for this arena. That is
     * logged, the arena is not withdrawn from it later, lookups give that status. */
    shmem_status_t (*announce)(void *user, const shmem_arena_info_t *arena, void **key);
    /* Forget it. No operation uses it any more, as far as they were pinned. */
    void (*withdraw)(void *user, const shmem_arena_info_t *arena, void *key);
} shmem_engine_ops_t;

/*
 * Register an engine: announces all arenas of the context before it returns. `user` is passed to
 * the callbacks. A refused arena does not make it fail. The engine lives until
 * shmem_engine_unregister() or the end of the context, which withdraws everything before it
 * unmaps anything.
 * Errors: INVALID (NULL, no callbacks), LIMIT (8 engines of a context), NOMEM, STATE (finalized;
 * forked child; inside of a callback).
 */
SHMEM_API shmem_status_t shmem_engine_register(shmem_context_t context,
                                               const shmem_engine_ops_t *ops, void *user,
                                               shmem_engine_t *engine);

/* Withdraw everything from the engine and forget it. Errors, nothing changed: INVALID, BUSY
 * (operations of this engine hold pins: how many), STATE (it is unregistered already, or its
 * context is finalized; forked child; inside of a callback). */
SHMEM_API shmem_status_t shmem_engine_unregister(shmem_engine_t engine);

/*
 * The arena of a pointer, and the key that `engine` gave for it (engine NULL: no key, *key NULL).
 * `info` (its size set) and `key` may be NULL. Errors: INVALID, NOT_FOUND (in no arena of this
 * context), what the engine answered to the announcement, LIMIT, NOMEM, STATE.
 */
SHMEM_API shmem_status_t shmem_arena_lookup(shmem_context_t context, shmem_engine_t engine,
                                            const void *pointer, shmem_arena_info_t *info,
                                            void **key);

/* The same, and the arena stays until the pin is taken away: *pin is what shmem_arena_unpin()
 * wants. Does not block others. Errors: as lookup; STATE also while the context is finalizing. */
SHMEM_API shmem_status_t shmem_arena_pin(shmem_context_t context, shmem_engine_t engine,
                                         const void *pointer, shmem_arena_info_t *info, void **key,
                                         uint64_t *pin);

/* Undo one shmem_arena_pin(). If the object was closed meanwhile, the last unpin withdraws its
 * arenas and unmaps it. Errors: INVALID (no such pin), STATE. */
SHMEM_API shmem_status_t shmem_arena_unpin(shmem_context_t context, uint64_t pin);

/*
 * A place in shared memory in numbers that mean the same to all processes of this node server, of
 * this machine: to be sent to a peer, which makes a pointer of it (it must have the pool open, the
 * region or symmetric memory mapped). Addresses are the same everywhere; what the descriptor adds
 * is that it is never taken for a place in other memory.
 */
typedef struct shmem_arena_place {
    uint64_t file[2]; /* identity of the segment's file on this machine */
    uint64_t segment; /* its number at the node server */
    uint64_t offset;  /* in the segment */
} shmem_arena_place_t;

/* Errors: INVALID, NOT_FOUND, STATE, SYSTEM. */
SHMEM_API shmem_status_t shmem_arena_export(shmem_context_t context, const void *pointer,
                                            shmem_arena_place_t *place);
/* NOT_FOUND: this context does not have that memory (open and mapped), or it has no memory there.
 */
SHMEM_API shmem_status_t shmem_arena_import(shmem_context_t context,
                                            const shmem_arena_place_t *place, void **pointer);

#ifdef __cplusplus
}
#endif
#endif
