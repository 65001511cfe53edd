/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of shmem-run. */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RUN_PES_MAX = 4095,     /* the clients that one node server can have */
    RUN_EXIT_TIMEOUT = 124, /* exit codes of our own, as of timeout(1) and env(1) */
    RUN_EXIT_FAILED = 125,
    RUN_EXIT_NOT_RUNNABLE = 126,
    RUN_EXIT_NOT_FOUND = 127
};

typedef struct run_options {
    int pes;
    bool tag, bind, verbose;
    int64_t timeout_ns; /* 0: no limit */
    int64_t grace_ns;   /* between SIGTERM and SIGKILL */
    char **argv;        /* the program and its arguments, NULL-terminated */
} run_options_t;

/* Returns -1 when there is a job to run, else the code to exit with (a text has been printed). */
int run_options_parse(int argc, char **argv, run_options_t *options);

#endif
