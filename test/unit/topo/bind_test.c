/* SPDX-License-Identifier: Apache-2.0 */
/* Placement on this machine, whatever it has, and under a profile that refuses the calls for it.
 * Several real nodes: see test/scripts/numa_test.sh. */
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../os/helpers.h"
#include "base/settings.h"
#include "harness.h"
#include "os/barrier.h"
#include "os/segment.h"
#include "topo/internal.h"

#define MIB (1ull << 20)

static int segment(uint64_t bytes)
{
    shmemi_segment_params_t p = {"shmem-bind-test", bytes, SHMEMI_HUGE_OFF, 0};
    int fd;
    uint64_t rounded, page;
    CHECK_OK(shmemi_segment_create(&p, &fd, &rounded, &page));
    return fd;
}

static char *map(int fd, uint64_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* A topology of several nodes that claims to be this machine, of which node 0 is real. */
static shmem_topology_t pretended(int nodes)
{
    char text[64];
    shmem_topology_t t;
    snprintf(text, sizeof text, "numa:%d(memory=1GB) core:1 pu:1", nodes);
    CHECK_OK(shmemi_topo_create_synthetic(text, &t));
    t->is_this_machine = true;
    return t;
}

static int own_policy(unsigned long *mask)
{
    int mode = -1;
    if (syscall(SYS_get_mempolicy, &mode, mask, 1024ul, NULL, 0ul))
        SKIP("this kernel does not tell memory policies");
    return mode;
}

static void own_policy_is_untouched(void)
{
    unsigned long before[16] = {1}, after[16] = {0};
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, before, 1024ul))
        SKIP("this kernel has no memory policies");
    CHECK_EQ(own_policy(before), MPOL_PREFERRED);
    shmem_topology_t t = pretended(2);
    int fd = segment(MIB);
    char *p = map(fd, MIB);
    CHECK_OK(shmemi_topo_bind(t, p, MIB, 0, 1));
    CHECK_OK(shmemi_topo_bind(t, p, MIB, 0, 0));
    CHECK_OK(shmemi_segment_reserve(fd, 0, MIB));
    shmem_topology_t real;
    CHECK_OK(shmem_topology_create(&real));
    shmem_topology_destroy(real);
    CHECK_EQ(own_policy(after), MPOL_PREFERRED);
    CHECK(memcmp(before, after, sizeof before) == 0);
    CHECK(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul) == 0);
    munmap(p, MIB);
    close(fd);
    shmem_topology_destroy(t);
}

static void bad_parameters(void)
{
    shmem_topology_t t = pretended(2);
    int fd = segment(MIB);
    char *p = map(fd, MIB);
    CHECK_STATUS(shmemi_topo_bind(t, p, MIB, -1, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_topo_bind(t, p, MIB, 2, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_topo_bind(t, p + 1, MIB, 0, 0), SHMEM_ERR_INVALID);
    CHECK_OK(shmemi_topo_bind(t, p, 0, 0, 0));
    if (access("/sys/devices/system/node/node1", F_OK) != 0) /* strictly on a node that is not */
        CHECK(shmemi_topo_bind(t, p, MIB, 1, 1) != SHMEM_OK);
    munmap(p, MIB);
    close(fd);
    shmem_topology_destroy(t);
}

/* Bound to each node of the machine in turn, pages are there. */
static void pages_are_where_they_were_bound(void)
{
    shmem_topology_t t;
    CHECK_OK(shmem_topology_create(&t));
    for (int node = 0; node < shmem_topology_nodes(t); node++) {
        int fd = segment(MIB), found[256];
        char *p = map(fd, MIB);
        CHECK_OK(shmemi_topo_bind(t, p, MIB, node, 1));
        CHECK_OK(shmemi_segment_reserve(fd, 0, MIB));
        memset(p, 1, MIB / 2); /* mapped here: only what was touched */
        shmem_status_t status = shmemi_topo_placement(t, p, 256, 4096, found);
        if (status == SHMEM_ERR_UNSUPPORTED)
            SKIP("this kernel does not tell where pages are");
        CHECK_EQ(status, SHMEM_OK);
        for (int i = 0; i < 256; i++)
            CHECK_EQ(found[i], i < 128 ? node : -1);
        munmap(p, MIB);
        close(fd);
    }
    shmem_topology_destroy(t);
}

/* More pages than one call of the kernel is given. */
static void placement_in_batches(void)
{
    enum { PAGES = 1300 };
    static int found[PAGES];
    shmem_topology_t t;
    CHECK_OK(shmem_topology_create(&t));
    char *p = harness_shared(PAGES * 4096);
    for (int i = 0; i < PAGES; i += 2)
        p[i * 4096] = 1;
    if (shmemi_topo_placement(t, p, PAGES, 4096, found) == SHMEM_ERR_UNSUPPORTED)
        SKIP("this kernel does not tell where pages are");
    for (int i = 0; i < PAGES; i++)
        CHECK((found[i] >= 0) == (i % 2 == 0));
    shmem_topology_destroy(t);
}

/* Files as the kernel writes them, whole and cut off. */
static void room_of_a_node(void)
{
    static const char text[] = "Node 3 MemTotal:       262144000 kB\nNode 3 MemFree:  1000 kB\n"
                               "Node 3 MemUsed:  9 kB\nNode 3 Active(file):  200 kB\n"
                               "Node 3 Inactive(file):  1000000 kB\nNode 3 SReclaimable:  64 kB\n"
                               "Node 3 Inactive(anon):  77777777 kB\n";
    static const char zones[] =
        "Node 2, zone      DMA\n  pages free     3840\n        high     99999\n"
        "        managed  99999\n        protection: (0, 5, 7)\n"
        "Node 3, zone      DMA\n        high     16\n        managed  3840\n"
        "        protection: (0, 3019, 24137, 24137)\n  pagesets\n              high:     7\n"
        "Node 3, zone   Normal\n        high     99000\n        managed  5406170\n"
        "        protection: (0, 0, 10)\n              high:     20573\n";
    char path[] = "/tmp/shmem-room-test-XXXXXX", zone_path[] = "/tmp/shmem-room-test-XXXXXX";
    int fd = mkstemp(path), zone_fd = mkstemp(zone_path);
    shmemi_topo_room_t room;
    CHECK(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    CHECK(zone_fd >= 0 && write(zone_fd, zones, sizeof zones - 1) == sizeof zones - 1);
    CHECK(shmemi_topo_room_read(path, "/nowhere", 3, &room));
    CHECK_EQ(room.free, 1000 * 1024);
    CHECK_EQ(room.available, (1000 + 200 + 1000000 + 32) * 1024 - 256 * MIB);
    CHECK(shmemi_topo_room_read(path, zone_path, 3, &room));
    CHECK_EQ(room.available, (1000 + 200 + 1000000 + 32) * 1024 - (3840 + 99010) * 4096);
    CHECK(shmemi_topo_room_read(path, zone_path, 0, &room));
    CHECK_EQ(room.available, (1000 + 200 + 1000000 + 32) * 1024 - 256 * MIB);
    CHECK(ftruncate(fd, 80) == 0 && shmemi_topo_room_read(path, zone_path, 3, &room));
    CHECK_EQ(room.available, 0); /* less than what is kept back */
    CHECK(ftruncate(fd, 0) == 0 && !shmemi_topo_room_read(path, zone_path, 3, &room));
    close(fd);
    close(zone_fd);
    unlink(path);
    unlink(zone_path);
    CHECK(!shmemi_topo_room_read(path, zone_path, 3, &room));
}

static void more_than_a_node_has(void)
{
    shmemi_topo_room_t room;
    shmem_topology_t t = pretended(2);
    if (!shmemi_topo_room_of(0, &room))
        SKIP("this kernel does not tell what nodes have");
    CHECK(room.free > 0 && room.available > 0);
    CHECK_OK(shmemi_topo_afford(t, 0, MIB));
    CHECK_STATUS(shmemi_topo_afford(t, 0, 1ull << 50), SHMEM_ERR_NOMEM);
    CHECK(strstr(shmem_error_detail()->text, "1073741824 MiB are wanted on node 0") != NULL);
    t->is_this_machine = false;
    CHECK_OK(shmemi_topo_afford(t, 0, 1ull << 50));
    shmem_topology_destroy(t);
}

static int lines;
static char text_seen[640];

static void sink(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    (void)user, (void)level, (void)layer;
    lines++;
    snprintf(text_seen, sizeof text_seen, "%s", text);
}

static void refused(void *arg)
{
    int calls[] = {SYS_mbind,      SYS_get_mempolicy,    SYS_set_mempolicy,    SYS_move_pages,
                   SYS_membarrier, SYS_process_vm_readv, SYS_process_vm_writev};
    refuse_calls(calls, 7, *(int *)arg);
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    shmem_topology_t real, t = pretended(4);
    CHECK_OK(shmem_topology_create(&real));
    CHECK_EQ(lines, 0);
    int fd = segment(MIB), found[4] = {7, 7, 7, 7};
    char *p = map(fd, MIB);
    for (int node = 0; node < 4; node++)
        CHECK_OK(shmemi_topo_bind(t, p, MIB, node, node % 2));
    CHECK_EQ(lines, 1); /* said once */
    CHECK(strstr(text_seen, "mbind") && strstr(text_seen, "seccomp"));
    CHECK_STATUS(shmemi_topo_placement(t, p, 4, 4096, found), SHMEM_ERR_UNSUPPORTED);
    CHECK_EQ(lines, 1);
    CHECK_EQ(found[0], 7);
    CHECK_OK(shmemi_segment_reserve(fd, 0, MIB));
    CHECK_OK(shmemi_segment_populate(p, MIB, SHMEMI_HUGE_AUTO, 2, NULL));
    memset(p, 1, MIB);
    CHECK(!shmemi_barrier_register());
    shmem_topology_destroy(t);
    shmem_topology_destroy(real);
}

static void a_container_refuses(void)
{
    int errors[] = {EPERM, ENOSYS};
    for (int i = 0; i < 2; i++)
        CHECK_EQ(harness_wait(harness_fork(refused, &errors[i]), 10), 0);
}

/* A synthetic machine binds nothing: tests of pools use it with any number of nodes. */
static void other_machines_bind_nothing(void)
{
    shmem_topology_t t;
    int found[1];
    CHECK_OK(shmemi_topo_create_synthetic("numa:4 core:1 pu:1", &t));
    char *p = harness_shared(4096);
    for (int node = 0; node < 4; node++)
        CHECK_OK(shmemi_topo_bind(t, p, 4096, node, 1));
    CHECK_STATUS(shmemi_topo_bind(t, p, 4096, 4, 1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_topo_placement(t, p, 1, 4096, found), SHMEM_ERR_UNSUPPORTED);
    shmem_topology_destroy(t);
}

int main(void)
{
    RUN(bad_parameters);
    RUN(pages_are_where_they_were_bound);
    RUN(placement_in_batches);
    RUN(room_of_a_node);
    RUN(more_than_a_node_has);
    RUN(a_container_refuses);
    RUN(other_machines_bind_nothing);
    RUN(own_policy_is_untouched);
    return harness_end();
}
