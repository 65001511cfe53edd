/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's repair of a large pool goes in parts, between which others work; of a pool with
 * several arenas each is repaired as soon as it can be.
 */
#include "pool_world.h"

enum { SERVER = 0, LIVING = 1, VICTIM = 2, CLIENTS = 3, BLOCKS = 40000 };

static shmemi_actor_t actor[CLIENTS];
static shmemi_pool_t *living, *victim;

static void begin(uint64_t bytes, shmem_topology_t topology)
{
    world_make(CLIENTS);
    world_pool(bytes, SHMEM_POOL_NEAREST, 0, topology);
    for (int i = 0; i < CLIENTS; i++)
        world_actor(&actor[i], i);
    living = world_attach(&actor[LIVING], topology);
    victim = world_attach(&actor[VICTIM], topology);
}

static void end(void)
{
    shmemi_pool_detach(living);
    for (int i = 0; i < CLIENTS; i++)
        shmemi_actor_fini(&actor[i]);
}

static shmem_status_t repair_part(shmemi_repair_t *repair)
{
    return shmemi_pool_reclaim(world.memory, world.segment_bytes, &actor[SERVER],
                               world.client[VICTIM].slot, world.client[VICTIM].epoch, 0, repair);
}

/* One or more pages, at multiples of two. */
static void *pages(shmemi_pool_t *pool, uint32_t n)
{
    void *block = NULL;
    CHECK_OK(shmemi_pool_alloc_aligned(pool, (size_t)n * SHMEMI_PAGE, 2 * SHMEMI_PAGE, &block));
    return block;
}

/* Whatever others do between the parts, nothing of the dead is forgotten. */
static void in_parts(void)
{
    static void *block[BLOCKS];
    begin(1ull << 30, NULL);
    uint64_t dead = 0, seed = 1;
    for (int i = 0; i < BLOCKS; i++) {
        bool his = i % 5 == 0;
        void *p = pages(his ? victim : living, 1 + (uint32_t)i % 3);
        block[i] = his ? NULL : p;
        dead += his;
    }
    world_remove(VICTIM);
    shmemi_repair_t repair = {0};
    shmem_status_t status;
    int parts = 1;
    uint32_t next = 0;
    for (; (status = repair_part(&repair)) == SHMEM_ERR_BUSY; parts++) {
        CHECK(repair.next[0] > next);
        next = repair.next[0];
        CHECK_EQ(atomic_load(&living->arenas[0].arena.control->lock.word), SHMEMI_MUTEX_FREE);
        for (int i = 0; i < 2000; i++) { /* blocks merge around the place where it goes on */
            void **b = &block[world_random(&seed) % BLOCKS];
            if (*b)
                CHECK_OK(shmemi_pool_free(living, *b));
            *b = *b ? NULL : pages(living, 1 + (uint32_t)i % 40);
        }
    }
    CHECK_OK(status);
    CHECK(parts > BLOCKS >> 14);
    CHECK_EQ(repair.blocks, dead);
    for (int i = 0; i < BLOCKS; i++)
        if (block[i])
            CHECK_OK(shmemi_pool_free(living, block[i]));
    CHECK_OK(shmemi_pool_trim(living));
    CHECK_OK(shmemi_pool_check(living));
    CHECK_EQ(world_used(living), 0);
    end();
}

/* The same when everything before the place where it goes on has become one free block. */
static void on_in_a_larger_block(void)
{
    static void *block[BLOCKS];
    begin(1ull << 30, NULL);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = pages(living, 1);
    for (int i = 0; i < 1000; i++)
        pages(victim, 1);
    world_remove(VICTIM);
    shmemi_repair_t repair = {0};
    CHECK_STATUS(repair_part(&repair), SHMEM_ERR_BUSY);
    for (int i = 0; i < BLOCKS; i++)
        CHECK_OK(shmemi_pool_free(living, block[i]));
    CHECK_OK(shmemi_pool_trim(living));
    shmem_status_t status;
    while ((status = repair_part(&repair)) == SHMEM_ERR_BUSY)
        ;
    CHECK_OK(status);
    CHECK_EQ(repair.blocks, 1000);
    CHECK_EQ(world_used(living), 0);
    end();
}

/* One arena is broken, the other one locked for a while: then it is repaired, too. */
static void a_broken_arena_hides_nothing(void)
{
    shmem_topology_t topology;
    CHECK_OK(shmemi_topo_create_synthetic("numa:2 core:2 pu:1", &topology));
    begin(16 << 20, topology);
    shmemi_arena_t *arena[2] = {&living->arenas[0].arena, &living->arenas[1].arena};
    void *block;
    for (int i = 0; i < 2; i++)
        CHECK_OK(shmemi_pool_alloc(victim, 1 << 20, 0, SHMEM_POOL_BIND, i, &block));
    CHECK_EQ(shmemi_arena_used(arena[1]), 256);
    world_remove(VICTIM);
    uint64_t word = atomic_exchange(&arena[0]->page[0].word, 15);
    CHECK_OK(shmemi_arena_lock(arena[1], &actor[LIVING], SHMEMI_FOREVER));
    shmemi_repair_t repair = {0};
    CHECK_STATUS(repair_part(&repair), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmemi_arena_unlock(arena[1], &actor[LIVING], SHMEM_OK));
    CHECK_STATUS(repair_part(&repair), SHMEM_ERR_CORRUPT);
    CHECK_EQ(repair.blocks, 1);
    CHECK_EQ(shmemi_arena_used(arena[1]), 0);
    atomic_store(&arena[0]->page[0].word, word);
    CHECK_OK(repair_part(&repair));
    CHECK_EQ(repair.blocks, 2);
    CHECK_EQ(world_used(living), 0);
    end();
    shmem_topology_destroy(topology);
}

int main(void)
{
    RUN(in_parts);
    RUN(on_in_a_larger_block);
    RUN(a_broken_arena_hides_nothing);
    return harness_end();
}
