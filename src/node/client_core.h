/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client object and its parts.
 *
 *     client.c   attach, detach               request.c  one request and its answer
 *     parts.c    segments, counts             private.c  finding or starting the private server
 *     spawn.c    starting a program that is not our child
 *
 * Descriptors are remembered with the identity of their file: a program that closes all descriptors
 * it doesn't know (closefrom) may have given their numbers to files of its own, which must be
 * neither written to nor closed.
 */
#ifndef SHMEMI_NODE_CLIENT_CORE_H
#define SHMEMI_NODE_CLIENT_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "node/client.h"
#include "node/wire.h"
#include "os/clock.h"

#define SHMEMI_REQUEST_NS     30000000000 /* how long a request may take, its bytes not counted */
#define SHMEMI_LEAST_HELLO_NS 250000000   /* and a hello at least, however short the patience */

typedef struct shmemi_handle {
    int fd;
    dev_t dev;
    ino_t ino;
} shmemi_handle_t;

typedef struct shmemi_opened {
    struct shmemi_opened *next;
    uint64_t id;
    shmemi_handle_t handle;
} shmemi_opened_t;

enum { SHMEMI_STRAYS = 16 };

struct shmemi_client {
    pthread_mutex_t lock; /* one request at a time; guards all but handles, roster, actor */
    shmemi_handle_t socket, roster_handle;
    shmemi_roster_t *roster;
    shmemi_actor_t actor;
    shmemi_opened_t *opened;
    uint32_t sequence, answered; /* of the last request, and of the last answer to one */
    unsigned strays;             /* segments that late answers opened: to be closed */
    uint64_t stray[SHMEMI_STRAYS];
    unsigned fork_generation;
    atomic_bool lost;
    char address[108];
};

/* ---- request.c ---- */

shmem_status_t shmemi_handle_init(shmemi_handle_t *handle, int fd);
bool shmemi_handle_is_ours(const shmemi_handle_t *handle);
/* Close it if it is still ours. */
void shmemi_handle_close(shmemi_handle_t *handle);

/*
 * Send `message` (begun, sequence filled in here) and receive its answer into the same place. The
 * answer's type is checked against `wanted` (for WELCOME, HELLO_AGAIN is an answer, too); *fd
 * (may be NULL) takes its one descriptor, else -1. Errors: what the server answered, with its
 * sentence; SERVER_LOST, TIMEOUT, PROTOCOL.
 */
shmem_status_t shmemi_client_request(shmemi_client_t *client, shmemi_wire_message_t *message,
                                     shmemi_wire_type_t wanted, int *fd,
                                     shmemi_deadline_t deadline);

/* STATE in a forked child of the process that attached. */
shmem_status_t shmemi_client_check(const shmemi_client_t *client);

/* ---- client.c ---- */

/* Connect to client->address and check who listens there. NO_SERVER (quiet), ACCESS. */
shmem_status_t shmemi_client_connect(shmemi_client_t *client);
/* Say hello and map the roster. SERVER_LOST: the server ended meanwhile. TIMEOUT: no answer within
 * settings->init_timeout. */
shmem_status_t shmemi_client_hello(shmemi_client_t *client, const char *name,
                                   const shmemi_settings_t *settings);
/* The program's patience (settings->init_timeout), but not less than `least`, which is enough for a
 * server that runs, and not for ever. */
int64_t shmemi_client_patience(const shmemi_settings_t *settings, int64_t least, int64_t most);
/* Undo connect, so that it can be tried again. */
void shmemi_client_disconnect(shmemi_client_t *client);

/* ---- private.c ---- */

/* Attach to the private server of this user, starting it if none runs. */
shmem_status_t shmemi_private_attach(shmemi_client_t *client, const shmemi_settings_t *settings,
                                     const char *name);

/* ---- spawn.c ---- */

enum { SHMEMI_SPAWN_FD = 3 }; /* in the program: the writing end of the readiness pipe */

/*
 * Run `program` with `argv` and the caller's environment, as a process that is not our child. It
 * keeps descriptors 0 to 2 and has the writing end of a pipe as SHMEMI_SPAWN_FD; *ready is the
 * reading end. All signals are blocked in it. An exec that failed shows as "!" and the errno (int)
 * in the pipe.
 */
shmem_status_t shmemi_spawn(const char *program, char *const argv[], int *ready);

#endif
