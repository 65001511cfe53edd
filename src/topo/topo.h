/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Topology beyond the public interface: synthetic and recorded machines for tests, placement.
 */
#ifndef SHMEMI_TOPO_TOPO_H
#define SHMEMI_TOPO_TOPO_H

#include "shmem/topology.h"

/* From an hwloc synthetic description ("numa:4 core:2 pu:1") or XML file (a recorded machine). They
 * are not this machine: binding does nothing. INVALID, NOT_FOUND, NOMEM. */
shmem_status_t shmemi_topo_create_synthetic(const char *description, shmem_topology_t *topology);
shmem_status_t shmemi_topo_create_xml(const char *path, shmem_topology_t *topology);

/* Index of the node of the processor that the caller runs on (cheap: getcpu); 0 when unknown. */
int shmemi_topo_current_node(shmem_topology_t topology);

/* Bind future pages of a mapped range to a node (strict: only there; else preferred). The caller's
 * own policy is untouched. Refused by the kernel (seccomp) or one node: SHMEM_OK, with one log line
 * in the first case. Call it before the pages are reserved. */
shmem_status_t shmemi_topo_bind(shmem_topology_t topology, void *address, uint64_t bytes, int node,
                                int strict);

/* Can `bytes` more be had on a node, as far as the system tells? To be asked before pages of a
 * range are made that is strictly bound: a node without room is not refused by the kernel, the OOM
 * killer looks for a victim. NOMEM with the arithmetic. */
shmem_status_t shmemi_topo_afford(shmem_topology_t topology, int node, uint64_t bytes);

/* Ask the kernel where pages are (move_pages): nodes[i] for address + i * page_bytes; -1: not
 * present or unknown. UNSUPPORTED: the kernel does not say. */
shmem_status_t shmemi_topo_placement(shmem_topology_t topology, const void *address, size_t pages,
                                     uint64_t page_bytes, int *nodes);

/* Nodes in the order in which to try them for memory wanted on `node`: by latency, ties by index.
 * order[] holds shmem_topology_nodes() entries. The node itself comes first if it has memory, nodes
 * without memory come last. */
void shmemi_topo_order(shmem_topology_t topology, int node, int *order);

#endif
