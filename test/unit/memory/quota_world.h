/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of quotas share: a pool, a view that works for nobody's task, quotas set and read.
 */
#ifndef SHMEM_TEST_QUOTA_WORLD_H
#define SHMEM_TEST_QUOTA_WORLD_H

#include "memory/quota.h"
#include "pool_world.h"

#define MIB  (1ull << 20)
#define PAGE 4096ull

static shmemi_actor_t actor;
static shmemi_pool_t *pool; /* of nobody's task */
static shmem_topology_t topology;

static inline void begin_on(const char *machine, uint64_t bytes)
{
    topology = NULL;
    if (machine)
        CHECK_OK(shmemi_topo_create_synthetic(machine, &topology));
    world_make(12);
    world_pool(bytes, SHMEM_POOL_NEAREST, 0, topology);
    world_actor(&actor, 0);
    pool = world_attach(&actor, topology);
}

static inline void begin(uint64_t bytes)
{
    begin_on(NULL, bytes);
}

static inline shmem_quota_t state(const char *task)
{
    shmem_quota_t q = SHMEM_QUOTA_INIT;
    CHECK_OK(shmemi_pool_quota_get(pool, task, &q));
    return q;
}

static inline uint64_t held(const char *task)
{
    return state(task).held;
}

static inline void end(void)
{
    char name[SHMEM_TASK_NAME];
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_EQ(world_used(pool), 0);
    CHECK_EQ(held(NULL), 0);
    for (size_t i = 0; shmemi_pool_task(pool, i, name) == SHMEM_OK; i++)
        CHECK_EQ(held(name), 0);
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
    shmem_topology_destroy(topology);
}

static inline void set_in(shmemi_pool_t *p, const char *task, uint64_t limit, uint64_t burst,
                          uint64_t rate, int keep)
{
    shmem_quota_t q = SHMEM_QUOTA_INIT;
    q.limit = limit;
    q.burst = burst;
    q.rate = rate;
    q.keep_tokens = keep;
    CHECK_OK(shmemi_pool_quota_set(p, task, &q));
}

static inline void set(const char *task, uint64_t limit, uint64_t burst, uint64_t rate, int keep)
{
    set_in(pool, task, limit, burst, rate, keep);
}

static inline bool text_has(const char *part)
{
    return strstr(shmem_error_detail()->text, part) != NULL;
}

#endif
