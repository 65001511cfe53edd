/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: shared memory from which any number of processes allocate blocks.
 *
 * A pool has one arena per NUMA node. Blocks are at the same address in every process, so pointers
 * to them may be stored in shared memory. A block may be freed by another thread or process than
 * the one that allocated it.
 *
 * Owners. A block belongs to the process that allocated it and comes back within a second when that
 * process dies. shmem_pool_give() makes the pool itself its owner, shmem_pool_hold() the caller:
 * what a process gave away, or others hold, stays when it dies.
 *
 * Size. A pool has `bytes` of memory at first, which are really there, and grows up to `limit`.
 * shmem_pool_shrink() returns what is idle to the system.
 *
 * Quotas. Memory is charged to tasks (names), by default the task of the process (SHMEM_TASK). A
 * quota limits what a task holds and how fast it takes: see shmem_pool_quota_set(). It binds
 * processes that use this library; against others, give each tenant a pool of its own.
 *
 * Blocks start on 128-byte borders; above 32 KiB, and those whose size is a multiple of 4 KiB, on
 * 4 KiB borders. Two blocks never share a cache line. Sizes are rounded up to a multiple of 128
 * bytes, above 1 KiB by at most 1/8; in pools of less than 512 MiB a node, sizes above 16 KiB, and
 * in those of less than 8 MiB a node, sizes above 4 KiB are rounded to whole pages of 4 KiB.
 *
 * Threads: any thread may allocate and free; small blocks come from a cache of the thread.
 */
#ifndef SHMEM_POOL_H
#define SHMEM_POOL_H

#include <shmem/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shmem_pool *shmem_pool_t;

typedef enum shmem_pool_policy {
    SHMEM_POOL_NEAREST = 0, /* the caller's node, then by distance and fullness */
    SHMEM_POOL_BIND,        /* `node` only */
    SHMEM_POOL_PREFERRED,   /* `node`, then by distance from it */
    SHMEM_POOL_INTERLEAVE   /* nodes in turn */
} shmem_pool_policy_t;

enum { SHMEM_POOL_NAME = 64, SHMEM_TASK_NAME = 48 }; /* bytes of names with their NUL */

typedef struct shmem_pool_params {
    size_t size;                /* sizeof(shmem_pool_params_t) */
    uint64_t bytes;             /* capacity at first, > 0, rounded up to pages; split evenly among
                                   nodes */
    shmem_pool_policy_t policy; /* for shmem_pool_alloc() */
    int node;                   /* for BIND and PREFERRED: index as in shmem/topology.h */
    uint64_t limit;             /* capacity up to which it grows; 0: it does not */
    const char *task;           /* whom the creator's memory is charged to; NULL: SHMEM_TASK */
    uint32_t access;            /* who may open it: SHMEM_ACCESS_*; 0: this user only */
    int debug;                  /* 1: guard bytes, poison, traces (see shmem_pool_debug_info());
                                   0: as SHMEM_DEBUG says */
} shmem_pool_params_t;
#define SHMEM_POOL_PARAMS_INIT                                                                     \
    {                                                                                              \
        sizeof(shmem_pool_params_t), 0, SHMEM_POOL_NEAREST, 0, 0, 0, 0, 0                          \
    }

/* ---- pools by name ---- */

/*
 * Create a pool named `name` (1 to 63 bytes of letters, digits, '.', '_', '-', '/', with no '..'
 * between slashes; NULL: no name, for this process only), owned by the caller's user. It lives
 * until the last process that has it open closes it or ends. Errors: INVALID, EXISTS, NOMEM,
 * OVERFLOW, LIMIT, SERVER_LOST, ACCESS.
 */
SHMEM_API shmem_status_t shmem_pool_create(shmem_context_t context, const char *name,
                                           const shmem_pool_params_t *params, shmem_pool_t *pool);

/*
 * Open an existing pool. One that the context has open already (its creator included) is the same
 * handle again, counted, without asking the server: each open, and the create, wants its
 * shmem_pool_close(). Users of a pool write to it: who may only read has no use for one. Waits up
 * to 30 s for a creator that is still filling it, as long as that one lives.
 * Errors: INVALID, NOT_FOUND (also: its creator died while making it), BUSY (its creator is still
 * at it; or closed here while operations of engines keep its memory), ACCESS (its `access` does not
 * let this user write), LIMIT (127 tasks), VERSION, CORRUPT, NOMEM, SERVER_LOST, STATE.
 */
SHMEM_API shmem_status_t shmem_pool_open(shmem_context_t context, const char *name,
                                         shmem_pool_t *pool);

/* The same, charging what is allocated through this handle to `task` (1 to 47 bytes, like the name
 * of a pool). A process that works for several tasks opens the pool once for each. */
SHMEM_API shmem_status_t shmem_pool_open_as(shmem_context_t context, const char *name,
                                            const char *task, shmem_pool_t *pool);

/* Undo one shmem_pool_create() or shmem_pool_open(). The last one closes: the blocks that the
 * caller allocated or holds through it are given back to the pool, those of others stay; no thread
 * may be inside a call on it. NULL and a pool that is closed already (the end of its context closes
 * it) are accepted: nothing happens. Operations on a closed pool give STATE for some time (see
 * shmem_context_finalize()). */
SHMEM_API void shmem_pool_close(shmem_pool_t pool);

/*
 * Take the name away: nobody can open the pool any more (the name is free for another), nobody can
 * allocate from it (STATE; small blocks that a thread has in its cache it may still get), who has
 * it open may use, free and close. Its creator's user and root may. Errors: INVALID, NOT_FOUND
 * (also when somebody else destroys it at the same time), ACCESS, NOMEM, LIMIT: nothing changed;
 * SERVER_LOST: it may be that the name stays and nobody can allocate any more; destroy it again.
 */
SHMEM_API shmem_status_t shmem_pool_destroy(shmem_context_t context, const char *name);

typedef struct shmem_pool_entry {
    char name[SHMEM_POOL_NAME];
    uint64_t bytes;  /* of its segment: address space; see shmem_pool_info() for memory */
    uint32_t uid;    /* of its creator */
    uint32_t access; /* SHMEM_ACCESS_* */
    uint32_t users;  /* clients that have it open */
} shmem_pool_entry_t;

/* The named pools of the node server into entries[room]; *count: how many there are (perhaps more
 * than `room`). Pools that the caller may not open are listed, too. Errors: INVALID, SERVER_LOST.
 */
SHMEM_API shmem_status_t shmem_pool_list(shmem_context_t context, shmem_pool_entry_t *entries,
                                         size_t room, size_t *count);

/* ---- blocks ---- */

/*
 * Allocate `bytes` (> 0). The block belongs to the calling process; its content is undefined.
 *   aligned: alignment is a power of two from 64 bytes to 2 MiB (smaller ones are raised to 64)
 *   on: like aligned (0: default), with policy and node instead of the pool's
 *   timed: like aligned (0: default), waiting up to `timeout` nanoseconds (SHMEM_FOREVER: without
 *     end) while the task is over its quota or the pool has no room, until both allow it
 * Errors: INVALID (0 bytes, alignment, node), OVERFLOW (more than the pool could ever hold), NOMEM
 * (asked, largest free block, free bytes), QUOTA (over the task's quota; the text says which limit,
 * what is held, when it could succeed or that it never can), STATE (closed or destroyed), CORRUPT,
 * TIMEOUT (timed: the text says what was missing). A request that exceeds the quota's limit or
 * burst as such is QUOTA at once in timed, too.
 */
SHMEM_API shmem_status_t shmem_pool_alloc(shmem_pool_t pool, size_t bytes, void **block);
SHMEM_API shmem_status_t shmem_pool_alloc_aligned(shmem_pool_t pool, size_t bytes, size_t alignment,
                                                  void **block);
SHMEM_API shmem_status_t shmem_pool_alloc_on(shmem_pool_t pool, size_t bytes, size_t alignment,
                                             shmem_pool_policy_t policy, int node, void **block);
SHMEM_API shmem_status_t shmem_pool_alloc_timed(shmem_pool_t pool, size_t bytes, size_t alignment,
                                                int64_t timeout, void **block);

/* Change the size of a block, in place where possible, else by moving (content kept up to the
 * smaller size; the new block is the caller's). *block is updated on success and untouched, still
 * valid, on failure: also when it gives CORRUPT because its guard bytes were overwritten (debug
 * pools). Errors: as alloc and free. */
SHMEM_API shmem_status_t shmem_pool_resize(shmem_pool_t pool, void **block, size_t bytes);

/* Give a block back. NULL is accepted. Any process may, whoever owns the block; whoever was charged
 * gets his refund. Errors, nothing changed: DOUBLE_FREE, FOREIGN_POINTER, INTERIOR_POINTER, CORRUPT
 * (also, in a debug pool: its guard bytes were overwritten; the block is given back). */
SHMEM_API shmem_status_t shmem_pool_free(shmem_pool_t pool, void *block);

/* Bytes usable in a block (at least what was asked for). Errors: as shmem_pool_free(). */
SHMEM_API shmem_status_t shmem_pool_block_bytes(shmem_pool_t pool, const void *block,
                                                size_t *bytes);

/*
 * Make the pool the owner of a block, or the caller. Who passes a block to another process gives
 * it before it tells the other, who holds it and frees it. A given block that nobody holds stays
 * until somebody frees it; what it costs stays charged to the task that allocated it, and moves to
 * the holder's task when it is held (QUOTA if that has no room; it stays the pool's then), but for
 * small blocks: they are charged a span of blocks at a time, with whoever allocated them. A block
 * that somebody else owns can be held, too: it changes owners. Giving twice is harmless. Small
 * blocks: the first give or hold in a span of blocks takes a page from the pool. Errors: as
 * shmem_pool_free(), NOMEM, QUOTA.
 */
SHMEM_API shmem_status_t shmem_pool_give(shmem_pool_t pool, void *block);
SHMEM_API shmem_status_t shmem_pool_hold(shmem_pool_t pool, void *block);

/* A pool's root: one pointer to a block (or NULL, at first), by which processes that open the pool
 * find what is in it. Set it after the block is complete: who gets it sees what was written
 * before. The library gives it no meaning and does not own the block (give it). */
SHMEM_API shmem_status_t shmem_pool_root_set(shmem_pool_t pool, void *block);
SHMEM_API shmem_status_t shmem_pool_root_get(shmem_pool_t pool, void **block);

/* ---- quotas ---- */

typedef struct shmem_quota {
    size_t size;        /* sizeof(shmem_quota_t) */
    uint64_t limit;     /* bytes that the task may hold; UINT64_MAX: any number */
    uint64_t burst;     /* bytes that it may take at once; UINT64_MAX: any number (no bucket) */
    uint64_t rate;      /* bytes by which the bucket refills in a second, up to `burst` */
    int keep_tokens;    /* 0: what is given back refills the bucket, too (up to `burst`); 1: it
                           does not */
    uint64_t held;      /* out: bytes held now, whole pages as taken by caches */
    uint64_t held_high; /* out: most ever held */
    uint64_t tokens;    /* out: bytes in the bucket now */
    uint64_t refused;   /* out: attempts that were over quota; who waits tries now and then */
} shmem_quota_t;
#define SHMEM_QUOTA_INIT                                                                           \
    {                                                                                              \
        sizeof(shmem_quota_t), UINT64_MAX, UINT64_MAX, 0, 0, 0, 0, 0, 0                            \
    }

/*
 * Set a task's quota in this pool; replaces the one it had. It counts for all processes of the
 * task, from their next refill on; who holds more than a new limit keeps it. A bucket starts full.
 * `task` NULL or "": whoever has no task. Memory is charged in pages, when a thread's cache takes
 * them from the pool, and refunded when they go back; exactly once, whoever frees, also when a
 * process dies. Errors: INVALID, LIMIT (127 tasks in a pool), STATE, CORRUPT.
 */
SHMEM_API shmem_status_t shmem_pool_quota_set(shmem_pool_t pool, const char *task,
                                              const shmem_quota_t *quota);
/* Quota and state of a task. NOT_FOUND: it never was named in this pool. */
SHMEM_API shmem_status_t shmem_pool_quota_get(shmem_pool_t pool, const char *task,
                                              shmem_quota_t *quota);
/* Names of the tasks, by index from 0. NOT_FOUND: no more. */
SHMEM_API shmem_status_t shmem_pool_task(shmem_pool_t pool, size_t index,
                                         char name[SHMEM_TASK_NAME]);

/* ---- what there is ---- */

typedef struct {
    size_t size;             /* sizeof(shmem_pool_info_t), set by the caller */
    uint64_t bytes;          /* capacity: memory that is there now */
    uint64_t used_bytes;     /* taken from the arenas (blocks, and what caches hold) */
    uint64_t high_water;     /* largest used_bytes ever */
    uint64_t fallbacks;      /* allocations served by another node than the one wanted */
    int nodes;               /* number of arenas */
    void *base;              /* first byte of the data, the same in all processes */
    uint64_t limit;          /* capacity up to which it grows */
    uint64_t bytes_high;     /* largest `bytes` ever */
    uint64_t grown;          /* pieces of memory that it grew by, so far */
    uint64_t returned_bytes; /* returned to the system, in all */
    int debug;               /* 1: a debug pool */
} shmem_pool_info_t;

SHMEM_API shmem_status_t shmem_pool_info(shmem_pool_t pool, shmem_pool_info_t *info);

typedef struct {
    size_t size;
    uint64_t bytes, limit; /* there now; most there can be */
    uint64_t used_bytes;   /* in blocks and caches */
    uint64_t largest_free; /* bytes of the largest free block */
    uint64_t span_bytes;   /* part of used_bytes that is cut into small blocks */
    uint64_t pages_moved;  /* of those looked at by the last shmem_pool_placement() */
} shmem_pool_node_info_t;
SHMEM_API shmem_status_t shmem_pool_node_info(shmem_pool_t pool, int node,
                                              shmem_pool_node_info_t *info);

typedef struct {
    size_t size;
    uint64_t block_bytes;       /* size of the class's blocks */
    uint64_t spans, span_bytes; /* spans of it, bytes in them */
    uint64_t blocks, used;      /* blocks in these spans; handed out */
} shmem_pool_class_info_t;
/* Size classes by index from 0. Walks the spans; the numbers are a moment apart. NOT_FOUND: no such
 * class. */
SHMEM_API shmem_status_t shmem_pool_class_info(shmem_pool_t pool, size_t index,
                                               shmem_pool_class_info_t *info);

typedef struct shmem_pool_client_info {
    size_t size;
    int alive;           /* 0: it died and is not repaired yet */
    int pid;             /* as the server saw it, for messages only */
    uint64_t blocks;     /* of whole pages */
    uint64_t spans;      /* of small blocks */
    uint64_t held_bytes; /* in all of these */
    char name[32];       /* as in the roster; "(pool)": given blocks */
} shmem_pool_client_info_t;
/* Who owns memory of the pool, into clients[room] (clients[0].size set by the caller); *count: how
 * many there are. Walks the pool. */
SHMEM_API shmem_status_t shmem_pool_clients(shmem_pool_t pool, shmem_pool_client_info_t *clients,
                                            size_t room, size_t *count);

typedef enum shmem_pool_why {
    SHMEM_POOL_WHY_FULL = 0,  /* the wanted node's arena had no room (and could not grow) */
    SHMEM_POOL_WHY_NO_MEMORY, /* the system had no memory on that node to grow with */
    SHMEM_POOL_WHYS
} shmem_pool_why_t;
/* How many allocations wanted `wanted`, got `got`, because of `why`. Each kind is logged, too, at
 * most once a second (level warn). */
SHMEM_API shmem_status_t shmem_pool_fallback(shmem_pool_t pool, int wanted, int got,
                                             shmem_pool_why_t why, uint64_t *count);

/* Ask the kernel where the pages of an arena are, in pages of 4 KiB, its bookkeeping included:
 * *there on its node, *elsewhere on others, moved after they were placed (logged once).
 * UNSUPPORTED: the kernel does not tell. */
SHMEM_API shmem_status_t shmem_pool_placement(shmem_pool_t pool, int node, uint64_t *there,
                                              uint64_t *elsewhere);

/* Walk every structure of the pool and check its invariants while it is locked. SHMEM_OK, or
 * CORRUPT with the first violation in the detail. Takes time in proportion to the number of blocks.
 */
SHMEM_API shmem_status_t shmem_pool_check(shmem_pool_t pool);

/* Give the empty slabs and cached blocks of the calling thread back to the arenas. */
SHMEM_API shmem_status_t shmem_pool_trim(shmem_pool_t pool);

/* Return idle memory to the system until `keep` bytes of capacity are left or nothing idle is
 * left (2 MiB at a time; after shmem_pool_trim() of the caller). Nothing is returned as long as an
 * engine of some process knows the pool (shmem/arena.h). The pool grows again when it has to, up to
 * its limit (of one that does not grow: up to its first size). *returned (may be NULL): bytes.
 * Errors: STATE, CORRUPT. */
SHMEM_API shmem_status_t shmem_pool_shrink(shmem_pool_t pool, uint64_t keep, uint64_t *returned);

/*
 * Debug pools (params.debug, or SHMEM_DEBUG=yes at creation): each block has guard bytes on both
 * sides and a trace of who allocated it where; freed blocks are filled with a pattern. Writing
 * beyond a block is found when it is freed or resized (CORRUPT), by shmem_pool_check(), or when its
 * owner closes the pool; writing after free by shmem_pool_check() (blocks up to 32 KiB) or when the
 * block is handed out again: an error is logged with the call sites, and counted here.
 * Blocks that their process has not freed when it closes the pool are logged, each with its call
 * site (in other pools: their number and bytes).
 */
typedef struct {
    size_t size;
    uint64_t blocks, bytes;   /* allocated through this handle's process, not freed, as asked for */
    uint64_t overruns;        /* guard bytes found overwritten, in the whole pool */
    uint64_t uses_after_free; /* freed blocks found changed */
} shmem_pool_debug_info_t;
/* STATE: no debug pool. */
SHMEM_API shmem_status_t shmem_pool_debug_info(shmem_pool_t pool, shmem_pool_debug_info_t *info);

#ifdef __cplusplus
}
#endif
#endif
