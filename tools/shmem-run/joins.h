/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes have joined and left, as the job's node server tells it; so that a PE that ends
 * with 0 and leaves the others waiting is found long before their patience ends:
 *
 *   never joined           the others wait in shmem_init()
 *   joined, did not leave  ended without shmem_finalize(): the others get SHMEM_ERR_PEER_DEAD
 *
 * The events come from the server's thread.
 *   Invariant: of the records of one slot only the last may be open.
 *
 * That a PE never joined is known by its process number, so not of one that runs the program as a
 * child of its own (a script). That others are still there then gives a hint: leaving is
 * collective, so when a PE that had joined ends properly, the others are gone soon, too.
 */
#ifndef RUN_JOINS_H
#define RUN_JOINS_H

#include <pthread.h>
#include <shmem/server.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum run_client_state {
    RUN_CLIENT_OPEN,
    RUN_CLIENT_LEFT,
    RUN_CLIENT_DIED
} run_client_state_t;

typedef struct run_client {
    uint32_t slot;
    pid_t pid;
    run_client_state_t state;
} run_client_t;

typedef struct run_joins {
    pthread_mutex_t lock; /* of the records */
    run_client_t *clients;
    size_t count, capacity;
    size_t in_state[3]; /* number of records in each state */
    int wake;           /* eventfd: a client has gone */

    int rank;          /* of the first PE that ended with 0 and had not joined, -1: none so far */
    int64_t next, gap; /* ns: time of the next look (0: no more), and how long after the last */
    bool suspected;    /* by the last look */
} run_joins_t;

/* 0 or -1. */
int run_joins_init(run_joins_t *joins);
/* The observer of the server, `user` is a run_joins_t. */
void run_joins_event(void *user, shmem_server_event_t event, uint32_t client, int pid);
/* The server's thread has ended. */
void run_joins_fini(run_joins_t *joins);

/* Does a context of process `pid` have this state? */
bool run_joins_has(run_joins_t *joins, pid_t pid, run_client_state_t state);
/* Has it made none at all? */
bool run_joins_none(run_joins_t *joins, pid_t pid);

/* PE `rank` ended with 0 without having joined while others run. */
void run_joins_ended(run_joins_t *joins, int rank, int64_t now);
/* The time of the next look has come. True: once, when others are there, surely enough. */
bool run_joins_look(run_joins_t *joins, int64_t now);

#endif
