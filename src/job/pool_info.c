/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas and numbers of pools, as programs ask for them: structs may be those of older programs. */
#include "base/params.h"
#include "job/pool_handle.h"

shmem_status_t shmem_pool_check(shmem_pool_t pool)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_check(pool->core)
                                     : shmemi_pool_unusable(pool, "shmem_pool_check");
}

shmem_status_t shmem_pool_trim(shmem_pool_t pool)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_trim(pool->core)
                                     : shmemi_pool_unusable(pool, "shmem_pool_trim");
}

shmem_status_t shmem_pool_info(shmem_pool_t pool, shmem_pool_info_t *info)
{
    shmem_pool_info_t own = {.size = sizeof own};
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_info");
    shmem_status_t status =
        shmemi_params_check(info, offsetof(shmem_pool_info_t, limit), "shmem_pool_info_t");
    if (!status)
        status = shmemi_pool_describe(pool->core, &own);
    if (!status)
        shmemi_params_give(info, &own, sizeof own);
    return status;
}

shmem_status_t shmem_pool_fallback(shmem_pool_t pool, int wanted, int got, shmem_pool_why_t why,
                                   uint64_t *count)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_fallback(pool->core, wanted, got, why, count)
                                     : shmemi_pool_unusable(pool, "shmem_pool_fallback");
}

shmem_status_t shmem_pool_placement(shmem_pool_t pool, int node, uint64_t *there,
                                    uint64_t *elsewhere)
{
    return shmemi_pool_is_open(pool) ? shmemi_pool_placement(pool->core, node, there, elsewhere)
                                     : shmemi_pool_unusable(pool, "shmem_pool_placement");
}
