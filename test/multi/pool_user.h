/* SPDX-License-Identifier: Apache-2.0 */
/* A client that has a pool open, without a context: what tests of the server and pools share. */
#ifndef SHMEM_TEST_MULTI_POOL_USER_H
#define SHMEM_TEST_MULTI_POOL_USER_H

#include "../unit/node/fixture.h"
#include "memory/pool.h"
#include "memory/pool_core.h"

#define POOL_BYTES (8ull << 20)

typedef struct pool_user {
    shmemi_client_t *client;
    shmemi_segment_t segment;
    void *memory;
    shmemi_pool_t *pool;
    shmem_topology_t topology;
} pool_user_t;

static inline void pool_user_open(pool_user_t *u, const fixture_server_t *f, bool create)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = POOL_BYTES;
    u->client = fixture_attach(f);
    CHECK_OK(shmem_topology_create(&u->topology));
    if (create) {
        shmemi_segment_request_t r = {
            .name = "pool", .kind = SHMEMI_SEGMENT_POOL, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
        CHECK_OK(
            shmemi_pool_segment_bytes(POOL_BYTES, shmem_topology_nodes(u->topology), &r.bytes));
        CHECK_OK(shmemi_client_segment_create(u->client, &r, &u->segment));
    } else {
        CHECK_OK(shmemi_client_segment_open(u->client, "pool", SHMEMI_RIGHTS_WRITE, &u->segment));
    }
    CHECK_OK(shmemi_space_map(u->segment.offset, u->segment.bytes, u->segment.fd, 1, &u->memory));
    if (create)
        CHECK_OK(shmemi_pool_format(u->memory, u->segment.bytes, &params, u->topology));
    shmemi_pool_source_t source = {.memory = u->memory,
                                   .segment_bytes = u->segment.bytes,
                                   .actor = shmemi_client_actor(u->client),
                                   .topology = u->topology,
                                   .fd = u->segment.fd};
    CHECK_OK(shmemi_pool_attach(&source, &u->pool));
}

static inline void pool_user_close(pool_user_t *u)
{
    shmemi_pool_detach(u->pool);
    CHECK_OK(shmemi_space_unmap(u->memory));
    shmemi_client_segment_close(u->client, &u->segment);
    shmemi_client_detach(u->client);
    shmem_topology_destroy(u->topology);
}

static inline uint64_t used_bytes(const pool_user_t *u)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmemi_pool_describe(u->pool, &info));
    return info.used_bytes;
}

#endif
