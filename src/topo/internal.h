/* SPDX-License-Identifier: Apache-2.0 */
/* The topology object, shared by the files of this folder. */
#ifndef SHMEMI_TOPO_INTERNAL_H
#define SHMEMI_TOPO_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "topo/topo.h"

struct hwloc_topology;
struct hwloc_obj;

enum { SHMEMI_TOPO_NODES_MAX = 1024 }; /* what the kernel's node masks can name */

/* Scale of the firmware's relative distances (10 = local) in units of a load and a copy. */
#define SHMEMI_TOPO_LOCAL_DISTANCE 10.0
#define SHMEMI_TOPO_LOCAL_NS       90.0
#define SHMEMI_TOPO_LOCAL_GBS      12.0

/* What a plausible machine does not exceed; beyond it a table is nonsense. */
#define SHMEMI_TOPO_NS_MAX  1e6
#define SHMEMI_TOPO_GBS_MAX 1e5

/* Matrices have count * count entries, row = from, column = to. */
struct shmem_topology {
    int count;                    /* nodes, >= 1 */
    int processors;               /* >= 1 */
    bool is_this_machine;         /* binding and placement apply */
    bool is_confined;             /* a node has processors, but none that the caller may use */
    uint64_t shape;               /* hash of nodes, their processors and memory: not of free memory
                                     nor of what the caller may use */
    uint64_t cache[4];            /* bytes by level, [0] unused */
    shmem_topology_node_t *nodes; /* count entries, ascending os_index */
    int *home;                    /* [homes]: node of each processor; -1: not for the caller */
    int homes;
    double *latency, *bandwidth; /* ns, GB/s; > 0 */
    shmem_topology_source_t latency_source, bandwidth_source;
    double *latency_spread, *bandwidth_spread; /* of the measurements, relative; < 0: none */
    atomic_bool refusal_logged;                /* the kernel refused a call on memory placement */
};

/* Index of the node with the system's number, or -1. */
int shmemi_topo_index_of(shmem_topology_t topology, int os_index);

/* One log line for the first refusal that this topology sees; the call's name and errno. */
void shmemi_topo_refused(shmem_topology_t topology, const char *call, int error);

/* This machine with what the firmware says, whatever was measured. NOMEM, SYSTEM. */
shmem_status_t shmemi_topo_detect(shmem_topology_t *topology);

/* ---- matrix.c ---- */

/* Fill the pairs of m that are 0 (unknown) in proportion to `base`: by the known pair with the same
 * target whose base is nearest, else by the first known pair. false, nothing changed: none is
 * known. */
bool shmemi_topo_complete(double *m, const double *base, int n);

/* What the firmware says of the nodes of `machine`, in our order: fills the matrices and their
 * sources. NOMEM. */
shmem_status_t shmemi_topo_derive(struct hwloc_topology *machine, struct hwloc_obj *const *nodes,
                                  shmem_topology_t topology);

/* ---- room.c ---- */

typedef struct shmemi_topo_room {
    uint64_t free, available; /* bytes: unused; that can be had, by giving up cached files, too */
} shmemi_topo_room_t;

/* From files like the node's meminfo and /proc/zoneinfo. false: meminfo does not tell. */
bool shmemi_topo_room_read(const char *meminfo, const char *zoneinfo, int os_index,
                           shmemi_topo_room_t *room);
bool shmemi_topo_room_of(int os_index, shmemi_topo_room_t *room);

/* ---- saved.c ---- */

/* Replace the matrices by those measured on this machine, if there are such for exactly this shape.
 * A file that is no good is logged and left alone. */
void shmemi_topo_load(shmem_topology_t topology);

#endif
