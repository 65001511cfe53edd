/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations on blocks of a debug pool (header->debug): around those of plain pools, whose
 * blocks they take with room for guards and a trace (memory/trace.h). `block` is always the user's
 * pointer. Contracts as in shmem/pool.h; `site` is the address that the program's call returns to.
 *
 * What it does not do: it finds no freed memory that was written to after it was merged with other
 * memory, and nothing that is only read.
 */
#ifndef SHMEMI_MEMORY_DEBUG_H
#define SHMEMI_MEMORY_DEBUG_H

#include "memory/pool.h"

/* What is asked for, in the words of the various functions that allocate. */
typedef struct shmemi_debug_request {
    size_t bytes, alignment; /* 0: default */
    bool placed;             /* with policy and node instead of the pool's */
    shmem_pool_policy_t policy;
    int node;
    bool timed; /* waits for `timeout` ns */
    int64_t timeout;
} shmemi_debug_request_t;

static inline bool shmemi_pool_is_debug(const shmemi_pool_t *pool)
{
    return pool->header->debug != 0;
}

shmem_status_t shmemi_debug_alloc(shmemi_pool_t *pool, const shmemi_debug_request_t *request,
                                  const void *site, void **block);
shmem_status_t shmemi_debug_free(shmemi_pool_t *pool, void *block, const void *site);
shmem_status_t shmemi_debug_resize(shmemi_pool_t *pool, void **block, size_t bytes,
                                   const void *site);
shmem_status_t shmemi_debug_block_bytes(shmemi_pool_t *pool, const void *block, size_t *bytes);
shmem_status_t shmemi_debug_give(shmemi_pool_t *pool, void *block);
shmem_status_t shmemi_debug_hold(shmemi_pool_t *pool, void *block);
shmem_status_t shmemi_debug_root_set(shmemi_pool_t *pool, void *block);

/* As shmemi_pool_check(), and the guards of all blocks, and the poison of free objects of spans. */
shmem_status_t shmemi_debug_check(shmemi_pool_t *pool);

/* Log, and count, which blocks that this client owns through the view have overwritten guards.
 * `name`: of the pool, for the text. No other thread of this process is in the pool. */
void shmemi_debug_report_own(shmemi_pool_t *pool, const char *name);

/* STATE: no debug pool. */
shmem_status_t shmemi_pool_debug_info(shmemi_pool_t *pool, shmem_pool_debug_info_t *info);

/* ---- leaks.c: any pool ---- */

/* Log what this client has allocated through the view and not freed nor given away: of a debug
 * pool each call site, else number and bytes. `name`: of the pool, for the text. */
void shmemi_pool_report_leaks(shmemi_pool_t *pool, const char *name);

#endif
