/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the guest share: what the machine should have, and how to move about in it. */
#ifndef SHMEM_TEST_GUEST_H
#define SHMEM_TEST_GUEST_H

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"
#include "topo/topo.h"

#define MIB (1ull << 20)

enum { NODES_MAX = 8 };

/* Told by the kernel's command line; the same numbers as the topology's, which sees all nodes. */
extern int expected_nodes, memory[NODES_MAX], cpus[NODES_MAX];
extern shmem_topology_t topology;

/* Cases of the other files. */
void pool_cases(void);
void region_cases(void);
void measure_cases(void);
void hugetlb_cases(void);

static inline void run_on_processor(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

static inline void run_anywhere(void)
{
    cpu_set_t set;
    memset(&set, 0xff, sizeof set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

/* Processors are numbered node by node: the first one of a node that has some. */
static inline int first_processor(int node)
{
    int processor = 0;
    for (int i = 0; i < node; i++)
        processor += cpus[i];
    return processor;
}

static inline void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* The calling thread's memory policy: mode, and the first nodes as a mask. */
static inline int own_policy(unsigned long *nodes)
{
    unsigned long mask[16] = {0};
    int mode = -1;
    CHECK(syscall(SYS_get_mempolicy, &mode, mask, 1024ul, NULL, 0ul) == 0);
    *nodes = mask[0];
    return mode;
}

static inline void set_own_policy(int mode, unsigned long nodes)
{
    unsigned long mask[16] = {nodes};
    CHECK(syscall(SYS_set_mempolicy, mode, nodes ? mask : NULL, nodes ? 1025ul : 0ul) == 0);
}

#endif
