/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's NUMA nodes, their memory and the distances between them.
 *
 * Nodes are numbered 0 to n - 1 in the order of their system numbers; a machine without NUMA has
 * one. Distances and bandwidths come from the firmware's table (derived) unless measured.
 *
 * Threads: a topology is immutable; any thread may read it.
 */
#ifndef SHMEM_TOPOLOGY_H
#define SHMEM_TOPOLOGY_H

#include <shmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shmem_topology *shmem_topology_t;

typedef struct {
    int os_index;         /* the system's number of the node */
    int processors;       /* usable processors near it; 0 for a memory-only node */
    uint64_t total_bytes; /* 0: a node without memory */
    uint64_t free_bytes;  /* at the time of detection */
} shmem_topology_node_t;

/* Detect this machine. The caller destroys it. Never fails for want of NUMA: one node then.
 * Errors: NOMEM, SYSTEM. */
SHMEM_API shmem_status_t shmem_topology_create(shmem_topology_t *topology);
SHMEM_API void shmem_topology_destroy(shmem_topology_t topology);

/* Number of nodes, at least 1; 0 for NULL. Of the functions below, those that return a number take
 * NULL as a machine without nodes, processors and caches. */
SHMEM_API int shmem_topology_nodes(shmem_topology_t topology);
/* INVALID: no such node. */
SHMEM_API shmem_status_t shmem_topology_node(shmem_topology_t topology, int node,
                                             shmem_topology_node_t *info);
/* Nanoseconds of a load, and GB/s of a copy, from node `from` to memory of node `to`; negative for
 * a node that does not exist. */
SHMEM_API double shmem_topology_latency(shmem_topology_t topology, int from, int to);
SHMEM_API double shmem_topology_bandwidth(shmem_topology_t topology, int from, int to);
/* Processors that the calling process may use. */
SHMEM_API int shmem_topology_processors(shmem_topology_t topology);
/* Bytes of data cache at `level` (1 to 3) nearest to a processor; 0: none or unknown. */
SHMEM_API uint64_t shmem_topology_cache(shmem_topology_t topology, int level);

#ifdef __cplusplus
}
#endif
#endif
