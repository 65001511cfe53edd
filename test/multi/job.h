/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of jobs share: a node server in a process of its own, and PEs that join a job. */
#ifndef SHMEM_TEST_JOB_H
#define SHMEM_TEST_JOB_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "shmem/shmem.h"

typedef struct job_server {
    pid_t pid;
    char address[108];
} job_server_t;

static inline job_server_t job_server_start_for(int all_users)
{
    job_server_t s = {0, ""};
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    s.pid = fork();
    CHECK(s.pid >= 0);
    if (s.pid == 0) {
        shmem_server_t server;
        shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
        params.all_users = all_users;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        CHECK_OK(shmem_server_create(&server, &params));
        const char *address = shmem_server_address(server);
        CHECK(write(ends[1], address, strlen(address)) > 0);
        close(ends[1]);
        shmem_server_run(server);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], s.address, sizeof s.address - 1);
    CHECK(n > 0);
    close(ends[0]);
    return s;
}

static inline job_server_t job_server_start(void)
{
    return job_server_start_for(0);
}

static inline void job_server_stop(job_server_t *s)
{
    kill(s->pid, SIGKILL);
    harness_wait(s->pid, 10);
}

/* The server that all cases of a program use. */
static job_server_t job_server;

static inline shmem_status_t job_try_init(shmem_context_t *context, const char *job, int rank,
                                          int n, double seconds)
{
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    params.server = job_server.address;
    params.job = job;
    params.rank = rank;
    params.pes = n;
    params.timeout = (int64_t)(seconds * 1e9);
    return shmem_context_init_params(context, &params);
}

static inline shmem_context_t job_init(const char *job, int rank, int n)
{
    shmem_context_t context;
    CHECK_OK(job_try_init(&context, job, rank, n, 20));
    CHECK_EQ(shmem_context_rank(context), rank);
    CHECK_EQ(shmem_context_size(context), n);
    return context;
}

/* Both ways of running PEs; as threads only where PEs must not die. */
#define JOB_BOTH(n, seconds, function, arg)                                                        \
    do {                                                                                           \
        harness_pes(n, HARNESS_PROC, seconds, function, arg);                                      \
        harness_pes(n, HARNESS_THREAD, seconds, function, arg);                                    \
    } while (0)

/* Runs n PEs as processes, of which `victim` must end by SIGKILL and all others well. */
static inline void job_with_death(int n, int victim, double seconds,
                                  void (*function)(int, int, void *), void *arg)
{
    pid_t pids[32];
    CHECK(n <= 32);
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        CHECK(pids[r] >= 0);
        if (pids[r] == 0) {
            function(r, n, arg);
            exit(0);
        }
    }
    for (int r = 0; r < n; r++)
        if (harness_wait(pids[r], seconds) != (r == victim ? -SIGKILL : 0))
            harness_fail(__FILE__, __LINE__, "PE %d of %d, victim %d, did not end as it should", r,
                         n, victim);
}

#define JOB_MAIN(body)                                                                             \
    int main(void)                                                                                 \
    {                                                                                              \
        job_server = job_server_start();                                                           \
        body;                                                                                      \
        job_server_stop(&job_server);                                                              \
        return harness_end();                                                                      \
    }

#endif
