/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory under a pool: made by its creator, brought into each process that opens it.
 *
 * The server makes the segment without memory. The creator binds each arena and its bookkeeping to
 * the arena's node, then reserves: all of the bookkeeping, and of the data what the pool has at
 * first. So the memory counts for the creator, and nobody waits at the server for it.
 *
 * What it does not do: growth (memory/).
 */
#include "base/fault.h"
#include "job/pool_handle.h"
#include "os/segment.h"
#include "os/space.h"
#include "topo/topo.h"

int shmemi_pool_huge(shmem_context_t context, uint64_t bytes)
{
    return bytes < SHMEMI_SPACE_UNIT ? SHMEMI_HUGE_OFF : (int)context->settings.huge_pages;
}

shmem_status_t shmemi_pool_pages_map(shmemi_pool_view_t *view)
{
    const shmemi_segment_t *segment = &view->segment;
    shmem_status_t status = shmemi_segment_reserve(segment->fd, 0, SHMEMI_PAGE);
    if (status)
        return status;
    return shmemi_space_map(segment->offset, segment->bytes, segment->fd, 1, &view->memory);
}

typedef shmem_status_t range_t(uint64_t bytes, int nodes, int index, uint64_t *offset,
                               uint64_t *length);

/* Whole pages of the file: of hugetlb pages with bookkeeping of two arenas the latter's node has
 * one. Data begins on a border of such pages. */
static shmem_status_t bind_range(const shmemi_pool_view_t *view, range_t *range, uint64_t capacity,
                                 shmem_topology_t topology, int index)
{
    uint64_t offset, length, page = view->segment.page_bytes;
    shmem_topology_node_t node;
    shmem_status_t status =
        range(capacity, shmem_topology_nodes(topology), index, &offset, &length);
    if (!status)
        status = shmem_topology_node(topology, index, &node);
    if (status)
        return status;
    uint64_t begin = offset / page * page, end = (offset + length + page - 1) / page * page;
    if (end > view->segment.bytes)
        end = view->segment.bytes;
    return shmemi_topo_bind(topology, (char *)view->memory + begin, end - begin, index,
                            node.total_bytes != 0);
}

/* All of the arenas, also where they have no memory yet. */
static shmem_status_t bind_arenas(const shmemi_pool_view_t *view, uint64_t capacity,
                                  shmem_topology_t topology)
{
    int nodes = shmem_topology_nodes(topology);
    shmem_status_t status = SHMEM_OK;
    for (int i = 0; i < nodes && nodes > 1 && !status; i++) {
        status = bind_range(view, shmemi_pool_bookkeeping_range, capacity, topology, i);
        if (!status)
            status = bind_range(view, shmemi_pool_arena_range, capacity, topology, i);
    }
    return status;
}

static shmem_status_t reserve(const shmemi_pool_view_t *view, shmem_topology_t topology, int node,
                              uint64_t offset, uint64_t length)
{
    SHMEMI_KILL_POINT("job.pool.reserving");
    shmem_status_t status = shmemi_topo_afford(topology, node, length);
    if (status)
        return status;
    return shmemi_segment_reserve_huge(view->segment.fd, offset, length,
                                       shmemi_pool_huge(view->context, view->segment.bytes));
}

shmem_status_t shmemi_pool_pages_make(const shmemi_pool_view_t *view,
                                      const shmem_pool_params_t *params, shmem_topology_t topology)
{
    int nodes = shmem_topology_nodes(topology);
    uint64_t capacity = shmemi_pool_capacity(params), offset, length;
    uint64_t first = shmemi_pool_first_length(params, nodes);
    shmem_status_t status = bind_arenas(view, capacity, topology);
    for (int i = 0; i < nodes && !status; i++) {
        status = shmemi_pool_bookkeeping_range(capacity, nodes, i, &offset, &length);
        if (!status)
            status = reserve(view, topology, i, offset, length);
    }
    for (int i = 0; i < nodes && !status; i++) {
        status = shmemi_pool_arena_range(capacity, nodes, i, &offset, &length);
        if (!status)
            status = reserve(view, topology, i, offset, first < length ? first : length);
    }
    return status;
}

shmem_status_t shmemi_pool_pages_fill(const shmemi_pool_view_t *view)
{
    const shmemi_settings_t *settings = &view->context->settings;
    int huge = shmemi_pool_huge(view->context, view->segment.bytes);
    shmem_status_t status = SHMEM_OK;
    uint64_t from = 0, offset, length;
    while (!status && shmemi_pool_present(view->core, from, &offset, &length)) {
        char *start = (char *)view->memory + offset;
        status = shmemi_segment_populate(start, length, huge, (int)settings->fill_threads, NULL);
        if (!status && settings->lock_pages)
            shmemi_segment_lock(start, length); /* a refusal is logged there */
        from = offset + length;
    }
    return status;
}
