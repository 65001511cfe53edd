/* SPDX-License-Identifier: Apache-2.0 */
/* Topologies of synthetic, recorded and this machine. */
#include "topo/topo.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "harness.h"
#include "topo/internal.h"

static shmem_topology_t synthetic(const char *description)
{
    shmem_topology_t t;
    CHECK_OK(shmemi_topo_create_synthetic(description, &t));
    return t;
}

static shmem_topology_t recorded(const char *name)
{
    const char *source = getenv("SOURCE_DIR");
    char path[400];
    shmem_topology_t t;
    snprintf(path, sizeof path, "%s/test/fixtures/topology/%s.xml", source ? source : ".", name);
    CHECK_OK(shmemi_topo_create_xml(path, &t));
    return t;
}

static shmem_topology_node_t node(shmem_topology_t t, int i)
{
    shmem_topology_node_t info;
    CHECK_OK(shmem_topology_node(t, i, &info));
    return info;
}

/* What holds for every topology. */
static void check_invariants(shmem_topology_t t)
{
    int n = shmem_topology_nodes(t), total = 0, order[SHMEMI_TOPO_NODES_MAX];
    CHECK(n >= 1 && shmem_topology_processors(t) >= 1);
    for (int i = 0; i < n; i++) {
        shmem_topology_node_t info = node(t, i);
        CHECK(i == 0 || info.os_index > node(t, i - 1).os_index);
        CHECK(info.free_bytes <= info.total_bytes);
        total += info.processors;
        for (int j = 0; j < n; j++) {
            CHECK(shmem_topology_latency(t, i, j) > 0 && shmem_topology_bandwidth(t, i, j) > 0);
            if (shmem_topology_latency_source(t) <= SHMEM_TOPOLOGY_DISTANCES)
                CHECK(shmem_topology_latency(t, i, j) >= shmem_topology_latency(t, i, i));
            if (shmem_topology_bandwidth_source(t) <= SHMEM_TOPOLOGY_DISTANCES)
                CHECK(shmem_topology_bandwidth(t, i, j) <= shmem_topology_bandwidth(t, i, i));
        }
        shmemi_topo_order(t, i, order);
        CHECK(order[0] == i || node(t, i).total_bytes == 0);
        uint64_t seen = 0;
        for (int k = 0; k < n; k++) {
            CHECK(order[k] >= 0 && order[k] < n && !(seen >> order[k] & 1));
            seen |= 1ull << order[k];
        }
    }
    CHECK(total <= shmem_topology_processors(t));
}

static void check_outside(shmem_topology_t t)
{
    int n = shmem_topology_nodes(t);
    shmem_topology_node_t info = {-7, 0, 0, 0};
    CHECK_STATUS(shmem_topology_node(t, -1, &info), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_topology_node(t, n, &info), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_topology_node(t, 0, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_topology_node(NULL, 0, &info), SHMEM_ERR_INVALID);
    CHECK_EQ(info.os_index, -7);
    CHECK(shmem_topology_latency(t, 0, n) < 0 && shmem_topology_latency(t, -1, 0) < 0);
    CHECK(shmem_topology_bandwidth(t, n, 0) < 0 && shmem_topology_bandwidth(t, 0, -1) < 0);
    CHECK(shmem_topology_latency_spread(t, 0, n) < 0);
    CHECK(shmem_topology_bandwidth_spread(t, -1, 0) < 0);
    CHECK(shmem_topology_latency_spread(NULL, 0, 0) < 0);
    CHECK_EQ(shmem_topology_latency_source(NULL), SHMEM_TOPOLOGY_ASSUMED);
    CHECK_STR(shmem_topology_source_name(SHMEM_TOPOLOGY_MEASURED), "measured");
    CHECK_STR(shmem_topology_source_name((shmem_topology_source_t)4), "unknown");
    CHECK(shmem_topology_cache(t, 0) == 0 && shmem_topology_cache(t, 4) == 0);
}

static void this_machine(void)
{
    shmem_topology_t t;
    double begin = harness_now();
    CHECK_OK(shmem_topology_create(&t));
    fprintf(stderr, "  %.2f ms\n", (harness_now() - begin) * 1e3);
    check_invariants(t);
    check_outside(t);
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    CHECK_EQ(shmem_topology_processors(t), CPU_COUNT(&set));
    int here = shmemi_topo_current_node(t);
    CHECK(here >= 0 && here < shmem_topology_nodes(t));
    uint64_t total = 0;
    for (int i = 0; i < shmem_topology_nodes(t); i++)
        total += node(t, i).total_bytes;
    CHECK(total > 64 << 20);
    shmem_topology_destroy(t);
    shmem_topology_destroy(NULL);
    CHECK_STATUS(shmem_topology_create(NULL), SHMEM_ERR_INVALID);
}

/* Bound to one processor, a process may use one. */
static void bound_to_one(void *arg)
{
    (void)arg;
    harness_use_processors(1);
    shmem_topology_t t;
    CHECK_OK(shmem_topology_create(&t));
    CHECK_EQ(shmem_topology_processors(t), 1);
    CHECK_EQ(node(t, shmemi_topo_current_node(t)).processors, 1);
    shmem_topology_destroy(t);
}

static void affinity_counts(void)
{
    CHECK_EQ(harness_wait(harness_fork(bound_to_one, NULL), 10), 0);
}

static void synthetic_machines(void)
{
    static const int counts[] = {1, 2, 4, 8};
    for (int c = 0; c < 4; c++) {
        char text[64];
        snprintf(text, sizeof text, "numa:%d(memory=1GB) l2:2(size=2MB) core:1 pu:2", counts[c]);
        shmem_topology_t t = synthetic(text);
        CHECK_EQ(shmem_topology_nodes(t), counts[c]);
        CHECK_EQ(shmem_topology_processors(t), counts[c] * 4);
        CHECK_EQ(shmem_topology_cache(t, 2), 2000000);
        CHECK_EQ(shmem_topology_cache(t, 3), 0);
        for (int i = 0; i < counts[c]; i++) {
            CHECK_EQ(node(t, i).os_index, i);
            CHECK_EQ(node(t, i).processors, 4);
            CHECK_EQ(node(t, i).total_bytes, 1000000000);
            for (int j = 0; j < counts[c]; j++)
                CHECK(shmem_topology_latency(t, i, j) == (i == j ? 90.0 : 180.0));
        }
        CHECK_EQ(shmem_topology_latency_source(t), SHMEM_TOPOLOGY_ASSUMED);
        CHECK(shmem_topology_latency_spread(t, 0, 0) < 0);
        check_invariants(t);
        check_outside(t);
        CHECK_EQ(shmemi_topo_current_node(t), 0);
        shmem_topology_destroy(t);
    }
}

static void memory_only_node(void)
{
    shmem_topology_t t = synthetic("[numa(memory=4GB)] pack:2 [numa(memory=1GB)] core:2 pu:2");
    CHECK_EQ(shmem_topology_nodes(t), 3);
    CHECK_EQ(node(t, 0).processors, 4);
    CHECK_EQ(node(t, 1).processors, 4);
    CHECK_EQ(node(t, 2).processors, 0);
    check_invariants(t);
    shmem_topology_destroy(t);
    t = recorded("cxl-3");
    CHECK_EQ(node(t, 2).processors, 0);
    CHECK_EQ(node(t, 2).total_bytes, 64000000000);
    CHECK_EQ(shmem_topology_processors(t), 4);
    CHECK(shmem_topology_latency(t, 0, 2) == 126.0 && shmem_topology_latency(t, 1, 2) == 216.0);
    int order[3];
    shmemi_topo_order(t, 0, order);
    CHECK(order[0] == 0 && order[1] == 2 && order[2] == 1);
    shmemi_topo_order(t, 1, order);
    CHECK(order[0] == 1 && order[1] == 0 && order[2] == 2);
    check_invariants(t);
    shmem_topology_destroy(t);
}

static void distances_of_a_ring(void)
{
    static const double table[4][4] = {
        {10, 16, 22, 16}, {16, 10, 16, 22}, {22, 16, 10, 16}, {16, 22, 16, 10}};
    shmem_topology_t t = recorded("ring-4");
    CHECK_EQ(shmem_topology_nodes(t), 4);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            CHECK(shmem_topology_latency(t, i, j) == table[i][j] * 9.0);
            CHECK(shmem_topology_bandwidth(t, i, j) == 120.0 / table[i][j]);
        }
    int order[4];
    shmemi_topo_order(t, 2, order); /* itself, its neighbours by number, across */
    CHECK(order[0] == 2 && order[1] == 1 && order[2] == 3 && order[3] == 0);
    shmemi_topo_order(t, -1, order); /* nobody in particular: as from node 0 */
    CHECK(order[0] == 0 && order[1] == 1 && order[2] == 3 && order[3] == 2);
    check_invariants(t);
    shmem_topology_destroy(t);
}

static void cpuset_hides_node_0(void)
{
    shmem_topology_t t = recorded("cpuset-4");
    CHECK_EQ(shmem_topology_nodes(t), 3);
    CHECK_EQ(shmem_topology_processors(t), 6);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(node(t, i).os_index, i + 1);
    CHECK(shmem_topology_latency(t, 0, 1) == 144.0 && shmem_topology_latency(t, 0, 2) == 198.0);
    CHECK_EQ(shmemi_topo_index_of(t, 0), -1);
    CHECK_EQ(shmemi_topo_index_of(t, 3), 2);
    check_invariants(t);
    shmem_topology_destroy(t);
}

static void node_without_memory(void)
{
    shmem_topology_t t = recorded("no-memory-2");
    int order[2];
    CHECK_EQ(node(t, 0).total_bytes, 0);
    CHECK_EQ(node(t, 0).processors, 2);
    shmemi_topo_order(t, 0, order);
    CHECK(order[0] == 1 && order[1] == 0); /* no memory: last, even for its own processors */
    shmem_topology_destroy(t);
}

static void clusters(void)
{
    shmem_topology_t t = recorded("clusters-4");
    int order[4];
    CHECK_EQ(shmem_topology_latency_source(t), SHMEM_TOPOLOGY_DISTANCES);
    CHECK_EQ(shmem_topology_bandwidth_source(t), SHMEM_TOPOLOGY_DISTANCES);
    shmemi_topo_order(t, 3, order);
    CHECK(order[0] == 3 && order[1] == 2 && order[2] == 0 && order[3] == 1);
    check_invariants(t);
    shmem_topology_destroy(t);
}

static bool is_close(double a, double b)
{
    return a > b * 0.9999 && a < b * 1.0001;
}

/* The firmware tells what the processors of each package have at home; the rest follows. */
static void attributes(void)
{
    shmem_topology_t t = recorded("hbm-4");
    CHECK_EQ(shmem_topology_latency_source(t), SHMEM_TOPOLOGY_ATTRIBUTES);
    CHECK_EQ(shmem_topology_bandwidth_source(t), SHMEM_TOPOLOGY_ATTRIBUTES);
    CHECK(shmem_topology_latency(t, 0, 0) == 100 && shmem_topology_latency(t, 0, 1) == 120);
    CHECK(shmem_topology_latency(t, 2, 2) == 100 && shmem_topology_latency(t, 2, 3) == 120);
    CHECK(is_close(shmem_topology_bandwidth(t, 0, 1), 200000 * 1.048576e-3));
    CHECK(shmem_topology_bandwidth(t, 0, 1) > shmem_topology_bandwidth(t, 0, 0)); /* HBM */
    CHECK(is_close(shmem_topology_latency(t, 0, 3), 120 * 23 / 13.0));
    CHECK(is_close(shmem_topology_bandwidth(t, 0, 3), 200000 * 1.048576e-3 * 13 / 23));
    CHECK(is_close(shmem_topology_latency(t, 2, 0), 100 * 21 / 13.0)); /* by (1, 0) */
    int order[4];
    shmemi_topo_order(t, 1, order); /* its own package first, although DDR is nearer than itself */
    CHECK(order[0] == 1 && order[1] == 0);
    check_invariants(t);
    shmem_topology_destroy(t);
}

/* Any matrix with at least one known pair is completed in proportion. */
static void completing(void)
{
    double none[4] = {0}, base[4] = {90, 180, 180, 90};
    CHECK(!shmemi_topo_complete(none, base, 2) && none[0] == 0);
    double one[4] = {0, 0, 0, 45};
    CHECK(shmemi_topo_complete(one, base, 2));
    CHECK(one[0] == 45 && one[1] == 90 && one[2] == 90 && one[3] == 45);
    for (unsigned known = 1; known < 1u << 16; known += 7) {
        double b[16], m[16];
        for (int i = 0; i < 16; i++) {
            b[i] = 90 + (i * 37 + known) % 200;
            m[i] = known >> i & 1 ? 1.5 * b[i] : 0;
        }
        CHECK(shmemi_topo_complete(m, b, 4));
        for (int i = 0; i < 16; i++)
            CHECK(is_close(m[i], 1.5 * b[i]));
    }
}

static int lines;

static void count_lines(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    (void)user, (void)level, (void)layer, (void)text;
    lines++;
}

static void odd_tables(void)
{
    shmem_log_set_sink(count_lines, NULL, SHMEM_LOG_WARN);
    lines = 0;
    shmem_topology_t t = recorded("asymmetric-2"); /* odd, but possible */
    CHECK(shmem_topology_latency(t, 0, 1) == 189.0 && shmem_topology_latency(t, 1, 0) == 252.0);
    CHECK_EQ(lines, 0);
    check_invariants(t);
    shmem_topology_destroy(t);
    t = recorded("broken-table-2"); /* not possible: replaced, and said so */
    CHECK(shmem_topology_latency(t, 0, 1) == 180.0 && shmem_topology_latency(t, 1, 1) == 90.0);
    CHECK_EQ(lines, 1);
    CHECK_EQ(shmem_topology_latency_source(t), SHMEM_TOPOLOGY_ASSUMED);
    check_invariants(t);
    shmem_topology_destroy(t);
    t = recorded("broken-attributes-2"); /* what is left of them counts */
    CHECK_EQ(lines, 3);
    CHECK_EQ(shmem_topology_latency_source(t), SHMEM_TOPOLOGY_DISTANCES);
    CHECK(shmem_topology_latency(t, 0, 0) == 90 && shmem_topology_latency(t, 0, 1) == 180);
    CHECK_EQ(shmem_topology_bandwidth_source(t), SHMEM_TOPOLOGY_ATTRIBUTES);
    CHECK(is_close(shmem_topology_bandwidth(t, 0, 0), 52.4288));
    CHECK(is_close(shmem_topology_bandwidth(t, 0, 1), 26.2144));
    check_invariants(t);
    shmem_topology_destroy(t);
    shmem_log_set_sink(NULL, NULL, 0);
}

static void bad_descriptions(void)
{
    shmem_topology_t t = (shmem_topology_t)(void *)&lines;
    CHECK_STATUS(shmemi_topo_create_synthetic("nonsense:x", &t), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_topo_create_synthetic("", &t), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_topo_create_xml("/nowhere.xml", &t), SHMEM_ERR_NOT_FOUND);
    char path[] = "/tmp/shmem-topo-test-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "<topology>", 10) == 10 && close(fd) == 0);
    CHECK(shmemi_topo_create_xml(path, &t) != SHMEM_OK);
    unlink(path);
    CHECK(t == (shmem_topology_t)(void *)&lines);
}

static void injected(void)
{
    shmem_topology_t t = NULL;
    shmemi_fault_arm("topo.build", SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmem_topology_create(&t), SHMEM_ERR_NOMEM);
    CHECK(t == NULL);
    shmemi_fault_disarm();
}

static void create_in_thread(int rank, int n, void *arg)
{
    (void)rank, (void)n, (void)arg;
    for (int i = 0; i < 5; i++) {
        shmem_topology_t t;
        CHECK_OK(shmem_topology_create(&t));
        check_invariants(t);
        shmem_topology_destroy(t);
    }
}

static void threads_detect_at_once(void)
{
    harness_pes(4, HARNESS_THREAD, 20, create_in_thread, NULL);
}

int main(void)
{
    RUN(this_machine);
    RUN(affinity_counts);
    RUN(synthetic_machines);
    RUN(memory_only_node);
    RUN(distances_of_a_ring);
    RUN(cpuset_hides_node_0);
    RUN(node_without_memory);
    RUN(clusters);
    RUN(attributes);
    RUN(completing);
    RUN(odd_tables);
    RUN(bad_descriptions);
    RUN(injected);
    RUN(threads_detect_at_once);
    return harness_end();
}
