/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools on a machine with several nodes: where blocks and bookkeeping lie, read back from the
 * kernel; that nothing moves by itself; what an operator moves; containers and cpusets.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "../multi/job.h"
#include "../unit/os/helpers.h"
#include "base/settings.h"
#include "guest.h"
#include "memory/pool.h"
#include "os/segment.h"

#define PART (8 * MIB) /* of a pool, on each node */

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

static shmem_context_t join(void)
{
    shmem_context_t context;
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    params.server = job_server.address;
    params.pes = 1;
    CHECK_OK(shmem_context_init_params(&context, &params));
    return context;
}

static shmem_pool_t make(shmem_context_t context, int nodes, shmem_pool_policy_t policy, int node)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = PART * (uint64_t)nodes;
    params.policy = policy;
    params.node = node;
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    return pool;
}

/* Each case in a process of its own: contexts, policies and filters end with it. */
static void apart(void (*body)(void *), void *arg)
{
    CHECK_EQ(harness_wait(harness_fork(body, arg), 40), 0);
}

/* The node where memory wanted on `node` must lie. */
static int home(int node)
{
    int order[NODES_MAX];
    shmemi_topo_order(topology, node, order);
    return order[0];
}

/* The node of all pages of a block. */
static int node_of(const void *block, uint64_t bytes)
{
    int found[256], node = -2;
    const char *first = (const char *)((uintptr_t)block & ~(uintptr_t)4095);
    size_t pages = (size_t)((const char *)block + bytes - first + 4095) / 4096;
    CHECK(pages <= 256);
    CHECK_OK(shmemi_topo_placement(topology, first, pages, 4096, found));
    for (size_t i = 0; i < pages; i++) {
        CHECK(found[i] >= 0 && (node == -2 || found[i] == node));
        node = found[i];
    }
    return node;
}

static int node_of_new(shmem_pool_t pool, size_t bytes, shmem_pool_policy_t policy, int node)
{
    void *block;
    CHECK_OK(shmem_pool_alloc_on(pool, bytes, 0, policy, node, &block));
    return node_of(block, bytes);
}

static uint64_t fallbacks(shmem_pool_t pool, int wanted, int got, shmem_pool_why_t why)
{
    uint64_t count;
    CHECK_OK(shmem_pool_fallback(pool, wanted, got, why, &count));
    return count;
}

static const size_t sizes[] = {100, 5000, 100000, 1000000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* ---- where blocks lie ---- */

static void blocks_body(void *arg)
{
    (void)arg;
    shmem_context_t context = join();
    shmem_pool_t pool = make(context, expected_nodes, SHMEM_POOL_NEAREST, 0);
    for (int node = 0; node < expected_nodes; node++) {
        for (int s = 0; s < SIZES; s++) {
            CHECK_EQ(node_of_new(pool, sizes[s], SHMEM_POOL_PREFERRED, node), home(node));
            if (memory[node])
                CHECK_EQ(node_of_new(pool, sizes[s], SHMEM_POOL_BIND, node), node);
        }
        if (!cpus[node])
            continue;
        run_on_processor(first_processor(node));
        for (int s = 0; s < SIZES; s++)
            CHECK_EQ(node_of_new(pool, sizes[s], SHMEM_POOL_NEAREST, 0), home(node));
    }
    run_anywhere();
    int with_memory = 0, count[NODES_MAX] = {0};
    for (int node = 0; node < expected_nodes; node++)
        with_memory += memory[node];
    for (int i = 0; i < 6 * with_memory; i++)
        count[node_of_new(pool, sizes[i / with_memory % 3], SHMEM_POOL_INTERLEAVE, 0)]++;
    for (int node = 0; node < expected_nodes; node++) {
        CHECK_EQ(count[node], memory[node] ? 6 : 0);
        CHECK(memory[node] || fallbacks(pool, node, home(node), SHMEM_POOL_WHY_NO_MEMORY) ==
                                  SIZES + SIZES * cpus[node]);
    }
    CHECK_OK(shmem_context_finalize(context));
}

static void blocks_lie_where_they_should(void)
{
    apart(blocks_body, NULL);
}

/* The wanted node is full: the nearest one, then the next, each counted. */
static void fallback_body(void *arg)
{
    int order[NODES_MAX];
    void *block;
    (void)arg;
    shmem_context_t context = join();
    shmem_pool_t pool = make(context, expected_nodes, SHMEM_POOL_PREFERRED, 1);
    shmemi_topo_order(topology, 1, order);
    for (int i = 0; i < expected_nodes && memory[order[i]]; i++) {
        CHECK_EQ(node_of_new(pool, 4096, SHMEM_POOL_PREFERRED, 1), order[i]);
        CHECK_EQ(fallbacks(pool, 1, order[i], SHMEM_POOL_WHY_FULL), i > 0);
        while (shmem_pool_alloc_on(pool, 65536, 0, SHMEM_POOL_BIND, order[i], &block) == SHMEM_OK)
            ;
        while (shmem_pool_alloc_on(pool, 4096, 0, SHMEM_POOL_BIND, order[i], &block) == SHMEM_OK)
            ;
        for (int bare = 0; bare < expected_nodes; bare++) /* lies on its neighbour, too */
            if (!memory[bare] && home(bare) == order[i])
                while (shmem_pool_alloc_on(pool, 4096, 0, SHMEM_POOL_PREFERRED, bare, &block) ==
                           SHMEM_OK &&
                       node_of(block, 4096) == order[i])
                    ;
    }
    CHECK_OK(shmem_context_finalize(context));
}

static void full_nodes_fall_back_by_distance(void)
{
    apart(fallback_body, NULL);
}

/* ---- nodes without room ---- */

/* A pool that would grow where the node has no more memory takes another's, and says why. */
static void check_growth_without_room(shmem_context_t context, int node, uint64_t limit)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 2 * MIB * (uint64_t)expected_nodes;
    params.limit = limit * (uint64_t)expected_nodes;
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    int got = node;
    for (uint64_t taken = 0; got == node && taken < limit; taken += 8 * MIB) {
        void *block;
        CHECK_OK(shmem_pool_alloc_on(pool, 8 * MIB, 0, SHMEM_POOL_PREFERRED, node, &block));
        got = node_of(block, 4096);
    }
    CHECK(got != node && fallbacks(pool, node, got, SHMEM_POOL_WHY_NO_MEMORY) == 1);
    CHECK(strstr(text_seen, "no memory on the wanted node") != NULL);
    void *block = &pool;
    shmem_status_t status = SHMEM_OK;
    while (!status)
        status = shmem_pool_alloc_on(pool, 8 * MIB, 0, SHMEM_POOL_BIND, node, &block);
    CHECK_EQ(status, SHMEM_ERR_NOMEM);
    shmem_pool_close(pool);
}

/* More than a node has left, though the machine has it: an error that names the node. A kernel that
 * is asked to put it there all the same kills somebody. */
static void no_room_body(void *arg)
{
    (void)arg;
    shmem_context_t context = join();
    shmem_pool_t pool = (shmem_pool_t)(void *)&context;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_topology_t now;
    shmem_topology_node_t node;
    uint64_t most = 0;
    int fd, filled = 0;
    char *filler;
    CHECK_OK(shmem_topology_create(&now));
    for (int i = 0; i < expected_nodes; i++) {
        CHECK_OK(shmem_topology_node(now, i, &node));
        if (memory[i] && node.free_bytes > most) {
            most = node.free_bytes;
            filled = i;
        }
    }
    shmemi_segment_params_t p = {"shmem-filler", most * 3 / 4 & ~(2 * MIB - 1), SHMEMI_HUGE_AUTO,
                                 0};
    uint64_t bytes, page;
    CHECK_OK(shmemi_segment_create(&p, &fd, &bytes, &page));
    filler = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(filler != MAP_FAILED);
    CHECK_OK(shmemi_topo_bind(topology, filler, bytes, filled, 1));
    CHECK_OK(shmemi_segment_reserve_huge(fd, 0, bytes, SHMEMI_HUGE_AUTO));
    params.bytes = (most / 4 + 4 * MIB) * (uint64_t)expected_nodes;
    CHECK_STATUS(shmem_pool_create(context, NULL, &params, &pool), SHMEM_ERR_NOMEM);
    CHECK(pool == (shmem_pool_t)(void *)&context);
    check_detail("MiB are wanted on node ");
    check_growth_without_room(context, filled, most);
    close(fd);
    munmap(filler, bytes);
    shmem_pool_t small = make(context, expected_nodes, SHMEM_POOL_NEAREST, 0);
    CHECK_EQ(node_of_new(small, 100000, SHMEM_POOL_BIND, filled), filled);
    shmem_topology_destroy(now);
    CHECK_OK(shmem_context_finalize(context));
}

static void a_node_without_room(void)
{
    apart(no_room_body, NULL);
}

/* What a pool grows by lies on the node that wanted it, whoever makes it grow. */
static void growth_body(void *arg)
{
    (void)arg;
    shmem_context_t context = join();
    shmem_pool_t pool;
    shmem_pool_info_t info = {.size = sizeof info};
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 2 * MIB * (uint64_t)expected_nodes;
    params.limit = PART * (uint64_t)expected_nodes;
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    run_on_processor(0);
    set_own_policy(MPOL_BIND, 2);
    for (int node = 0; node < expected_nodes; node++)
        for (int i = 0; memory[node] && i < 7; i++)
            CHECK_EQ(node_of_new(pool, 1000000, SHMEM_POOL_BIND, node), node);
    set_own_policy(MPOL_DEFAULT, 0);
    CHECK_OK(shmem_pool_info(pool, &info));
    CHECK(info.grown > 0 && info.bytes > params.bytes);
    for (int node = 0; node < expected_nodes; node++) {
        uint64_t there, elsewhere;
        CHECK_OK(shmem_pool_placement(pool, node, &there, &elsewhere));
        CHECK(!memory[node] || (elsewhere == 0 && there >= 7 * 1000000 / 4096));
    }
    CHECK_OK(shmem_context_finalize(context));
}

static void growth_lands_on_the_right_node(void)
{
    apart(growth_body, NULL);
}

/* ---- where the pool's pages lie, and stay ---- */

/* The kernel's policy for the page: explicit and for one node, which balancing respects. */
static void check_policy(const void *address, int node)
{
    unsigned long mask[16] = {0};
    int mode = -1;
    CHECK(syscall(SYS_get_mempolicy, &mode, mask, 1024ul, address, (unsigned long)MPOL_F_ADDR) ==
          0);
    CHECK_EQ(mode, memory[node] ? MPOL_BIND : MPOL_PREFERRED);
    CHECK_EQ(mask[0], 1ul << home(node));
}

static void check_whole_pool(shmem_pool_t pool)
{
    for (int node = 0; node < expected_nodes; node++) {
        uint64_t there, elsewhere;
        CHECK_OK(shmem_pool_placement(pool, node, &there, &elsewhere));
        CHECK(there + elsewhere >= PART / 4096 + 8); /* data and bookkeeping */
        CHECK_EQ(memory[node] ? elsewhere : there, 0);
    }
}

static void pages_body(void *arg)
{
    (void)arg;
    shmem_context_t context = join();
    write_file("/proc/sys/kernel/numa_balancing", "1");
    shmem_pool_t pool = make(context, expected_nodes, SHMEM_POOL_NEAREST, 0);
    check_whole_pool(pool);
    for (int node = 0; node < expected_nodes; node++) {
        void *block;
        CHECK_OK(shmem_pool_alloc_on(pool, 100000, 0, SHMEM_POOL_PREFERRED, node, &block));
        check_policy(block, node);
    }
    const shmemi_pool_t *core = *(shmemi_pool_t **)pool; /* the handle's first member */
    check_policy(core->header, 0);
    for (int node = 0; node < expected_nodes; node++)
        check_policy(core->arenas[node].arena.control, node);
    CHECK_OK(shmem_context_finalize(context));
}

static void pages_are_bound_for_good(void)
{
    apart(pages_body, NULL);
}

static void moved_body(void *arg)
{
    enum { PAGES = 32 };
    void *at[PAGES], *block;
    int target[PAGES], status[PAGES], from = 0;
    uint64_t there, elsewhere;
    (void)arg;
    shmem_context_t context = join();
    shmem_pool_t pool = make(context, expected_nodes, SHMEM_POOL_NEAREST, 0);
    CHECK_OK(shmem_pool_alloc_on(pool, PAGES * 4096, 0, SHMEM_POOL_BIND, from, &block));
    for (int i = 0; i < PAGES; i++) {
        at[i] = (char *)block + 4096 * i;
        target[i] = 1;
    }
    CHECK_OK(shmem_pool_placement(pool, from, &there, &elsewhere));
    CHECK_EQ(elsewhere, 0);
    CHECK_EQ(lines, 0);
    long result = syscall(SYS_move_pages, 0, (long)PAGES, at, target, status, MPOL_MF_MOVE_ALL);
    CHECK(result >= 0 && node_of(block, PAGES * 4096) == 1);
    for (int again = 0; again < 2; again++) {
        CHECK_OK(shmem_pool_placement(pool, from, &there, &elsewhere));
        CHECK(elsewhere >= PAGES && there + elsewhere > elsewhere);
        CHECK_EQ(lines, 1); /* said once */
    }
    CHECK(strstr(text_seen, "belong to node 0 lie on others (node 1)") != NULL);
    CHECK_OK(shmem_pool_placement(pool, 1, &there, &elsewhere));
    CHECK_EQ(elsewhere, 0);
    CHECK_OK(shmem_context_finalize(context));
}

static void what_an_operator_moves_is_reported(void)
{
    apart(moved_body, NULL);
}

/* ---- the caller's own settings ---- */

static void policy_body(void *arg)
{
    unsigned long nodes;
    cpu_set_t before, after;
    (void)arg;
    run_on_processor(0);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    set_own_policy(MPOL_BIND, 2); /* everything else would go to node 1 */
    shmem_context_t context = join();
    shmem_pool_t pool = make(context, expected_nodes, SHMEM_POOL_NEAREST, 0);
    check_whole_pool(pool);
    CHECK_EQ(node_of_new(pool, 100000, SHMEM_POOL_BIND, 0), 0);
    CHECK_OK(shmem_pool_trim(pool));
    CHECK_OK(shmem_context_finalize(context));
    CHECK_EQ(own_policy(&nodes), MPOL_BIND);
    CHECK_EQ(nodes, 2);
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after));
}

static void callers_policy_stays(void)
{
    apart(policy_body, NULL);
}

/* ---- containers and cpusets ---- */

static void refused_body(void *arg)
{
    static const int calls[] = {SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy, SYS_move_pages};
    uint64_t there = 7, elsewhere = 7;
    void *block;
    refuse_calls(calls, 4, *(int *)arg);
    shmem_context_t context = join();
    shmem_pool_t pool = make(context, expected_nodes, SHMEM_POOL_NEAREST, 0);
    CHECK_EQ(lines, 1);
    CHECK(strstr(text_seen, "refuses mbind") != NULL);
    for (int s = 0; s < SIZES; s++) {
        CHECK_OK(shmem_pool_alloc(pool, sizes[s], &block));
        memset(block, 1, sizes[s]);
        CHECK_OK(shmem_pool_free(pool, block));
    }
    CHECK_STATUS(shmem_pool_placement(pool, 0, &there, &elsewhere), SHMEM_ERR_UNSUPPORTED);
    CHECK(there == 7 && elsewhere == 7);
    shmem_topology_t t;
    CHECK_STATUS(shmem_topology_measure(NULL, &t), SHMEM_ERR_UNSUPPORTED);
    CHECK_OK(shmem_context_finalize(context));
}

static void a_container_refuses(void)
{
    int errors[] = {EPERM, ENOSYS};
    for (int i = 0; i < 2; i++)
        apart(refused_body, &errors[i]);
}

/* In a cpuset with node 1 alone: the library's node 0 is the system's node 1. */
static void cpuset_body(void *arg)
{
    shmem_topology_t seen;
    shmem_topology_node_t node;
    (void)arg;
    write_file("/sys/fs/cgroup/hiding/cgroup.procs", "0");
    CHECK_OK(shmem_topology_create(&seen));
    CHECK_EQ(shmem_topology_nodes(seen), 1);
    CHECK_OK(shmem_topology_node(seen, 0, &node));
    CHECK(node.os_index == 1 && node.processors == cpus[1]);
    CHECK(node.total_bytes > 0 && node.total_bytes <= 256 * MIB); /* not the whole machine's */
    CHECK_EQ(shmemi_topo_current_node(seen), 0);
    shmem_topology_destroy(seen);
    shmem_context_t context = join();
    shmem_pool_t pool = make(context, 1, SHMEM_POOL_NEAREST, 0);
    for (int s = 0; s < SIZES; s++)
        CHECK_EQ(node_of_new(pool, sizes[s], SHMEM_POOL_NEAREST, 0), 1);
    CHECK_OK(shmem_context_finalize(context));
}

static void a_cpuset_hides_nodes(void)
{
    char list[16];
    write_file("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
    CHECK(mkdir("/sys/fs/cgroup/hiding", 0755) == 0);
    snprintf(list, sizeof list, "%d", first_processor(1));
    write_file("/sys/fs/cgroup/hiding/cpuset.cpus", list);
    write_file("/sys/fs/cgroup/hiding/cpuset.mems", "1");
    apart(cpuset_body, NULL);
}

void pool_cases(void)
{
    job_server = job_server_start();
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    RUN(blocks_lie_where_they_should);
    RUN(full_nodes_fall_back_by_distance);
    RUN(a_node_without_room);
    RUN(growth_lands_on_the_right_node);
    RUN(pages_are_bound_for_good);
    RUN(what_an_operator_moves_is_reported);
    RUN(callers_policy_stays);
    RUN(a_container_refuses);
    RUN(a_cpuset_hides_nodes);
    shmem_log_set_sink(NULL, NULL, 0);
    job_server_stop(&job_server);
}
