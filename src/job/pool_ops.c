/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of pools, as programs ask for them: the public names of what memory/ does. */
#include "job/pool_debug.h"

/* Where the call of a public function returns to. */
#define SITE __builtin_return_address(0)

shmem_status_t shmem_pool_alloc(shmem_pool_t pool, size_t bytes, void **block)
{
    if (!shmemi_pool_is_plain(pool)) {
        const shmemi_debug_request_t request = {.bytes = bytes};
        return shmemi_pool_debug_alloc(pool, &request, SITE, "shmem_pool_alloc", block);
    }
    return shmemi_pool_alloc_default(pool->plain, bytes, block);
}

shmem_status_t shmem_pool_alloc_aligned(shmem_pool_t pool, size_t bytes, size_t alignment,
                                        void **block)
{
    if (!shmemi_pool_is_plain(pool)) {
        const shmemi_debug_request_t request = {.bytes = bytes, .alignment = alignment};
        return shmemi_pool_debug_alloc(pool, &request, SITE, "shmem_pool_alloc_aligned", block);
    }
    return shmemi_pool_alloc_aligned(pool->plain, bytes, alignment, block);
}

shmem_status_t shmem_pool_alloc_on(shmem_pool_t pool, size_t bytes, size_t alignment,
                                   shmem_pool_policy_t policy, int node, void **block)
{
    if (!shmemi_pool_is_plain(pool)) {
        const shmemi_debug_request_t request = {
            .bytes = bytes, .alignment = alignment, .placed = true, .policy = policy, .node = node};
        return shmemi_pool_debug_alloc(pool, &request, SITE, "shmem_pool_alloc_on", block);
    }
    return shmemi_pool_alloc(pool->plain, bytes, alignment, policy, node, block);
}

shmem_status_t shmem_pool_alloc_timed(shmem_pool_t pool, size_t bytes, size_t alignment,
                                      int64_t timeout, void **block)
{
    if (!shmemi_pool_is_plain(pool)) {
        const shmemi_debug_request_t request = {
            .bytes = bytes, .alignment = alignment, .timed = true, .timeout = timeout};
        return shmemi_pool_debug_alloc(pool, &request, SITE, "shmem_pool_alloc_timed", block);
    }
    return shmemi_pool_alloc_timed(pool->plain, bytes, alignment, timeout, block);
}

shmem_status_t shmem_pool_resize(shmem_pool_t pool, void **block, size_t bytes)
{
    return shmemi_pool_is_plain(pool) ? shmemi_pool_resize(pool->plain, block, bytes)
                                      : shmemi_pool_debug_resize(pool, block, bytes, SITE);
}

shmem_status_t shmem_pool_free(shmem_pool_t pool, void *block)
{
    if (!shmemi_pool_is_plain(pool))
        return shmemi_pool_debug_free(pool, block, SITE);
    return shmemi_pool_free(pool->plain, block);
}

shmem_status_t shmem_pool_block_bytes(shmem_pool_t pool, const void *block, size_t *bytes)
{
    return shmemi_pool_is_plain(pool) ? shmemi_pool_block_bytes(pool->plain, block, bytes)
                                      : shmemi_pool_debug_block_bytes(pool, block, bytes);
}

/* ---- owners ---- */

shmem_status_t shmem_pool_give(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_plain(pool) ? shmemi_pool_give(pool->plain, block)
                                      : shmemi_pool_debug_give(pool, block);
}

shmem_status_t shmem_pool_hold(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_plain(pool) ? shmemi_pool_hold(pool->plain, block)
                                      : shmemi_pool_debug_hold(pool, block);
}

/* ---- the root ---- */

shmem_status_t shmem_pool_root_set(shmem_pool_t pool, void *block)
{
    return shmemi_pool_is_plain(pool) ? shmemi_pool_root_set(pool->plain, block)
                                      : shmemi_pool_debug_root_set(pool, block);
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
