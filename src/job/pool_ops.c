/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of pools, as programs ask for them: the public names of what memory/ does. */
#include "job/pool_handle.h"

shmem_status_t shmem_pool_alloc(shmem_pool_t pool, size_t bytes, void **block)
{
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_alloc");
    return shmemi_pool_alloc_default(pool->core, bytes, block);
}

shmem_status_t shmem_pool_alloc_aligned(shmem_pool_t pool, size_t bytes, size_t alignment,
                                        void **block)
{
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_alloc_aligned");
    return shmemi_pool_alloc_aligned(pool->core, bytes, alignment, block);
}

shmem_status_t shmem_pool_alloc_on(shmem_pool_t pool, size_t bytes, size_t alignment,
                                   shmem_pool_policy_t policy, int node, void **block)
{
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_alloc_on");
    return shmemi_pool_alloc(pool->core, bytes, alignment, policy, node, block);
}

shmem_status_t shmem_pool_resize(shmem_pool_t pool, void **block, size_t bytes)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_resize(pool->core, block, bytes)
                                     : shmemi_pool_unusable(pool, "shmem_pool_resize");
}

shmem_status_t shmem_pool_free(shmem_pool_t pool, void *block)
{
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_free");
    return shmemi_pool_free(pool->core, block);
}

shmem_status_t shmem_pool_block_bytes(shmem_pool_t pool, const void *block, size_t *bytes)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_block_bytes(pool->core, block, bytes)
                                     : shmemi_pool_unusable(pool, "shmem_pool_block_bytes");
}
