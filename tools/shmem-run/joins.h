/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A PE that ends with 0 without ever joining the job keeps the others waiting in shmem_init(): say
 * so long before that times out. The typical cause is a program of which some copies do not call
 * it.
 *
 * How it is known: leaving a job is collective, so when a PE that had joined ends properly, the
 * others leave the node server, too. If they are still there a while later, they wait for it.
 * It is a remark, never a reason to end the job.
 */
#ifndef RUN_JOINS_H
#define RUN_JOINS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct run_joins {
    int rank;          /* of the first PE that ended with 0, -1: none so far */
    int64_t next, gap; /* ns: time of the next look (0: no more), and how long after the last */
    bool suspected;    /* by the last look */
} run_joins_t;

void run_joins_init(run_joins_t *joins);
/* PE `rank` ended with 0 while others run. */
void run_joins_ended(run_joins_t *joins, int rank, int64_t now);
/* The time of the next look has come. True: once, when `joins->rank` has not joined, surely enough.
 */
bool run_joins_look(run_joins_t *joins, const char *server, int64_t now);

#endif
