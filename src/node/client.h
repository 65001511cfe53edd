/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of the node server: attach, segments, detach.
 *
 * A client holds one connection, its slot in the roster (mapped), and one descriptor per open
 * segment (close-on-exec). Requests are answered in order; a lock serializes the threads of a
 * client. Each request has a deadline; a server that went away gives SHMEM_ERR_SERVER_LOST, while
 * everything that is mapped keeps working.
 */
#ifndef SHMEMI_NODE_CLIENT_H
#define SHMEMI_NODE_CLIENT_H

#include "base/settings.h"
#include "sync/roster.h"

typedef struct shmemi_client shmemi_client_t;

/* Attach to settings->server, or to the user's private server, starting it if none runs.
 * The server has settings->init_timeout to answer (negative: as long as any request). `name` is
 * shown by tools. Errors: NO_SERVER, VERSION, ACCESS, LIMIT, ADDRESS_TAKEN, PROTOCOL, TIMEOUT. */
shmem_status_t shmemi_client_attach(const shmemi_settings_t *settings, const char *name,
                                    shmemi_client_t **client);

/* Say goodbye (nothing is repaired, it must hold nothing), unmap, close. NULL is accepted. In a
 * forked child it closes the copies without a word to the server. */
void shmemi_client_detach(shmemi_client_t *client);

shmemi_actor_t *shmemi_client_actor(shmemi_client_t *client);
/* The server is known to be gone (seen by the last request or by a poll of the socket). */
bool shmemi_client_server_lost(shmemi_client_t *client);

typedef enum shmemi_segment_kind {
    SHMEMI_SEGMENT_PLAIN = 0,
    SHMEMI_SEGMENT_POOL = 1 /* the server maps it and gives back blocks of dead clients */
} shmemi_segment_kind_t;

enum { SHMEMI_NAME_MAX = 127 }; /* bytes of a segment name without the NUL */

typedef struct shmemi_segment_request {
    const char *name; /* unique among live segments of the server; NULL: anonymous */
    uint64_t bytes;
    shmemi_segment_kind_t kind;
    int huge;          /* SHMEMI_HUGE_* */
    int reserve;       /* 1: the server reserves all pages; 0: the clients reserve their parts */
    int open_existing; /* a segment of that name and size is opened instead of EXISTS;
                          other size or kind: MISMATCH */
} shmemi_segment_request_t;

typedef struct shmemi_segment {
    uint64_t id;     /* never reused while the server lives */
    uint64_t offset; /* of its place in the unified range */
    uint64_t bytes;
    uint64_t page_bytes;
    int fd;       /* owned by the client object, closed by ..._close */
    bool created; /* this call made it */
} shmemi_segment_t;

/*
 * Create or open a segment. It exists while at least one client has it open (a client that ends
 * has closed it). Not mapped by this: use shmemi_space_map(). Rights: the creator's user (and
 * root). Errors: INVALID (name), EXISTS, NOT_FOUND (open), MISMATCH, ACCESS, NOMEM, LIMIT,
 * SERVER_LOST.
 */
shmem_status_t shmemi_client_segment_create(shmemi_client_t *client,
                                            const shmemi_segment_request_t *request,
                                            shmemi_segment_t *segment);
shmem_status_t shmemi_client_segment_open(shmemi_client_t *client, const char *name,
                                          shmemi_segment_t *segment);
void shmemi_client_segment_close(shmemi_client_t *client, shmemi_segment_t *segment);

/* What the server counts, for tools and tests. */
typedef struct shmemi_server_counts {
    uint64_t clients;  /* attached, suspects included */
    uint64_t suspects; /* connection gone, process alive */
    uint64_t segments, segment_bytes;
    uint64_t deaths;           /* clients that ended without a goodbye */
    uint64_t reclaimed_blocks; /* pool blocks given back for them */
    uint64_t thread_limit;     /* rows of the roster that may be used */
} shmemi_server_counts_t;

shmem_status_t shmemi_client_counts(shmemi_client_t *client, shmemi_server_counts_t *counts);

/* Ask for more thread rows, after shmemi_self() failed with LIMIT. LIMIT: the roster is full. */
shmem_status_t shmemi_client_grow(shmemi_client_t *client);

/* The address in use, for messages and for child processes (SHMEM_SERVER). */
const char *shmemi_client_address(const shmemi_client_t *client);

#endif
