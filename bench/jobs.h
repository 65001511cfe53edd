/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks of jobs: PEs as processes with a node server of their own, and the same program
 * written for OpenSHMEM, compiled and started when that is installed. */
#ifndef SHMEM_BENCH_JOBS_H
#define SHMEM_BENCH_JOBS_H

#include <shmem/shmem.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

/* A failure ends the process: a benchmark without a job has nothing to say. */
#define BENCH_OK(call)                                                                             \
    do {                                                                                           \
        shmem_status_t s_ = (call);                                                                \
        if (s_) {                                                                                  \
            fprintf(stderr, "%s: %s: %s\n", #call, shmem_status_name(s_),                          \
                    shmem_error_detail()->text);                                                   \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

typedef void bench_pe_t(shmem_context_t context, int rank, int n);

static inline void *bench_serve(void *server)
{
    shmem_server_run((shmem_server_t)server);
    return NULL;
}

static inline void bench_pe(const char *address, int rank, int n, bench_pe_t *function)
{
    shmem_context_t context;
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(rank);
    params.server = address;
    params.job = "bench";
    params.pes = n;
    params.rank = rank;
    BENCH_OK(shmem_context_init_params(&context, &params));
    function(context, rank, n);
    BENCH_OK(shmem_context_finalize(context));
    _exit(0);
}

/* Runs `function` as n PEs, each on a processor of its own as far as there are some. */
static inline int bench_job(int n, bench_pe_t *function)
{
    shmem_server_t server;
    pthread_t thread;
    int failed = 0, status;
    fflush(NULL);
    BENCH_OK(shmem_server_create(&server, NULL));
    for (int r = 0; r < n; r++)
        if (fork() == 0)
            bench_pe(shmem_server_address(server), r, n, function);
    pthread_create(&thread, NULL, bench_serve, server);
    for (int r = 0; r < n; r++) {
        wait(&status);
        failed |= status;
    }
    shmem_server_stop(server);
    pthread_join(thread, NULL);
    shmem_server_destroy(server);
    return failed ? 1 : 0;
}

/* Compiles bench/peer/<name>.c, which lies beside this file, with oshcc and runs it with n PEs; it
 * prints its results itself. */
static inline void bench_oshmem(const char *bench, const char *name, int n)
{
    char directory[] = "/tmp/shmem-bench-XXXXXX", folder[512], command[2048], what[32];
    snprintf(folder, sizeof folder, "%s", __FILE__);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    snprintf(what, sizeof what, "%d PEs", n);
    fflush(NULL);
    if (system("command -v oshcc > /dev/null && command -v oshrun > /dev/null") != 0) {
        bench_missing(bench, what, "oshmem", "oshcc and oshrun are not installed");
        return;
    }
    if (!mkdtemp(directory))
        return;
    snprintf(command, sizeof command,
             "cd %s && oshcc -O2 -D_GNU_SOURCE -I%s -o peer %s/peer/%s.c > log 2>&1 && "
             "timeout 120 oshrun --allow-run-as-root --oversubscribe --bind-to none "
             "--mca btl_base_warn_component_unused 0 -n %d ./peer 2> log | grep '^{'",
             directory, folder, folder, name, n);
    if (system(command) != 0)
        bench_missing(bench, what, "oshmem", "it did not compile or run");
    fflush(NULL);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    if (system(command) != 0)
        fprintf(stderr, "%s stays behind\n", directory);
}

#endif
