/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latency and bandwidth between nodes as the firmware tells them.
 *
 *   relative distances d (SLIT), 10 = local:   latency = 90 ns * d / 10
 *                                              bandwidth = 12 GB/s * 10 / d
 *   attributes (HMAT), ns and MiB/s:           as they are; the kernel has them for the processors
 *                                              nearest to a node only, the other pairs follow in
 *                                              proportion to the distances
 *
 *   Invariants  all entries are positive and finite; from relative distances, a node's own latency
 *               is the smallest of its row (with attributes, other memory may be the faster one).
 *
 * What it does not do: it measures nothing (measure.c).
 */
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "topo/internal.h"

#define LAYER "topo"
#define MIB   1048576.0

enum { DISTANCE_REMOTE = 20 }; /* what firmware says of the next socket, where it says nothing */

/* ---- relative distances ---- */

static void default_distances(double *d, int n)
{
    for (int i = 0; i < n * n; i++)
        d[i] = i % (n + 1) ? DISTANCE_REMOTE : SHMEMI_TOPO_LOCAL_DISTANCE;
}

/* Copies the table into our order of nodes; false when it lacks a node. */
static bool copy_distances(const struct hwloc_distances_s *table, shmem_topology_t t, double *d)
{
    int n = t->count, seen = 0;
    for (unsigned i = 0; i < table->nbobjs; i++)
        for (unsigned j = 0; j < table->nbobjs; j++) {
            if (!table->objs[i] || !table->objs[j])
                continue;
            int from = shmemi_topo_index_of(t, (int)table->objs[i]->os_index);
            int to = shmemi_topo_index_of(t, (int)table->objs[j]->os_index);
            if (from < 0 || to < 0)
                continue;
            d[from * n + to] = (double)table->values[i * table->nbobjs + j];
            seen++;
        }
    return seen == n * n;
}

/* Scale to local = 10 and check what a table of distances must satisfy. */
static bool sane_distances(double *d, int n)
{
    double local = d[0];
    for (int i = 0; i < n; i++)
        if (d[i * n + i] < local)
            local = d[i * n + i];
    if (local <= 0)
        return false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (d[i * n + j] < d[i * n + i] || d[i * n + j] > local * SHMEMI_TOPO_NS_MAX)
                return false;
    for (int i = 0; i < n * n; i++)
        d[i] *= SHMEMI_TOPO_LOCAL_DISTANCE / local;
    return true;
}

/* true: the firmware said so. */
static bool read_distances(hwloc_topology_t machine, shmem_topology_t t, double *d)
{
    struct hwloc_distances_s *table = NULL;
    unsigned found = 1;
    default_distances(d, t->count);
    if (t->count == 1 ||
        hwloc_distances_get_by_type(machine, HWLOC_OBJ_NUMANODE, &found, &table,
                                    HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) ||
        found == 0 || !table)
        return false;
    bool good = copy_distances(table, t, d) && sane_distances(d, t->count);
    if (!good) {
        default_distances(d, t->count);
        shmemi_log(SHMEM_LOG_WARN, LAYER,
                   "the firmware's table of distances makes no sense: every "
                   "other node counts as twice as far as the own one");
    }
    hwloc_distances_release(machine, table);
    return good;
}

/* ---- attributes ---- */

/* The value of `attribute` or, where it has none, of `other`: 0 when unknown. */
static double attribute_of(hwloc_topology_t machine, unsigned attribute, unsigned other,
                           hwloc_obj_t from, hwloc_obj_t to)
{
    hwloc_uint64_t value = 0;
    struct hwloc_location initiator = {.type = HWLOC_LOCATION_TYPE_CPUSET};
    initiator.location.cpuset = from->cpuset;
    if (!from->cpuset || hwloc_bitmap_iszero(from->cpuset))
        return 0;
    if (hwloc_memattr_get_value(machine, attribute, to, &initiator, 0, &value) &&
        hwloc_memattr_get_value(machine, other, to, &initiator, 0, &value))
        return 0;
    return (double)value;
}

/* The attribute times `unit` for all pairs with processors at one end; false: nothing usable. */
static bool read_attributes(hwloc_topology_t machine, hwloc_obj_t const *nodes, shmem_topology_t t,
                            unsigned attribute, unsigned other, double unit, double most, double *m)
{
    bool odd = false;
    int n = t->count;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            double value = 0;
            if (t->nodes[to].total_bytes)
                value = unit * attribute_of(machine, attribute, other, nodes[from], nodes[to]);
            odd = odd || value > most;
            m[from * n + to] = value > most ? 0 : value;
        }
    if (odd)
        shmemi_log(SHMEM_LOG_WARN, LAYER,
                   "some of the firmware's memory attributes make no sense (more than %g %s): they "
                   "are not used",
                   most, attribute == HWLOC_MEMATTR_ID_LATENCY ? "ns" : "GB/s");
    for (int i = 0; i < n * n; i++)
        if (m[i] > 0)
            return true;
    return false;
}

static bool is_nearer(double base, double a, double b)
{
    double da = a > base ? a / base : base / a, db = b > base ? b / base : base / b;
    return da < db;
}

static double completed(const double *m, const double *base, int n, int from, int to, int any)
{
    int best = any;
    for (int i = 0, found = 0; i < n; i++) {
        int at = i * n + to;
        if (m[at] > 0 && (!found || is_nearer(base[from * n + to], base[at], base[best]))) {
            best = at;
            found = 1;
        }
    }
    return m[best] * base[from * n + to] / base[best];
}

bool shmemi_topo_complete(double *m, const double *base, int n)
{
    int any = 0;
    while (any < n * n && m[any] <= 0)
        any++;
    if (any == n * n)
        return false;
    /* negative until all are done, so that nothing is derived from what was derived */
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            if (m[from * n + to] <= 0)
                m[from * n + to] = -completed(m, base, n, from, to, any);
    for (int i = 0; i < n * n; i++)
        if (m[i] < 0)
            m[i] = -m[i];
    return true;
}

/* ---- both ---- */

shmem_status_t shmemi_topo_derive(hwloc_topology_t machine, hwloc_obj_t const *nodes,
                                  shmem_topology_t t)
{
    int n = t->count, pairs = n * n;
    double *m = malloc(sizeof *m * (size_t)pairs);
    if (!m)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a matrix of %d nodes", n);
    bool told = read_distances(machine, t, m);
    t->latency_source = told ? SHMEM_TOPOLOGY_DISTANCES : SHMEM_TOPOLOGY_ASSUMED;
    t->bandwidth_source = t->latency_source;
    for (int i = 0; i < pairs; i++) {
        t->latency[i] = SHMEMI_TOPO_LOCAL_NS * m[i] / SHMEMI_TOPO_LOCAL_DISTANCE;
        t->bandwidth[i] = SHMEMI_TOPO_LOCAL_GBS * SHMEMI_TOPO_LOCAL_DISTANCE / m[i];
        t->latency_spread[i] = t->bandwidth_spread[i] = -1;
    }
    if (read_attributes(machine, nodes, t, HWLOC_MEMATTR_ID_LATENCY, HWLOC_MEMATTR_ID_READ_LATENCY,
                        1, SHMEMI_TOPO_NS_MAX, m) &&
        shmemi_topo_complete(m, t->latency, n)) {
        memcpy(t->latency, m, sizeof *m * (size_t)pairs);
        t->latency_source = SHMEM_TOPOLOGY_ATTRIBUTES;
    }
    if (read_attributes(machine, nodes, t, HWLOC_MEMATTR_ID_BANDWIDTH,
                        HWLOC_MEMATTR_ID_READ_BANDWIDTH, MIB / 1e9, SHMEMI_TOPO_GBS_MAX, m) &&
        shmemi_topo_complete(m, t->bandwidth, n)) {
        memcpy(t->bandwidth, m, sizeof *m * (size_t)pairs);
        t->bandwidth_source = SHMEM_TOPOLOGY_ATTRIBUTES;
    }
    free(m);
    return SHMEM_OK;
}
