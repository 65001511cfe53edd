/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the policies on machines with random distances and fullness; nodes without memory;
 * what is counted and logged. */
#include "pool_world.h"
#include "topo/internal.h"

static shmemi_actor_t actor;
static shmemi_pool_t *pool;
static shmem_topology_t topology;
static int lines;
static char text_seen[640];

static void sink(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    (void)user, (void)layer;
    if (level != SHMEM_LOG_WARN)
        return;
    lines++;
    snprintf(text_seen, sizeof text_seen, "%s", text);
}

static void begin_with(uint64_t bytes, shmem_pool_policy_t policy, int node)
{
    world_make(4);
    world_pool(bytes, policy, node, topology);
    world_actor(&actor, 0);
    pool = world_attach(&actor, topology);
    lines = 0;
}

static void begin(const char *machine, uint64_t bytes, shmem_pool_policy_t policy, int node)
{
    CHECK_OK(shmemi_topo_create_synthetic(machine, &topology));
    begin_with(bytes, policy, node);
}

static void end(void)
{
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_OK(shmemi_pool_check(pool));
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
    shmem_topology_destroy(topology);
}

static uint64_t count_of(int wanted, int got, shmem_pool_why_t why)
{
    uint64_t count = 77;
    CHECK_OK(shmemi_pool_fallback(pool, wanted, got, why, &count));
    return count;
}

static uint64_t all_counts(void)
{
    uint64_t sum = 0;
    for (int wanted = 0; wanted < (int)pool->nodes; wanted++)
        for (int got = 0; got < (int)pool->nodes; got++)
            for (int why = 0; why < SHMEM_POOL_WHYS; why++)
                sum += count_of(wanted, got, (shmem_pool_why_t)why);
    return sum;
}

/* ---- the order of the arenas ---- */

static double used_part(uint32_t arena)
{
    const shmemi_arena_t *a = &pool->arenas[arena].arena;
    return (double)shmemi_arena_used(a) / a->pages;
}

static uint32_t position(const uint32_t *order, uint32_t n, uint32_t arena)
{
    uint32_t at = 0;
    while (at < n && order[at] != arena)
        at++;
    CHECK(at < n);
    return at;
}

static void check_order(shmem_pool_policy_t policy, uint32_t wanted, const uint32_t *order)
{
    const double *ns = pool->latency + wanted * pool->nodes;
    CHECK_EQ(order[0], wanted);
    for (uint32_t k = 0; k < pool->nodes; k++)
        position(order, pool->nodes, k);
    for (uint32_t k = 2; k < pool->nodes; k++) {
        uint32_t a = order[k - 1], b = order[k];
        CHECK(policy != SHMEM_POOL_PREFERRED || ns[a] <= ns[b]);
        CHECK(ns[a] <= ns[b] || used_part(a) < used_part(b)); /* never farther and fuller */
        CHECK(ns[a] <= ns[b] * 1.5);                          /* fullness buys half the way */
    }
}

/* For random distances: the order is a permutation, never prefers a node that is both farther and
 * fuller, and filling a node never moves it forward. */
static void order_has_its_properties(void)
{
    static const shmem_pool_policy_t policies[] = {SHMEM_POOL_NEAREST, SHMEM_POOL_INTERLEAVE,
                                                   SHMEM_POOL_PREFERRED};
    uint64_t seed = 12345;
    begin("numa:6 core:1 pu:1", 24 << 20, SHMEM_POOL_NEAREST, 0);
    for (int round = 0; round < 300; round++) {
        uint32_t before[SHMEMI_POOL_NODES], after[SHMEMI_POOL_NODES];
        uint32_t wanted = world_random(&seed) % 6, filled = world_random(&seed) % 6;
        shmem_pool_policy_t policy = policies[round % 3];
        for (uint32_t i = 0; i < 36; i++)
            pool->latency[i] = i % 7 == 0 ? 80 : 90 + (double)(world_random(&seed) % 200);
        CHECK_EQ(shmemi_policy_order(pool, policy, wanted, before), 6);
        check_order(policy, wanted, before);
        void *block;
        size_t bytes = 4096 * (1 + world_random(&seed) % 200);
        if (shmemi_pool_alloc(pool, bytes, 0, SHMEM_POOL_BIND, (int)filled, &block)) {
            shmemi_pool_detach(pool); /* full: begin again */
            pool = world_attach(&actor, topology);
            continue;
        }
        CHECK_EQ(shmemi_policy_order(pool, policy, wanted, after), 6);
        check_order(policy, wanted, after);
        uint32_t place = position(before, 6, filled);
        CHECK(position(after, 6, filled) >= place);
        for (uint32_t k = 0; k < place; k++) /* who came before it still does */
            CHECK(position(after, 6, before[k]) < position(after, 6, filled));
        if (policy == SHMEM_POOL_PREFERRED)
            CHECK(memcmp(before, after, 6 * sizeof *before) == 0);
    }
    end();
}

/* ---- a node without memory ---- */

/* Four nodes in a row, of which node 2 has no memory and lies nearest to node 1. */
static void begin_bare(shmem_pool_policy_t policy, int node)
{
    CHECK_OK(shmemi_topo_create_synthetic("numa:4(memory=1GB) core:1 pu:1", &topology));
    topology->nodes[2].total_bytes = topology->nodes[2].free_bytes = 0;
    for (int i = 0; i < 16; i++)
        topology->latency[i] = 90 + 30 * abs(i / 4 - i % 4) + (i / 4 == 2 && i % 4 == 3);
    begin_with(64 << 20, policy, node);
}

static uint32_t arena_of(const void *block)
{
    return (uint32_t)((uint64_t)((const unsigned char *)block - pool->data) / pool->data_stride);
}

static void in_turn_leaves_it_out(void)
{
    begin_bare(SHMEM_POOL_INTERLEAVE, 0);
    static const size_t sizes[] = {100, 5000, 100000};
    for (size_t s = 0; s < SHMEMI_COUNT(sizes); s++) {
        int count[4] = {0};
        for (int k = 0; k < 30; k++)
            count[arena_of(world_alloc(pool, sizes[s]))]++;
        CHECK(count[0] == 10 && count[1] == 10 && count[2] == 0 && count[3] == 10);
    }
    CHECK_EQ(all_counts(), 0);
    CHECK_EQ(lines, 0);
    end();
}

/* Its part of the pool is used, and each time counts: its memory comes from node 1. */
static void wanting_it_is_counted(void)
{
    static const size_t sizes[] = {100, 5000, 100000};
    begin_bare(SHMEM_POOL_PREFERRED, 2);
    for (int k = 0; k < 30; k++)
        CHECK_EQ(arena_of(world_alloc(pool, sizes[k % 3])), 2);
    CHECK_EQ(count_of(2, 1, SHMEM_POOL_WHY_NO_MEMORY), 30);
    CHECK_EQ(all_counts(), 30);
    CHECK(lines >= 1 && strstr(text_seen, "wanted on node 2 came from node 1") &&
          strstr(text_seen, "no memory"));
    void *block = &pool;
    CHECK_STATUS(shmemi_pool_alloc(pool, 100, 0, SHMEM_POOL_BIND, 2, &block), SHMEM_ERR_INVALID);
    CHECK(block == &pool && strstr(shmem_error_detail()->text, "node 2 has no memory"));
    end();
}

/* What node 1 lacks may come from the part of node 2, which lies there, too: no fallback. */
static void its_part_serves_the_neighbour(void)
{
    begin_bare(SHMEM_POOL_PREFERRED, 1);
    CHECK_EQ(arena_of(world_alloc(pool, 16 << 20)), 1);
    CHECK_EQ(arena_of(world_alloc(pool, 16 << 20)), 2);
    CHECK_EQ(all_counts(), 0);
    CHECK_EQ(arena_of(world_alloc(pool, 16 << 20)), 0);
    CHECK_EQ(count_of(1, 0, SHMEM_POOL_WHY_FULL), 1);
    CHECK_EQ(all_counts(), 1);
    end();
}

/* ---- counting and saying so ---- */

static void logged_at_most_once_a_second(void)
{
    begin("numa:2 core:1 pu:1", 16 << 20, SHMEM_POOL_PREFERRED, 0);
    world_alloc(pool, 8 << 20);
    double started = harness_now();
    for (int k = 0; k < 1000; k++)
        world_alloc(pool, 4096);
    CHECK_EQ(count_of(0, 1, SHMEM_POOL_WHY_FULL), 1000);
    CHECK(lines >= 1 && lines <= 1 + (int)(harness_now() - started));
    CHECK(strstr(text_seen, "wanted on node 0 came from node 1") && strstr(text_seen, "is full"));
    pool->places[0].quiet[1 * SHMEM_POOL_WHYS] -= 1000000000; /* a second later */
    int before = lines;
    world_alloc(pool, 4096);
    CHECK_EQ(lines, before + 1);
    CHECK(strstr(text_seen, "1001 times") != NULL);
    end();
}

static void bad_questions(void)
{
    begin("numa:2 core:1 pu:1", 16 << 20, SHMEM_POOL_NEAREST, 0);
    uint64_t a = 77, b = 77;
    CHECK_STATUS(shmemi_pool_fallback(pool, 2, 0, SHMEM_POOL_WHY_FULL, &a), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_fallback(pool, 0, -1, SHMEM_POOL_WHY_FULL, &a), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_fallback(pool, 0, 0, SHMEM_POOL_WHYS, &a), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_fallback(pool, 0, 0, SHMEM_POOL_WHY_FULL, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_placement(pool, 2, &a, &b), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_placement(pool, -1, &a, &b), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_placement(pool, 0, NULL, &b), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_placement(pool, 0, &a, &b),
                 SHMEM_ERR_UNSUPPORTED); /* no real machine */
    CHECK(a == 77 && b == 77);
    end();
}

/* ---- other views of the machine ---- */

/* In a cpuset without node 0 the indices are others: arenas are found by the system's numbers. */
static void arenas_follow_the_systems_numbers(void)
{
    begin("numa:4(memory=1GB) core:1 pu:1", 64 << 20, SHMEM_POOL_NEAREST, 0);
    shmem_topology_t other;
    shmemi_actor_t second;
    CHECK_OK(shmemi_topo_create_synthetic("numa:2(memory=1GB) core:1 pu:1", &other));
    other->nodes[0].os_index = 3;
    other->nodes[1].os_index = 9; /* not there when the pool was made */
    world_actor(&second, 1);
    shmemi_pool_t *view = world_attach(&second, other);
    CHECK(view->places[3].node == 0 && view->places[0].node == -1);
    CHECK(view->latency[3 * 4 + 3] == 90 && view->latency[3 * 4 + 0] > 180);
    void *block;
    CHECK_OK(
        shmemi_pool_alloc(view, 100, 0, SHMEM_POOL_NEAREST, 0, &block)); /* runs on its node 0 */
    CHECK_EQ(arena_of(block), 3);
    CHECK_OK(shmemi_pool_alloc(view, 100, 0, SHMEM_POOL_BIND, 1, &block)); /* the pool's indices */
    CHECK_EQ(arena_of(block), 1);
    shmemi_pool_detach(view);
    shmemi_actor_fini(&second);
    shmem_topology_destroy(other);
    end();
}

/* ---- this machine ---- */

/* Placement on whatever machine this is: what is there is counted once. */
static void pages_of_this_machine(void)
{
    CHECK_OK(shmem_topology_create(&topology));
    begin_with(8 << 20, SHMEM_POOL_NEAREST, 0);
    uint64_t there, elsewhere, sum = 0;
    unsigned char *block = world_alloc(pool, 1 << 20);
    memset(block, 1, 1 << 20);
    for (int i = 0; i < (int)pool->nodes; i++) {
        shmem_status_t status = shmemi_pool_placement(pool, i, &there, &elsewhere);
        if (status == SHMEM_ERR_UNSUPPORTED)
            SKIP("this kernel does not tell where pages are");
        CHECK_EQ(status, SHMEM_OK);
        sum += there + elsewhere;
    }
    CHECK(sum >= 256 && sum <= world.segment_bytes / 4096);
    CHECK_OK(shmemi_pool_free(pool, block));
    end();
}

int main(void)
{
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    RUN(order_has_its_properties);
    RUN(in_turn_leaves_it_out);
    RUN(wanting_it_is_counted);
    RUN(its_part_serves_the_neighbour);
    RUN(logged_at_most_once_a_second);
    RUN(bad_questions);
    RUN(arenas_follow_the_systems_numbers);
    RUN(pages_of_this_machine);
    return harness_end();
}
