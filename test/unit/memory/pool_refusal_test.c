/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused at once, although the pool has room. */
#include "pool_world.h"

static shmemi_actor_t actor;
static shmemi_pool_t *pool;

static void begin(void)
{
    world_make(4);
    world_pool(64 << 20, SHMEM_POOL_NEAREST, 0, NULL);
    world_actor(&actor, 0);
    pool = world_attach(&actor, NULL);
}

static void end(void)
{
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_EQ(world_used(pool), 0);
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
}

/* Not even in place. */
static void a_destroyed_pool_gives_nothing(void)
{
    begin();
    void *p = world_alloc(pool, 1 << 20), *before = p;
    shmemi_pool_mark_destroyed(world.memory, true);
    CHECK_STATUS(shmemi_pool_resize(pool, &p, 2 << 20), SHMEM_ERR_STATE);
    CHECK(p == before);
    CHECK_EQ(world_used(pool), 1 << 20);
    CHECK_OK(shmemi_pool_resize(pool, &p, 1 << 19));
    CHECK(p == before);
    CHECK_OK(shmemi_pool_free(pool, p));
    end();
}

/* Nothing that others do could bring it. */
static void private_memory_is_not_waited_for(void)
{
    begin();
    void *p = NULL;
    shmemi_fault_arm("memory.heap.create", SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmemi_pool_alloc_timed(pool, 100, 0, SHMEM_FOREVER, &p), SHMEM_ERR_NOMEM);
    CHECK(!p);
    CHECK_EQ(shmemi_fault_passages(), 1);
    shmemi_fault_disarm();
    CHECK_OK(shmemi_pool_alloc_timed(pool, 100, 0, SHMEM_FOREVER, &p));
    CHECK_OK(shmemi_pool_free(pool, p));
    end();
}

int main(void)
{
    RUN(a_destroyed_pool_gives_nothing);
    RUN(private_memory_is_not_waited_for);
    return harness_end();
}
