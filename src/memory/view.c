/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, opening and leaving a pool; what the server does for the dead.
 *
 * The header is written first and `ready` last: a pool whose creator died half way is refused. All
 * header fields are checked against the size of the segment before anything is derived from them.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "memory/keepers.h"
#include "memory/quota.h"
#include "os/identity.h"

#define LAYER "memory"

static _Atomic uint64_t next_pool_id = 1;

shmem_status_t shmemi_pool_segment_bytes(uint64_t bytes, int nodes, uint64_t *segment_bytes)
{
    shmemi_layout_t layout;
    shmem_status_t status =
        shmemi_layout_compute(bytes, (uint32_t)nodes, SHMEMI_CHUNK_BY_SIZE, &layout);
    if (!status)
        *segment_bytes = layout.segment_bytes;
    return status;
}

/* The layout, if it has an arena `index`. */
static shmem_status_t layout_with(uint64_t bytes, int nodes, int index, shmemi_layout_t *layout)
{
    shmem_status_t status =
        shmemi_layout_compute(bytes, (uint32_t)nodes, SHMEMI_CHUNK_BY_SIZE, layout);
    if (!status && (index < 0 || index >= nodes))
        status = shmemi_fail(SHMEM_ERR_INVALID, LAYER, "arena %d of a pool with %d", index, nodes);
    return status;
}

shmem_status_t shmemi_pool_arena_range(uint64_t bytes, int nodes, int index, uint64_t *offset,
                                       uint64_t *length)
{
    shmemi_layout_t layout;
    shmem_status_t status = layout_with(bytes, nodes, index, &layout);
    if (status)
        return status;
    *offset = layout.data + layout.data_stride * (uint64_t)index;
    *length = (uint64_t)layout.arena_pages << SHMEMI_PAGE_SHIFT;
    return SHMEM_OK;
}

shmem_status_t shmemi_pool_bookkeeping_range(uint64_t bytes, int nodes, int index, uint64_t *offset,
                                             uint64_t *length)
{
    shmemi_layout_t layout;
    shmem_status_t status = layout_with(bytes, nodes, index, &layout);
    if (status)
        return status;
    uint64_t begin = layout.arenas + layout.arena_stride * (uint64_t)index;
    *offset = index ? begin : 0;
    *length = begin + layout.arena_stride - *offset;
    return SHMEM_OK;
}

uint64_t shmemi_pool_capacity(const shmem_pool_params_t *params)
{
    return params->limit > params->bytes ? params->limit : params->bytes;
}

uint64_t shmemi_pool_first_length(const shmem_pool_params_t *params, int nodes)
{
    uint64_t pages = (params->bytes >> SHMEMI_PAGE_SHIFT) + !!(params->bytes & (SHMEMI_PAGE - 1));
    return (pages / (uint32_t)nodes + !!(pages % (uint32_t)nodes)) << SHMEMI_PAGE_SHIFT;
}

/* ---- format ---- */

static shmem_status_t check_params(const shmem_pool_params_t *params, uint32_t nodes)
{
    if (params->size < sizeof *params)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "pool parameters of size %zu, want %zu: use SHMEM_POOL_PARAMS_INIT",
                           params->size, sizeof *params);
    if ((unsigned)params->policy > SHMEM_POOL_INTERLEAVE)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "policy %d: want one of shmem_pool_policy_t",
                           (int)params->policy);
    bool named = params->policy == SHMEM_POOL_BIND || params->policy == SHMEM_POOL_PREFERRED;
    if (named && (params->node < 0 || (uint32_t)params->node >= nodes))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "node %d: this machine has nodes 0 to %u",
                           params->node, nodes - 1);
    return SHMEM_OK;
}

static shmem_status_t format_tasks(void *memory, const shmemi_layout_t *layout)
{
    shmemi_pool_header_t *header = memory;
    shmemi_task_t *tasks = (shmemi_task_t *)((unsigned char *)memory + layout->tasks);
    shmem_status_t status = shmemi_mutex_init(&header->tasks_lock);
    for (uint32_t i = 0; i < SHMEMI_TASKS && !status; i++)
        status = shmemi_mutex_init(&tasks[i].lock);
    return status;
}

static shmem_status_t format_arenas(void *memory, const shmemi_layout_t *layout, uint32_t present)
{
    for (uint32_t i = 0; i < layout->nodes; i++) {
        shmemi_arena_t arena;
        shmemi_arena_init(&arena, memory, layout, i);
        shmem_status_t status = shmemi_mutex_init(&arena.control->lock);
        if (!status)
            status = shmemi_buddy_format(&arena, present);
        if (status)
            return status;
        shmemi_arena_commit(&arena);
    }
    return SHMEM_OK;
}

static void format_header(shmemi_pool_header_t *header, const shmemi_layout_t *layout,
                          const shmem_pool_params_t *params, const shmem_topology_t topology)
{
    header->magic = SHMEMI_POOL_MAGIC;
    header->version = SHMEMI_POOL_VERSION;
    header->layout = shmemi_layout_hash();
    header->bytes = shmemi_pool_capacity(params);
    header->first_bytes = params->bytes;
    header->debug = params->debug != 0;
    header->nodes = layout->nodes;
    header->policy = (uint32_t)params->policy;
    header->node = (uint32_t)params->node;
    header->chunk_shift = layout->chunk_shift;
    for (uint32_t i = 0; i < layout->nodes; i++) {
        shmem_topology_node_t node;
        if (topology && shmem_topology_node(topology, (int)i, &node) == SHMEM_OK)
            header->system_node[i] = (uint32_t)node.os_index + 1;
    }
}

shmem_status_t shmemi_pool_format(void *memory, uint64_t segment_bytes,
                                  const shmem_pool_params_t *params,
                                  const shmem_topology_t topology)
{
    shmemi_layout_t layout;
    shmemi_pool_header_t *header = memory;
    uint32_t nodes = topology ? (uint32_t)shmem_topology_nodes(topology) : 1;
    shmem_status_t status = check_params(params, nodes);
    if (!status)
        status = shmemi_layout_compute(shmemi_pool_capacity(params), nodes, SHMEMI_CHUNK_BY_SIZE,
                                       &layout);
    if (status)
        return status;
    if (layout.segment_bytes > segment_bytes)
        return shmemi_fail(
            SHMEM_ERR_INVALID, LAYER, "a segment of %llu bytes for a pool that needs %llu",
            (unsigned long long)segment_bytes, (unsigned long long)layout.segment_bytes);
    uint64_t first = shmemi_pool_first_length(params, (int)nodes);
    format_header(header, &layout, params, topology);
    header->segment_bytes = segment_bytes;
    atomic_store_explicit(&header->capacity_high, (first >> SHMEMI_PAGE_SHIFT) * nodes,
                          memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.pool.header");
    status = format_tasks(memory, &layout);
    if (!status)
        status = format_arenas(memory, &layout, (uint32_t)(first >> SHMEMI_PAGE_SHIFT));
    if (status)
        return status;
    SHMEMI_KILL_POINT("memory.pool.formatted");
    /* SYNC pool-ready: release, pairs with acquire in header_check() */
    atomic_store_explicit(&header->ready, 1, memory_order_release);
    return SHMEM_OK;
}

/* ---- checking a header that others may have written ---- */

static shmem_status_t header_check(const void *memory, uint64_t segment_bytes,
                                   shmemi_pool_header_t *copy, shmemi_layout_t *layout)
{
    const shmemi_pool_header_t *header = memory;
    if (segment_bytes < sizeof *header)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER, "a pool in %llu bytes: too small for a header",
                           (unsigned long long)segment_bytes);
    /* SYNC pool-ready: acquire, pairs with release in shmemi_pool_format() */
    uint32_t ready = atomic_load_explicit(&header->ready, memory_order_acquire);
    memcpy(copy, memory, offsetof(shmemi_pool_header_t, ready));
    if (ready != 1 || copy->magic != SHMEMI_POOL_MAGIC)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "no complete pool here (magic %#llx, ready %u): its creator died while "
                           "making it, or it was overwritten",
                           (unsigned long long)copy->magic, ready);
    if (copy->version != SHMEMI_POOL_VERSION || copy->layout != shmemi_layout_hash())
        return shmemi_fail(SHMEM_ERR_VERSION, LAYER,
                           "pool of version %u, layout %#x; this library has %d, %#x: use the same "
                           "build",
                           copy->version, copy->layout, SHMEMI_POOL_VERSION, shmemi_layout_hash());
    bool sane = copy->chunk_shift <= 4 && copy->bytes && copy->nodes &&
                copy->nodes <= SHMEMI_POOL_NODES && copy->policy <= SHMEM_POOL_INTERLEAVE &&
                copy->segment_bytes == segment_bytes && copy->bytes <= segment_bytes;
    bool named = copy->policy == SHMEM_POOL_BIND || copy->policy == SHMEM_POOL_PREFERRED;
    if (!sane || (named && copy->node >= copy->nodes) ||
        shmemi_layout_compute(copy->bytes, copy->nodes, copy->chunk_shift, layout) ||
        layout->segment_bytes > segment_bytes)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "pool header: %llu bytes, %u nodes, policy %u, node %u do not fit a "
                           "segment of %llu bytes",
                           (unsigned long long)copy->bytes, copy->nodes, copy->policy, copy->node,
                           (unsigned long long)segment_bytes);
    return SHMEM_OK;
}

bool shmemi_pool_mark_destroyed(void *memory, bool destroyed)
{
    shmemi_pool_header_t *header = memory;
    return atomic_exchange_explicit(&header->destroyed, destroyed, memory_order_relaxed) != 0;
}

bool shmemi_pool_is_ready(const void *memory)
{
    /* SYNC pool-ready: acquire, pairs with release in shmemi_pool_format() */
    return atomic_load_explicit(&((const shmemi_pool_header_t *)memory)->ready,
                                memory_order_acquire) == 1;
}

void shmemi_pool_claim(void *memory, const shmemi_actor_t *actor)
{
    shmemi_pool_header_t *header = memory;
    /* SYNC pool-creator: release, pairs with acquire in shmemi_pool_is_abandoned() */
    atomic_store_explicit(&header->creator, (uint64_t)actor->slot << 32 | actor->epoch,
                          memory_order_release);
}

shmem_status_t shmemi_pool_claim_file(int fd, uint32_t slot, uint32_t epoch)
{
    const uint64_t creator = (uint64_t)slot << 32 | epoch;
    off_t at = offsetof(shmemi_pool_header_t, creator);
    if (!SHMEMI_FAULT("memory.pool.claim") &&
        pwrite(fd, &creator, sizeof creator, at) == (ssize_t)sizeof creator)
        return SHMEM_OK;
    return shmemi_fail_errno(LAYER, "cannot write into the file of a new pool who makes it");
}

bool shmemi_pool_is_claimed(const void *memory)
{
    return atomic_load_explicit(&((const shmemi_pool_header_t *)memory)->creator,
                                memory_order_relaxed) != 0;
}

bool shmemi_pool_is_abandoned(const void *memory, const shmemi_roster_t *roster)
{
    const shmemi_pool_header_t *header = memory;
    /* SYNC pool-creator: acquire, pairs with release in shmemi_pool_claim() */
    uint64_t creator = atomic_load_explicit(&header->creator, memory_order_acquire);
    return creator &&
           !shmemi_roster_client_alive(roster, (uint32_t)(creator >> 32), (uint32_t)creator);
}

/* ---- attach and detach ---- */

static size_t nodes_bytes(const shmemi_pool_t *pool)
{
    return sizeof *pool->spans * (size_t)((pool->data_bytes >> pool->chunk_bits) + 1);
}

/* Private, and touched only where this process has spans. */
static shmem_status_t nodes_map(shmemi_pool_t *pool)
{
    void *memory = MAP_FAILED;
    if (!SHMEMI_FAULT("memory.view.nodes"))
        memory = mmap(NULL, nodes_bytes(pool), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return shmemi_fail_errno(LAYER, "private memory of %zu bytes for the view of a pool",
                                 nodes_bytes(pool));
    pool->spans = memory;
    for (uint32_t i = 0; i < pool->nodes; i++)
        pool->arenas[i].nodes = pool->spans + (pool->data_stride * i >> pool->chunk_bits);
    return SHMEM_OK;
}

static void view_free(shmemi_pool_t *pool)
{
    if (pool->spans)
        munmap(pool->spans, nodes_bytes(pool));
    shmemi_policy_fini(pool);
    free(pool);
}

static void view_fill(shmemi_pool_t *pool, const shmemi_pool_source_t *source,
                      const shmemi_pool_header_t *header)
{
    unsigned char *memory = source->memory;
    const shmemi_layout_t *l = &pool->layout;
    pool->id = atomic_fetch_add_explicit(&next_pool_id, 1, memory_order_relaxed);
    pool->header = source->memory;
    pool->data = memory + l->data;
    pool->data_bytes = l->segment_bytes - l->data;
    pool->data_stride = l->data_stride;
    pool->arena_bytes = (uint64_t)l->arena_pages << SHMEMI_PAGE_SHIFT;
    pool->chunk_bits = l->chunk_shift + SHMEMI_PAGE_SHIFT;
    pool->policy = (shmem_pool_policy_t)header->policy;
    pool->node = (int)header->node;
    pool->actor = source->actor;
    pool->owner = shmemi_owner(source->actor->slot, source->actor->epoch);
    pool->topology = source->topology;
    pool->fd = source->fd;
    pool->huge = source->huge;
    pool->lock_pages = source->lock_pages;
    pool->cache_limit = pool->arena_bytes / SHMEMI_CACHE_SHARE;
    if (pool->cache_limit > SHMEMI_CACHE_BYTES)
        pool->cache_limit = SHMEMI_CACHE_BYTES;
    pthread_mutex_init(&pool->lock, NULL);
    shmemi_classes_init(&pool->classes, l->chunk_shift, l->arena_pages);
}

shmem_status_t shmemi_pool_attach(const shmemi_pool_source_t *source, shmemi_pool_t **pool)
{
    shmemi_layout_t layout;
    shmemi_pool_header_t header;
    shmem_status_t status = header_check(source->memory, source->segment_bytes, &header, &layout);
    if (status)
        return status;
    shmemi_pool_t *view = calloc(1, sizeof *view + layout.nodes * sizeof view->arenas[0]);
    if (!view)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for the view of a pool");
    view->layout = layout;
    view->nodes = layout.nodes;
    view_fill(view, source, &header);
    status = shmemi_policy_init(view);
    for (uint32_t i = 0; i < layout.nodes; i++)
        shmemi_arena_init(&view->arenas[i].arena, source->memory, &layout, i);
    if (!status)
        status = shmemi_task_claim(view->header, view->arenas[0].arena.tasks, source->actor,
                                   source->task, &view->task);
    if (!status)
        status = nodes_map(view);
    if (status) {
        view_free(view);
        return status;
    }
    *pool = view;
    return SHMEM_OK;
}

/* The first stretch of blocks with memory in an arena that ends behind page `from`. */
static bool present_in(shmemi_pool_t *pool, shmemi_arena_t *arena, uint32_t from, uint32_t *begin,
                       uint32_t *end)
{
    uint32_t head, length;
    uint64_t page = from, word;
    bool found = false;
    if (shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER))
        return false;
    while (page < arena->pages &&
           (length = shmemi_buddy_locate(arena, (uint32_t)page, &head, &word)) != 0) {
        bool absent = shmemi_word_kind(word) == SHMEMI_PAGE_ABSENT;
        if (absent && found)
            break;
        if (!absent && !found)
            *begin = (uint32_t)page;
        found |= !absent;
        page = (uint64_t)head + length;
    }
    *end = (uint32_t)page;
    shmemi_arena_unlock(arena, pool->actor, SHMEM_OK);
    return found;
}

bool shmemi_pool_present(shmemi_pool_t *pool, uint64_t from, uint64_t *offset, uint64_t *length)
{
    const shmemi_layout_t *l = &pool->layout;
    uint32_t begin = 0, end = 0;
    *offset = 0;
    *length = l->data;
    if (from < l->data)
        return true;
    for (uint64_t i = (from - l->data) / l->data_stride; i < l->nodes; i++) {
        uint64_t start = l->data + l->data_stride * i;
        uint64_t page = from > start ? (from - start) >> SHMEMI_PAGE_SHIFT : 0;
        if (page >= l->arena_pages ||
            !present_in(pool, &pool->arenas[i].arena, (uint32_t)page, &begin, &end))
            continue;
        *offset = start + ((uint64_t)begin << SHMEMI_PAGE_SHIFT);
        *length = (uint64_t)(end - begin) << SHMEMI_PAGE_SHIFT;
        return true;
    }
    return false;
}

void shmemi_pool_detach(shmemi_pool_t *pool)
{
    if (!pool)
        return;
    shmemi_heap_drop_all(pool);
    if (pool->actor->fork_generation == shmemi_fork_generation()) {
        shmemi_pool_keep(pool, false);
        shmemi_reclaim_t reclaim = {pool->actor, pool->owner, pool->task, SHMEMI_FOREVER, 0};
        for (uint32_t i = 0; i < pool->nodes; i++)
            shmemi_recover_arena(&pool->arenas[i].arena, &reclaim);
    }
    view_free(pool);
}

shmem_status_t shmemi_pool_data_offset(const void *memory, uint64_t segment_bytes, uint64_t *offset)
{
    shmemi_layout_t layout;
    shmemi_pool_header_t header;
    shmem_status_t status = header_check(memory, segment_bytes, &header, &layout);
    if (!status)
        *offset = layout.data;
    return status;
}

shmem_status_t shmemi_pool_reclaim(void *memory, uint64_t segment_bytes, shmemi_actor_t *actor,
                                   uint32_t slot, uint32_t epoch, shmemi_deadline_t deadline,
                                   shmemi_repair_t *repair)
{
    shmemi_layout_t layout;
    shmemi_pool_header_t header;
    shmem_status_t status = header_check(memory, segment_bytes, &header, &layout), turn = SHMEM_OK;
    if (status)
        return status;
    shmemi_reclaim_t reclaim = {actor, shmemi_owner(slot, epoch), SHMEMI_TASKS, deadline, 0};
    bool locked = false;
    for (uint32_t i = 0; i < layout.nodes && turn != SHMEM_ERR_BUSY; i++) {
        shmemi_arena_t arena;
        shmemi_arena_init(&arena, memory, &layout, i);
        if (repair->next[i] >= arena.pages)
            continue;
        turn = shmemi_recover_turn(&arena, &reclaim, &repair->next[i]);
        locked |= turn == SHMEM_ERR_TIMEOUT;
        if (turn && turn != SHMEM_ERR_TIMEOUT)
            status = turn;
    }
    repair->blocks += reclaim.blocks;
    if (turn == SHMEM_ERR_BUSY)
        return turn;
    return locked ? SHMEM_ERR_TIMEOUT : status;
}
