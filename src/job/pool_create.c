/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a pool: a segment of the node server, memory for it, a layout in it.
 *
 *   created | claimed | memory reserved | formatted: ready | entered, as by who opens it
 *
 * Who opens it meanwhile sees from the second step on who is at it, and waits for as long as that
 * one lives. If the creator dies, the segment goes with it or with the last of those who wait.
 */
#include <string.h>

#include "base/fault.h"
#include "base/params.h"
#include "base/status.h"
#include "job/pool_handle.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "job"

#define LEAST_PARAMS offsetof(shmem_pool_params_t, limit) /* their first version */

/* Pages from the administrator's reserve are claimed for the whole file at once: no way to grow. */
static int segment_huge(shmem_context_t context, const shmem_pool_params_t *params, uint64_t bytes)
{
    int huge = shmemi_pool_huge(context, bytes);
    return huge == SHMEMI_HUGE_REQUIRED && params->limit > params->bytes ? SHMEMI_HUGE_AUTO : huge;
}

static shmem_status_t make_segment(shmemi_pool_view_t *view, const char *full,
                                   const shmem_pool_params_t *params, shmem_topology_t topology)
{
    uint64_t bytes;
    int nodes = shmem_topology_nodes(topology);
    shmem_status_t status = shmemi_pool_segment_bytes(shmemi_pool_capacity(params), nodes, &bytes);
    if (status)
        return status;
    shmemi_segment_request_t request = {.name = full,
                                        .bytes = bytes,
                                        .kind = SHMEMI_SEGMENT_POOL,
                                        .huge = segment_huge(view->context, params, bytes),
                                        .access = params->access};
    status = shmemi_client_segment_create(view->context->client, &request, &view->segment);
    SHMEMI_KILL_POINT("job.pool.created");
    return status;
}

static shmem_status_t make(shmemi_pool_view_t *view, const char *full,
                           const shmem_pool_params_t *params)
{
    shmem_topology_t topology;
    shmem_status_t status = shmemi_context_topology(view->context, &topology);
    if (!status)
        status = make_segment(view, full, params, topology);
    if (!status)
        status = shmemi_pool_pages_map(view);
    if (!status)
        shmemi_pool_claim(view->memory, view->context->actor);
    SHMEMI_KILL_POINT("job.pool.claimed");
    if (!status)
        status = shmemi_pool_pages_make(view, params, topology);
    if (!status)
        status = shmemi_pool_format(view->memory, view->segment.bytes, params, topology);
    SHMEMI_KILL_POINT("job.pool.formatted");
    return status;
}

static shmem_status_t params_check(const shmem_pool_params_t *params)
{
    const uint32_t all = SHMEM_ACCESS_GROUP_READ | SHMEM_ACCESS_GROUP_WRITE |
                         SHMEM_ACCESS_OTHER_READ | SHMEM_ACCESS_OTHER_WRITE;
    if (!params->bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "a pool of 0 bytes");
    if (params->limit && params->limit < params->bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "a pool of %llu bytes at first with a limit of %llu: want at least as "
                           "many, or 0",
                           (unsigned long long)params->bytes, (unsigned long long)params->limit);
    if (params->access & ~all)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "access %#o of a pool: want bits of SHMEM_ACCESS_*", params->access);
    if (params->debug < 0 || params->debug > 1)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "debug %d of a pool: want 0 or 1",
                           params->debug);
    return SHMEM_OK;
}

/* Everything that can be wrong about the arguments. *full is "" for a pool without a name. */
static shmem_status_t create_check(shmem_context_t context, const char *name,
                                   const shmem_pool_params_t *given, shmem_pool_params_t *params,
                                   char *full, char *task)
{
    *full = 0;
    if (!context)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "shmem_pool_create: the context is NULL");
    shmem_status_t status =
        shmemi_params_take(params, sizeof *params, LEAST_PARAMS, given, "shmem_pool_params_t");
    if (!status)
        status = shmemi_context_check(context, "shmem_pool_create");
    if (!status)
        status = params_check(params);
    if (!status && name)
        status = shmemi_named_make(&shmemi_pool_named, name, full);
    if (!status)
        status = shmemi_pool_task_make(context, params->task, task);
    return status;
}

shmem_status_t shmem_pool_create(shmem_context_t context, const char *name,
                                 const shmem_pool_params_t *params, shmem_pool_t *pool)
{
    shmem_pool_params_t own;
    char full[SHMEMI_NAME_MAX + 1], task[SHMEM_TASK_NAME];
    if (!pool)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "shmem_pool_create: no place for the pool");
    shmem_status_t status = create_check(context, name, params, &own, full, task);
    if (status)
        return status;
    own.debug = own.debug || context->settings.debug;
    uint64_t generation = shmemi_names_generation(context);
    shmem_pool_t p = shmemi_pool_handle_make(context, task);
    if (!p)
        return SHMEM_ERR_NOMEM;
    status = make(p->view, name ? full : NULL, &own);
    if (status)
        shmemi_pool_handle_drop(p);
    else
        status = shmemi_pool_enter(p, full, generation, pool);
    return status ? shmemi_named_translate(&shmemi_pool_named, context, name ? name : "", status)
                  : SHMEM_OK;
}
