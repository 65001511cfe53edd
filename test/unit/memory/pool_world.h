/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of this layer share: a roster without a node server, clients made by hand, and a
 * pool in anonymous shared memory that forked children inherit at the same address. The test plays
 * the server: it adds clients before it forks and calls world_bury() after a child died.
 */
#ifndef SHMEM_TEST_POOL_WORLD_H
#define SHMEM_TEST_POOL_WORLD_H

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/settings.h"
#include "harness.h"
#include "memory/check.h"
#include "memory/pool.h"
#include "os/barrier.h"
#include "os/segment.h"
#include "slots.h"
#include "sync/roster.h"

/* How much longer the soaks work than the tests; they are the same programs. */
#ifndef POOL_SOAK
#define POOL_SOAK 1
#endif

enum { WORLD_CLIENTS = 64, WORLD_ROWS = 512 };

typedef struct world {
    shmemi_roster_t *roster;
    struct {
        uint32_t slot, epoch;
    } client[WORLD_CLIENTS];
    int clients;
    void *memory; /* of the pool */
    uint64_t segment_bytes;
    int fd; /* of a pool that can grow, or -1 */
} world_t;

static world_t world;

/* Shared memory at a multiple of 2 MiB; its pages come at first touch. */
static inline void *world_memory(uint64_t bytes)
{
    uint64_t unit = SHMEMI_DATA_ALIGN;
    unsigned char *p = mmap(NULL, bytes + unit, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    return p + (unit - (uintptr_t)p % unit) % unit;
}

static inline void world_client_add(int i)
{
    CHECK_OK(slots_add(world.roster, "test", 0, 0, &world.client[i].slot, &world.client[i].epoch));
}

/* A fresh roster with n clients, numbered from 0. */
static inline void world_make(int n)
{
    world = (world_t){.roster = harness_shared(sizeof(shmemi_roster_t)), .clients = n, .fd = -1};
    shmemi_roster_init(world.roster, WORLD_ROWS);
    shmemi_barrier_register();
    for (int i = 0; i < n; i++)
        world_client_add(i);
}

/* A fresh pool. */
static inline void world_pool(uint64_t bytes, shmem_pool_policy_t policy, int node,
                              shmem_topology_t topology)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes;
    params.policy = policy;
    params.node = node;
    int nodes = topology ? shmem_topology_nodes(topology) : 1;
    CHECK_OK(shmemi_pool_segment_bytes(bytes, nodes, &world.segment_bytes));
    world.memory = world_memory(world.segment_bytes);
    CHECK_OK(shmemi_pool_format(world.memory, world.segment_bytes, &params, topology));
}

/* A fresh pool in a file, of which `bytes` have memory. The test closes world.fd. */
static inline void world_growing_pool(uint64_t bytes, uint64_t limit, shmem_topology_t topology)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes;
    params.limit = limit;
    int nodes = topology ? shmem_topology_nodes(topology) : 1;
    CHECK_OK(shmemi_pool_segment_bytes(shmemi_pool_capacity(&params), nodes, &world.segment_bytes));
    shmemi_segment_params_t segment = {"test", world.segment_bytes, SHMEMI_HUGE_OFF, 0};
    uint64_t size, page;
    CHECK_OK(shmemi_segment_create(&segment, &world.fd, &size, &page));
    void *place = world_memory(size);
    world.memory = mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, world.fd, 0);
    CHECK(world.memory == place);
    for (int i = 0; i < nodes; i++) {
        uint64_t offset, length;
        CHECK_OK(
            shmemi_pool_arena_range(shmemi_pool_capacity(&params), nodes, i, &offset, &length));
        CHECK_OK(
            shmemi_segment_reserve(world.fd, offset, shmemi_pool_first_length(&params, nodes)));
    }
    CHECK_OK(shmemi_pool_format(world.memory, world.segment_bytes, &params, topology));
}

/* Bytes of the file that have memory. */
static inline uint64_t world_file_bytes(void)
{
    struct stat info;
    CHECK(fstat(world.fd, &info) == 0);
    return (uint64_t)info.st_blocks * 512;
}

/* The calling process acts as client i. */
static inline void world_actor(shmemi_actor_t *actor, int i)
{
    CHECK(i < world.clients);
    shmemi_barrier_register();
    shmemi_actor_init(actor, world.roster, world.client[i].slot, world.client[i].epoch, 50000);
}

static inline shmem_status_t world_view(void *memory, uint64_t bytes, shmemi_actor_t *actor,
                                        shmem_topology_t topology, shmemi_pool_t **pool)
{
    shmemi_pool_source_t source = {.memory = memory,
                                   .segment_bytes = bytes,
                                   .actor = actor,
                                   .topology = topology,
                                   .fd = world.fd,
                                   .huge = SHMEMI_HUGE_OFF};
    return shmemi_pool_attach(&source, pool);
}

static inline shmemi_pool_t *world_attach(shmemi_actor_t *actor, shmem_topology_t topology)
{
    shmemi_pool_t *pool;
    CHECK_OK(world_view(world.memory, world.segment_bytes, actor, topology, &pool));
    return pool;
}

/* The same for a task. */
static inline shmemi_pool_t *world_attach_as(shmemi_actor_t *actor, shmem_topology_t topology,
                                             const char *task)
{
    shmemi_pool_t *pool;
    shmemi_pool_source_t source = {.memory = world.memory,
                                   .segment_bytes = world.segment_bytes,
                                   .actor = actor,
                                   .topology = topology,
                                   .task = task,
                                   .fd = world.fd,
                                   .huge = SHMEMI_HUGE_OFF};
    CHECK_OK(shmemi_pool_attach(&source, &pool));
    return pool;
}

/* Client i died, and the server knows. */
static inline void world_remove(int i)
{
    slots_remove(world.roster, world.client[i].slot, true);
}

/* Client i died: what the server does, which comes again where a living client holds a lock.
 * Returns the number of blocks that came back. */
static inline uint64_t world_bury(int i)
{
    shmemi_actor_t server;
    shmemi_repair_t repair = {0};
    uint32_t slot = world.client[i].slot, epoch = world.client[i].epoch;
    shmemi_actor_init(&server, world.roster, 0, atomic_load(&world.roster->clients[0].epoch),
                      50000);
    world_remove(i);
    shmem_status_t status = SHMEM_OK;
    bool more = true;
    for (double end = harness_now() + 30; more && harness_now() < end;) {
        status = shmemi_pool_reclaim(world.memory, world.segment_bytes, &server, slot, epoch, 0,
                                     &repair);
        more = status == SHMEM_ERR_TIMEOUT || status == SHMEM_ERR_BUSY;
    }
    CHECK_OK(status);
    shmemi_actor_fini(&server);
    return repair.blocks;
}

static inline uint64_t world_used(shmemi_pool_t *pool)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmemi_pool_describe(pool, &info));
    return info.used_bytes;
}

static inline void *world_alloc(shmemi_pool_t *pool, size_t bytes)
{
    void *block = NULL;
    CHECK_OK(shmemi_pool_alloc_default(pool, bytes, &block));
    CHECK(block != NULL);
    return block;
}

static inline uint64_t world_stat(shmemi_stat_t which)
{
    uint64_t sum = 0;
    for (int i = 0; i < WORLD_ROWS; i++)
        sum += atomic_load(&world.roster->threads[i].stats.value[which]);
    return sum;
}

/* A small generator; equal seeds give equal sequences. */
static inline uint64_t world_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 2685821657736338717ull;
}

static inline void world_needs_kills(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed, and ThreadSanitizer sees threads only");
}

#endif
