/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node server as a library: what `shmemd` and `shmem-run` contain.
 *
 * It creates segments, checks rights, passes descriptors over a Unix socket, and learns from the
 * kernel when a client ends; then it repairs what the client held. Data never passes through it.
 */
#ifndef SHMEM_SERVER_H
#define SHMEM_SERVER_H

#include <shmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shmem_server *shmem_server_t;

/* What a server tells about its clients. */
typedef enum shmem_server_event {
    SHMEM_SERVER_ATTACHED = 0, /* a client came */
    SHMEM_SERVER_DETACHED,     /* it said goodbye */
    SHMEM_SERVER_DIED,         /* its process ended without a goodbye; it is repaired next */
    SHMEM_SERVER_TAKEN_OVER    /* this is another process from now on, of this pid (see params,
                                  takeover); `client` is 0 */
} shmem_server_event_t;

/* `client` is the client's slot, used again after its end; `pid` its process as the server sees it,
 * 0 if it cannot. Called by shmem_server_run(); must not block nor call the server. What a server
 * reports that is killed at that moment may come again from its successor (DETACHED), or not at all
 * (ATTACHED, DIED): count with `shmem-info`, not with events. What the function keeps in memory of
 * its own goes back, in a successor, to what it was when the keeper was made. */
typedef void (*shmem_server_observer_t)(void *user, shmem_server_event_t event, uint32_t client,
                                        int pid);

typedef struct shmem_server_params {
    size_t size;             /* sizeof(shmem_server_params_t) */
    const char *address;     /* path, or @name in the abstract namespace; NULL: a name of its own,
                                see shmem_server_address() */
    int exit_when_unused;    /* end shmem_server_run() when the last client has gone */
    int64_t first_client_ns; /* then: how long to wait for a first client; 0: 10 s */
    shmem_server_observer_t observer; /* or NULL */
    void *observer_user;
    int all_users; /* 1: serve every user, not only the own one and root. Wants to run as root, to
                      give each segment to its user */
    int takeover; /* 1: have a second process, the keeper, while shmem_server_run() runs. Should the
                     server be killed, the keeper starts its successor, which returns from the same
                     call in its place; clients notice nothing. Only for a process of one thread
                     that does nothing else: both share all its descriptors, and the successor
                     closes those above 2 that are not the server's */
} shmem_server_params_t;
#define SHMEM_SERVER_PARAMS_INIT                                                                   \
    {                                                                                              \
        sizeof(shmem_server_params_t), 0, 0, 0, 0, 0, 0, 0                                         \
    }

/*
 * Open the socket and create the roster. A stale socket file is taken over, a live server
 * respected. Errors: EXISTS (a server listens there), INVALID, ACCESS (also: all_users, and not
 * root), SETTING (a SHMEM_* variable is bad), ADDRESS_TAKEN (the unified address range), NOMEM,
 * LIMIT, SYSTEM.
 */
SHMEM_API shmem_status_t shmem_server_create(shmem_server_t *server,
                                             const shmem_server_params_t *params);

/* The address that clients connect to (for SHMEM_SERVER). Valid while the server lives. */
SHMEM_API const char *shmem_server_address(shmem_server_t server);

/* Serve until shmem_server_stop(), or until unused (see params). Blocks; one thread at a time. */
SHMEM_API shmem_status_t shmem_server_run(shmem_server_t server);

/* Make shmem_server_run() return soon; while nobody runs it, the next call returns at once.
 * Callable from any thread and from signal handlers. */
SHMEM_API void shmem_server_stop(shmem_server_t server);

/* Close everything; clients keep what they have mapped. NULL is accepted. */
SHMEM_API void shmem_server_destroy(shmem_server_t server);

#ifdef __cplusplus
}
#endif
#endif
