/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's NUMA nodes, their memory and the distances between them.
 *
 * Nodes are numbered 0 to n - 1 in the order of their system numbers; a machine without NUMA has
 * one. Latencies and bandwidths between nodes are measured where somebody measured them on this
 * machine (shmem-info --measure) and saved the result, else derived from what the firmware says.
 *
 * Threads: a topology is immutable; any thread may read it.
 */
#ifndef SHMEM_TOPOLOGY_H
#define SHMEM_TOPOLOGY_H

#include <shmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shmem_topology *shmem_topology_t;

typedef struct {
    int os_index;         /* the system's number of the node */
    int processors;       /* usable processors near it; 0 for a memory-only node */
    uint64_t total_bytes; /* 0: a node without memory */
    uint64_t free_bytes;  /* at the time of detection */
} shmem_topology_node_t;

/* Where the latencies, or the bandwidths, come from. */
typedef enum shmem_topology_source {
    SHMEM_TOPOLOGY_ASSUMED = 0, /* nobody says: another node counts as twice as far as the own */
    SHMEM_TOPOLOGY_DISTANCES,   /* the firmware's relative distances; 90 ns and 12 GB/s = local */
    SHMEM_TOPOLOGY_ATTRIBUTES,  /* the firmware's values for the processors nearest to each node;
                                   other pairs in proportion to the distances */
    SHMEM_TOPOLOGY_MEASURED /* measured; pairs that cannot be (from a node without processors, to
                               one without memory) in proportion to what the firmware says */
} shmem_topology_source_t;

/* Detect this machine. The caller destroys it. Never fails for want of NUMA: one node then. What
 * was measured and saved is used if it was on this machine with the same nodes, processors and
 * memory. Errors: NOMEM, SYSTEM. */
SHMEM_API shmem_status_t shmem_topology_create(shmem_topology_t *topology);
SHMEM_API void shmem_topology_destroy(shmem_topology_t topology);

/* Number of nodes, at least 1; 0 for NULL. Of the functions below, those that return a number take
 * NULL as a machine without nodes, processors and caches. */
SHMEM_API int shmem_topology_nodes(shmem_topology_t topology);
/* INVALID: no such node. */
SHMEM_API shmem_status_t shmem_topology_node(shmem_topology_t topology, int node,
                                             shmem_topology_node_t *info);
/* Nanoseconds that a processor of node `from` waits for a load from memory of node `to`, and GB/s
 * (10^9 bytes) at which it copies from there to memory of its own node; negative for a node that
 * does not exist. */
SHMEM_API double shmem_topology_latency(shmem_topology_t topology, int from, int to);
SHMEM_API double shmem_topology_bandwidth(shmem_topology_t topology, int from, int to);
/* Where these numbers come from; ASSUMED for NULL. The name is "measured" and the like, "unknown"
 * for a value that is none. */
SHMEM_API shmem_topology_source_t shmem_topology_latency_source(shmem_topology_t topology);
SHMEM_API shmem_topology_source_t shmem_topology_bandwidth_source(shmem_topology_t topology);
SHMEM_API const char *shmem_topology_source_name(shmem_topology_source_t source);
/* By how much the measurements of a pair differed: the middle half of them lies within this part of
 * their median. Negative: this pair was not measured. */
SHMEM_API double shmem_topology_latency_spread(shmem_topology_t topology, int from, int to);
SHMEM_API double shmem_topology_bandwidth_spread(shmem_topology_t topology, int from, int to);
/* Processors that the calling process may use. */
SHMEM_API int shmem_topology_processors(shmem_topology_t topology);
/* Bytes of data cache at `level` (1 to 3) nearest to a processor; 0: none or unknown. */
SHMEM_API uint64_t shmem_topology_cache(shmem_topology_t topology, int level);

/* How to measure. Zeroed members mean: choose. */
typedef struct shmem_topology_measure_params {
    size_t size;    /* sizeof(shmem_topology_measure_params_t) */
    uint64_t bytes; /* that are read on each node, 1 MiB to 1 GiB; 0: four times the largest cache,
                       64 to 512 MiB, at most a quarter of a node's free memory. As much again, at
                       most 128 MiB, is used to copy to */
    int repeats;    /* of each measurement, 1 to 100, whose median counts; 0: 7 */
} shmem_topology_measure_params_t;
#define SHMEM_TOPOLOGY_MEASURE_PARAMS_INIT                                                         \
    {                                                                                              \
        sizeof(shmem_topology_measure_params_t), 0, 0                                              \
    }

/*
 * Detect this machine and measure between all its nodes. The caller destroys the result. Takes
 * about 0.3 s for each pair of nodes, on an idle machine; others' work on it falsifies the result.
 * `params` may be NULL. Runs in threads of its own: affinity and memory policy of the caller stay
 * as they are. Errors: INVALID, NOMEM, UNSUPPORTED (several nodes, and the kernel refuses the calls
 * that place memory and threads on them), SYSTEM.
 */
SHMEM_API shmem_status_t shmem_topology_measure(const shmem_topology_measure_params_t *params,
                                                shmem_topology_t *topology);

/*
 * Save measured numbers for the programs of this user: in $XDG_CACHE_HOME/shmem or, without that
 * variable, $HOME/.cache/shmem, under a name that is the machine's own. The file is replaced as a
 * whole. path[bytes] gets its name (also on failure, as far as it is known); it may be NULL, with
 * bytes = 0. Errors: INVALID (nothing measured), NOT_FOUND (neither variable is set to an absolute
 * path), STATE (the caller may not use the processors of some node, whose numbers would be
 * missing; or a number makes no sense), ACCESS (also: a folder that is another user's, as when a
 * program runs as root with a user's HOME, or that others may write to), BUSY (another process is
 * saving), NOMEM, LIMIT, SYSTEM (also: the cache is a symbolic link).
 */
SHMEM_API shmem_status_t shmem_topology_save(shmem_topology_t topology, char *path, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
