/* SPDX-License-Identifier: Apache-2.0 */
/* What pools and tasks are called, and handles that are none. */
#include <string.h>

#include "base/status.h"
#include "job/pool_handle.h"

#define LAYER "job"

const shmemi_named_t shmemi_pool_named = {"pool", SHMEMI_POOL_PREFIX, SHMEM_POOL_NAME};

shmem_status_t shmemi_pool_task_make(shmem_context_t context, const char *name, char *task)
{
    *task = 0;
    if (!name)
        name = context->settings.task;
    if (!*name && name == context->settings.task)
        return SHMEM_OK;
    if (!shmemi_name_is_good(name, SHMEM_TASK_NAME))
        return shmemi_named_refuse("task", name, SHMEM_TASK_NAME);
    strcpy(task, name);
    return SHMEM_OK;
}

/* ---- handles ---- */

__attribute__((noinline, cold)) shmem_status_t shmemi_pool_unusable(shmem_pool_t pool,
                                                                    const char *what)
{
    if (!pool)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%s: the pool is NULL", what);
    return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                       "%s: the pool was closed, by shmem_pool_close() or with its context: open "
                       "it again",
                       what);
}
