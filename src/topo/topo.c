/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a topology. Immutable after creation, apart from the flag of the refusal that was
 * logged. */
#include "topo/internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "base/util.h"

#define LAYER "topo"

void shmem_topology_destroy(shmem_topology_t topology)
{
    if (!topology)
        return;
    free(topology->nodes);
    free(topology->home);
    free(topology->latency);
    free(topology);
}

int shmem_topology_nodes(shmem_topology_t topology)
{
    return topology ? topology->count : 0;
}

shmem_status_t shmem_topology_node(shmem_topology_t topology, int node, shmem_topology_node_t *info)
{
    if (!topology || !info)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_topology_node wants a topology and a "
                           "place for its answer, not NULL");
    if (node < 0 || node >= topology->count)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "there is no node %d: nodes are 0 to %d", node,
                           topology->count - 1);
    *info = topology->nodes[node];
    return SHMEM_OK;
}

/* Negative for a node that does not exist, also of no machine. */
static double cell(shmem_topology_t t, const double *matrix, int from, int to)
{
    if (from < 0 || to < 0 || from >= t->count || to >= t->count)
        return -1;
    return matrix[from * t->count + to];
}

double shmem_topology_latency(shmem_topology_t topology, int from, int to)
{
    return topology ? cell(topology, topology->latency, from, to) : -1;
}

double shmem_topology_bandwidth(shmem_topology_t topology, int from, int to)
{
    return topology ? cell(topology, topology->bandwidth, from, to) : -1;
}

double shmem_topology_latency_spread(shmem_topology_t topology, int from, int to)
{
    return topology ? cell(topology, topology->latency_spread, from, to) : -1;
}

double shmem_topology_bandwidth_spread(shmem_topology_t topology, int from, int to)
{
    return topology ? cell(topology, topology->bandwidth_spread, from, to) : -1;
}

shmem_topology_source_t shmem_topology_latency_source(shmem_topology_t topology)
{
    return topology ? topology->latency_source : SHMEM_TOPOLOGY_ASSUMED;
}

shmem_topology_source_t shmem_topology_bandwidth_source(shmem_topology_t topology)
{
    return topology ? topology->bandwidth_source : SHMEM_TOPOLOGY_ASSUMED;
}

const char *shmem_topology_source_name(shmem_topology_source_t source)
{
    static const char *const names[] = {"assumed", "firmware's distances", "firmware's attributes",
                                        "measured"};
    return (size_t)source < SHMEMI_COUNT(names) ? names[source] : "unknown";
}

int shmem_topology_processors(shmem_topology_t topology)
{
    return topology ? topology->processors : 0;
}

uint64_t shmem_topology_cache(shmem_topology_t topology, int level)
{
    return topology && level >= 1 && level <= 3 ? topology->cache[level] : 0;
}

int shmemi_topo_index_of(shmem_topology_t topology, int os_index)
{
    for (int i = 0; i < topology->count; i++)
        if (topology->nodes[i].os_index == os_index)
            return i;
    return -1;
}

int shmemi_topo_current_node(shmem_topology_t topology)
{
    unsigned processor, node;
    if (!topology->is_this_machine || topology->count == 1 || getcpu(&processor, &node))
        return 0;
    int index = shmemi_topo_index_of(topology, (int)node);
    return index < 0 ? 0 : index;
}

/* Is node a to be tried before node b for memory wanted on `node`? */
static bool comes_before(shmem_topology_t t, int node, int a, int b)
{
    bool memory_a = t->nodes[a].total_bytes != 0, memory_b = t->nodes[b].total_bytes != 0;
    if (memory_a != memory_b)
        return memory_a;
    if (a == node || b == node) /* measured, another one may seem nearer by a hair */
        return a == node;
    double da = cell(t, t->latency, node, a), db = cell(t, t->latency, node, b);
    return da != db ? da < db : a < b;
}

void shmemi_topo_order(shmem_topology_t topology, int node, int *order)
{
    if (node < 0 || node >= topology->count)
        node = 0;
    for (int i = 0; i < topology->count; i++) {
        int at = i;
        for (; at > 0 && comes_before(topology, node, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

void shmemi_topo_refused(shmem_topology_t topology, const char *call, int error)
{
    if (atomic_exchange_explicit(&topology->refusal_logged, true, memory_order_relaxed))
        return;
    shmemi_log(SHMEM_LOG_WARN, LAYER,
               "the kernel refuses %s (%s; a container's seccomp profile?): "
               "memory is placed where the kernel likes",
               call, strerrordesc_np(error));
}
