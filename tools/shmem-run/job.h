/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a job: output, ends of PEs, signals, time limits.
 *
 *   running --first failure, timeout, our own error--> ending: SIGTERM to all, after the grace time
 *   SIGKILL. The exit code is decided once, by the first failure.
 *   Invariant: living is the number of PEs with pid != 0.
 */
#ifndef RUN_JOB_H
#define RUN_JOB_H

#include <shmem/server.h>

#include "joins.h"
#include "launch.h"

typedef struct run_job {
    const run_options_t *options;
    run_output_t output;
    run_launch_t launch;
    shmem_server_t server;
    int signals;     /* signalfd of all signals in run_job_signals() */
    int server_ends; /* eventfd: readable when the server's thread has returned */
    int living, exit_code, interrupts;
    bool ending, killed;
    int64_t deadline, kill_at; /* ns, monotonic; 0: none */
    int64_t farewell_by;       /* then nobody waits any more for the server to hear of ends */
    run_joins_t joins;
    struct pollfd *polls;
    run_stream_t **polled; /* polled[i]: the stream of polls[i] */
} run_job_t;

int64_t run_now(void);

/* Run a started job to its end; returns the exit code of shmem-run. */
int run_job_loop(run_job_t *job);

/* End the job with this exit code, unless it is being ended already. */
void run_job_fail(run_job_t *job, int exit_code);

/* events.c: the signals we take through the descriptor, and what we do about those that came. */
void run_job_signals(sigset_t *set);
void run_job_take_signals(run_job_t *job);
/* events.c: reap PEs that have ended; the first failure ends the job. */
void run_job_reap(run_job_t *job);
/* events.c: end the job if a PE ended with 0 but without leaving it. */
void run_job_look_for_deserters(run_job_t *job);
/* events.c: a PE ended without joining, and others are there. */
void run_job_never_joined(run_job_t *job);

#endif
