/* SPDX-License-Identifier: Apache-2.0 */
/* What programs see of the machine, where pools lie and whether they stay in memory. Several nodes:
 * see test/scripts/numa_test.sh. */
#include <shmem/shmem.h>
#include <shmem/topology.h>

#include <linux/capability.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../unit/os/helpers.h"
#include "harness.h"

#define MIB (1ull << 20)

static int lines;
static char text_seen[640];

static void sink(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    (void)user, (void)layer;
    if (level != SHMEM_LOG_WARN)
        return;
    lines++;
    snprintf(text_seen, sizeof text_seen, "%s", text);
}

static shmem_pool_t make(shmem_context_t context, uint64_t bytes)
{
    shmem_pool_t pool = NULL;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes;
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    return pool;
}

static void use(shmem_pool_t pool)
{
    for (size_t bytes = 100; bytes < 2 * MIB; bytes *= 10) {
        void *block;
        CHECK_OK(shmem_pool_alloc(pool, bytes, &block));
        memset(block, 1, bytes);
        CHECK_OK(shmem_pool_free(pool, block));
    }
}

/* Each case in a process of its own. */
static void apart(void (*body)(void *), void *arg)
{
    CHECK_EQ(harness_wait(harness_fork(body, arg), 30), 0);
}

/* ---- locking ---- */

/* Without the right to lock as much as one likes, which root has. */
static void limit_locking(rlim_t bytes)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    struct rlimit limit = {bytes, bytes};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    CHECK(syscall(SYS_capget, &header, data) == 0);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    data[0].permitted &= ~(1u << CAP_IPC_LOCK);
    data[0].inheritable &= ~(1u << CAP_IPC_LOCK);
    CHECK(syscall(SYS_capset, &header, data) == 0);
}

static long locked_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "VmLck: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

static void limited_body(void *arg)
{
    shmem_context_t context;
    setenv("SHMEM_LOCK_PAGES", "yes", 1);
    limit_locking((rlim_t) * (int *)arg << 10);
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    CHECK_OK(shmem_context_init(&context));
    shmem_pool_t pool = make(context, 8 * MIB);
    CHECK(lines >= 1 && strstr(text_seen, "RLIMIT_MEMLOCK") && strstr(text_seen, "ulimit -l"));
    use(pool);
    CHECK(locked_kib() < 8192);
    CHECK_OK(shmem_context_finalize(context));
}

static void too_little_may_be_locked(void)
{
    static int limits[] = {0, 64};
    if (harness_has_tsan() || harness_has_asan())
        SKIP("sanitizers make mlock() do nothing");
    for (int i = 0; i < 2; i++)
        apart(limited_body, &limits[i]);
}

static void locked_body(void *arg)
{
    shmem_context_t context;
    struct rlimit limit;
    (void)arg;
    setenv("SHMEM_LOCK_PAGES", "yes", 1);
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() != 0 && limit.rlim_cur < 16 * MIB)
        exit(77);
    CHECK_OK(shmem_context_init(&context));
    shmem_pool_t pool = make(context, 8 * MIB);
    if (locked_kib() == 0)
        exit(77); /* a container without the right */
    CHECK(locked_kib() >= 8192);
    use(pool);
    CHECK_OK(shmem_context_finalize(context));
}

static void enough_may_be_locked(void)
{
    if (harness_has_tsan() || harness_has_asan())
        SKIP("sanitizers make mlock() do nothing");
    int code = harness_wait(harness_fork(locked_body, NULL), 30);
    if (code == 77)
        SKIP("this user may lock little memory");
    CHECK_EQ(code, 0);
}

/* ---- the caller's own settings ---- */

static void own_body(void *arg)
{
    unsigned long mask[16] = {1}, found[16] = {0};
    cpu_set_t one, after;
    int mode = -1;
    (void)arg;
    harness_use_processors(1);
    CHECK(sched_getaffinity(0, sizeof one, &one) == 0 && CPU_COUNT(&one) == 1);
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, 1024ul))
        exit(77);
    shmem_context_t context;
    CHECK_OK(shmem_context_init(&context));
    shmem_pool_t pool = make(context, 16 * MIB);
    use(pool);
    CHECK_OK(shmem_pool_trim(pool));
    shmem_pool_close(pool);
    CHECK_OK(shmem_context_finalize(context));
    CHECK(syscall(SYS_get_mempolicy, &mode, found, 1024ul, NULL, 0ul) == 0);
    CHECK(mode == MPOL_PREFERRED && found[0] == 1);
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&one, &after));
}

static void policy_and_affinity_stay(void)
{
    int code = harness_wait(harness_fork(own_body, NULL), 30);
    if (code == 77)
        SKIP("this kernel has no memory policies");
    CHECK_EQ(code, 0);
}

/* ---- containers ---- */

static void refused_body(void *arg)
{
    static const int calls[] = {SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy, SYS_move_pages};
    shmem_context_t context;
    uint64_t there = 7, elsewhere = 7;
    refuse_calls(calls, 4, *(int *)arg);
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    CHECK_OK(shmem_context_init(&context));
    shmem_pool_t pool = make(context, 8 * MIB);
    use(pool);
    CHECK_STATUS(shmem_pool_placement(pool, 0, &there, &elsewhere), SHMEM_ERR_UNSUPPORTED);
    CHECK(there == 7 && elsewhere == 7);
    CHECK_EQ(lines, 1); /* with one node it was the first of these calls */
    CHECK(strstr(text_seen, "the kernel refuses ") != NULL);
    CHECK_OK(shmem_context_finalize(context));
}

static void numa_calls_may_be_refused(void)
{
    static int errors[] = {EPERM, ENOSYS};
    for (int i = 0; i < 2; i++)
        apart(refused_body, &errors[i]);
}

/* ---- questions ---- */

static void placement_is_told(void)
{
    shmem_context_t context;
    uint64_t there, elsewhere, sum = 0, count;
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_context_init(&context));
    shmem_pool_t pool = make(context, 8 * MIB);
    CHECK_OK(shmem_pool_info(pool, &info));
    for (int i = 0; i < info.nodes; i++) {
        shmem_status_t status = shmem_pool_placement(pool, i, &there, &elsewhere);
        if (status == SHMEM_ERR_UNSUPPORTED)
            SKIP("this kernel does not tell where pages are");
        CHECK_EQ(status, SHMEM_OK);
        CHECK_EQ(elsewhere, 0);
        sum += there;
    }
    CHECK(sum >= 8 * MIB / 4096);
    CHECK_OK(shmem_pool_fallback(pool, 0, 0, SHMEM_POOL_WHY_FULL, &count));
    CHECK_EQ(count, 0);
    CHECK_STATUS(shmem_pool_fallback(NULL, 0, 0, SHMEM_POOL_WHY_FULL, &count), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_placement(NULL, 0, &there, &elsewhere), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_placement(pool, info.nodes, &there, &elsewhere), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_context_finalize(context));
}

static void topology_of_a_program(void)
{
    shmem_topology_t t, measured;
    shmem_topology_measure_params_t params = SHMEM_TOPOLOGY_MEASURE_PARAMS_INIT;
    CHECK_OK(shmem_topology_create(&t));
    int n = shmem_topology_nodes(t);
    CHECK(n >= 1 && shmem_topology_latency(t, 0, 0) > 0);
    CHECK(*shmem_topology_source_name(shmem_topology_latency_source(t)) != '\0');
    params.bytes = MIB;
    params.repeats = 1;
    shmem_status_t status = shmem_topology_measure(&params, &measured);
    if (status == SHMEM_ERR_UNSUPPORTED && n > 1)
        SKIP("this kernel refuses the NUMA calls");
    CHECK_EQ(status, SHMEM_OK);
    CHECK_EQ(shmem_topology_latency_source(measured), SHMEM_TOPOLOGY_MEASURED);
    CHECK_EQ(shmem_topology_nodes(measured), n);
    shmem_topology_destroy(measured);
    shmem_topology_destroy(t);
}

int main(void)
{
    RUN(too_little_may_be_locked);
    RUN(enough_may_be_locked);
    RUN(policy_and_affinity_stay);
    RUN(numa_calls_may_be_refused);
    RUN(placement_is_told);
    RUN(topology_of_a_program);
    return harness_end();
}
