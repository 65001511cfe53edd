/* SPDX-License-Identifier: Apache-2.0 */
/* Names of pools and tasks, and errors in words of pools. */
#include <string.h>

#include "base/status.h"
#include "job/pool_handle.h"

#define LAYER "job"

static shmem_status_t bad_name(const char *what, const char *name, int room)
{
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                       "%s name '%.80s': want 1 to %d letters, digits, '.', '_', '-' or '/', and "
                       "no '..' between slashes",
                       what, name, room - 1);
}

shmem_status_t shmemi_pool_name_make(const char *name, char *full)
{
    if (!shmemi_name_is_good(name, SHMEM_POOL_NAME))
        return bad_name("pool", name, SHMEM_POOL_NAME);
    memcpy(full, SHMEMI_POOL_PREFIX, sizeof SHMEMI_POOL_PREFIX - 1);
    strcpy(full + sizeof SHMEMI_POOL_PREFIX - 1, name);
    return SHMEM_OK;
}

shmem_status_t shmemi_pool_task_make(shmem_context_t context, const char *name, char *task)
{
    *task = 0;
    if (!name)
        name = context->settings.task;
    if (!*name && name == context->settings.task)
        return SHMEM_OK;
    if (!shmemi_name_is_good(name, SHMEM_TASK_NAME))
        return bad_name("task", name, SHMEM_TASK_NAME);
    strcpy(task, name);
    return SHMEM_OK;
}

shmem_status_t shmemi_pool_translate(shmem_context_t context, const char *name,
                                     shmem_status_t status)
{
    const char *text = shmem_error_detail()->text, *belongs = strstr(text, "belongs to user");
    if (status == SHMEM_ERR_NOT_FOUND)
        return shmemi_quiet(status, LAYER,
                            "there is no pool '%s' at the node server %s: is its creator running, "
                            "with the same SHMEM_SERVER?",
                            name, shmemi_client_address(context->client));
    if (status == SHMEM_ERR_EXISTS)
        return shmemi_quiet(status, LAYER,
                            "a pool '%s' exists already: open it with shmem_pool_open() or choose "
                            "another name",
                            name);
    if (status == SHMEM_ERR_ACCESS && belongs)
        return shmemi_quiet(status, LAYER, "pool '%s' %s", name, belongs);
    return status;
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
