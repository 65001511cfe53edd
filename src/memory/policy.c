/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which arena serves a request, and where to go when it cannot.
 *
 * The wanted arena comes first. The others follow by cost = latency * (1 + fraction used / 2) for
 * NEAREST and INTERLEAVE, so that a slightly farther but emptier one can win; by latency alone for
 * PREFERRED; BIND has no others. Latency is that of the node on which an arena's memory lies: the
 * nearest one with memory where its own has none (shmemi_topo_bind() puts it there, too).
 *
 *   Invariant  fallbacks[wanted][got][why] = allocations for `wanted` whose memory is on node
 * `got`, wanted != got; header.fallbacks is their sum
 *
 * What it does not do: free memory of the system does not count, for an arena's memory is there;
 * a thread of a NEAREST pool that moves to another node goes on with the span it has.
 */
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "memory/pool.h"

#define LAYER        "memory"
#define FULLNESS     0.5        /* how much farther a full arena seems */
#define UNKNOWN_NS   1000.0     /* to a node that this process does not see */
#define LOG_EVERY_NS 1000000000 /* each kind of fallback */

/* ---- the view's idea of the nodes ---- */

/* The arena of a node of the view's topology, or -1. */
static int arena_of(const shmemi_pool_t *pool, int node)
{
    for (uint32_t i = 0; i < pool->nodes; i++)
        if (pool->places[i].node == node)
            return (int)i;
    return -1;
}

/* Which node of the view's topology an arena belongs to; -1: it does not see it. A creator without
 * a topology had one arena for all. */
static int node_of(const shmemi_pool_t *pool, uint32_t arena)
{
    uint32_t system = pool->header->system_node[arena];
    shmem_topology_node_t node;
    for (int i = 0; system && i < shmem_topology_nodes(pool->topology); i++)
        if (shmem_topology_node(pool->topology, i, &node) == SHMEM_OK &&
            (uint32_t)node.os_index + 1 == system)
            return i;
    return -1;
}

/* The arena on whose node the memory of arena i lies: the nearest node that has some. */
static shmem_status_t find_backing(shmemi_pool_t *pool, uint32_t i)
{
    shmem_topology_node_t info;
    shmemi_arena_place_t *place = &pool->places[i];
    place->backing = i;
    if (place->node < 0 || shmem_topology_node(pool->topology, place->node, &info) ||
        info.total_bytes)
        return SHMEM_OK;
    int *order = malloc(sizeof *order * (size_t)shmem_topology_nodes(pool->topology));
    if (!order)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for an order of nodes");
    shmemi_topo_order(pool->topology, place->node, order);
    int backing = arena_of(pool, order[0]);
    place->backing = backing < 0 ? i : (uint32_t)backing;
    free(order);
    return SHMEM_OK;
}

static double latency_of(const shmemi_pool_t *pool, uint32_t from, uint32_t to)
{
    double ns = shmem_topology_latency(pool->topology, pool->places[from].node,
                                       pool->places[pool->places[to].backing].node);
    return ns > 0 ? ns : UNKNOWN_NS;
}

shmem_status_t shmemi_policy_init(shmemi_pool_t *pool)
{
    uint32_t n = pool->nodes;
    shmem_status_t status = SHMEM_OK;
    pool->latency = malloc(sizeof *pool->latency * n * n);
    pool->places = calloc(n, sizeof *pool->places);
    _Atomic int64_t *quiet = calloc((size_t)n * n * SHMEM_POOL_WHYS, sizeof *quiet);
    if (!pool->latency || !pool->places || !quiet) {
        free(quiet);
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for %u x %u latencies", n, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        pool->places[i].quiet = quiet + (size_t)i * n * SHMEM_POOL_WHYS;
        pool->places[i].node = node_of(pool, i);
    }
    for (uint32_t i = 0; i < n && !status; i++)
        status = find_backing(pool, i);
    for (uint32_t i = 0; i < n * n && !status; i++)
        pool->latency[i] = latency_of(pool, i / n, i % n);
    return status;
}

void shmemi_policy_fini(shmemi_pool_t *pool)
{
    if (pool->places)
        free(pool->places[0].quiet);
    free(pool->places);
    free(pool->latency);
}

/* ---- where to begin ---- */

static shmem_status_t named_node(const shmemi_pool_t *pool, int node, uint32_t *wanted)
{
    if (node < 0 || (uint32_t)node >= pool->nodes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "node %d: the pool has nodes 0 to %u", node,
                           pool->nodes - 1);
    *wanted = (uint32_t)node;
    return SHMEM_OK;
}

static uint32_t nearest(const shmemi_pool_t *pool)
{
    if (pool->nodes == 1 || !pool->topology)
        return 0;
    int arena = arena_of(pool, shmemi_topo_current_node(pool->topology));
    return arena < 0 ? 0 : (uint32_t)arena;
}

/* The next one in turn whose node has memory: to count others would fill their neighbours twice. */
static uint32_t in_turn(shmemi_heap_t *heap)
{
    const shmemi_pool_t *pool = heap->pool;
    uint32_t arena = heap->turn++ % pool->nodes;
    for (uint32_t i = 1; i < pool->nodes && !shmemi_policy_is_home(pool, arena); i++)
        arena = heap->turn++ % pool->nodes;
    return arena;
}

shmem_status_t shmemi_policy_wanted(shmemi_heap_t *heap, shmem_pool_policy_t policy, int node,
                                    uint32_t *wanted)
{
    const shmemi_pool_t *pool = heap->pool;
    shmem_status_t status;
    switch (policy) {
    case SHMEM_POOL_NEAREST:
        *wanted = nearest(pool);
        return SHMEM_OK;
    case SHMEM_POOL_BIND:
    case SHMEM_POOL_PREFERRED:
        status = named_node(pool, node, wanted);
        if (!status && policy == SHMEM_POOL_BIND && !shmemi_policy_is_home(pool, *wanted))
            status = shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                                 "node %d has no memory, nothing can be bound to it: use "
                                 "SHMEM_POOL_PREFERRED, or another node",
                                 node);
        return status;
    case SHMEM_POOL_INTERLEAVE:
        *wanted = in_turn(heap);
        return SHMEM_OK;
    }
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "policy %d: want one of shmem_pool_policy_t",
                       (int)policy);
}

/* ---- where to go on ---- */

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

/* ---- counting ---- */

static _Atomic uint64_t *counter(const shmemi_pool_t *pool, uint32_t wanted, uint32_t got,
                                 shmem_pool_why_t why)
{
    _Atomic uint64_t *counters =
        (_Atomic uint64_t *)(void *)((unsigned char *)pool->header + pool->layout.fallbacks);
    return &counters[(wanted * pool->nodes + got) * SHMEM_POOL_WHYS + why];
}

static void log_fallback(shmemi_pool_t *pool, uint32_t wanted, uint32_t got, shmem_pool_why_t why,
                         uint64_t count)
{
    _Atomic int64_t *quiet = &pool->places[wanted].quiet[got * SHMEM_POOL_WHYS + why];
    int64_t now = shmemi_clock_now(), until = atomic_load_explicit(quiet, memory_order_relaxed);
    if (now < until ||
        !atomic_compare_exchange_strong_explicit(quiet, &until, now + LOG_EVERY_NS,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    shmemi_log(SHMEM_LOG_WARN, LAYER,
               "memory wanted on node %u came from node %u, %llu times so far by all processes: %s",
               wanted, got, (unsigned long long)count,
               why == SHMEM_POOL_WHY_FULL ? "the wanted node's part of the pool is full"
                                          : "the system has no memory on the wanted node");
}

void shmemi_policy_served(shmemi_heap_t *heap, uint32_t wanted, uint32_t arena,
                          shmem_pool_why_t why)
{
    shmemi_pool_t *pool = heap->pool;
    uint32_t got = pool->places[arena].backing;
    if (got == wanted)
        return;
    if (!shmemi_policy_is_home(pool, wanted))
        why = SHMEM_POOL_WHY_NO_MEMORY;
    uint64_t before =
        atomic_fetch_add_explicit(counter(pool, wanted, got, why), 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->header->fallbacks, 1, memory_order_relaxed);
    shmemi_stats_add(heap->stats, SHMEMI_STAT_fallbacks, 1);
    log_fallback(pool, wanted, got, why, before + 1);
}

shmem_status_t shmemi_pool_fallback(shmemi_pool_t *pool, int wanted, int got, shmem_pool_why_t why,
                                    uint64_t *count)
{
    uint32_t n = pool->nodes;
    if (!count || wanted < 0 || got < 0 || (uint32_t)wanted >= n || (uint32_t)got >= n ||
        (unsigned)why >= SHMEM_POOL_WHYS)
        return shmemi_fail(
            SHMEM_ERR_INVALID, LAYER,
            "fallbacks from node %d to %d for reason %d: the pool has nodes 0 to %u, "
            "and %d reasons",
            wanted, got, (int)why, n - 1, SHMEM_POOL_WHYS);
    *count = atomic_load_explicit(counter(pool, (uint32_t)wanted, (uint32_t)got, why),
                                  memory_order_relaxed);
    return SHMEM_OK;
}
