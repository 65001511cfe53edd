/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas and numbers of pools, as programs ask for them: structs may be those of older programs. */
#include <stdlib.h>
#include <string.h>

#include "base/params.h"
#include "base/status.h"
#include "job/pool_handle.h"
#include "memory/debug.h"

#define LAYER "job"

/* Size of a struct's first version: all of it, as long as there is no other. */
#define LEAST_QUOTA  sizeof(shmem_quota_t)
#define LEAST_INFO   offsetof(shmem_pool_info_t, limit)
#define LEAST_NODE   sizeof(shmem_pool_node_info_t)
#define LEAST_CLASS  sizeof(shmem_pool_class_info_t)
#define LEAST_CLIENT sizeof(shmem_pool_client_info_t)
#define LEAST_DEBUG  sizeof(shmem_pool_debug_info_t)

shmem_status_t shmem_pool_check(shmem_pool_t pool)
{
    if (shmemi_pool_is_plain(pool))
        return shmemi_pool_check(pool->plain);
    return shmemi_pool_is_open(pool) ? shmemi_debug_check(pool->core)
                                     : shmemi_pool_unusable(pool, "shmem_pool_check");
}

/* ---- quotas ---- */

shmem_status_t shmem_pool_quota_set(shmem_pool_t pool, const char *task, const shmem_quota_t *quota)
{
    shmem_quota_t own;
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_quota_set");
    shmem_status_t status =
        shmemi_params_take(&own, sizeof own, LEAST_QUOTA, quota, "shmem_quota_t");
    return status ? status : shmemi_pool_quota_set(pool->core, task, &own);
}

shmem_status_t shmem_pool_quota_get(shmem_pool_t pool, const char *task, shmem_quota_t *quota)
{
    shmem_quota_t own = {.size = sizeof own};
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_quota_get");
    shmem_status_t status = shmemi_params_check(quota, LEAST_QUOTA, "shmem_quota_t");
    if (!status)
        status = shmemi_pool_quota_get(pool->core, task, &own);
    if (!status)
        shmemi_params_give(quota, &own, sizeof own);
    return status;
}

shmem_status_t shmem_pool_task(shmem_pool_t pool, size_t index, char name[SHMEM_TASK_NAME])
{
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_task");
    if (!name)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "shmem_pool_task: no place for the name");
    return shmemi_pool_task(pool->core, index, name);
}

/* ---- what there is ---- */

shmem_status_t shmem_pool_info(shmem_pool_t pool, shmem_pool_info_t *info)
{
    shmem_pool_info_t own = {.size = sizeof own};
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_info");
    shmem_status_t status = shmemi_params_check(info, LEAST_INFO, "shmem_pool_info_t");
    if (!status)
        status = shmemi_pool_describe(pool->core, &own);
    if (!status)
        shmemi_params_give(info, &own, sizeof own);
    return status;
}

shmem_status_t shmem_pool_node_info(shmem_pool_t pool, int node, shmem_pool_node_info_t *info)
{
    shmem_pool_node_info_t own = {.size = sizeof own};
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_node_info");
    shmem_status_t status = shmemi_params_check(info, LEAST_NODE, "shmem_pool_node_info_t");
    if (!status)
        status = shmemi_pool_node_info(pool->core, node, &own);
    if (!status)
        shmemi_params_give(info, &own, sizeof own);
    return status;
}

shmem_status_t shmem_pool_class_info(shmem_pool_t pool, size_t index, shmem_pool_class_info_t *info)
{
    shmem_pool_class_info_t own = {.size = sizeof own};
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_class_info");
    shmem_status_t status = shmemi_params_check(info, LEAST_CLASS, "shmem_pool_class_info_t");
    if (!status)
        status = shmemi_pool_class_info(pool->core, index, &own);
    if (!status)
        shmemi_params_give(info, &own, sizeof own);
    return status;
}

/* The caller's structs follow each other at the distance of his size. */
static void clients_give(shmem_pool_client_info_t *clients, size_t stride,
                         const shmem_pool_client_info_t *own, size_t n)
{
    char *place = (char *)clients;
    for (size_t i = 0; i < n; i++, place += stride) {
        memcpy(place, &stride, sizeof stride);
        shmemi_params_give(place, &own[i], sizeof own[i]);
    }
}

shmem_status_t shmem_pool_clients(shmem_pool_t pool, shmem_pool_client_info_t *clients, size_t room,
                                  size_t *count)
{
    size_t found = 0;
    shmem_status_t status = SHMEM_OK;
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_clients");
    if (!count)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_pool_clients: no place for their number");
    if (room)
        status = shmemi_params_check(clients, LEAST_CLIENT, "shmem_pool_client_info_t");
    if (status)
        return status;
    shmem_pool_client_info_t *own = room ? calloc(room, sizeof *own) : NULL;
    if (room && !own)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for %zu clients", room);
    if (room)
        own[0].size = sizeof *own;
    status = shmemi_pool_clients(pool->core, own, room, &found);
    if (!status) {
        if (room)
            clients_give(clients, clients[0].size, own, found < room ? found : room);
        *count = found;
    }
    free(own);
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

shmem_status_t shmem_pool_debug_info(shmem_pool_t pool, shmem_pool_debug_info_t *info)
{
    shmem_pool_debug_info_t own = {.size = sizeof own};
    if (!shmemi_pool_is_open(pool))
        return shmemi_pool_unusable(pool, "shmem_pool_debug_info");
    shmem_status_t status = shmemi_params_check(info, LEAST_DEBUG, "shmem_pool_debug_info_t");
    if (!status)
        status = shmemi_pool_debug_info(pool->core, &own);
    if (!status)
        shmemi_params_give(info, &own, sizeof own);
    return status;
}
