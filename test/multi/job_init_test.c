/* SPDX-License-Identifier: Apache-2.0 */
/* Joining and leaving: every error, repeats, several contexts at once, forks, late and missing PEs.
 */
#include "job.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "job/context.h"

static void says(const char *part)
{
    if (!strstr(shmem_error_detail()->text, part))
        harness_fail(__FILE__, __LINE__, "'%s' is not in: %s", part, shmem_error_detail()->text);
}

static shmem_status_t with(shmem_context_t *c, const char *server, const char *job, int rank, int n)
{
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    params.server = server;
    params.job = job;
    params.rank = rank;
    params.pes = n;
    params.timeout = 100000000;
    return shmem_context_init_params(c, &params);
}

static void bad_parameters(void)
{
    shmem_context_t mark = (shmem_context_t)(void *)&mark, c = mark;
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    const char *server = job_server.address;
    char name[300];
    CHECK_STATUS(shmem_context_init_params(NULL, NULL), SHMEM_ERR_INVALID);
    params.size = 3;
    CHECK_STATUS(shmem_context_init_params(&c, &params), SHMEM_ERR_INVALID);
    CHECK_STATUS(with(&c, server, "x", 2, 2), SHMEM_ERR_INVALID);
    CHECK_STATUS(with(&c, server, "x", -1, 2), SHMEM_ERR_INVALID);
    CHECK_STATUS(with(&c, server, "x", 0, -2), SHMEM_ERR_INVALID);
    CHECK_STATUS(with(&c, server, "x", 0, 5000), SHMEM_ERR_LIMIT);
    CHECK_STATUS(with(&c, server, NULL, 0, 2), SHMEM_ERR_INVALID);
    says("SHMEM_JOB");
    CHECK_STATUS(with(&c, server, "", 0, 2), SHMEM_ERR_INVALID);
    CHECK_STATUS(with(&c, server, "a/b", 0, 2), SHMEM_ERR_INVALID);
    CHECK_STATUS(with(&c, server, "a b", 0, 2), SHMEM_ERR_INVALID);
    memset(name, 'n', sizeof name);
    name[64] = 0;
    CHECK_STATUS(with(&c, server, name, 0, 2), SHMEM_ERR_INVALID);
    name[64] = 'n';
    name[299] = 0;
    CHECK_STATUS(with(&c, name, "x", 0, 2), SHMEM_ERR_INVALID);
    CHECK_STATUS(with(&c, "@nobody-listens-here", "x", 0, 1), SHMEM_ERR_NO_SERVER);
    CHECK(c == mark);
    CHECK_EQ(shmem_context_rank(NULL), -1);
    CHECK_EQ(shmem_context_size(NULL), -1);
}

static void environment(void *arg)
{
    (void)arg;
    shmem_context_t c;
    setenv("SHMEM_SERVER", job_server.address, 1);
    setenv("SHMEM_RANK", "-1", 1);
    CHECK_STATUS(shmem_context_init(&c), SHMEM_ERR_SETTING);
    says("SHMEM_RANK");
    setenv("SHMEM_RANK", "3", 1);
    setenv("SHMEM_SIZE", "3", 1);
    setenv("SHMEM_JOB", "environment", 1);
    CHECK_STATUS(shmem_context_init(&c), SHMEM_ERR_INVALID);
    setenv("SHMEM_RANK", "2", 1);
    setenv("SHMEM_INIT_TIMEOUT", "100ms", 1);
    CHECK_STATUS(shmem_context_init(&c), SHMEM_ERR_TIMEOUT);
    says("0, 1");
    says("environment");
    setenv("SHMEM_SIZE", "1", 1);
    setenv("SHMEM_RANK", "0", 1);
    CHECK_OK(shmem_context_init(&c));
    CHECK_EQ(shmem_context_size(c), 1);
    CHECK_OK(shmem_context_finalize(c));
}

static void environment_is_read(void)
{
    CHECK_EQ(harness_wait(harness_fork(environment, NULL), 10), 0);
}

static void missing(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c;
    double begin = harness_now();
    if (rank == 2)
        return;
    CHECK_STATUS(job_try_init(&c, "missing", rank, n, 0.3), SHMEM_ERR_TIMEOUT);
    CHECK(harness_now() - begin > 0.25 && harness_now() - begin < 3);
    says("2");
    says("missing");
}

static void missing_ranks_are_named(void)
{
    harness_pes(4, HARNESS_PROC, 10, missing, NULL);
}

/* The same name works again after a start that failed. */
static void second_try(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c;
    shmem_status_t status = SHMEM_OK;
    if (rank != 1)
        status = job_try_init(&c, "second", rank, n, 0.1);
    CHECK(status == SHMEM_OK || status == SHMEM_ERR_TIMEOUT || status == SHMEM_ERR_STATE);
    harness_sleep(0.3);
    c = job_init("second", rank, n);
    CHECK_OK(shmem_context_barrier(c));
    CHECK_OK(shmem_context_finalize(c));
}

static void a_failed_start_can_be_repeated(void)
{
    harness_pes(3, HARNESS_PROC, 10, second_try, NULL);
}

static void sizes(int rank, int n, void *arg)
{
    (void)n;
    shmem_context_t c;
    if (rank == 2) {
        harness_sleep(0.1);
        CHECK_STATUS(with(&c, job_server.address, "sizes", 0, 5), SHMEM_ERR_MISMATCH);
        says("PE 0 of 5");
        says("one of 2");
        CHECK_STATUS(with(&c, job_server.address, "sizes", 1, 2), SHMEM_ERR_MISMATCH);
        says(arg ? "rank 1 of job 'sizes' is taken, by process " : "this process is PE 1 of job");
        return;
    }
    c = job_init("sizes", rank, 2);
    harness_sleep(0.3);
    CHECK_OK(shmem_context_finalize(c));
}

static void sizes_and_ranks_must_agree(void)
{
    static char processes[] = "processes";
    harness_pes(3, HARNESS_PROC, 10, sizes, processes);
    harness_pes(3, HARNESS_THREAD, 10, sizes, NULL);
}

/* One process, three contexts: alone, PE of one job, PE of another with another rank. */
static void several(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t alone = NULL, a, b;
    shmem_memory_t ma, mb, m1;
    CHECK_OK(job_try_init(&alone, NULL, 0, 1, 1));
    a = job_init("several-a", rank, n);
    b = job_init("several-b", n - 1 - rank, n);
    CHECK_OK(shmem_memory_create(alone, &m1, 5000));
    CHECK_OK(shmem_memory_create(a, &ma, 3 << 20));
    CHECK_OK(shmem_memory_create(b, &mb, 5000));
    CHECK(shmem_memory_map(m1) && shmem_memory_map(ma) && shmem_memory_map(mb));
    uint64_t value = (uint64_t)rank;
    CHECK_OK(shmem_memory_put(ma, (rank + 1) % n, 0, &value, 8));
    CHECK_OK(shmem_context_barrier(a));
    CHECK_OK(shmem_memory_put(mb, n - 1 - (rank + 1) % n, 0, &value, 8));
    CHECK_OK(shmem_context_barrier(b));
    uint64_t got_a = *(uint64_t *)shmem_memory_address(ma, rank);
    uint64_t got_b = *(uint64_t *)shmem_memory_address(mb, n - 1 - rank);
    CHECK_EQ(got_a, (rank + n - 1) % n);
    CHECK_EQ(got_a, got_b);
    CHECK_OK(shmem_context_finalize(a));
    CHECK_OK(shmem_context_barrier(alone));
    CHECK_OK(shmem_context_barrier(b));
    CHECK_OK(shmem_context_finalize(alone));
    CHECK_OK(shmem_context_finalize(b));
}

static void several_contexts_at_once(void)
{
    JOB_BOTH(3, 20, several, NULL);
}

static int descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1000; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int own_mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    int n = 0;
    while (fgets(line, sizeof line, f))
        n += strstr(line, "memfd:") != NULL;
    fclose(f);
    return n;
}

static void fifty(int rank, int n, void *arg)
{
    (void)arg;
    int fds = 0, maps = 0;
    for (int i = 0; i < 50; i++) {
        shmem_context_t c = job_init("fifty", rank, n);
        shmem_memory_t m;
        CHECK_OK(shmem_memory_create(c, &m, 10000));
        CHECK(shmem_memory_map(m));
        if (i % 2)
            CHECK_OK(shmem_memory_destroy(m)); /* otherwise the end of the context does it */
        CHECK_OK(shmem_context_finalize(c));
        if (i == 1) {
            fds = descriptors();
            maps = own_mappings();
        }
    }
    CHECK_EQ(descriptors(), fds);
    CHECK_EQ(own_mappings(), maps);
}

static void fifty_jobs_leave_nothing(void)
{
    harness_pes(4, HARNESS_PROC, 20, fifty, NULL);
    harness_pes(1, HARNESS_PROC, 20, fifty, NULL);
}

static shmem_context_t parents;
static shmem_memory_t parents_memory;

static void child(void *arg)
{
    (void)arg;
    char byte = 1;
    shmem_memory_t m;
    void *address = shmem_memory_address(parents_memory, shmem_context_rank(parents));
    CHECK_STATUS(shmem_context_barrier(parents), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_memory_create(parents, &m, 4096), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_memory_put(parents_memory, 0, 0, &byte, 1), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_memory_wait(parents_memory, 0, SHMEM_COMPARE_EQ, 0, 0, NULL),
                 SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_memory_unmap(address), SHMEM_ERR_STATE);
    CHECK(shmem_memory_map(parents_memory) == NULL);
    CHECK_STATUS(shmem_coll_broadcast(parents, &byte, 1, 0), SHMEM_ERR_STATE);
    shmem_context_t own = NULL;
    CHECK_OK(job_try_init(&own, NULL, 0, 1, 1)); /* a context of its own */
    CHECK_OK(shmem_context_barrier(own));
    CHECK_OK(shmem_context_finalize(own));
    CHECK_STATUS(shmem_context_finalize(parents), SHMEM_ERR_STATE);
}

static void forker(int rank, int n, void *arg)
{
    (void)arg;
    parents = job_init("forker", rank, n);
    CHECK_OK(shmem_memory_create(parents, &parents_memory, 4096));
    CHECK(shmem_memory_map(parents_memory));
    CHECK_EQ(harness_wait(harness_fork(child, NULL), 10), 0);
    CHECK_OK(shmem_context_barrier(parents)); /* the child's end did not harm the parent */
    CHECK_OK(shmem_context_finalize(parents));
}

static void forked_children_are_refused(void)
{
    harness_pes(2, HARNESS_PROC, 20, forker, NULL);
}

static void timed(int rank, int n, void *arg)
{
    atomic_int *gave_up = arg;
    shmem_context_t c = job_init("timed", rank, n);
    CHECK_OK(shmem_context_barrier_timed(c, 5000000000));
    if (rank == 0) {
        double begin = harness_now();
        CHECK_STATUS(shmem_context_barrier_timed(c, 50000000), SHMEM_ERR_TIMEOUT);
        CHECK(harness_now() - begin > 0.04);
        says("PE 1");
        atomic_store(gave_up, 1);
        CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_STATE);
        CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_STATE);
        return;
    }
    while (!atomic_load(gave_up))
        harness_sleep(0.001);
    shmem_status_t status = shmem_context_barrier(c); /* PE 0 did come to this one */
    CHECK(status == SHMEM_OK || status == SHMEM_ERR_STATE);
    if (!status) {
        CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_STATE); /* but not to this one */
        says("PE 0");
    }
    CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_STATE);
}

static void a_timed_barrier_ends(void)
{
    atomic_int *gave_up = harness_shared(sizeof *gave_up);
    for (int mode = HARNESS_PROC; mode <= HARNESS_THREAD; mode++)
        for (int n = 2; n <= 3; n++) {
            atomic_store(gave_up, 0);
            harness_pes(n, (harness_mode_t)mode, 20, timed, gave_up);
        }
}

/* Faults while joining: an error, and nothing of the job stays. */
static void faults_while_joining(void)
{
    static const char *const points[] = {"job.control.reserve", "os.segment.reserve",
                                         "sync.actor.row"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        shmem_context_t c = NULL;
        int fds = descriptors(), maps = own_mappings();
        for (unsigned n = 1;; n++) {
            shmemi_fault_arm(points[i], SHMEMI_FAULT_FAIL, n);
            shmem_status_t status = job_try_init(&c, "faults", 0, 1, 1);
            unsigned passages = shmemi_fault_passages();
            shmemi_fault_disarm();
            CHECK(i != 0 || n != 1 || passages == 1);
            if (!status)
                break;
            CHECK(c == NULL && descriptors() == fds && own_mappings() == maps);
        }
        CHECK_OK(shmem_context_finalize(c));
    }
}

static void *collective_in_thread(void *arg)
{
    return (void *)(intptr_t)shmem_context_barrier((shmem_context_t)arg);
}

static void two_threads(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("two-threads", rank, n);
    if (rank == 0) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, collective_in_thread, c) == 0);
        harness_sleep(0.1);
        CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_STATE);
        CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_STATE);
        CHECK(pthread_join(thread, &result) == 0 && result == NULL);
    } else {
        harness_sleep(0.3);
        CHECK_OK(shmem_context_barrier(c));
    }
    CHECK_OK(shmem_context_finalize(c));
}

static void one_collective_at_a_time(void)
{
    harness_pes(2, HARNESS_PROC, 10, two_threads, NULL);
}

JOB_MAIN({
    RUN(bad_parameters);
    RUN(environment_is_read);
    RUN(missing_ranks_are_named);
    RUN(a_failed_start_can_be_repeated);
    RUN(sizes_and_ranks_must_agree);
    RUN(several_contexts_at_once);
    RUN(fifty_jobs_leave_nothing);
    RUN(forked_children_are_refused);
    RUN(a_timed_barrier_ends);
    RUN(faults_while_joining);
    RUN(one_collective_at_a_time);
})
