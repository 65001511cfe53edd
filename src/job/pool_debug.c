/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of debug pools, and the errors of handles that are no pools any more: where the operations
 * of pool_ops.c go that find no plain pool. */
#include "job/pool_debug.h"

shmem_status_t shmemi_pool_debug_alloc(shmem_pool_t pool, const shmemi_debug_request_t *request,
                                       const void *site, const char *what, void **block)
{
    return shmemi_pool_is_open(pool) ? shmemi_debug_alloc(pool->core, request, site, block)
                                     : shmemi_pool_unusable(pool, what);
}

shmem_status_t shmemi_pool_debug_resize(shmem_pool_t pool, void **block, size_t bytes,
                                        const void *site)
{
    return shmemi_pool_is_open(pool) ? shmemi_debug_resize(pool->core, block, bytes, site)
                                     : shmemi_pool_unusable(pool, "shmem_pool_resize");
}

shmem_status_t shmemi_pool_debug_free(shmem_pool_t pool, void *block, const void *site)
{
    return shmemi_pool_is_open(pool) ? shmemi_debug_free(pool->core, block, site)
                                     : shmemi_pool_unusable(pool, "shmem_pool_free");
}

shmem_status_t shmemi_pool_debug_block_bytes(shmem_pool_t pool, const void *block, size_t *bytes)
{
    return shmemi_pool_is_open(pool) ? shmemi_debug_block_bytes(pool->core, block, bytes)
                                     : shmemi_pool_unusable(pool, "shmem_pool_block_bytes");
}

shmem_status_t shmemi_pool_debug_give(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_open(pool) ? shmemi_debug_give(pool->core, block)
                                     : shmemi_pool_unusable(pool, "shmem_pool_give");
}

shmem_status_t shmemi_pool_debug_hold(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_open(pool) ? shmemi_debug_hold(pool->core, block)
                                     : shmemi_pool_unusable(pool, "shmem_pool_hold");
}

shmem_status_t shmemi_pool_debug_root_set(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_open(pool) ? shmemi_debug_root_set(pool->core, block)
                                     : shmemi_pool_unusable(pool, "shmem_pool_root_set");
}
