/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting the processes of a job.
 *
 * All PEs are in one process group, led by a guard: a process that does nothing but wait for our
 * end of a pipe to close, and kills the group then. So nothing of the job survives shmem-run,
 * whatever kills it, and the group's number cannot be reused while we signal it. Each PE also asks
 * the kernel to be killed when we die (it may have left the group).
 *
 * A single PE on a terminal stays in our own group instead, so that it can use the terminal.
 */
#ifndef RUN_LAUNCH_H
#define RUN_LAUNCH_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "input.h"
#include "options.h"
#include "output.h"

typedef struct run_pe {
    pid_t pid;       /* 0: ended and reaped, or never started */
    pid_t process;   /* the same, but kept; 0: never started */
    bool ended_well; /* with exit code 0 */
    run_stream_t out, err;
} run_pe_t;

/* What a child gets back as it was before we changed it for ourselves. */
typedef struct run_inherit {
    sigset_t mask;
    struct sigaction pipe_action, size_action; /* of SIGPIPE, SIGXFSZ */
    struct rlimit files, file_size;
} run_inherit_t;

typedef struct run_launch {
    const run_options_t *options;
    const char *server, *job; /* for SHMEM_SERVER, SHMEM_JOB */
    run_inherit_t inherit;
    run_output_t *output;
    run_pe_t *pes;
    pid_t group; /* the guard; 0: no group of its own */
    int guard_pipe;
    run_input_t input;
} run_launch_t;

/* Start the guard and all PEs, and see each of them execute the program. 0, or the code to exit
 * with after saying why; the PEs that run then are the caller's to end. */
int run_launch_start(run_launch_t *launch);

/* Send a signal to the whole job, or only to the PEs themselves. */
void run_launch_signal(run_launch_t *launch, int number);
void run_launch_signal_pes(run_launch_t *launch, int number);

/* Kill what is left in the group, and the guard. All PEs have been reaped. */
void run_launch_end(run_launch_t *launch);

#endif
