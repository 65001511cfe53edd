/* SPDX-License-Identifier: Apache-2.0 */
/* Pools on machines with several nodes, described by hand: arenas, policies, fallback, counters. */
#include "pool_world.h"

static shmemi_actor_t actor;
static shmemi_pool_t *pool;
static shmem_topology_t topology;
static int nodes;

static void begin(const char *machine, uint64_t bytes, shmem_pool_policy_t policy, int node)
{
    CHECK_OK(shmemi_topo_create_synthetic(machine, &topology));
    nodes = shmem_topology_nodes(topology);
    world_make(4);
    world_pool(bytes, policy, node, topology);
    world_actor(&actor, 0);
    pool = world_attach(&actor, topology);
    CHECK_OK(shmemi_pool_check(pool));
}

static void end(void)
{
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_EQ(world_used(pool), 0);
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
    shmem_topology_destroy(topology);
}

/* In whose data does the block lie? */
static int node_of(const void *block)
{
    uint64_t offset = (uint64_t)((const char *)block - (const char *)world.memory);
    for (int i = 0; i < nodes; i++) {
        uint64_t from, length;
        CHECK_OK(shmemi_pool_arena_range(((shmemi_pool_header_t *)world.memory)->bytes, nodes, i,
                                         &from, &length));
        if (offset >= from && offset < from + length)
            return i;
    }
    harness_fail(__FILE__, __LINE__, "%p lies in no arena", block);
}

static void *alloc_on(size_t bytes, shmem_pool_policy_t policy, int node)
{
    void *block = NULL;
    CHECK_OK(shmemi_pool_alloc(pool, bytes, 0, policy, node, &block));
    return block;
}

static uint64_t fallbacks(void)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmemi_pool_describe(pool, &info));
    return info.fallbacks;
}

static uint64_t fallbacks_from_to(int wanted, int got)
{
    uint64_t count;
    CHECK_OK(shmemi_pool_fallback(pool, wanted, got, SHMEM_POOL_WHY_FULL, &count));
    return count;
}

static const size_t sizes[] = {100, 5000, 32768, 100000};

static void arenas_are_equal_and_aligned(void)
{
    static const uint64_t totals[] = {4096, 5 * 4096, 3 << 20, (64 << 20) + 4096, 128 << 20};
    for (size_t i = 0; i < SHMEMI_COUNT(totals); i++) {
        begin("numa:3 core:1 pu:1", totals[i], SHMEM_POOL_NEAREST, 0);
        shmem_pool_info_t info = {.size = sizeof info};
        CHECK_OK(shmemi_pool_describe(pool, &info));
        CHECK_EQ(info.nodes, 3);
        CHECK(info.bytes >= totals[i] && info.bytes < totals[i] + 4 * 4096);
        uint64_t from, length, last = 0;
        for (int n = 0; n < 3; n++) {
            CHECK_OK(shmemi_pool_arena_range(totals[i], 3, n, &from, &length));
            CHECK_EQ(length * 3, info.bytes);
            CHECK(from >= last && from + length <= world.segment_bytes);
            CHECK(length < 2 << 20 || from % (2 << 20) == 0);
            last = from + length;
        }
        CHECK_STATUS(shmemi_pool_arena_range(totals[i], 3, 3, &from, &length), SHMEM_ERR_INVALID);
        CHECK_STATUS(shmemi_pool_arena_range(totals[i], 3, -1, &from, &length), SHMEM_ERR_INVALID);
        end();
    }
}

static void named_nodes(void)
{
    begin("numa:4 core:1 pu:1", 256 << 20, SHMEM_POOL_NEAREST, 0);
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++)
        for (int n = 0; n < nodes; n++) {
            void *a = alloc_on(sizes[i], SHMEM_POOL_BIND, n);
            void *b = alloc_on(sizes[i], SHMEM_POOL_PREFERRED, n);
            CHECK_EQ(node_of(a), n);
            CHECK_EQ(node_of(b), n);
            CHECK_OK(shmemi_pool_free(pool, a));
            CHECK_OK(shmemi_pool_free(pool, b));
            CHECK_STATUS(shmemi_pool_free(pool, b), SHMEM_ERR_DOUBLE_FREE);
        }
    void *block;
    CHECK_STATUS(shmemi_pool_alloc(pool, 8, 0, SHMEM_POOL_BIND, 4, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_alloc(pool, 8, 0, SHMEM_POOL_PREFERRED, -1, &block),
                 SHMEM_ERR_INVALID);
    CHECK_EQ(fallbacks(), 0);
    end();
}

static void in_turn(void)
{
    begin("numa:4 core:1 pu:1", 256 << 20, SHMEM_POOL_INTERLEAVE, 0);
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++) {
        int count[4] = {0};
        void *block[40];
        for (int k = 0; k < 40; k++) {
            block[k] = world_alloc(pool, sizes[i]);
            count[node_of(block[k])]++;
        }
        for (int n = 0; n < 4; n++)
            CHECK_EQ(count[n], 10);
        for (int k = 0; k < 40; k++)
            CHECK_OK(shmemi_pool_free(pool, block[k]));
    }
    CHECK_EQ(fallbacks(), 0);
    end();
}

static void bind_never_falls_back(void)
{
    begin("numa:2 core:1 pu:1", 16 << 20, SHMEM_POOL_BIND, 1);
    void *block = world_alloc(pool, 8 << 20), *other = NULL;
    CHECK_EQ(node_of(block), 1);
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++)
        CHECK_STATUS(shmemi_pool_alloc_default(pool, sizes[i], &other), SHMEM_ERR_NOMEM);
    CHECK(strstr(shmem_error_detail()->text, "1 of 2 arenas") != NULL);
    CHECK_STATUS(shmemi_pool_alloc_default(pool, (8 << 20) + 1, &other), SHMEM_ERR_OVERFLOW);
    CHECK_EQ(fallbacks(), 0);
    CHECK_OK(shmemi_pool_free(pool, block));
    end();
}

/* Four nodes in two pairs: the near one of the pair serves before the far ones. */
static void preferred_goes_by_distance(void)
{
    begin("numa:4 core:1 pu:1", 64 << 20, SHMEM_POOL_PREFERRED, 2);
    for (int i = 0; i < 16; i++)
        pool->latency[i] = i / 4 == i % 4 ? 90 : (i / 4) / 2 == (i % 4) / 2 ? 120 : 200;
    static const int expected[] = {2, 3, 0, 1};
    void *block[4], *small[4];
    for (int k = 0; k < 4; k++) {
        small[k] = world_alloc(pool, 100);
        CHECK_EQ(node_of(small[k]), expected[k]);
        CHECK_OK(shmemi_pool_free(pool, small[k]));
        CHECK_OK(shmemi_pool_trim(pool));
        block[k] = world_alloc(pool, 16 << 20);
        CHECK_EQ(node_of(block[k]), expected[k]);
    }
    void *none;
    CHECK_STATUS(shmemi_pool_alloc_default(pool, 100, &none), SHMEM_ERR_NOMEM);
    CHECK_EQ(fallbacks(), 6);
    CHECK_EQ(fallbacks_from_to(2, 3), 2);
    CHECK_EQ(fallbacks_from_to(2, 0), 2);
    CHECK_EQ(fallbacks_from_to(2, 1), 2);
    CHECK_EQ(fallbacks_from_to(2, 2), 0);
    CHECK_EQ(world_stat(SHMEMI_STAT_fallbacks), 6);
    for (int k = 0; k < 4; k++)
        CHECK_OK(shmemi_pool_free(pool, block[k]));
    end();
}

/* What the thread itself keeps on the wanted node is no reason to go to another one. */
static void caches_of_the_wanted_node_give_way(void)
{
    static const shmem_pool_policy_t policies[] = {SHMEM_POOL_PREFERRED, SHMEM_POOL_NEAREST};
    for (size_t i = 0; i < SHMEMI_COUNT(policies); i++) {
        begin("numa:2 core:1 pu:1", 32 << 20, policies[i], 0);
        void *any = world_alloc(pool, 100), *none;
        int here = node_of(any);
        void *object = alloc_on(1000, SHMEM_POOL_BIND, here);
        void *block = alloc_on(65536, SHMEM_POOL_BIND, here);
        for (size_t bytes = 8 << 20; bytes >= 4096; bytes /= 2)
            while (!shmemi_pool_alloc(pool, bytes, 0, SHMEM_POOL_BIND, here, &none))
                ;
        CHECK(node_of(world_alloc(pool, 500)) != here);
        CHECK_OK(shmemi_pool_free(pool, object)); /* the only one of its span */
        CHECK_EQ(node_of(world_alloc(pool, 2000)), here);
        CHECK(node_of(world_alloc(pool, 40000)) != here);
        CHECK_OK(shmemi_pool_free(pool, block)); /* cached, and too large to be taken from there */
        CHECK_EQ(node_of(world_alloc(pool, 40000)), here);
        CHECK_EQ(fallbacks(), 2);
        shmemi_pool_detach(pool);
        pool = world_attach(&actor, topology);
        end();
    }
}

/* A slightly farther but emptier node wins over a nearer one that is almost full. */
static void fullness_counts_as_distance(void)
{
    begin("numa:3 core:1 pu:1", 48 << 20, SHMEM_POOL_NEAREST, 0);
    for (int i = 0; i < 9; i++)
        pool->latency[i] = i / 3 == i % 3 ? 90 : 150;
    pool->latency[1] = 120;
    pool->latency[2] = 130;
    uint32_t order[SHMEMI_POOL_NODES];
    CHECK_EQ(shmemi_policy_order(pool, SHMEM_POOL_NEAREST, 0, order), 3);
    CHECK(order[0] == 0 && order[1] == 1 && order[2] == 2);
    void *most = alloc_on(14 << 20, SHMEM_POOL_BIND, 1);
    CHECK_EQ(shmemi_policy_order(pool, SHMEM_POOL_NEAREST, 0, order), 3);
    CHECK(order[0] == 0 && order[1] == 2 && order[2] == 1);
    CHECK_EQ(shmemi_policy_order(pool, SHMEM_POOL_PREFERRED, 0, order), 3);
    CHECK(order[1] == 1);
    CHECK_EQ(shmemi_policy_order(pool, SHMEM_POOL_BIND, 2, order), 1);
    CHECK_EQ(order[0], 2);
    CHECK_OK(shmemi_pool_free(pool, most));
    end();
}

/* The nearest node is the caller's; without it everything is still to be had. */
static void nearest_uses_all_memory(void)
{
    begin("numa:2 core:1 pu:1", 8 << 20, SHMEM_POOL_NEAREST, 0);
    int n = 0;
    static void *block[20000];
    while (shmemi_pool_alloc_default(pool, 1000, &block[n]) == SHMEM_OK)
        n++;
    CHECK_EQ(world_used(pool), 8 << 20);
    CHECK(fallbacks() >= (uint64_t)n / 3);
    while (n)
        CHECK_OK(shmemi_pool_free(pool, block[--n]));
    end();
}

static void pointers_between_arenas_are_foreign(void)
{
    begin("numa:2 core:1 pu:1", 6 << 20, SHMEM_POOL_NEAREST, 0);
    uint64_t from, length;
    CHECK_OK(shmemi_pool_arena_range(6 << 20, 2, 0, &from, &length));
    void *gap = (char *)world.memory + from + length;
    CHECK_STATUS(shmemi_pool_free(pool, gap), SHMEM_ERR_FOREIGN_POINTER);
    CHECK_STATUS(shmemi_pool_free(pool, (char *)gap + 4096), SHMEM_ERR_FOREIGN_POINTER);
    end();
}

/* The dead client's blocks come back on every node. */
static void victim(void *arg)
{
    shmemi_actor_t self;
    (void)arg;
    world_actor(&self, 1);
    pool = world_attach(&self, topology);
    for (int n = 0; n < nodes; n++)
        for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++)
            alloc_on(sizes[i], SHMEM_POOL_BIND, n);
    _exit(0);
}

static void reclaim_reaches_every_node(void)
{
    world_needs_kills();
    begin("numa:3 core:1 pu:1", 96 << 20, SHMEM_POOL_NEAREST, 0);
    CHECK_EQ(harness_wait(harness_fork(victim, NULL), 10), 0);
    CHECK(world_used(pool) > 3 * 100000);
    CHECK_EQ(world_bury(1), 12);
    end();
}

/* An opener whose machine looks different (another cpuset) works all the same. */
static void another_view_of_the_machine(void)
{
    begin("numa:4 core:1 pu:1", 16 << 20, SHMEM_POOL_NEAREST, 0);
    shmem_topology_t small;
    shmemi_actor_t other;
    CHECK_OK(shmemi_topo_create_synthetic("numa:1 core:1 pu:1", &small));
    world_actor(&other, 1);
    shmemi_pool_t *view = world_attach(&other, small);
    for (int n = 0; n < 4; n++) {
        void *block;
        CHECK_OK(shmemi_pool_alloc(view, 3 << 20, 0, SHMEM_POOL_NEAREST, 0, &block));
    }
    CHECK_OK(shmemi_pool_check(view));
    shmemi_pool_detach(view);
    shmemi_actor_fini(&other);
    shmem_topology_destroy(small);
    end();
}

int main(void)
{
    RUN(arenas_are_equal_and_aligned);
    RUN(named_nodes);
    RUN(in_turn);
    RUN(bind_never_falls_back);
    RUN(preferred_goes_by_distance);
    RUN(caches_of_the_wanted_node_give_way);
    RUN(fullness_counts_as_distance);
    RUN(nearest_uses_all_memory);
    RUN(pointers_between_arenas_are_foreign);
    RUN(reclaim_reaches_every_node);
    RUN(another_view_of_the_machine);
    return harness_end();
}
