/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the memory of an arena really lies, by asking the kernel.
 *
 * Pages are bound before they are made, and an explicit policy keeps the kernel's balancing from
 * moving them. An operator (migratepages, a change of a cpuset) can move them all the same: the
 * kernel then honours the policy for new pages only. This finds it.
 *
 * Counted are pages of 4 KiB that this process has mapped; pages that are not there (returned to
 * the system) are neither here nor there.
 */
#include "base/log.h"
#include "base/status.h"
#include "memory/pool.h"

#define LAYER "memory"

enum { BATCH = 1024 };

typedef struct tally {
    uint64_t there, elsewhere;
    int other; /* one of the nodes elsewhere */
} tally_t;

static shmem_status_t look(const shmemi_pool_t *pool, int node, const unsigned char *address,
                           uint64_t pages, tally_t *tally)
{
    int found[BATCH];
    for (uint64_t done = 0, n; done < pages; done += n) {
        n = pages - done < BATCH ? pages - done : BATCH;
        shmem_status_t status = shmemi_topo_placement(
            pool->topology, address + (done << SHMEMI_PAGE_SHIFT), n, SHMEMI_PAGE, found);
        if (status)
            return status;
        for (uint64_t i = 0; i < n; i++) {
            tally->there += found[i] == node;
            tally->elsewhere += found[i] >= 0 && found[i] != node;
            if (found[i] >= 0 && found[i] != node)
                tally->other = found[i];
        }
    }
    return SHMEM_OK;
}

static void report(shmemi_pool_t *pool, uint32_t arena, const tally_t *tally)
{
    shmemi_arena_place_t *place = &pool->places[arena];
    atomic_store_explicit(&place->moved, tally->elsewhere, memory_order_relaxed);
    if (!tally->elsewhere || !shmemi_policy_is_home(pool, arena) ||
        atomic_exchange_explicit(&place->moved_logged, true, memory_order_relaxed))
        return;
    shmemi_log(SHMEM_LOG_WARN, LAYER,
               "%llu of %llu pages of the pool that belong to node %u lie on others (node %d): "
               "somebody moved them (migratepages, a cpuset), or they were never bound; this is "
               "slow, and said once",
               (unsigned long long)tally->elsewhere,
               (unsigned long long)(tally->there + tally->elsewhere), arena, tally->other);
}

shmem_status_t shmemi_pool_placement(shmemi_pool_t *pool, int node, uint64_t *there,
                                     uint64_t *elsewhere)
{
    tally_t tally = {0, 0, -1};
    if (node < 0 || (uint32_t)node >= pool->nodes || !there || !elsewhere)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "placement of node %d: the pool has nodes 0 to %u; and want places for "
                           "two numbers",
                           node, pool->nodes - 1);
    const shmemi_layout_t *l = &pool->layout;
    const unsigned char *records = (unsigned char *)pool->header + l->arenas;
    shmemi_arena_place_t *place = &pool->places[node];
    if (!pool->topology || place->node < 0)
        return shmemi_quiet(SHMEM_ERR_UNSUPPORTED, LAYER,
                            "this process does not see the node of part %d of the pool", node);
    shmem_status_t status = look(pool, place->node, pool->data + l->data_stride * (uint64_t)node,
                                 l->arena_pages, &tally);
    if (!status)
        status = look(pool, place->node, records + l->arena_stride * (uint64_t)node,
                      l->arena_stride >> SHMEMI_PAGE_SHIFT, &tally);
    if (status)
        return status;
    report(pool, (uint32_t)node, &tally);
    *there = tally.there;
    *elsewhere = tally.elsewhere;
    return SHMEM_OK;
}
