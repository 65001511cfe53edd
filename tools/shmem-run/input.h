/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our terminal to rank 0's standard input. Only used when standard input is a terminal and the job
 * has several PEs; files and pipes are inherited by rank 0 directly.
 *   Invariant: the terminal is read only while nothing waits to be written.
 */
#ifndef RUN_INPUT_H
#define RUN_INPUT_H

#include <poll.h>
#include <stddef.h>

typedef struct run_input {
    int fd; /* write end of rank 0's standard input, -1: closed or not used */
    size_t start, end;
    char data[4096];
} run_input_t;

/* The two descriptors to wait for; fd -1 where there is nothing to wait for. */
void run_input_poll(const run_input_t *input, struct pollfd polls[2]);
/* Act on what poll() found. */
void run_input_move(run_input_t *input, const struct pollfd polls[2]);
void run_input_close(run_input_t *input);

#endif
