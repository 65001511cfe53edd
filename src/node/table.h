/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's table of segments.
 *
 *   Invariants  names of live segments are unique; ids are never reused
 *               entries of `all` have descending ids
 *               a segment's place in the address range is taken exactly while it is in the table
 *               opens = sum of the clients' counts of it (node/server_core.h, shmemi_hold_t);
 *               users = number of these clients
 *               names_gone grows whenever a name goes away, and is published in the roster
 *               opens + waiting == 0  =>  the segment leaves the table, its memory is freed
 *
 * A segment whose pages take long to reserve is made by a thread of its own; until then it is
 * PENDING: it has name and place, but no descriptor. What it does not do: rights of clients and
 * answers to them (rights.c, segments.c).
 */
#ifndef SHMEMI_NODE_TABLE_H
#define SHMEMI_NODE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "node/client.h"
#include "node/ranges.h"
#include "node/wire.h"

enum {
    SHMEMI_TABLE_SEGMENTS = 16384, /* live ones at most */
    SHMEMI_TABLE_BUCKETS = 1024
};

/* What a segment is to be: all that is known before it is made. */
typedef struct shmemi_spec {
    char name[SHMEMI_WIRE_NAME]; /* "": anonymous, or unlinked */
    uint64_t bytes;              /* as asked for, or to which it has grown */
    uint64_t limit;              /* of its file, as asked for; >= bytes */
    shmemi_segment_kind_t kind;
    int huge, reserve;
    int node; /* the system's number; -1: any */
    uid_t uid;
    gid_t gid;            /* of its creator */
    uint32_t slot, epoch; /* the client that asked for it */
    uint32_t access;
} shmemi_spec_t;

typedef struct shmemi_entry {
    struct shmemi_entry *next;                /* in its bucket */
    struct shmemi_entry *newer, **newer_link; /* list of all, for iteration */
    shmemi_spec_t spec;
    uint64_t id, offset;
    uint64_t bytes; /* of its file; 0 while PENDING */
    uint64_t page_bytes;
    int fd; /* -1: PENDING */
    uint32_t opens, users, waiting;
    bool growing;    /* by a thread */
    uint32_t record; /* of the state that outlives the server; 0: none yet */
} shmemi_entry_t;

typedef struct shmemi_table {
    shmemi_entry_t *buckets[SHMEMI_TABLE_BUCKETS];
    shmemi_entry_t *all;
    shmemi_ranges_t ranges;
    struct shmemi_state *state; /* where entries are noted, and the next id */
    uint64_t count, bytes;
    uint64_t names_gone;
    _Atomic uint64_t *published; /* names_gone, for the clients; may be NULL */
} shmemi_table_t;

void shmemi_table_init(shmemi_table_t *table, uint64_t start, struct shmemi_state *state);
/* Frees every entry, whoever uses it. */
void shmemi_table_fini(shmemi_table_t *table);

shmemi_entry_t *shmemi_table_find(shmemi_table_t *table, const char *name);

/* A new PENDING entry with a place. LIMIT, NOMEM (quiet). The name must not be in the table. */
shmem_status_t shmemi_table_add(shmemi_table_t *table, const shmemi_spec_t *spec,
                                shmemi_entry_t **entry);

/* An entry as `noted` in record `record`, at its old place, not open by anybody. Noted ones come
 * with ascending ids. LIMIT (the place is taken), NOMEM. */
shmem_status_t shmemi_table_restore(shmemi_table_t *table, const shmemi_entry_t *noted,
                                    uint32_t record, shmemi_entry_t **entry);

/* PENDING is over: the memory is there. */
void shmemi_table_ready(shmemi_table_t *table, shmemi_entry_t *entry, int fd, uint64_t bytes,
                        uint64_t page_bytes);

/* Its first part is larger now. */
void shmemi_table_grown(shmemi_table_t *table, shmemi_entry_t *entry, uint64_t bytes);

/* Take the entry's name away: it is anonymous from now on. */
void shmemi_table_unlink(shmemi_table_t *table, shmemi_entry_t *entry);

/* Publish names_gone in `word` of the roster, from another number than the one that is there. */
void shmemi_table_publish(shmemi_table_t *table, _Atomic uint64_t *word);

/* Remove the entry if nobody has it open or waits for it. True: it is gone. */
bool shmemi_table_drop_unused(shmemi_table_t *table, shmemi_entry_t *entry);

#endif
