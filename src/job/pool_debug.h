/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of pool_ops.c on handles that are not plain pools: debug pools, and bad handles.
 */
#ifndef SHMEMI_JOB_POOL_DEBUG_H
#define SHMEMI_JOB_POOL_DEBUG_H

#include "job/pool_handle.h"
#include "memory/debug.h"

/* `site`: where the program's call returns to; `what`: the call. */
shmem_status_t shmemi_pool_debug_alloc(shmem_pool_t pool, const shmemi_debug_request_t *request,
                                       const void *site, const char *what, void **block);
shmem_status_t shmemi_pool_debug_resize(shmem_pool_t pool, void **block, size_t bytes,
                                        const void *site);
shmem_status_t shmemi_pool_debug_free(shmem_pool_t pool, void *block, const void *site);
shmem_status_t shmemi_pool_debug_block_bytes(shmem_pool_t pool, const void *block, size_t *bytes);
shmem_status_t shmemi_pool_debug_give(shmem_pool_t pool, void *block);
shmem_status_t shmemi_pool_debug_hold(shmem_pool_t pool, void *block);
shmem_status_t shmemi_pool_debug_root_set(shmem_pool_t pool, void *block);

#endif
