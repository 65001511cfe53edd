/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring latency and bandwidth between nodes.
 *
 *   latency     loads that depend on each other, along a random cycle through all slots of a range
 *               that is bound to the target node and larger than the caches
 *   bandwidth   memcpy() from that range to one on the node of the processor
 *
 * The range's contents: the first word of slot s, 256 bytes each, is the offset of the next slot;
 * the slots form one cycle (so that a chase never ends up in a short, cached one). 256 bytes: the
 * prefetcher of adjacent lines brings nothing that is needed soon.
 *
 * A thread bound to the processors of the source node does the work; the ranges are bound by
 * address. So neither affinity nor memory policy of the caller is touched.
 *
 * What it does not do: it does not look for a quiet moment. The spread tells how quiet it was.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/status.h"
#include "base/util.h"
#include "os/clock.h"
#include "os/segment.h"
#include "topo/internal.h"

#define LAYER "topo"
#define MIB   (1ull << 20)

enum { SLOT = 256, STEPS = 1 << 17, WARM_STEPS = 1 << 13, REPEATS = 7, REPEATS_MAX = 100 };

#define BYTES_MIN (64 * MIB) /* of what is chosen by itself */
#define BYTES_MAX (512 * MIB)
#define NEAR_MAX  (128 * MIB)

typedef struct task {
    shmem_topology_t topology;
    uint64_t bytes, near_bytes;
    int repeats;
    char *far, *near;
    double latency[REPEATS_MAX], bandwidth[REPEATS_MAX]; /* ns, GB/s of each repeat */
} task_t;

/* ---- in the thread on the source node ---- */

/* Follow the cycle; returns the offset it ends at. */
static uint64_t chase(const char *range, uint64_t offset, int steps)
{
    for (int i = 0; i < steps; i++)
        offset = *(const volatile uint64_t *)(const void *)(range + offset);
    return offset;
}

static void measure_latency(task_t *task)
{
    uint64_t at = chase(task->far, 0, WARM_STEPS);
    for (int i = 0; i < task->repeats; i++) {
        int64_t begin = shmemi_clock_now();
        at = chase(task->far, at, STEPS);
        task->latency[i] = (double)(shmemi_clock_now() - begin) / STEPS;
    }
}

static void measure_bandwidth(task_t *task)
{
    uint64_t piece = task->near_bytes, at = 0;
    for (int i = 0; i < task->repeats; i++) {
        int64_t begin = shmemi_clock_now();
        memcpy(task->near, task->far + at, piece);
        __asm__ volatile("" : : "r"(task->near) : "memory"); /* as if somebody read the copy */
        int64_t took = shmemi_clock_now() - begin;
        task->bandwidth[i] = (double)piece / (double)(took > 0 ? took : 1);
        at = at + 2 * piece <= task->bytes ? at + piece : 0;
    }
}

static void *work(void *arg)
{
    measure_latency(arg);
    measure_bandwidth(arg);
    return NULL;
}

/* ---- ranges ---- */

/* One cycle through all slots (Sattolo's shuffle). */
static void make_cycle(char *range, uint64_t bytes)
{
    uint64_t random = 0x9e3779b97f4a7c15ull, slots = bytes / SLOT;
    for (uint64_t i = 0; i < slots; i++)
        *(uint64_t *)(void *)(range + i * SLOT) = i * SLOT;
    for (uint64_t i = slots - 1; i > 0; i--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint64_t *a = (uint64_t *)(void *)(range + i * SLOT);
        uint64_t *b = (uint64_t *)(void *)(range + random % i * SLOT);
        uint64_t swapped = *a;
        *a = *b;
        *b = swapped;
    }
}

/* Do first, middle and last page lie on the node? */
static shmem_status_t check_place(shmem_topology_t t, const char *range, uint64_t bytes, int node)
{
    const uint64_t at[] = {0, bytes / 2 & ~(uint64_t)(SHMEMI_PAGE - 1), bytes - SHMEMI_PAGE};
    for (size_t i = 0; t->count > 1 && i < SHMEMI_COUNT(at); i++) {
        int found;
        shmem_status_t status = shmemi_topo_placement(t, range + at[i], 1, SHMEMI_PAGE, &found);
        if (status)
            return shmemi_fail(status, LAYER,
                               "cannot measure between %d nodes: the kernel does not tell where "
                               "memory lies; allow mbind and move_pages",
                               t->count);
        if (found != node)
            return shmemi_fail(SHMEM_ERR_UNSUPPORTED, LAYER,
                               "cannot measure between %d nodes: memory for node %d lies on node "
                               "%d; is mbind allowed?",
                               t->count, node, found);
    }
    return SHMEM_OK;
}

/* Memory on a node that has some, touched. */
static shmem_status_t range_make(shmem_topology_t t, uint64_t bytes, int node, char **range)
{
    char *p = SHMEMI_FAULT("topo.measure.map")
                  ? MAP_FAILED
                  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "cannot map %llu bytes to measure with",
                           (unsigned long long)bytes);
    madvise(p, bytes, MADV_HUGEPAGE); /* else page walks are measured, too */
    shmem_status_t status = shmemi_topo_bind(t, p, bytes, node, 1);
    if (!status) {
        memset(p, 1, bytes);
        status = check_place(t, p, bytes, node);
    }
    if (status)
        munmap(p, bytes);
    else
        *range = p;
    return status;
}

/* ---- one pair ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median, and the width of the middle half as part of it. */
static double median_of(double *values, int n, double *spread)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    double median = (values[n / 2] + values[(n - 1) / 2]) / 2;
    *spread = (values[3 * (n - 1) / 4] - values[(n - 1) / 4]) / median;
    return median;
}

/* The processors of the node that the caller may use; free it with CPU_FREE(). */
static cpu_set_t *processors_of(shmem_topology_t t, int node)
{
    cpu_set_t *set = CPU_ALLOC((size_t)t->homes);
    size_t bytes = CPU_ALLOC_SIZE((size_t)t->homes);
    if (!set)
        return NULL;
    CPU_ZERO_S(bytes, set);
    for (int p = 0; p < t->homes; p++)
        if (t->home[p] == node)
            CPU_SET_S((size_t)p, bytes, set);
    return set;
}

/* Run work() on the node, away from the program's signal handlers. An errno. */
static int run_on(shmem_topology_t t, int node, task_t *task)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all;
    int error = ENOMEM;
    cpu_set_t *set = processors_of(t, node);
    if (!set || pthread_attr_init(&attributes))
        goto no_attributes;
    sigfillset(&all);
    error = pthread_attr_setsigmask_np(&attributes, &all);
    if (!error && t->count > 1)
        error = pthread_attr_setaffinity_np(&attributes, CPU_ALLOC_SIZE((size_t)t->homes), set);
    if (!error)
        error = pthread_create(&thread, &attributes, work, task);
    if (!error)
        error = pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
no_attributes:
    CPU_FREE(set);
    return error;
}

static shmem_status_t measure_pair(task_t *task, int from, int to)
{
    int order[SHMEMI_TOPO_NODES_MAX];
    shmem_topology_t t = task->topology;
    int at = from * t->count + to;
    shmemi_topo_order(t, from, order);
    shmem_status_t status = range_make(t, task->near_bytes, order[0], &task->near);
    if (status)
        return status;
    int error = SHMEMI_FAULT("topo.measure.run") ? EPERM : run_on(t, from, task);
    munmap(task->near, task->near_bytes);
    if (error)
        return shmemi_fail(
            error == EPERM || error == ENOSYS ? SHMEM_ERR_UNSUPPORTED : SHMEM_ERR_SYSTEM, LAYER,
            "cannot run a thread on the processors of node %d: %s", from, strerrordesc_np(error));
    t->latency[at] = median_of(task->latency, task->repeats, &t->latency_spread[at]);
    t->bandwidth[at] = median_of(task->bandwidth, task->repeats, &t->bandwidth_spread[at]);
    return SHMEM_OK;
}

/* ---- all pairs ---- */

/* All sources that have processors for the caller, one target. */
static shmem_status_t measure_target(task_t *task, int to)
{
    shmem_topology_t t = task->topology;
    shmem_status_t status = range_make(t, task->bytes, to, &task->far);
    if (status)
        return status;
    make_cycle(task->far, task->bytes);
    for (int from = 0; from < t->count && !status; from++)
        if (t->nodes[from].processors)
            status = measure_pair(task, from, to);
    munmap(task->far, task->bytes);
    return status;
}

/* Replaces the matrices: what cannot be measured follows from what they said before. */
static shmem_status_t measure_all(task_t *task)
{
    shmem_topology_t t = task->topology;
    size_t pairs = (size_t)t->count * (size_t)t->count;
    double *base = malloc(2 * pairs * sizeof *base);
    if (!base)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a matrix of %d nodes", t->count);
    memcpy(base, t->latency, pairs * sizeof *base);
    memcpy(base + pairs, t->bandwidth, pairs * sizeof *base);
    memset(t->latency, 0, pairs * sizeof *base);
    memset(t->bandwidth, 0, pairs * sizeof *base);
    shmem_status_t status = SHMEM_OK;
    for (int to = 0; to < t->count && !status; to++)
        if (t->nodes[to].total_bytes)
            status = measure_target(task, to);
    if (!status && (!shmemi_topo_complete(t->latency, base, t->count) ||
                    !shmemi_topo_complete(t->bandwidth, base + pairs, t->count)))
        status = shmemi_fail(SHMEM_ERR_SYSTEM, LAYER,
                             "there is no node with memory, or none with processors, to measure");
    t->latency_source = t->bandwidth_source = SHMEM_TOPOLOGY_MEASURED;
    free(base);
    return status;
}

/* How much memory each node with some can spare. */
static uint64_t least_free(shmem_topology_t t)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < t->count; i++)
        if (t->nodes[i].total_bytes && t->nodes[i].free_bytes < least)
            least = t->nodes[i].free_bytes;
    return least;
}

static uint64_t chosen_bytes(shmem_topology_t t)
{
    uint64_t bytes = BYTES_MIN, room = least_free(t) / 4;
    for (int level = 1; level <= 3; level++)
        bytes = 4 * t->cache[level] > bytes ? 4 * t->cache[level] : bytes;
    bytes = bytes < BYTES_MAX ? bytes : BYTES_MAX;
    return bytes < room ? bytes : room;
}

/* Sizes of the ranges; an allocation on a full node would start the OOM killer. */
static shmem_status_t plan(task_t *task, const shmem_topology_measure_params_t *params)
{
    shmem_topology_t t = task->topology;
    uint64_t bytes = params->bytes ? params->bytes : chosen_bytes(t);
    task->repeats = params->repeats ? params->repeats : REPEATS;
    task->bytes = bytes & ~(uint64_t)(SHMEMI_PAGE - 1);
    task->near_bytes = task->bytes < NEAR_MAX ? task->bytes : NEAR_MAX;
    if (task->bytes < MIB || least_free(t) / 2 < task->bytes + task->near_bytes)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER,
                           "measuring with %llu and %llu bytes wants twice that free on each node "
                           "that has memory, one has %llu: measure with less, or free memory",
                           (unsigned long long)task->bytes, (unsigned long long)task->near_bytes,
                           (unsigned long long)least_free(t));
    return shmemi_segment_afford(task->bytes + task->near_bytes);
}

static shmem_status_t check_params(const shmem_topology_measure_params_t *p)
{
    bool bytes = !p->bytes || (p->bytes >= MIB && p->bytes <= 1024 * MIB);
    if (p->size >= sizeof *p && bytes && p->repeats >= 0 && p->repeats <= REPEATS_MAX)
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                       "measuring with %llu bytes and %d repeats: want parameters that begin with "
                       "SHMEM_TOPOLOGY_MEASURE_PARAMS_INIT, 1 MiB to 1 GiB (0: choose) and 1 to "
                       "%d repeats (0: choose)",
                       (unsigned long long)p->bytes, p->repeats, REPEATS_MAX);
}

shmem_status_t shmem_topology_measure(const shmem_topology_measure_params_t *params,
                                      shmem_topology_t *topology)
{
    static const shmem_topology_measure_params_t chosen = SHMEM_TOPOLOGY_MEASURE_PARAMS_INIT;
    if (!topology)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_topology_measure got NULL for its result");
    params = params ? params : &chosen;
    shmem_status_t status = check_params(params);
    if (status)
        return status;
    task_t *task = calloc(1, sizeof *task);
    if (!task)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a measurement");
    status = shmemi_topo_detect(&task->topology);
    if (!status)
        status = plan(task, params);
    if (!status)
        status = measure_all(task);
    if (status)
        shmem_topology_destroy(task->topology);
    else
        *topology = task->topology;
    free(task);
    return status;
}
