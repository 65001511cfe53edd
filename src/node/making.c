/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the memory of a segment: file, owner and mode, node, pages, in this order, so that nobody
 * who may not can open the file and that all pages come from where they shall.
 *
 * What it does not do: deciding when and by which thread (segments.c, reserve.c).
 */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "memory/pool_core.h"
#include "node/server_core.h"
#include "os/segment.h"
#include "topo/topo.h"

#define LAYER "node"

/* The kernel's check at every opening of the file (through /proc) says the same as ours. A server
 * of one user need not give the file away, and one without the right cannot. */
static shmem_status_t set_rights(const shmemi_spec_t *spec, int fd)
{
    bool give = geteuid() == 0 && spec->uid != 0;
    uint32_t access = spec->gid == SHMEMI_NO_GROUP ? spec->access & 007 : spec->access;
    if (!SHMEMI_FAULT("node.making.rights") && (!give || fchown(fd, spec->uid, spec->gid) == 0) &&
        fchmod(fd, 0600 | access) == 0)
        return SHMEM_OK;
    return shmemi_fail_errno(LAYER, "cannot give segment '%s' to user %u, group %u, with mode 0%o",
                             spec->name, (unsigned)spec->uid, (unsigned)spec->gid,
                             0600 | spec->access);
}

static shmem_status_t find_node(shmem_topology_t topology, int system_node, int *node)
{
    shmem_topology_node_t info;
    for (*node = 0; *node < shmem_topology_nodes(topology); ++*node)
        if (shmem_topology_node(topology, *node, &info) == SHMEM_OK && info.os_index == system_node)
            return SHMEM_OK;
    return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                        "the node server cannot use NUMA node %d, from which memory was wanted: it "
                        "runs in another cpuset",
                        system_node);
}

shmem_status_t shmemi_making_afford(const shmemi_spec_t *spec, uint64_t bytes)
{
    shmem_topology_t topology;
    int node;
    shmem_status_t status = spec->node < 0 ? SHMEM_OK : shmem_topology_create(&topology);
    if (status || spec->node < 0)
        return status;
    status = find_node(topology, spec->node, &node);
    if (status == SHMEM_OK)
        status = shmemi_topo_afford(topology, node, bytes);
    shmem_topology_destroy(topology);
    return status;
}

/* The policy belongs to the file: it outlives this mapping, and counts for later pages, too. */
static shmem_status_t bind_file(const shmemi_spec_t *spec, int fd, uint64_t bytes)
{
    shmem_topology_t topology;
    int node;
    shmem_status_t status = shmem_topology_create(&topology);
    if (status)
        return status;
    status = find_node(topology, spec->node, &node);
    if (status == SHMEM_OK)
        status = shmemi_topo_afford(topology, node, spec->reserve ? spec->bytes : 0);
    if (status)
        goto destroy;
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (place == MAP_FAILED) {
        status = shmemi_fail_errno(LAYER, "cannot map segment '%s' to bind it", spec->name);
        goto destroy;
    }
    status = shmemi_topo_bind(topology, place, bytes, node, 1);
    munmap(place, bytes);
destroy:
    shmem_topology_destroy(topology);
    return status;
}

/* Of a file that is larger than its first part; else the pages came with the file. */
static shmem_status_t fill(const shmemi_spec_t *spec, int fd, uint64_t bytes)
{
    uint64_t first;
    shmem_status_t status = SHMEM_OK;
    if (!shmemi_round_up(spec->bytes, SHMEMI_PAGE, &first) || first > bytes)
        first = bytes;
    if (spec->reserve)
        status = shmemi_segment_reserve_huge(fd, 0, first, spec->huge);
    if (status == SHMEM_OK && spec->kind == SHMEMI_SEGMENT_REGION)
        status = shmemi_segment_reserve(fd, bytes - SHMEMI_PAGE, SHMEMI_PAGE);
    if (status == SHMEM_OK && spec->kind == SHMEMI_SEGMENT_REGION)
        status = shmemi_growing_publish(fd, bytes, spec->bytes);
    return status;
}

shmem_status_t shmemi_making_run(const shmemi_spec_t *spec, int *out, uint64_t *bytes,
                                 uint64_t *page_bytes)
{
    char name[SHMEMI_WIRE_NAME + 16];
    bool whole = spec->limit == spec->bytes && spec->node < 0;
    int huge = spec->huge; /* hugetlb pages would be claimed for all of the file */
    int fd;
    if (!whole && huge == SHMEMI_HUGE_REQUIRED)
        huge = SHMEMI_HUGE_AUTO;
    snprintf(name, sizeof name, "shmem-%s", spec->name);
    shmemi_segment_params_t params = {name, spec->limit, huge, whole && spec->reserve};
    shmem_status_t status = shmemi_segment_create(&params, &fd, bytes, page_bytes);
    if (status)
        return status;
    status = set_rights(spec, fd);
    if (status == SHMEM_OK && spec->node >= 0)
        status = bind_file(spec, fd, *bytes);
    if (status == SHMEM_OK && !whole)
        status = fill(spec, fd, *bytes);
    if (status == SHMEM_OK && spec->kind == SHMEMI_SEGMENT_POOL && *page_bytes == SHMEMI_PAGE)
        status = shmemi_pool_claim_file(fd, spec->slot, spec->epoch);
    if (status)
        close(fd);
    else
        *out = fd;
    return status;
}
