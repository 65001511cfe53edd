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

shmem_status_t shmem_pool_alloc_timed(shmem_pool_t pool, size_t bytes, size_t alignment,
                                      int64_t timeout, void **block)
{
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_alloc_timed");
    return shmemi_pool_alloc_timed(pool->core, bytes, alignment, timeout, block);
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

/* ---- owners ---- */

shmem_status_t shmem_pool_give(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_give(pool->core, block)
                                     : shmemi_pool_unusable(pool, "shmem_pool_give");
}

shmem_status_t shmem_pool_hold(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_hold(pool->core, block)
                                     : shmemi_pool_unusable(pool, "shmem_pool_hold");
}

/* ---- the root ---- */

shmem_status_t shmem_pool_root_set(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_root_set(pool->core, block)
                                     : shmemi_pool_unusable(pool, "shmem_pool_root_set");
}

shmem_status_t shmem_pool_root_get(shmem_pool_t pool, void **block)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_root_get(pool->core, block)
                                     : shmemi_pool_unusable(pool, "shmem_pool_root_get");
}

/* ---- memory that is not needed ---- */

shmem_status_t shmem_pool_trim(shmem_pool_t pool)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_trim(pool->core)
                                     : shmemi_pool_unusable(pool, "shmem_pool_trim");
}

shmem_status_t shmem_pool_shrink(shmem_pool_t pool, uint64_t keep, uint64_t *returned)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_shrink(pool->core, keep, returned)
                                     : shmemi_pool_unusable(pool, "shmem_pool_shrink");
}
