/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring between several nodes: which pairs are measured, which follow, and that the result is
 * kept. (The nodes of an emulated machine are equally fast: what the numbers are shows nothing.) */
#include "guest.h"

static void all_pairs_are_measured(void)
{
    shmem_topology_measure_params_t params = {sizeof params, MIB, 3};
    shmem_topology_t t, again;
    unsigned long nodes;
    cpu_set_t before, after;
    setenv("XDG_CACHE_HOME", "/tmp/cache", 1);
    run_on_processor(0); /* a thread of its own measures from the other nodes */
    CHECK_OK(shmem_topology_measure(&params, &t));
    CHECK_STATUS(shmem_topology_save(t, NULL, 0), SHMEM_ERR_STATE); /* no: from node 0 alone */
    for (int i = 0; i < expected_nodes; i++)
        for (int j = 0; j < expected_nodes; j++)
            CHECK((shmem_topology_latency_spread(t, i, j) >= 0) == (i == 0 && memory[j]));
    shmem_topology_destroy(t);
    run_anywhere();
    set_own_policy(MPOL_BIND, 2);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    CHECK_OK(shmem_topology_measure(&params, &t));
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after));
    CHECK_EQ(own_policy(&nodes), MPOL_BIND);
    CHECK_EQ(nodes, 2);
    set_own_policy(MPOL_DEFAULT, 0);
    for (int i = 0; i < expected_nodes; i++)
        for (int j = 0; j < expected_nodes; j++) {
            CHECK(shmem_topology_latency(t, i, j) > 0 && shmem_topology_bandwidth(t, i, j) > 0);
            CHECK((shmem_topology_latency_spread(t, i, j) >= 0) == (cpus[i] && memory[j]));
            CHECK((shmem_topology_bandwidth_spread(t, i, j) >= 0) == (cpus[i] && memory[j]));
        }
    CHECK_OK(shmem_topology_save(t, NULL, 0));
    CHECK_OK(shmem_topology_create(&again));
    CHECK_EQ(shmem_topology_latency_source(again), SHMEM_TOPOLOGY_MEASURED);
    for (int i = 0; i < expected_nodes; i++)
        for (int j = 0; j < expected_nodes; j++) {
            double difference =
                shmem_topology_latency(t, i, j) - shmem_topology_latency(again, i, j);
            CHECK(difference > -0.01 && difference < 0.01);
        }
    int order[NODES_MAX];
    shmemi_topo_order(again, 1, order);
    CHECK_EQ(order[0], 1); /* whatever was measured */
    shmem_topology_destroy(t);
    shmem_topology_destroy(again);
}

void measure_cases(void)
{
    RUN(all_pairs_are_measured);
}
