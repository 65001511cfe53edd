/* SPDX-License-Identifier: Apache-2.0 */
/* The topology object, shared by the files of this folder. */
#ifndef SHMEMI_TOPO_INTERNAL_H
#define SHMEMI_TOPO_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "topo/topo.h"

enum { SHMEMI_TOPO_NODES_MAX = 1024 }; /* what the kernel's node masks can name */

/* Scale of the firmware's relative distances (10 = local) in units of a load and a copy. */
#define SHMEMI_TOPO_LOCAL_DISTANCE 10.0
#define SHMEMI_TOPO_LOCAL_NS       90.0
#define SHMEMI_TOPO_LOCAL_GBS      12.0

struct shmem_topology {
    int count;                    /* nodes, >= 1 */
    int processors;               /* >= 1 */
    bool is_this_machine;         /* binding and placement apply */
    uint64_t cache[4];            /* bytes by level, [0] unused */
    shmem_topology_node_t *nodes; /* count entries, ascending os_index */
    double *distance;             /* count * count, row = from, firmware's units */
    atomic_bool refusal_logged;   /* the kernel refused a call on memory placement */
};

/* Index of the node with the system's number, or -1. */
int shmemi_topo_index_of(shmem_topology_t topology, int os_index);

/* One log line for the first refusal that this topology sees; the call's name and errno. */
void shmemi_topo_refused(shmem_topology_t topology, const char *call, int error);

#endif
