/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server knows of clients and segments, in memory that outlives it: shared by the server,
 * its keeper and its successors (keeper.c), and by nobody else. No client ever sees it.
 *
 *   Invariants  a record is valid exactly while its first word is not 0; that word is stored last,
 *               and cleared before anything that the record names is given up
 *               a change of a segment's record writes the copy that is not valid, then swaps
 *               a descriptor is in use by the server exactly while a record or the head names it:
 *               a successor closes all others
 *               peers[s].request is a request of client s that is not answered yet, if its magic
 *               is not 0: it is received here, and cleared after the answer
 *               sequence(s, n + 1) is after sequence(s, n), and `answered` is that of the last
 *               request of client s that was answered
 *               arrival orders the unanswered requests; UINT64_MAX: received, but not numbered yet
 *               awaited is the id of a segment that the unanswered request waits for, which may be
 *               PENDING still, if wish.sequence is that request's number; else it means nothing
 *               a hold's word says which request changed it last, so that doing an unanswered
 *               request once more changes nothing twice; no other request has its number
 *
 * Killed between any two stores, the state is that of before or after a change. What it does not
 * do: everything that can be found out again (lists, hashes, places: resume.c).
 */
#ifndef SHMEMI_NODE_STATE_H
#define SHMEMI_NODE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "node/table.h"
#include "node/wire.h"
#include "os/identity.h"
#include "sync/roster.h"

enum { SHMEMI_STATE_HOLDS = 1048576 }; /* (client, segment) pairs of one server */

/* What a client waits for, or gets. */
typedef struct shmemi_wish {
    uint32_t sequence, rights;
    bool creates;
} shmemi_wish_t;

typedef struct shmemi_state_segment {
    _Atomic uint32_t valid; /* 0: free; 1, 2: which copy */
    uint32_t next_free;
    shmemi_entry_t copy[2]; /* pointers and counts in it mean nothing */
} shmemi_state_segment_t;

typedef struct shmemi_state_peer {
    _Atomic uint32_t used;
    uint32_t epoch;   /* of the client, or of the last one; 0: there was none */
    int socket, life; /* descriptors; socket -1: a suspect */
    bool lacks_membarrier;
    uint32_t answered; /* sequence of the last request that was */
    uint32_t tries;    /* of doing the request once more that did not come to an end */
    uint64_t arrival;
    _Atomic uint64_t awaited;
    shmemi_wish_t wish;
    shmemi_credentials_t who;
    uint64_t death; /* it was the death of this number; 0: none yet */
    char name[SHMEMI_CLIENT_NAME];
    _Alignas(SHMEMI_WIRE_MAX) shmemi_wire_message_t request; /* in one page */
} shmemi_state_peer_t;

/* How often a client has a segment open, and the request that changed that. */
typedef struct shmemi_state_hold {
    _Atomic uint64_t word; /* see shmemi_state_hold_word(); 0: free */
    uint64_t segment;
    uint32_t slot;
    uint32_t next_free;
} shmemi_state_hold_t;

typedef struct shmemi_state {
    int server_life, keeper_life; /* pidfds; -1: none */
    uint64_t next_id, deaths, reclaimed, arrivals;
    uint32_t thread_limit;
    uint32_t server_epoch; /* of slot 0 */
    bool had_client;
    /* records beyond these were never used, and have no memory yet */
    uint32_t peers_used, segments_used, holds_used;
    uint32_t free_segment, free_hold; /* lists; a successor makes them anew */
    shmemi_state_peer_t peers[SHMEMI_CLIENTS];
    shmemi_state_segment_t segments[SHMEMI_TABLE_SEGMENTS + 1]; /* record 0 is none */
    shmemi_state_hold_t holds[SHMEMI_STATE_HOLDS + 1];
} shmemi_state_t;

/* count << 33 | created << 32 | sequence */
static inline uint64_t shmemi_state_hold_word(uint32_t count, bool created, uint32_t sequence)
{
    return (uint64_t)count << 33 | (uint64_t)created << 32 | sequence;
}

/* Zeroed; pages come as they are used. NOMEM. */
shmem_status_t shmemi_state_create(shmemi_state_t **state);
void shmemi_state_destroy(shmemi_state_t *state);
/* In a forked child of an embedding program: what it does to the state stays its own. */
void shmemi_state_disown(shmemi_state_t *state);

/* Note the entry as it is now. */
void shmemi_state_segment_save(shmemi_state_t *state, shmemi_entry_t *entry);
/* Before its descriptor is closed. Nothing if it was never noted. */
void shmemi_state_segment_drop(shmemi_state_t *state, shmemi_entry_t *entry);

/* A record for (slot, segment), not valid yet: its index; 0: none is left. */
uint32_t shmemi_state_hold_take(shmemi_state_t *state, uint32_t slot, uint64_t segment);
/* word 0: the record is free afterwards. */
void shmemi_state_hold_set(shmemi_state_t *state, uint32_t index, uint64_t word);

/* The slot's request waits for this segment. */
void shmemi_state_await(shmemi_state_peer_t *peer, uint64_t segment, const shmemi_wish_t *wish);

/* Make the record of a slot valid that has been filled in; make it free. */
void shmemi_state_peer_publish(shmemi_state_t *state, uint32_t slot);
void shmemi_state_peer_drop(shmemi_state_peer_t *peer);

/* For a successor: chain up the free records. */
void shmemi_state_collect_free(shmemi_state_t *state);

#endif
