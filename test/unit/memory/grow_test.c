/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that grow to a limit and return what is idle: sizes, races, systems without memory, kills.
 */
#include <pthread.h>

#include "pool_world.h"

#define MIB (1ull << 20)

static shmemi_actor_t actor;
static shmemi_pool_t *pool;
static shmem_topology_t topology;

static void begin_on(const char *machine, uint64_t bytes, uint64_t limit)
{
    topology = NULL;
    if (machine)
        CHECK_OK(shmemi_topo_create_synthetic(machine, &topology));
    world_make(8);
    world_growing_pool(bytes, limit, topology);
    world_actor(&actor, 0);
    pool = world_attach(&actor, topology);
    CHECK_OK(shmemi_pool_check(pool));
}

static void begin(uint64_t bytes, uint64_t limit)
{
    begin_on(NULL, bytes, limit);
}

static void end(void)
{
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_EQ(world_used(pool), 0);
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
    shmem_topology_destroy(topology);
    close(world.fd);
    munmap(world.memory, world.segment_bytes);
}

static shmem_pool_info_t info_of(shmemi_pool_t *p)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmemi_pool_describe(p, &info));
    return info;
}

static uint64_t shrink(uint64_t keep)
{
    uint64_t returned = 12345;
    CHECK_OK(shmemi_pool_shrink(pool, keep, &returned));
    CHECK_OK(shmemi_pool_check(pool));
    return returned;
}

/* ---- sizes ---- */

static void to_the_limit_and_back(void)
{
    enum { N = 63 };
    void *blocks[N + 1];
    begin(4 * MIB, 63 * MIB);
    CHECK_EQ(info_of(pool).bytes, 4 * MIB);
    CHECK_EQ(info_of(pool).limit, 63 * MIB);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++)
            memset(blocks[i] = world_alloc(pool, MIB), i, MIB);
        CHECK_STATUS(shmemi_pool_alloc_default(pool, 4096, &blocks[N]), SHMEM_ERR_NOMEM);
        CHECK_EQ(info_of(pool).bytes, 63 * MIB);
        CHECK_EQ(info_of(pool).bytes_high, 63 * MIB);
        CHECK_EQ(world_used(pool), 63 * MIB);
        CHECK_OK(shmemi_pool_check(pool));
        CHECK(world_file_bytes() >= 63 * MIB);
        for (int i = 0; i < N; i++) {
            unsigned char *p = blocks[i];
            CHECK(p[0] == i && p[MIB - 1] == i);
            CHECK_OK(shmemi_pool_free(pool, p));
        }
        uint64_t before = world_file_bytes();
        CHECK_EQ(shrink(5 * MIB), 58 * MIB);
        CHECK_EQ(info_of(pool).bytes, 5 * MIB);
        CHECK_EQ(world_file_bytes(), before - 58 * MIB);
        CHECK_EQ(info_of(pool).returned_bytes, (uint64_t)(round + 1) * 58 * MIB);
        CHECK_EQ(shrink(5 * MIB), 0);
    }
    CHECK(info_of(pool).grown >= 3);
    end();
}

/* Every page of the limit can be had, as one block and one by one, whatever the sizes. */
static void odd_sizes(void)
{
    static const uint32_t pages[][2] = {{1, 2},    {1, 3},      {5, 300},    {3, 511},
                                        {1, 512},  {511, 513},  {512, 1024}, {700, 1700},
                                        {1, 5000}, {777, 4099}, {513, 514},  {2000, 2100}};
    for (size_t i = 0; i < SHMEMI_COUNT(pages); i++) {
        uint64_t limit = pages[i][1] * 4096ull;
        void *block, **blocks = malloc(pages[i][1] * sizeof *blocks);
        begin(pages[i][0] * 4096ull, limit);
        CHECK_EQ(info_of(pool).bytes, pages[i][0] * 4096ull);
        CHECK_STATUS(shmemi_pool_alloc_default(pool, limit + 1, &block), SHMEM_ERR_OVERFLOW);
        for (int round = 0; round < 2; round++) {
            block = world_alloc(pool, limit);
            CHECK_EQ(world_used(pool), limit);
            CHECK_STATUS(shmemi_pool_alloc_default(pool, 1, &blocks[0]), SHMEM_ERR_NOMEM);
            memset(block, 1, limit);
            CHECK_OK(shmemi_pool_free(pool, block));
            CHECK_OK(shmemi_pool_trim(pool));
            shrink(0);
            CHECK(info_of(pool).bytes < (pages[i][1] < 512 ? 4096 : 2 * MIB));
            for (uint32_t k = 0; k < pages[i][1]; k++)
                memset(blocks[k] = world_alloc(pool, 4096), 2, 4096);
            CHECK_STATUS(shmemi_pool_alloc_default(pool, 1, &block), SHMEM_ERR_NOMEM);
            CHECK_OK(shmemi_pool_check(pool));
            for (uint32_t k = 0; k < pages[i][1]; k++)
                CHECK_OK(shmemi_pool_free(pool, blocks[k]));
            CHECK_OK(shmemi_pool_trim(pool));
        }
        free(blocks);
        end();
    }
}

/* It grows by 2 MiB or an eighth, not to the limit at once; small blocks make it grow as well. */
static void in_steps(void)
{
    enum { N = 60000 };
    static void *blocks[N];
    begin(2 * MIB, 256 * MIB);
    for (int i = 0; i < N; i++) {
        uint64_t used, before = info_of(pool).bytes;
        blocks[i] = world_alloc(pool, 1000);
        used = world_used(pool);
        uint64_t after = info_of(pool).bytes, step = before / 8 + 4 * MIB;
        CHECK(after <= before + step && (after == before || used + 2 * MIB > before));
    }
    CHECK(info_of(pool).grown > 5);
    CHECK_OK(shmemi_pool_check(pool));
    for (int i = 0; i < N; i++)
        CHECK_OK(shmemi_pool_free(pool, blocks[i]));
    end();
}

/* Alignment beyond the block's own size. */
static void aligned(void)
{
    begin(MIB, 40 * MIB);
    for (size_t a = 4096; a <= 2 * MIB; a *= 2) {
        void *small = world_alloc(pool, 5000), *block = NULL;
        CHECK_OK(shmemi_pool_alloc(pool, 3 * 4096, a, SHMEM_POOL_NEAREST, 0, &block));
        CHECK((uintptr_t)block % a == 0);
        memset(block, 1, 3 * 4096);
        CHECK_OK(shmemi_pool_free(pool, block));
        CHECK_OK(shmemi_pool_free(pool, small));
        CHECK_OK(shmemi_pool_trim(pool));
        shrink(0);
    }
    end();
}

/* A block of no power of two grows into what is left, and joins what is free before it. */
static void into_what_is_left(void)
{
    begin(2 * MIB, 10 * MIB);
    void *a = world_alloc(pool, 2 * MIB), *b = world_alloc(pool, 5 * MIB), *c;
    CHECK(info_of(pool).bytes >= 7 * MIB);
    CHECK_OK(shmemi_pool_free(pool, a));
    c = world_alloc(pool, 3 * MIB);
    CHECK_EQ(info_of(pool).bytes, 10 * MIB);
    a = world_alloc(pool, 2 * MIB);
    CHECK_EQ(world_used(pool), 10 * MIB);
    CHECK_OK(shmemi_pool_free(pool, a));
    CHECK_OK(shmemi_pool_free(pool, b));
    CHECK(shrink(3 * MIB) >= 6 * MIB); /* all 2 MiB that are idle */
    b = world_alloc(pool, 7 * MIB);    /* beside c, partly absent or all of it */
    CHECK_EQ(world_used(pool), 10 * MIB);
    CHECK_OK(shmemi_pool_free(pool, b));
    CHECK_OK(shmemi_pool_free(pool, c));
    b = world_alloc(pool, 10 * MIB);
    memset(b, 1, 10 * MIB);
    CHECK_OK(shmemi_pool_free(pool, b));
    end();
}

/* Only idle 2 MiB go; what is in use stays and keeps its content. */
static void only_what_is_idle(void)
{
    enum { N = 32 };
    unsigned char *blocks[N];
    begin(2 * MIB, 64 * MIB);
    for (int i = 0; i < N; i++)
        memset(blocks[i] = world_alloc(pool, 2 * MIB), i + 1, 2 * MIB);
    for (int i = 0; i < N; i += 2)
        CHECK_OK(shmemi_pool_free(pool, blocks[i]));
    CHECK_EQ(shrink(0), N / 2 * 2 * MIB);
    for (int i = 1; i < N; i += 2)
        CHECK(blocks[i][0] == i + 1 && blocks[i][2 * MIB - 1] == i + 1);
    CHECK_EQ(info_of(pool).bytes, N / 2 * 2 * MIB);
    for (int i = 0; i < N; i += 2) {
        blocks[i] = world_alloc(pool, 2 * MIB);
        CHECK(blocks[i][0] == 0 && blocks[i][2 * MIB - 1] == 0); /* fresh memory */
    }
    for (int i = 0; i < N; i++)
        CHECK_OK(shmemi_pool_free(pool, blocks[i]));
    end();
}

static void without_a_descriptor(void)
{
    begin(2 * MIB, 8 * MIB);
    shmemi_pool_t *blind;
    int fd = world.fd;
    world.fd = -1;
    blind = world_attach(&actor, NULL);
    world.fd = fd;
    void *block;
    CHECK_STATUS(shmemi_pool_alloc_default(blind, 3 * MIB, &block), SHMEM_ERR_NOMEM);
    CHECK_STATUS(shmemi_pool_shrink(blind, 0, NULL), SHMEM_ERR_STATE);
    block = world_alloc(pool, 3 * MIB);
    CHECK_OK(shmemi_pool_free(blind, block));
    shmemi_pool_detach(blind);
    end();
}

/* The ranges that are said to be present are those with memory; the file agrees. */
static void present_ranges(void)
{
    begin_on("node:2 core:1 pu:1", 4 * MIB, 32 * MIB);
    void *blocks[12];
    for (int round = 0; round < 2; round++) {
        uint64_t from = 0, offset, length, sum = 0, data = 0;
        while (shmemi_pool_present(pool, from, &offset, &length)) {
            CHECK(offset >= from && length && offset + length <= world.segment_bytes);
            sum += length;
            data += offset ? length : 0;
            from = offset + length;
        }
        CHECK_EQ(data, info_of(pool).bytes);
        CHECK(sum - data < 2 * MIB + 16 * 4096);
        for (int i = 0; i < 12 && !round; i++)
            blocks[i] = world_alloc(pool, 2 * MIB);
        for (int i = 0; i < 12 && !round; i += 2)
            CHECK_OK(shmemi_pool_free(pool, blocks[i]));
        if (!round)
            CHECK(shrink(0) >= 8 * MIB);
    }
    for (int i = 1; i < 12; i += 2)
        CHECK_OK(shmemi_pool_free(pool, blocks[i]));
    end();
}

/* ---- nodes ---- */

static uint64_t bytes_on(int node)
{
    shmem_pool_node_info_t info = {.size = sizeof info};
    CHECK_OK(shmemi_pool_node_info(pool, node, &info));
    return info.bytes;
}

/* The wanted node grows before another one serves; then the other one grows. */
static void the_wanted_node_first(void)
{
    begin_on("node:2 core:1 pu:1", 4 * MIB, 32 * MIB);
    void *blocks[16], *more;
    for (int i = 0; i < 8; i++) {
        CHECK_OK(shmemi_pool_alloc(pool, 2 * MIB, 0, SHMEM_POOL_PREFERRED, 1, &blocks[i]));
        CHECK_EQ(bytes_on(0), 2 * MIB);
    }
    CHECK_EQ(bytes_on(1), 16 * MIB);
    CHECK_EQ(info_of(pool).fallbacks, 0);
    CHECK_STATUS(shmemi_pool_alloc(pool, 2 * MIB, 0, SHMEM_POOL_BIND, 1, &more), SHMEM_ERR_NOMEM);
    for (int i = 8; i < 16; i++)
        CHECK_OK(shmemi_pool_alloc(pool, 2 * MIB, 0, SHMEM_POOL_PREFERRED, 1, &blocks[i]));
    CHECK_EQ(bytes_on(0), 16 * MIB);
    CHECK_EQ(info_of(pool).fallbacks, 8);
    for (int i = 0; i < 16; i++)
        CHECK_OK(shmemi_pool_free(pool, blocks[i]));
    end();
}

/* The system has nothing for the wanted node: another one serves, and the reason is counted. */
static void a_node_without_memory(void)
{
    begin_on("node:2 core:1 pu:1", 4 * MIB, 32 * MIB);
    void *a, *b;
    uint64_t count;
    CHECK_OK(shmemi_pool_alloc(pool, 2 * MIB, 0, SHMEM_POOL_PREFERRED, 0, &a));
    shmemi_fault_arm("memory.grow.reserve", SHMEMI_FAULT_FAIL, 1);
    CHECK_OK(shmemi_pool_alloc(pool, 2 * MIB, 0, SHMEM_POOL_PREFERRED, 0, &b));
    CHECK(shmemi_fault_passages() >= 1);
    shmemi_fault_disarm();
    CHECK_OK(shmemi_pool_fallback(pool, 0, 1, SHMEM_POOL_WHY_NO_MEMORY, &count));
    CHECK_EQ(count, 1);
    CHECK_EQ(bytes_on(0), 2 * MIB);
    CHECK_OK(shmemi_pool_free(pool, a));
    CHECK_OK(shmemi_pool_free(pool, b));
    end();
}

/* ---- a system without memory ---- */

static void the_system_refuses(void)
{
    static const char *const points[] = {"memory.grow.reserve", "os.segment.reserve"};
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        void *block = &actor;
        begin(2 * MIB, 64 * MIB);
        uint64_t before = world_file_bytes();
        shmemi_fault_arm(points[i], SHMEMI_FAULT_FAIL, 1);
        CHECK_STATUS(shmemi_pool_alloc_default(pool, 20 * MIB, &block), SHMEM_ERR_NOMEM);
        CHECK(block == &actor && shmemi_fault_passages() >= 1);
        CHECK(strstr(shmem_error_detail()->text, i ? "reserve" : "injected") != NULL);
        shmemi_fault_disarm();
        CHECK_OK(shmemi_pool_check(pool));
        CHECK_EQ(info_of(pool).bytes, 2 * MIB);
        CHECK(world_file_bytes() <= before + 64 * 4096);
        harness_sleep(0.12); /* it is not asked at once again */
        block = world_alloc(pool, 20 * MIB);
        CHECK_OK(shmemi_pool_free(pool, block));
        end();
    }
}

/* What the system does not take back stays usable. */
static void the_system_takes_nothing_back(void)
{
    begin(16 * MIB, 16 * MIB);
    uint64_t returned = 7;
    shmemi_fault_arm("memory.shrink.release", SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmemi_pool_shrink(pool, 0, &returned), SHMEM_ERR_INJECTED);
    shmemi_fault_disarm();
    CHECK_EQ(returned, 7);
    CHECK_EQ(info_of(pool).bytes, 16 * MIB);
    CHECK_EQ(shmemi_pool_growths(pool), 1); /* what was withdrawn for a moment came again */
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_OK(shmemi_pool_free(pool, world_alloc(pool, 16 * MIB)));
    end();
}

/* ---- at the same time ---- */

static void grower(int rank, int n, void *arg)
{
    enum { N = 12 };
    (void)n;
    shmemi_actor_t self;
    void *blocks[N];
    uint64_t seed = (uint64_t)rank * 77 + 1;
    world_actor(&self, rank + 1);
    shmemi_pool_t *p = world_attach(&self, NULL);
    for (int round = 0; round < *(int *)arg; round++) {
        for (int i = 0; i < N; i++) {
            size_t bytes = 100000 + world_random(&seed) % 900000;
            memset(blocks[i] = world_alloc(p, bytes), rank, bytes);
        }
        for (int i = 0; i < N; i++) {
            CHECK(*(unsigned char *)blocks[i] == rank);
            CHECK_OK(shmemi_pool_free(p, blocks[i]));
        }
        CHECK_OK(shmemi_pool_trim(p));
        if (rank % 2)
            CHECK_OK(shmemi_pool_shrink(p, 8 * MIB, NULL));
    }
    shmemi_pool_detach(p);
    shmemi_actor_fini(&self);
}

/* Growers and shrinkers of several processes; nobody is ever refused, for all fits. */
static void many_at_once(harness_mode_t mode)
{
    int rounds = 15;
    begin(MIB, 128 * MIB);
    harness_pes(4, mode, 100, grower, &rounds);
    CHECK_EQ(world_used(pool), 0);
    CHECK(info_of(pool).grown > 0 && info_of(pool).returned_bytes > 0);
    end();
}

static void processes_at_once(void)
{
    if (harness_has_tsan())
        SKIP("ThreadSanitizer sees threads only");
    many_at_once(HARNESS_PROC);
}

static void threads_at_once(void)
{
    many_at_once(HARNESS_THREAD);
}

/* ---- kills ---- */

typedef struct victim {
    const char *point;
    unsigned n;
    int client;
} victim_t;

static void grow_and_shrink(void *arg)
{
    const victim_t *v = arg;
    shmemi_actor_t self;
    world_actor(&self, v->client);
    shmemi_pool_t *p = world_attach(&self, NULL);
    shmemi_fault_arm(v->point, SHMEMI_FAULT_KILL, v->n);
    void *a = world_alloc(p, 3 * MIB), *b = world_alloc(p, 9 * MIB);
    CHECK_OK(shmemi_pool_free(p, a));
    CHECK_OK(shmemi_pool_shrink(p, 0, NULL));
    a = world_alloc(p, 5 * MIB);
    CHECK_OK(shmemi_pool_free(p, b));
    CHECK_OK(shmemi_pool_shrink(p, 6 * MIB, NULL));
    _exit(0);
}

static void all_can_be_had(void)
{
    void *block = world_alloc(pool, 30 * MIB);
    memset(block, 1, 30 * MIB);
    CHECK_EQ(world_used(pool), 30 * MIB);
    CHECK_OK(shmemi_pool_free(pool, block));
    CHECK_EQ(world_used(pool), 0);
    shrink(2 * MIB);
}

static void killed_while_growing(void)
{
    static const char *const points[] = {
        "memory.absent.claimed",  "memory.absent.filled",  "memory.absent.withdrawn",
        "memory.grow.claimed",    "memory.grow.piece",     "memory.grow.reserved",
        "memory.grow.counted",    "os.segment.piece",      "memory.shrink.withdrawn",
        "memory.shrink.released", "memory.journal.changed"};
    world_needs_kills();
    begin(2 * MIB, 30 * MIB);
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++)
        for (unsigned n = 1;; n += 1 + n / 2) {
            victim_t v = {points[i], n, 1};
            int end = harness_wait(harness_fork(grow_and_shrink, &v), 30);
            CHECK(end == 0 || end == -SIGKILL);
            world_bury(1);
            world_client_add(1);
            CHECK_OK(shmemi_pool_check(pool));
            all_can_be_had();
            if (!end && n == 1)
                harness_fail(__FILE__, __LINE__, "nobody passed %s", points[i]);
            if (!end || n > 60)
                break;
        }
    end();
}

static void count_told(void *told)
{
    ++*(int *)told;
}

/* Who grows the pool and dies has not told anybody: who then allocates there is told all the same.
 */
static void told_of_what_the_dead_brought(void)
{
    static const char *const points[] = {"memory.grow.counted", "memory.grow.piece"};
    world_needs_kills();
    for (int i = 0; i < 2; i++) {
        int told = 0;
        begin(2 * MIB, 30 * MIB);
        pool->grown_arg = &told;
        pool->grown = count_told;
        void *first = world_alloc(pool, MIB);
        CHECK_EQ(told, 0);
        victim_t v = {points[i], 1, 1};
        CHECK_EQ(harness_wait(harness_fork(grow_and_shrink, &v), 30), -SIGKILL);
        world_bury(1);
        uint64_t growths = shmemi_pool_growths(pool), there = info_of(pool).bytes;
        CHECK(i == 0 || there > 2 * MIB); /* the operation that it was killed in came to its end */
        void *block = first;
        if (i == 0)
            CHECK_OK(shmemi_pool_free(pool, world_alloc(pool, MIB)));
        else
            CHECK_OK(shmemi_pool_resize(pool, &block, there)); /* where it is */
        CHECK_EQ(shmemi_pool_growths(pool), growths);
        CHECK(block == first && told == 1);
        CHECK_OK(shmemi_pool_free(pool, block));
        end();
    }
}

/* The server has not noticed yet: who needs the same pages waits, but not for ever, and gets them
 * as soon as the death is known. */
static void killed_and_not_buried(void)
{
    world_needs_kills();
    begin(2 * MIB, 30 * MIB);
    victim_t v = {"memory.grow.claimed", 1, 1};
    CHECK_EQ(harness_wait(harness_fork(grow_and_shrink, &v), 30), -SIGKILL);
    void *block;
    double start = harness_now();
    CHECK_STATUS(shmemi_pool_alloc_default(pool, 30 * MIB, &block), SHMEM_ERR_NOMEM);
    CHECK(harness_now() - start < 30);
    slots_remove(world.roster, world.client[1].slot, true);
    harness_sleep(1.1); /* it is not tried at once again */
    all_can_be_had();   /* sweeps */
    world_client_add(1);
    end();
}

int main(void)
{
    RUN(to_the_limit_and_back);
    RUN(odd_sizes);
    RUN(in_steps);
    RUN(aligned);
    RUN(into_what_is_left);
    RUN(only_what_is_idle);
    RUN(without_a_descriptor);
    RUN(present_ranges);
    RUN(the_wanted_node_first);
    RUN(a_node_without_memory);
    RUN(the_system_refuses);
    RUN(the_system_takes_nothing_back);
    RUN(threads_at_once);
    RUN(processes_at_once);
    RUN(killed_while_growing);
    RUN(told_of_what_the_dead_brought);
    RUN(killed_and_not_buried);
    return harness_end();
}
