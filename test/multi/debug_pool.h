/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of debug pools share: what the library logs, call sites with names, a pool. */
#ifndef SHMEM_TEST_DEBUG_POOL_H
#define SHMEM_TEST_DEBUG_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "job.h"
#include "job/context.h"

enum { LINES = 64 };

/* Call sites have names when these are visible to the dynamic linker. */
#define SITE __attribute__((noinline, visibility("default")))

/* ---- what the library logs ---- */

static struct {
    pthread_mutex_t lock;
    int count;
    char line[LINES][600];
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void sink(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    (void)user;
    (void)layer;
    pthread_mutex_lock(&logged.lock);
    if (level <= SHMEM_LOG_WARN && logged.count < LINES)
        snprintf(logged.line[logged.count++], sizeof logged.line[0], "%s", text);
    pthread_mutex_unlock(&logged.lock);
}

static inline const char *line_with(const char *first, const char *second)
{
    for (int i = 0; i < logged.count; i++)
        if (strstr(logged.line[i], first) && strstr(logged.line[i], second))
            return logged.line[i];
    for (int i = 0; i < logged.count; i++)
        printf("    logged: %s\n", logged.line[i]);
    harness_fail(__FILE__, __LINE__, "no line with '%s' and '%s'", first, second);
}

static inline void detail_has(const char *first, const char *second)
{
    const char *text = shmem_error_detail()->text;
    if (!strstr(text, first) || !strstr(text, second))
        harness_fail(__FILE__, __LINE__, "'%s' and '%s' are not in '%s'", first, second, text);
}

/* ---- who does it ---- */

SITE void *site_one(shmem_pool_t pool, size_t bytes);
SITE void *site_two(shmem_pool_t pool, size_t bytes);
SITE void site_free(shmem_pool_t pool, void *block);

SITE void *site_one(shmem_pool_t pool, size_t bytes)
{
    void *block = NULL;
    CHECK_OK(shmem_pool_alloc(pool, bytes, &block));
    return block;
}

SITE void *site_two(shmem_pool_t pool, size_t bytes)
{
    void *block = NULL;
    CHECK_OK(shmem_pool_alloc_aligned(pool, bytes, 0, &block));
    return block;
}

SITE void site_free(shmem_pool_t pool, void *block)
{
    CHECK_OK(shmem_pool_free(pool, block));
}

static char name[32];
static shmem_context_t context;

static inline shmem_pool_t pool_of(uint64_t bytes)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    static int number;
    snprintf(name, sizeof name, "debug-%d-%d", (int)getpid(), ++number);
    params.bytes = bytes;
    params.debug = 1;
    context = job_init(NULL, 0, 1);
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
    logged.count = 0;
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    return pool;
}

static inline shmem_pool_debug_info_t info_of(shmem_pool_t pool)
{
    shmem_pool_debug_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_debug_info(pool, &info));
    return info;
}

static inline uint64_t used(shmem_pool_t pool)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_trim(pool));
    CHECK_OK(shmem_pool_info(pool, &info));
    return info.used_bytes;
}

static inline void done(shmem_pool_t pool)
{
    CHECK_OK(shmem_pool_check(pool));
    shmem_pool_close(pool);
    CHECK_OK(shmem_context_finalize(context));
    shmem_log_set_sink(NULL, NULL, SHMEM_LOG_ERROR);
}

#endif
