/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process of a small virtual machine with several NUMA nodes: checks of topology and
 * placement that need more than one real node, and an older kernel. test/scripts/numa_test.sh boots
 * it and tells it by the kernel's command line what it should find:
 *
 *   shmem.memory=1,1,1,0   nodes with memory        shmem.cpus=1,1,0,1  processors of each node
 *   shmem.distances=10,20,20,10                     the table, row by row
 *   shmem.latency=60,126,126,60   shmem.bandwidth=20,10,10,20   with attributes: ns, GB/s
 *
 * It ends with the line "GUEST passed" or "GUEST failed" on the console.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/utsname.h>

#include "base/settings.h"
#include "guest.h"
#include "os/reserve.h"
#include "os/segment.h"
#include "os/space.h"

enum { SMALL_PAGES = 512, PAIRS_MAX = NODES_MAX * NODES_MAX };

int expected_nodes, memory[NODES_MAX], cpus[NODES_MAX];
shmem_topology_t topology;
static double latency[PAIRS_MAX], bandwidth[PAIRS_MAX];
static bool has_attributes; /* the firmware's, not distances alone */

/* Numbers after shmem.NAME= on the kernel's command line; 0 without. */
static int read_list(const char *name, double *out, int room)
{
    static char line[4096];
    int n = 0;
    FILE *f = fopen("/proc/cmdline", "re");
    CHECK(f != NULL && fgets(line, sizeof line, f) != NULL);
    fclose(f);
    char *p = strstr(line, name);
    if (!p)
        return 0;
    for (p += strlen(name); n<room && * p> ' '; p += *p == ',')
        out[n++] = strtod(p, &p);
    return n;
}

static void read_expectations(void)
{
    double list[NODES_MAX];
    expected_nodes = read_list("shmem.memory=", list, NODES_MAX);
    CHECK(expected_nodes > 0);
    for (int i = 0; i < expected_nodes; i++)
        memory[i] = (int)list[i];
    CHECK_EQ(read_list("shmem.cpus=", list, NODES_MAX), expected_nodes);
    for (int i = 0; i < expected_nodes; i++)
        cpus[i] = (int)list[i];
    int pairs = expected_nodes * expected_nodes;
    CHECK_EQ(read_list("shmem.distances=", latency, PAIRS_MAX), pairs);
    for (int i = 0; i < pairs; i++) {
        bandwidth[i] = 120 / latency[i];
        latency[i] *= 9;
    }
    has_attributes = read_list("shmem.latency=", latency, PAIRS_MAX) == pairs &&
                     read_list("shmem.bandwidth=", bandwidth, PAIRS_MAX) == pairs;
}

static void topology_is_right(void)
{
    int total = 0;
    CHECK_OK(shmem_topology_create(&topology));
    CHECK_EQ(shmem_topology_nodes(topology), expected_nodes);
    for (int i = 0; i < expected_nodes; i++) {
        shmem_topology_node_t node;
        CHECK_OK(shmem_topology_node(topology, i, &node));
        CHECK_EQ(node.os_index, i);
        CHECK_EQ(node.processors, cpus[i]);
        CHECK_EQ(node.total_bytes > 0, memory[i]);
        CHECK_EQ(node.free_bytes > 0, memory[i]);
        total += cpus[i];
    }
    CHECK_EQ(shmem_topology_processors(topology), total);
}

static void check_close(const char *what, int from, int to, double got, double wanted)
{
    if (got < wanted * 0.999 || got > wanted * 1.001)
        harness_fail(__FILE__, __LINE__, "%s %d to %d: %g, expected %g", what, from, to, got,
                     wanted);
}

static void distances_are_the_firmwares(void)
{
    int n = expected_nodes;
    CHECK_EQ(shmem_topology_latency_source(topology),
             has_attributes ? SHMEM_TOPOLOGY_ATTRIBUTES : SHMEM_TOPOLOGY_DISTANCES);
    for (int i = 0; i < n * n; i++) {
        check_close("latency", i / n, i % n, shmem_topology_latency(topology, i / n, i % n),
                    latency[i]);
        check_close("bandwidth", i / n, i % n, shmem_topology_bandwidth(topology, i / n, i % n),
                    bandwidth[i]);
    }
}

/* Processors are numbered node by node. */
static void current_node_is_right(void)
{
    int processor = 0;
    for (int node = 0; node < expected_nodes; node++)
        for (int i = 0; i < cpus[node]; i++) {
            run_on_processor(processor++);
            CHECK_EQ(shmemi_topo_current_node(topology), node);
        }
    run_anywhere();
}

static int segment(uint64_t bytes, int huge)
{
    shmemi_segment_params_t p = {"shmem-numa-test", bytes, huge, 0};
    int fd;
    uint64_t rounded, page;
    CHECK_OK(shmemi_segment_create(&p, &fd, &rounded, &page));
    return fd;
}

/* All pages of the range lie on the node; *huge (may be NULL) tells how much 2 MiB pages map. */
static void check_placement(char *p, uint64_t bytes, int node, uint64_t *huge)
{
    static int found[16 * MIB / 4096];
    CHECK_OK(shmemi_segment_populate(p, bytes, SHMEMI_HUGE_OFF, 2, huge));
    CHECK_OK(shmemi_topo_placement(topology, p, bytes / 4096, 4096, found));
    for (uint64_t i = 0; i < bytes / 4096; i++)
        if (found[i] != node)
            harness_fail(__FILE__, __LINE__, "page %llu lies on node %d, bound to %d",
                         (unsigned long long)i, found[i], node);
}

/* From every processor to every node with memory: small pages, large ones, and pages that come only
 * when the mapping is populated. */
typedef enum way { SMALL, HUGE, BY_POPULATE, WAYS } way_t;

static void bind_and_check(int node, way_t way, int strict)
{
    uint64_t bytes = way == HUGE ? 8 * MIB : SMALL_PAGES * 4096, huge = 0;
    int fd = segment(bytes, SHMEMI_HUGE_AUTO);
    char *p;
    CHECK_OK(shmemi_space_map(0, bytes, fd, 1, (void **)&p));
    CHECK_OK(shmemi_topo_bind(topology, p, bytes, node, strict));
    if (way == SMALL)
        CHECK_OK(shmemi_segment_reserve(fd, 0, bytes));
    if (way == HUGE)
        CHECK_OK(shmemi_segment_reserve_huge(fd, 0, bytes, SHMEMI_HUGE_REQUIRED));
    check_placement(p, bytes, node, &huge);
    CHECK(way != HUGE || huge == bytes);
    CHECK_OK(shmemi_space_unmap(p));
    close(fd);
}

static void binding_is_honoured(void)
{
    int processors = shmem_topology_processors(topology);
    bool huge = shmemi_reserve_huge_possible();
    fprintf(stderr, "  2 MiB pages for shared memory: %s\n", huge ? "yes" : "no");
    for (int processor = 0; processor < processors; processor++) {
        run_on_processor(processor);
        for (int node = 0; node < expected_nodes; node++)
            for (way_t way = SMALL; way < WAYS; way++)
                if (memory[node] && (huge || way != HUGE)) {
                    bind_and_check(node, way, 1);
                    bind_and_check(node, way, 0);
                }
    }
    run_anywhere();
}

/* One segment, a part for each node, as the parts of symmetric memory are. */
static void parts_of_one_segment(void)
{
    uint64_t part = 2 * MIB;
    int fd = segment(part * (uint64_t)expected_nodes, SHMEMI_HUGE_AUTO);
    char *p;
    CHECK_OK(shmemi_space_map(0, part * (uint64_t)expected_nodes, fd, 1, (void **)&p));
    for (int node = 0; node < expected_nodes; node++) {
        if (!memory[node])
            continue;
        uint64_t at = part * (uint64_t)node;
        CHECK_OK(shmemi_topo_bind(topology, p + at, part, node, 1));
        CHECK_OK(shmemi_segment_reserve_huge(fd, at, part, SHMEMI_HUGE_AUTO));
    }
    for (int node = 0; node < expected_nodes; node++)
        if (memory[node])
            check_placement(p + part * (uint64_t)node, part, node, NULL);
    CHECK_OK(shmemi_space_unmap(p));
    close(fd);
}

/* The thread's own policy neither wins over the binding nor is changed by it. */
static void own_policy_stays(void)
{
    unsigned long nodes;
    set_own_policy(MPOL_BIND, 1);
    for (way_t way = SMALL; way < WAYS; way++)
        if (way != HUGE || shmemi_reserve_huge_possible())
            bind_and_check(1, way, 1);
    CHECK_EQ(own_policy(&nodes), MPOL_BIND);
    CHECK_EQ(nodes, 1);
    set_own_policy(MPOL_DEFAULT, 0);
}

/* Memory wanted on a node that has none: strictly an error, else the nearest that has some. */
static void node_without_memory(void)
{
    int node = 0, order[NODES_MAX];
    while (node < expected_nodes && memory[node])
        node++;
    if (node == expected_nodes)
        return;
    int fd = segment(MIB, SHMEMI_HUGE_OFF);
    char *p;
    CHECK_OK(shmemi_space_map(0, MIB, fd, 1, (void **)&p));
    CHECK(shmemi_topo_bind(topology, p, MIB, node, 1) != SHMEM_OK);
    CHECK_OK(shmemi_topo_bind(topology, p, MIB, node, 0));
    CHECK_OK(shmemi_segment_reserve(fd, 0, MIB));
    shmemi_topo_order(topology, node, order);
    check_placement(p, MIB, order[0], NULL);
    CHECK_EQ(order[expected_nodes - 1], node);
    CHECK_OK(shmemi_space_unmap(p));
    close(fd);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

/* This kernel's fallocate() gives up and undoes at every signal. */
static void storm_of_signals(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    for (int huge = SHMEMI_HUGE_AUTO; huge <= SHMEMI_HUGE_OFF; huge += 2) {
        int fd = segment(64 * MIB, SHMEMI_HUGE_OFF);
        struct stat info;
        setitimer(ITIMER_REAL, &timer, NULL);
        CHECK_OK(shmemi_segment_reserve_huge(fd, 0, 64 * MIB, huge));
        setitimer(ITIMER_REAL, &off, NULL);
        CHECK(fstat(fd, &info) == 0 && (uint64_t)info.st_blocks * 512 == 64 * MIB);
        close(fd);
    }
    fprintf(stderr, "  %d signals\n", (int)alarms);
    CHECK(alarms > 0);
}

/* The administrator's huge pages, used when huge pages are required. */
static void hugetlb_pages(void)
{
    uint64_t free_before = shmemi_reserve_hugetlb_free();
    CHECK_EQ(free_before, 16 * MIB);
    for (int reserve = 0; reserve <= 1; reserve++) {
        shmemi_segment_params_t q = {"shmem-huge", 3 * MIB, SHMEMI_HUGE_REQUIRED, reserve};
        int fd;
        uint64_t bytes, page, huge;
        char *p;
        CHECK_OK(shmemi_segment_create(&q, &fd, &bytes, &page));
        CHECK(bytes == 4 * MIB && page == SHMEMI_HUGE_PAGE);
        CHECK_OK(shmemi_segment_verify(fd, bytes));
        CHECK_EQ(shmemi_reserve_hugetlb_free(), free_before - bytes); /* claimed or taken */
        CHECK_OK(shmemi_space_map(0, bytes, fd, 1, (void **)&p));
        if (!reserve) /* the pool is spread evenly: each node has some */
            CHECK_OK(shmemi_topo_bind(topology, p, bytes, 1, 1));
        CHECK_OK(shmemi_segment_reserve_huge(fd, 0, bytes, SHMEMI_HUGE_REQUIRED));
        CHECK_OK(shmemi_segment_populate(p, bytes, SHMEMI_HUGE_REQUIRED, 2, &huge));
        CHECK_EQ(huge, bytes);
        if (!reserve)
            check_placement(p, bytes, 1, NULL);
        memset(p, 1, bytes);
        CHECK_OK(shmemi_segment_release(fd, 2 * MIB, 2 * MIB));
        CHECK_OK(shmemi_segment_reserve(fd, 2 * MIB, 2 * MIB));
        CHECK_EQ(p[2 * MIB], 0);
        CHECK_OK(shmemi_space_unmap(p));
        close(fd);
        CHECK_EQ(shmemi_reserve_hugetlb_free(), free_before);
    }
}

/* More than the administrator set aside: 2 MiB pages of the other kind, or a refusal. */
static void hugetlb_runs_out(void)
{
    shmemi_segment_params_t q = {"shmem-huge", 24 * MIB, SHMEMI_HUGE_REQUIRED, 1};
    int fd = -7;
    uint64_t bytes, page;
    shmem_status_t status = shmemi_segment_create(&q, &fd, &bytes, &page);
    if (!shmemi_reserve_huge_possible()) {
        CHECK(status == SHMEM_ERR_UNSUPPORTED && fd == -7);
        return;
    }
    CHECK(status == SHMEM_OK && page == 4096);
    close(fd);
}

/* In a group of 32 MiB: what does not fit is refused with the numbers; nobody is killed for it. */
static void in_a_small_group(void *arg)
{
    shmemi_segment_params_t q = {"shmem-group", 64 * MIB, SHMEMI_HUGE_AUTO, 1};
    int fd = -7;
    uint64_t bytes, page;
    (void)arg;
    write_file("/sys/fs/cgroup/small/cgroup.procs", "0");
    CHECK_STATUS(shmemi_segment_create(&q, &fd, &bytes, &page), SHMEM_ERR_NOMEM);
    CHECK(strstr(shmem_error_detail()->text, "cgroup /small allows 32 MiB") != NULL);
    CHECK_EQ(fd, -7);
    for (int i = 0; i < 3; i++) { /* what is given back can be had again */
        q.bytes = 20 * MIB;
        CHECK_OK(shmemi_segment_create(&q, &fd, &bytes, &page));
        q.bytes = 16 * MIB;
        CHECK_STATUS(shmemi_segment_create(&q, &fd, &bytes, &page), SHMEM_ERR_NOMEM);
        close(fd);
    }
}

static void memory_of_a_cgroup(void)
{
    write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
    CHECK(mkdir("/sys/fs/cgroup/small", 0755) == 0);
    write_file("/sys/fs/cgroup/small/memory.max", "33554432");
    CHECK_EQ(harness_wait(harness_fork(in_a_small_group, NULL), 10), 0);
}

static void all_checks(void *arg)
{
    struct utsname u;
    (void)arg;
    uname(&u);
    fprintf(stderr, "Linux %s\n", u.release);
    read_expectations();
    RUN(topology_is_right);
    RUN(distances_are_the_firmwares);
    RUN(current_node_is_right);
    RUN(binding_is_honoured);
    RUN(parts_of_one_segment);
    RUN(own_policy_stays);
    RUN(node_without_memory);
    RUN(storm_of_signals);
    RUN(hugetlb_pages);
    RUN(hugetlb_runs_out);
    RUN(memory_of_a_cgroup);
    pool_cases();
    region_cases();
    measure_cases();
    hugetlb_cases();
    exit(harness_end());
}

int main(void)
{
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/tmp", 01777);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL);
    int result = harness_wait(harness_fork(all_checks, NULL), 90);
    fprintf(stderr, "GUEST %s\n", result == 0 ? "passed" : "failed");
    sync();
    reboot(RB_POWER_OFF);
    return 1;
}
