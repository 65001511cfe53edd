/* SPDX-License-Identifier: Apache-2.0 */
/* Regions on a node: their first memory and what they grow by, whoever asks and from where. */
#include "../multi/job.h"
#include "guest.h"

static shmem_context_t join(void)
{
    shmem_context_t context;
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    params.server = job_server.address;
    params.pes = 1;
    CHECK_OK(shmem_context_init_params(&context, &params));
    return context;
}

static void lies_on(const char *memory, uint64_t from, uint64_t to, int node)
{
    int found[64];
    for (uint64_t at = from; at < to; at += sizeof found / sizeof found[0] * 4096) {
        CHECK_OK(shmemi_topo_placement(topology, memory + at, 64, 4096, found));
        for (int i = 0; i < 64; i++)
            CHECK_EQ(found[i], node);
    }
}

/* Another process, which runs far away, makes it larger. */
static void grow_it(void *arg)
{
    shmem_context_t context = join();
    shmem_region_t region;
    run_on_processor(*(int *)arg);
    CHECK_OK(shmem_region_open(context, "placed", SHMEM_MAP_READ_WRITE, &region));
    CHECK_OK(shmem_region_resize(region, 2 * MIB));
    CHECK_OK(shmem_region_resize(region, 12 * MIB)); /* by a thread of the server */
    CHECK_OK(shmem_context_finalize(context));
}

static void on_node(shmem_context_t context, int node)
{
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t region;
    int far = first_processor(node ? 0 : 1);
    params.bytes = MIB;
    params.limit = 64 * MIB;
    params.node = node;
    CHECK_OK(shmem_region_create(context, "placed", &params, &region));
    char *memory = shmem_region_map(region, SHMEM_MAP_READ_WRITE);
    CHECK(memory);
    lies_on(memory, 0, MIB, node);
    CHECK_EQ(harness_wait(harness_fork(grow_it, &far), 40), 0);
    memset(memory, 1, 12 * MIB);
    lies_on(memory, 0, 12 * MIB, node);
    shmem_region_close(region);
}

/* More than the node has is refused before the system runs out of memory. */
static void more_than_the_node_has(shmem_context_t context, int node)
{
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t region;
    shmem_topology_node_t info;
    CHECK_OK(shmem_topology_node(topology, node, &info));
    params.bytes = MIB;
    params.limit = 2 * info.total_bytes;
    params.node = node;
    CHECK_OK(shmem_region_create(context, "modest", &params, &region));
    CHECK_STATUS(shmem_region_resize(region, info.total_bytes), SHMEM_ERR_NOMEM);
    CHECK(strstr(shmem_error_detail()->text, "are wanted on node"));
    CHECK_OK(shmem_region_resize(region, 2 * MIB));
    shmem_region_close(region);
}

static void regions_lie_on_their_node(void)
{
    shmem_context_t context = join();
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t region = NULL;
    params.bytes = MIB;
    for (int node = 0; node < expected_nodes; node++) {
        if (memory[node]) {
            on_node(context, node);
            more_than_the_node_has(context, node);
            continue;
        }
        params.node = node;
        CHECK(shmem_region_create(context, "bare", &params, &region) != SHMEM_OK && !region);
    }
    params.node = expected_nodes;
    CHECK_STATUS(shmem_region_create(context, NULL, &params, &region), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_context_finalize(context));
}

void region_cases(void)
{
    job_server = job_server_start();
    RUN(regions_lie_on_their_node);
    job_server_stop(&job_server);
}
