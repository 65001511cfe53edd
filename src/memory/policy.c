/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which arena serves a request, and where to go when it cannot.
 *
 * The wanted arena comes first. The others follow by cost = latency * (1 + fraction used / 2) for
 * NEAREST and INTERLEAVE, so that a slightly farther but emptier one can win; by latency alone for
 * PREFERRED; BIND has no others. Every allocation that another arena served is counted in the
 * pool's header by (wanted, got), and in the thread's statistics.
 */
#include <stdlib.h>

#include "base/status.h"
#include "memory/pool.h"

#define LAYER    "memory"
#define FULLNESS 0.5 /* how much farther a full arena seems */

shmem_status_t shmemi_policy_init(shmemi_pool_t *pool)
{
    uint32_t n = pool->nodes;
    pool->latency = malloc(sizeof *pool->latency * n * n);
    if (!pool->latency)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for %u x %u latencies", n, n);
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < n; to++) {
            double ns = -1;
            if (pool->topology)
                ns = shmem_topology_latency(pool->topology, (int)from, (int)to);
            pool->latency[from * n + to] = ns > 0 ? ns : 100;
        }
    return SHMEM_OK;
}

static shmem_status_t named_node(const shmemi_pool_t *pool, int node, uint32_t *wanted)
{
    if (node < 0 || (uint32_t)node >= pool->nodes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "node %d: the pool has nodes 0 to %u", node,
                           pool->nodes - 1);
    *wanted = (uint32_t)node;
    return SHMEM_OK;
}

shmem_status_t shmemi_policy_wanted(shmemi_heap_t *heap, shmem_pool_policy_t policy, int node,
                                    uint32_t *wanted)
{
    const shmemi_pool_t *pool = heap->pool;
    switch (policy) {
    case SHMEM_POOL_NEAREST:
        *wanted = 0;
        if (pool->nodes > 1 && pool->topology)
            *wanted = (uint32_t)shmemi_topo_current_node(pool->topology) % pool->nodes;
        return SHMEM_OK;
    case SHMEM_POOL_BIND:
    case SHMEM_POOL_PREFERRED:
        return named_node(pool, node, wanted);
    case SHMEM_POOL_INTERLEAVE:
        *wanted = heap->turn++ % pool->nodes;
        return SHMEM_OK;
    }
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "policy %d: want one of shmem_pool_policy_t",
                       (int)policy);
}

static double cost_of(const shmemi_pool_t *pool, shmem_pool_policy_t policy, uint32_t from,
                      uint32_t to)
{
    double ns = pool->latency[from * pool->nodes + to];
    if (policy == SHMEM_POOL_PREFERRED)
        return ns;
    const shmemi_arena_t *arena = &pool->arenas[to].arena;
    return ns * (1 + FULLNESS * (double)shmemi_arena_used(arena) / arena->pages);
}

uint32_t shmemi_policy_order(const shmemi_pool_t *pool, shmem_pool_policy_t policy, uint32_t wanted,
                             uint32_t *order)
{
    double cost[SHMEMI_POOL_NODES];
    uint32_t n = 1;
    order[0] = wanted;
    if (policy == SHMEM_POOL_BIND)
        return 1;
    for (uint32_t i = 0; i < pool->nodes; i++) {
        if (i == wanted)
            continue;
        double c = cost_of(pool, policy, wanted, i);
        uint32_t at = n++;
        for (; at > 1 && cost[at - 1] > c; at--) {
            cost[at] = cost[at - 1];
            order[at] = order[at - 1];
        }
        cost[at] = c;
        order[at] = i;
    }
    return n;
}

void shmemi_policy_fallback(shmemi_heap_t *heap, uint32_t wanted, uint32_t got)
{
    shmemi_pool_t *pool = heap->pool;
    _Atomic uint64_t *counters =
        (_Atomic uint64_t *)(void *)((unsigned char *)pool->header + pool->layout.fallbacks);
    atomic_fetch_add_explicit(&counters[wanted * pool->nodes + got], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->header->fallbacks, 1, memory_order_relaxed);
    shmemi_stats_add(heap->stats, SHMEMI_STAT_fallbacks, 1);
}
