/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real engine on the registration hooks: UCX registers each arena when it is announced, and puts
 * and gets go from and to any block in it, in what a pool gains later as well.
 */
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

#ifdef HAVE_UCX

#include <stdatomic.h>
#include <ucp/api/ucp.h>

#include "job.h"

/* The two sides: `mine` has the arenas, `peer` reaches into them. Both live in this thread. */
typedef struct side {
    ucp_context_h context;
    ucp_worker_h worker;
    int registered, released;
} side_t;

static side_t mine, peer;
static ucp_ep_h endpoint; /* from peer to mine */

#define UCX_OK(call)                                                                               \
    do {                                                                                           \
        ucs_status_t u_ = (call);                                                                  \
        if (u_ != UCS_OK)                                                                          \
            harness_fail(__FILE__, __LINE__, "%s: %s", #call, ucs_status_string(u_));              \
    } while (0)

static void side_open(side_t *s)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;
    memset(s, 0, sizeof *s);
    UCX_OK(ucp_config_read(NULL, NULL, &config));
    UCX_OK(ucp_init(&params, config, &s->context));
    ucp_config_release(config);
    UCX_OK(ucp_worker_create(s->context, &worker, &s->worker));
}

static void side_close(side_t *s)
{
    ucp_worker_destroy(s->worker);
    ucp_cleanup(s->context);
}

static void finish(ucs_status_ptr_t request)
{
    double end = harness_now() + 30;
    if (request && !UCS_PTR_IS_ERR(request)) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS && harness_now() < end) {
            ucp_worker_progress(mine.worker);
            ucp_worker_progress(peer.worker);
        }
        UCX_OK(ucp_request_check_status(request));
        ucp_request_free(request);
    } else if (request) {
        UCX_OK(UCS_PTR_STATUS(request));
    }
}

static void connect_sides(void)
{
    ucp_address_t *address;
    size_t bytes;
    side_open(&mine);
    side_open(&peer);
    UCX_OK(ucp_worker_get_address(mine.worker, &address, &bytes));
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    UCX_OK(ucp_ep_create(peer.worker, &params, &endpoint));
    ucp_worker_release_address(mine.worker, address);
}

static void disconnect_sides(void)
{
    ucp_request_param_t param = {0};
    finish(ucp_ep_close_nbx(endpoint, &param));
    side_close(&peer);
    side_close(&mine);
}

/* ---- the engine ---- */

static shmem_status_t announce(void *user, const shmem_arena_info_t *arena, void **key)
{
    side_t *s = user;
    ucp_mem_h handle;
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = arena->base,
                                   .length = arena->bytes};
    if (ucp_mem_map(s->context, &params, &handle) != UCS_OK)
        return SHMEM_ERR_NOMEM;
    s->registered++;
    *key = handle;
    return SHMEM_OK;
}

static void withdraw(void *user, const shmem_arena_info_t *arena, void *key)
{
    side_t *s = user;
    (void)arena;
    UCX_OK(ucp_mem_unmap(s->context, key));
    s->released++;
}

static shmem_engine_t engine_of(shmem_context_t context, side_t *side)
{
    const shmem_engine_ops_t ops = {sizeof ops, "ucx", announce, withdraw};
    shmem_engine_t engine;
    CHECK_OK(shmem_engine_register(context, &ops, side, &engine));
    return engine;
}

/* ---- transfers ---- */

/* The whole of a block is put from, and got into, a buffer of the peer: pinned meanwhile. */
static void transfer(shmem_context_t context, shmem_engine_t engine, unsigned char *block,
                     size_t bytes)
{
    ucp_request_param_t none = {0};
    shmem_arena_info_t info = {.size = sizeof info};
    void *key, *packed;
    size_t packed_bytes;
    ucp_rkey_h remote;
    uint64_t pin;
    unsigned char *buffer = malloc(bytes);
    CHECK(buffer);
    CHECK_OK(shmem_arena_pin(context, engine, block, &info, &key, &pin));
    CHECK(block + bytes <= (unsigned char *)info.base + info.bytes);
    UCX_OK(ucp_rkey_pack(mine.context, key, &packed, &packed_bytes));
    UCX_OK(ucp_ep_rkey_unpack(endpoint, packed, &remote));
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = (unsigned char)(i * 7 + bytes);
    memset(block, 0, bytes);
    finish(ucp_put_nbx(endpoint, buffer, bytes, (uintptr_t)block, remote, &none));
    finish(ucp_ep_flush_nbx(endpoint, &none));
    CHECK(memcmp(block, buffer, bytes) == 0);
    for (size_t i = 0; i < bytes; i++)
        block[i] = (unsigned char)(i * 5 + 1);
    finish(ucp_get_nbx(endpoint, buffer, bytes, (uintptr_t)block, remote, &none));
    finish(ucp_ep_flush_nbx(endpoint, &none));
    CHECK(memcmp(block, buffer, bytes) == 0);
    ucp_rkey_destroy(remote);
    ucp_rkey_buffer_release(packed);
    CHECK_OK(shmem_arena_unpin(context, pin));
    free(buffer);
}

static void blocks_of_a_pool(void)
{
    static const size_t sizes[] = {1, 8, 1000, 65536, 1 << 20};
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 8 << 20;
    params.limit = 64 << 20;
    connect_sides();
    shmem_context_t context = job_init(NULL, 0, 1);
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    shmem_engine_t engine = engine_of(context, &mine);
    CHECK(mine.registered >= 1);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block;
        CHECK_OK(shmem_pool_alloc(pool, sizes[i], &block));
        transfer(context, engine, block, sizes[i]);
        CHECK_OK(shmem_pool_free(pool, block));
    }
    int before = mine.registered;
    unsigned char *large;
    CHECK_OK(shmem_pool_alloc(pool, 24 << 20, (void **)&large)); /* it grows */
    CHECK(mine.registered > before);
    transfer(context, engine, large + (24 << 20) - 100000, 100000);
    CHECK_OK(shmem_context_finalize(context)); /* closes the pool, withdraws first */
    CHECK_EQ(mine.registered, mine.released);
    disconnect_sides();
}

static void parts_and_regions(void)
{
    shmem_memory_t memory;
    shmem_region_t region;
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    params.bytes = 1 << 20;
    connect_sides();
    shmem_context_t context = job_init(NULL, 0, 1);
    shmem_engine_t engine = engine_of(context, &mine);
    CHECK_EQ(mine.registered, 0);
    CHECK_OK(shmem_memory_create(context, &memory, 3 << 20));
    unsigned char *part = shmem_memory_map(memory);
    transfer(context, engine, part + 12345, 100000);
    CHECK_OK(shmem_region_create(context, NULL, &params, &region));
    unsigned char *at = shmem_region_map(region, SHMEM_MAP_READ_WRITE);
    transfer(context, engine, at + 777, 100000);
    CHECK_EQ(mine.registered, 2);
    CHECK_OK(shmem_region_unmap(region));
    CHECK_OK(shmem_memory_unmap(part));
    CHECK_EQ(mine.released, 2);
    CHECK_OK(shmem_engine_unregister(engine));
    CHECK_OK(shmem_context_finalize(context));
    disconnect_sides();
}

/* A transfer that is under way when its pool is closed ends well. */
static void closed_under_way(void)
{
    enum { BYTES = 4 << 20 };
    ucp_request_param_t none = {0};
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    void *key, *packed;
    size_t packed_bytes;
    ucp_rkey_h remote;
    uint64_t pin;
    unsigned char *block, *buffer = malloc(BYTES);
    params.bytes = 8 << 20;
    connect_sides();
    shmem_context_t context = job_init(NULL, 0, 1);
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    shmem_engine_t engine = engine_of(context, &mine);
    CHECK_OK(shmem_pool_alloc(pool, BYTES, (void **)&block));
    CHECK_OK(shmem_arena_pin(context, engine, block, NULL, &key, &pin));
    UCX_OK(ucp_rkey_pack(mine.context, key, &packed, &packed_bytes));
    UCX_OK(ucp_ep_rkey_unpack(endpoint, packed, &remote));
    memset(buffer, 0x42, BYTES);
    ucs_status_ptr_t put = ucp_put_nbx(endpoint, buffer, BYTES, (uintptr_t)block, remote, &none);
    shmem_pool_close(pool);
    CHECK_EQ(mine.released, 0);
    finish(put);
    finish(ucp_ep_flush_nbx(endpoint, &none));
    CHECK(block[0] == 0x42 && memcmp(block, block + 1, BYTES - 1) == 0);
    ucp_rkey_destroy(remote);
    ucp_rkey_buffer_release(packed);
    CHECK_OK(shmem_arena_unpin(context, pin));
    CHECK_EQ(mine.released, mine.registered);
    CHECK_OK(shmem_context_finalize(context));
    disconnect_sides();
    free(buffer);
}

static void cases(void)
{
    RUN(blocks_of_a_pool);
    RUN(parts_and_regions);
    RUN(closed_under_way);
}

int main(void)
{
    /* neither network cards nor room in /dev/shm are needed */
    setenv("UCX_TLS", "tcp,self,cma,sysv", 0);
    if (harness_has_tsan()) {
        printf("SKIPPED: UCX is not built for ThreadSanitizer\n");
        return 77;
    }
    job_server = job_server_start();
    cases();
    job_server_stop(&job_server);
    return harness_end();
}

#else

int main(void)
{
    printf("SKIPPED: built without UCX (libucx-dev)\n");
    return 77;
}

#endif
