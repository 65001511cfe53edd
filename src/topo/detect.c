/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a topology with hwloc: of this machine, of a synthetic one, of a recorded one.
 *
 * Nodes that the caller's cpuset forbids are left out. (A control group's cpuset never lists a node
 * without memory: such a node stays if the caller may use a processor of it.) Numbers follow the
 * order of the system's numbers. Every processor counts for one node: of those that it is local to,
 * the one with the fewest processors, then the lowest number; a node for which none counts is
 * memory only.
 *
 *   Invariants  nodes >= 1; processors >= 1; sum of nodes[].processors <= processors of the
 *               machine; home[p] = i <=> the caller may use p and it counts for node i
 *
 * What it does not do: distances between nodes (matrix.c, measure.c, saved.c).
 */
#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "base/util.h"
#include "topo/internal.h"

#define LAYER "topo"

enum { MEMORY_STEPS = 8 }; /* how finely memory counts for the shape, per power of two */

/* hwloc's nodes, sorted by the system's number. */
typedef struct scan {
    hwloc_topology_t machine;
    hwloc_obj_t nodes[SHMEMI_TOPO_NODES_MAX];
    int count;
} scan_t;

static int by_os_index(const void *a, const void *b)
{
    const hwloc_obj_t x = *(const hwloc_obj_t *)a, y = *(const hwloc_obj_t *)b;
    return x->os_index < y->os_index ? -1 : x->os_index > y->os_index;
}

static bool is_visible(hwloc_topology_t machine, hwloc_obj_t node)
{
    hwloc_const_bitmap_t processors = hwloc_topology_get_allowed_cpuset(machine);
    if (node->os_index >= SHMEMI_TOPO_NODES_MAX)
        return false;
    return hwloc_bitmap_isset(hwloc_topology_get_allowed_nodeset(machine), node->os_index) ||
           (node->attr->numanode.local_memory == 0 && node->cpuset &&
            hwloc_bitmap_intersects(node->cpuset, processors));
}

static void scan_nodes(scan_t *scan)
{
    hwloc_obj_t node = NULL;
    scan->count = 0;
    while (scan->count < SHMEMI_TOPO_NODES_MAX &&
           (node = hwloc_get_next_obj_by_type(scan->machine, HWLOC_OBJ_NUMANODE, node)) != NULL)
        if (is_visible(scan->machine, node))
            scan->nodes[scan->count++] = node;
    qsort(scan->nodes, (size_t)scan->count, sizeof scan->nodes[0], by_os_index);
}

/* ---- processors ---- */

/* Index of the node that processor `p` counts for, or -1. */
static int home_of(const scan_t *scan, unsigned p)
{
    int best = -1, best_weight = 0;
    for (int i = 0; i < scan->count; i++) {
        hwloc_const_bitmap_t near = scan->nodes[i]->cpuset;
        if (!near || !hwloc_bitmap_isset(near, p))
            continue;
        int weight = hwloc_bitmap_weight(near);
        if (best < 0 || weight < best_weight) {
            best = i;
            best_weight = weight;
        }
    }
    return best;
}

/* The processors of the machine that the caller may use; all where that cannot be known. */
static hwloc_bitmap_t usable(const scan_t *scan, bool is_this_machine)
{
    hwloc_const_bitmap_t all = hwloc_topology_get_allowed_cpuset(scan->machine);
    hwloc_bitmap_t set = hwloc_bitmap_dup(all);
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    if (set && own && is_this_machine &&
        hwloc_get_cpubind(scan->machine, own, HWLOC_CPUBIND_THREAD) == 0)
        hwloc_bitmap_and(set, set, own);
    hwloc_bitmap_free(own);
    return set;
}

/* Is there a processor that counts for the node, whether the caller may use it or not? */
static bool has_processors(const scan_t *scan, int node)
{
    hwloc_const_bitmap_t all = hwloc_topology_get_allowed_cpuset(scan->machine);
    for (int p = hwloc_bitmap_first(all); p >= 0; p = hwloc_bitmap_next(all, p))
        if (home_of(scan, (unsigned)p) == node)
            return true;
    return false;
}

static shmem_status_t count_processors(const scan_t *scan, shmem_topology_t topology)
{
    hwloc_bitmap_t set = usable(scan, topology->is_this_machine);
    int homes = set ? hwloc_bitmap_last(set) + 1 : 0, total = 0;
    topology->home = malloc(sizeof *topology->home * (size_t)(homes > 0 ? homes : 1));
    if (!set || !topology->home) {
        hwloc_bitmap_free(set);
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a set of processors");
    }
    topology->homes = homes;
    for (int p = 0; p < homes; p++) {
        bool mine = hwloc_bitmap_isset(set, (unsigned)p);
        topology->home[p] = mine ? home_of(scan, (unsigned)p) : -1;
        if (topology->home[p] >= 0)
            topology->nodes[topology->home[p]].processors++;
        total += mine;
    }
    hwloc_bitmap_free(set);
    topology->processors = total > 0 ? total : 1;
    for (int i = 0; i < scan->count; i++)
        if (!topology->nodes[i].processors && has_processors(scan, i))
            topology->is_confined = true;
    return SHMEM_OK;
}

/* ---- memory ---- */

static uint64_t pages_times(int name)
{
    long pages = sysconf(name), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static void fill_memory(const scan_t *scan, shmem_topology_t topology)
{
    bool is_only = hwloc_get_nbobjs_by_type(scan->machine, HWLOC_OBJ_NUMANODE) == 1;
    for (int i = 0; i < scan->count; i++) {
        shmem_topology_node_t *node = &topology->nodes[i];
        node->os_index = (int)scan->nodes[i]->os_index;
        node->total_bytes = scan->nodes[i]->attr->numanode.local_memory;
        node->free_bytes = node->total_bytes;
        if (!topology->is_this_machine)
            continue;
        if (is_only) { /* a balloon or hot-plug may leave the node's own numbers behind */
            node->total_bytes = pages_times(_SC_PHYS_PAGES);
            node->free_bytes = pages_times(_SC_AVPHYS_PAGES);
        } else {
            shmemi_topo_room_t room;
            node->free_bytes = shmemi_topo_room_of(node->os_index, &room) ? room.free : 0;
        }
        if (node->free_bytes > node->total_bytes)
            node->free_bytes = node->total_bytes;
    }
}

/* ---- caches ---- */

static void fill_caches(const scan_t *scan, shmem_topology_t topology)
{
    for (int level = 1; level <= 3; level++) {
        int depth =
            hwloc_get_cache_type_depth(scan->machine, (unsigned)level, HWLOC_OBJ_CACHE_DATA);
        if (depth < 0)
            depth =
                hwloc_get_cache_type_depth(scan->machine, (unsigned)level, HWLOC_OBJ_CACHE_UNIFIED);
        hwloc_obj_t cache = depth < 0 ? NULL : hwloc_get_obj_by_depth(scan->machine, depth, 0);
        if (cache)
            topology->cache[level] = cache->attr->cache.size;
    }
}

/* ---- shape ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return (hash ^ 0xff) * 1099511628211ull; /* the end of a text is part of it */
}

/* Memory in few steps: what the kernel keeps for itself differs a little from boot to boot. */
static uint64_t coarse(uint64_t bytes)
{
    uint64_t step = bytes < MEMORY_STEPS ? 1 : (1ull << shmemi_log2_floor(bytes)) / MEMORY_STEPS;
    return (bytes + step - 1) / step * step;
}

static uint64_t shape_of(const scan_t *scan)
{
    uint64_t hash = 14695981039346656037ull;
    hwloc_obj_t package = hwloc_get_next_obj_by_type(scan->machine, HWLOC_OBJ_PACKAGE, NULL);
    const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    hash = hash_text(hash, model ? model : "");
    for (int i = 0; i < scan->count; i++) {
        char text[64], *set = NULL;
        hwloc_obj_t node = scan->nodes[i];
        snprintf(text, sizeof text, "%u %llu", node->os_index,
                 (unsigned long long)coarse(node->attr->numanode.local_memory));
        hash = hash_text(hash, text);
        if (node->cpuset && hwloc_bitmap_list_asprintf(&set, node->cpuset) >= 0)
            hash = hash_text(hash, set);
        free(set);
    }
    return hash;
}

/* ---- building ---- */

static shmem_topology_t allocate(int count)
{
    size_t n = (size_t)count;
    shmem_topology_t t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->count = count;
    t->nodes = calloc(n, sizeof *t->nodes);
    t->latency = calloc(4 * n * n, sizeof *t->latency); /* the four matrices */
    if (!t->nodes || !t->latency) {
        shmem_topology_destroy(t);
        return NULL;
    }
    t->bandwidth = t->latency + n * n;
    t->latency_spread = t->bandwidth + n * n;
    t->bandwidth_spread = t->latency_spread + n * n;
    return t;
}

static shmem_status_t build(hwloc_topology_t machine, bool is_this_machine, shmem_topology_t *out)
{
    scan_t scan = {.machine = machine};
    scan_nodes(&scan);
    shmem_topology_t t = SHMEMI_FAULT("topo.build") ? NULL : allocate(scan.count ? scan.count : 1);
    if (!t)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a topology of %d nodes",
                           scan.count);
    t->is_this_machine = is_this_machine;
    fill_memory(&scan, t);
    shmem_status_t status = count_processors(&scan, t);
    if (!status)
        status = shmemi_topo_derive(machine, scan.nodes, t);
    if (status) {
        shmem_topology_destroy(t);
        return status;
    }
    if (scan.count == 0) /* cannot happen with hwloc 2, which always has one */
        t->nodes[0] = (shmem_topology_node_t){0, t->processors, pages_times(_SC_PHYS_PAGES),
                                              pages_times(_SC_AVPHYS_PAGES)};
    fill_caches(&scan, t);
    t->shape = shape_of(&scan);
    *out = t;
    return SHMEM_OK;
}

/* hwloc's default view: without the levels that give no structure, and without devices (filtering
 * more would widen the processors that nodes are local to); with what the cpuset forbids. */
static shmem_status_t prepare(hwloc_topology_t *machine)
{
    if (hwloc_topology_init(machine))
        return shmemi_fail_errno(LAYER, "cannot initialize hwloc");
    hwloc_topology_set_flags(*machine, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    return SHMEM_OK;
}

static shmem_status_t load(hwloc_topology_t machine, bool is_this_machine, const char *what,
                           shmem_topology_t *out)
{
    shmem_status_t status;
    if (hwloc_topology_load(machine))
        status = shmemi_fail_errno(LAYER, "cannot load the topology of %s", what);
    else
        status = build(machine, is_this_machine, out);
    hwloc_topology_destroy(machine);
    return status;
}

shmem_status_t shmemi_topo_detect(shmem_topology_t *topology)
{
    hwloc_topology_t machine;
    shmem_status_t status = prepare(&machine);
    return status ? status : load(machine, true, "this machine", topology);
}

shmem_status_t shmem_topology_create(shmem_topology_t *topology)
{
    shmem_topology_t found;
    if (!topology)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_topology_create got NULL for its result");
    shmem_status_t status = shmemi_topo_detect(&found);
    if (status)
        return status;
    shmemi_topo_load(found);
    *topology = found;
    return SHMEM_OK;
}

shmem_status_t shmemi_topo_create_synthetic(const char *description, shmem_topology_t *topology)
{
    hwloc_topology_t machine;
    shmem_status_t status = prepare(&machine);
    if (status)
        return status;
    if (hwloc_topology_set_synthetic(machine, description)) {
        hwloc_topology_destroy(machine);
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "hwloc does not understand the synthetic "
                           "machine '%s'",
                           description);
    }
    return load(machine, false, description, topology);
}

shmem_status_t shmemi_topo_create_xml(const char *path, shmem_topology_t *topology)
{
    hwloc_topology_t machine;
    if (access(path, R_OK))
        return shmemi_fail(SHMEM_ERR_NOT_FOUND, LAYER, "cannot read the recorded machine %s: %s",
                           path, strerrordesc_np(errno));
    shmem_status_t status = prepare(&machine);
    if (status)
        return status;
    if (hwloc_topology_set_xml(machine, path)) {
        hwloc_topology_destroy(machine);
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%s is no machine recorded by hwloc", path);
    }
    return load(machine, false, path, topology);
}
