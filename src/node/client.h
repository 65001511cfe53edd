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
    SHMEMI_SEGMENT_POOL = 1,  /* the server maps it and gives back blocks of dead clients */
    SHMEMI_SEGMENT_REGION = 2 /* its last page is reserved, too, and says its size */
} shmemi_segment_kind_t;
enum { SHMEMI_SEGMENT_KINDS = 3 };

/* The last page of a region's file. Written by the server; who may write the region can write it,
 * too: a size beyond the limit is one that is broken. */
typedef struct shmemi_region_page {
    _Atomic uint64_t bytes; /* that are reserved and may be used */
} shmemi_region_page_t;

/* What a descriptor lets its owner do. */
enum { SHMEMI_RIGHTS_READ = 1, SHMEMI_RIGHTS_WRITE = 3 };

enum { SHMEMI_NAME_MAX = 127 }; /* bytes of a segment name without the NUL */

typedef struct shmemi_segment_request {
    const char *name; /* unique among live segments of the server; NULL: anonymous */
    uint64_t bytes;
    uint64_t limit; /* of its file, which is address space; 0: `bytes` */
    shmemi_segment_kind_t kind;
    int huge;          /* SHMEMI_HUGE_* */
    int reserve;       /* 1: the server reserves the first `bytes`; 0: the clients do, in parts */
    int open_existing; /* a segment of that name and size is opened instead of EXISTS;
                          other size or kind: MISMATCH */
    uint32_t access;   /* SHMEM_ACCESS_*: what others than this user may do */
    int bind;          /* 1: reserved and later pages come from `node` */
    int node;          /* the system's number of a NUMA node */
} shmemi_segment_request_t;

typedef struct shmemi_segment {
    uint64_t id;     /* never reused while the server lives */
    uint64_t offset; /* of its place in the unified range */
    uint64_t bytes;  /* of its file */
    uint64_t first;  /* `bytes` of the request that created it */
    uint64_t page_bytes;
    int fd;       /* owned by the client object, closed by ..._close */
    bool created; /* this call made it */
    int rights;   /* SHMEMI_RIGHTS_*, of the descriptor */
    uint32_t uid, gid, access;
} shmemi_segment_t;

/*
 * Create or open a segment. It exists while at least one client has it open (a client that ends
 * has closed it). Not mapped by this: use shmemi_space_map(). The creator's user and root may open
 * it for anything, others as `access` says; a descriptor allows no more than the `rights` it was
 * asked for. Errors: INVALID (name, access), EXISTS, NOT_FOUND (open), MISMATCH, ACCESS, NOMEM,
 * LIMIT, SERVER_LOST.
 */
shmem_status_t shmemi_client_segment_create(shmemi_client_t *client,
                                            const shmemi_segment_request_t *request,
                                            shmemi_segment_t *segment);
shmem_status_t shmemi_client_segment_open(shmemi_client_t *client, const char *name, int rights,
                                          shmemi_segment_t *segment);
void shmemi_client_segment_close(shmemi_client_t *client, shmemi_segment_t *segment);

/* Reserve the memory of a region up to `bytes`, and publish its new size. Who wants it to be
 * larger meanwhile gets that, too. INVALID (it is larger), OVERFLOW (the limit), NOMEM (as it was),
 * ACCESS, SERVER_LOST. */
shmem_status_t shmemi_client_segment_grow(shmemi_client_t *client, const shmemi_segment_t *segment,
                                          uint64_t bytes);

/* Take the name away: nobody can open it any more, and another may have the name; who has it open
 * is not affected. The creator's user and root may. `id` not 0: only if it is this segment's name,
 * else NOT_FOUND. INVALID, NOT_FOUND, ACCESS, SERVER_LOST. */
shmem_status_t shmemi_client_segment_unlink(shmemi_client_t *client, const char *name, uint64_t id);

/* How often a name has gone away from this server, by unlink or with its segment: who remembers a
 * name from an open, and the number from before that open, need not ask again while it is the same.
 * No system call. */
uint64_t shmemi_client_names_gone(const shmemi_client_t *client);

typedef struct shmemi_segment_entry {
    char name[SHMEMI_NAME_MAX + 1];
    uint64_t bytes, first; /* as in shmemi_segment_t */
    shmemi_segment_kind_t kind;
    uint32_t uid, gid, access;
    uint32_t users; /* clients that have it open */
} shmemi_segment_entry_t;

/* The segments whose names begin with `prefix`, newest first, into entries[room]; *count: how many
 * there are (perhaps more than `room`). One that is there all the time is listed exactly once. */
shmem_status_t shmemi_client_segment_list(shmemi_client_t *client, const char *prefix,
                                          shmemi_segment_entry_t *entries, size_t room,
                                          size_t *count);

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
