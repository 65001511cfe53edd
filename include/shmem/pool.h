/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: preallocated shared memory from which any number of processes allocate blocks.
 *
 * A pool has one arena per NUMA node. Blocks are at the same address in every process, so pointers
 * to them may be stored in shared memory. A block may be freed by another thread or process than
 * the one that allocated it. Blocks of a process that dies are given back within a second.
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

typedef struct shmem_pool_params {
    size_t size;                /* sizeof(shmem_pool_params_t) */
    uint64_t bytes;             /* capacity, > 0, rounded up to pages; split evenly among nodes */
    shmem_pool_policy_t policy; /* for shmem_pool_alloc() */
    int node;                   /* for BIND and PREFERRED: index as in shmem/topology.h */
} shmem_pool_params_t;
#define SHMEM_POOL_PARAMS_INIT                                                                     \
    {                                                                                              \
        sizeof(shmem_pool_params_t), 0, SHMEM_POOL_NEAREST, 0                                      \
    }

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
 * handle again, counted: each open, and the create, wants its shmem_pool_close().
 * Errors: INVALID, NOT_FOUND (also: its creator died while making it), BUSY (its creator is still
 * at it), ACCESS (another user's), VERSION, CORRUPT, SERVER_LOST, STATE.
 */
SHMEM_API shmem_status_t shmem_pool_open(shmem_context_t context, const char *name,
                                         shmem_pool_t *pool);

/* Undo one shmem_pool_create() or shmem_pool_open(). The last one closes: the caller's blocks are
 * given back to the pool, those of other processes stay; no thread may be inside a call on it. NULL
 * and a pool that is closed already (the end of its context closes it) are accepted: nothing
 * happens. Operations on a closed pool give STATE for some time (see shmem_context_finalize()). */
SHMEM_API void shmem_pool_close(shmem_pool_t pool);

/*
 * Allocate `bytes` (> 0). The block belongs to the calling process; its content is undefined.
 *   aligned: alignment is a power of two from 64 bytes to 2 MiB (smaller ones are raised to 64)
 *   on: like aligned (0: default), with policy and node instead of the pool's
 * Errors: INVALID (0 bytes, alignment, node), OVERFLOW (more than the pool could ever hold), NOMEM
 * (asked, largest free block, free bytes), CORRUPT.
 */
SHMEM_API shmem_status_t shmem_pool_alloc(shmem_pool_t pool, size_t bytes, void **block);
SHMEM_API shmem_status_t shmem_pool_alloc_aligned(shmem_pool_t pool, size_t bytes, size_t alignment,
                                                  void **block);
SHMEM_API shmem_status_t shmem_pool_alloc_on(shmem_pool_t pool, size_t bytes, size_t alignment,
                                             shmem_pool_policy_t policy, int node, void **block);

/* Change the size of a block, in place where possible, else by moving (content kept up to the
 * smaller size). *block is updated on success and untouched, still valid, on failure. Errors: as
 * alloc and free. */
SHMEM_API shmem_status_t shmem_pool_resize(shmem_pool_t pool, void **block, size_t bytes);

/* Give a block back. NULL is accepted. Errors, nothing changed: DOUBLE_FREE, FOREIGN_POINTER,
 * INTERIOR_POINTER, CORRUPT. */
SHMEM_API shmem_status_t shmem_pool_free(shmem_pool_t pool, void *block);

/* Bytes usable in a block (at least what was asked for). Errors: as shmem_pool_free(). */
SHMEM_API shmem_status_t shmem_pool_block_bytes(shmem_pool_t pool, const void *block,
                                                size_t *bytes);

typedef struct {
    size_t size;         /* sizeof(shmem_pool_info_t), set by the caller */
    uint64_t bytes;      /* capacity */
    uint64_t used_bytes; /* taken from the arenas (blocks, and what caches hold) */
    uint64_t high_water; /* largest used_bytes ever */
    uint64_t fallbacks;  /* allocations served by another node than the one wanted */
    int nodes;           /* number of arenas */
    void *base;          /* first byte of the data, the same in all processes */
} shmem_pool_info_t;

SHMEM_API shmem_status_t shmem_pool_info(shmem_pool_t pool, shmem_pool_info_t *info);

/* Walk every structure of the pool and check its invariants while it is locked. SHMEM_OK, or
 * CORRUPT with the first violation in the detail. Takes time in proportion to the number of blocks.
 */
SHMEM_API shmem_status_t shmem_pool_check(shmem_pool_t pool);

/* Give the empty slabs and cached blocks of the calling thread back to the arenas. */
SHMEM_API shmem_status_t shmem_pool_trim(shmem_pool_t pool);

#ifdef __cplusplus
}
#endif
#endif
