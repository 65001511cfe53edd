/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server object and its parts. One thread runs it; only shmem_server_stop() and the threads
 * that reserve memory (reserve.c) touch it from outside, through event descriptors.
 *
 *     server.c       create, run, stop, destroy          connection.c  accept, receive, answer
 *     home.c         roster: make, grow, fences          clients.c     hello, goodbye, suspects
 *     segments.c     create, open, close, answers        death.c       repair after a death
 *     making.c       the memory of a segment             reserve.c     the same in a thread
 *     rights.c       who may do what with a segment      names.c       unlink, list
 *     growing.c      regions that grow
 *     holds.c        who has what open                   state.c       what outlives the server
 *     keeper.c       who starts its successor            resume.c      how that one begins
 *
 * A peer is one connection, from accept until its process is known to have ended or said goodbye:
 *
 *     HALF_OPEN --hello--> ATTACHED --goodbye or process ended--> gone
 *                             '--connection closed--> SUSPECT --process ended--> gone
 *
 *   Invariants  by_slot[s] != NULL  <=>  a peer in ATTACHED or SUSPECT has slot s
 *               living[s] = the epoch of that peer, 0 if it died; living[0] = the server's
 *               clients = number of those; suspects = number of SUSPECT
 *               socket.fd >= 0 unless SUSPECT or gone; life.fd >= 0 if ATTACHED or SUSPECT, and if
 *               HALF_OPEN after a first hello where the kernel cannot name the peer (identity.h)
 *               the roster says what is said here: it is clients' memory, and only written
 *               record is NULL exactly while HALF_OPEN; what it says, and what the records of holds
 *               and segments say, is what is known here (state.h)
 */
#ifndef SHMEMI_NODE_SERVER_CORE_H
#define SHMEMI_NODE_SERVER_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"
#include "node/state.h"
#include "node/table.h"
#include "node/wire.h"
#include "os/identity.h"
#include "os/socket.h"
#include "shmem/server.h"
#include "sync/roster.h"

enum {
    SHMEMI_SERVER_ADDRESS = 108, /* bytes of a socket address with its NUL */
    SHMEMI_HALF_OPEN = 512,      /* connections without a hello at most */
    SHMEMI_HOLDS = 4096,         /* segments that one client may have open */
    SHMEMI_FIRST_ROWS = 1024     /* thread rows reserved at the start */
};
#define SHMEMI_HELLO_NS 5000000000 /* a connection must say hello within this */

/* What an epoll event belongs to. */
typedef enum shmemi_source_kind {
    SHMEMI_SOURCE_LISTENER,
    SHMEMI_SOURCE_STOP,
    SHMEMI_SOURCE_RESERVED, /* a segment made by a thread is ready */
    SHMEMI_SOURCE_KEEPER,   /* the pidfd of the keeper */
    SHMEMI_SOURCE_SOCKET,
    SHMEMI_SOURCE_LIFE /* a pidfd */
} shmemi_source_kind_t;

typedef struct shmemi_source {
    shmemi_source_kind_t kind;
    int fd;
    struct shmemi_peer *peer; /* of SOCKET and LIFE */
} shmemi_source_t;

/* A client's openings of one segment. */
typedef struct shmemi_hold {
    struct shmemi_hold *next;
    shmemi_entry_t *entry;
    uint32_t count, record;
    uint32_t sequence; /* of the request that changed it last */
    bool created;      /* which created the segment */
} shmemi_hold_t;

typedef enum shmemi_peer_state {
    SHMEMI_PEER_HALF_OPEN,
    SHMEMI_PEER_ATTACHED,
    SHMEMI_PEER_SUSPECT,
    SHMEMI_PEER_GONE /* waits in `graves` until no event can name it */
} shmemi_peer_state_t;

typedef struct shmemi_peer {
    struct shmemi_peer *next, *previous; /* in the list of its state */
    shmemi_peer_state_t state;
    shmemi_source_t socket, life;
    shmemi_credentials_t who;
    int64_t since; /* accepted at (monotonic) */
    uint32_t slot, epoch;
    bool lacks_membarrier;
    shmemi_hold_t *holds;
    uint32_t hold_count;     /* sum of counts */
    shmemi_entry_t *awaited; /* a PENDING or growing segment that it waits for */
    uint64_t awaited_bytes;  /* to which it shall grow; 0: it is PENDING */
    shmemi_wish_t wish;
    shmemi_state_peer_t *record;
    char name[SHMEMI_CLIENT_NAME];
} shmemi_peer_t;

/* Oldest first. */
typedef struct shmemi_peers {
    shmemi_peer_t *first, *last;
} shmemi_peers_t;

struct shmemi_job;   /* a reservation in a thread, see reserve.c */
struct shmemi_retry; /* a repair to be finished, see death.c */

struct shmem_server {
    int epoll;
    int spare; /* given up for a moment to turn a connection away when descriptors run out */
    shmemi_source_t listener, stop, reserved, keeper;
    char address[SHMEMI_SERVER_ADDRESS];
    uid_t user;
    bool all_users; /* also others than `user` and root */
    bool exit_when_unused;
    bool takeover, keeper_due; /* wants a keeper; lacks one */
    bool redoing;              /* requests that a predecessor may have done already */
    int64_t keeper_at;         /* a lacking one is made from then on; 0: at once */
    pid_t keeper_child;        /* 0: the keeper is not our child */
    int64_t first_client_ns, started, hello_ns;
    shmem_server_observer_t observer;
    void *observer_user;
    atomic_bool running;
    shmemi_settings_t settings;

    shmemi_roster_t *roster;
    int roster_fd;
    uint64_t roster_offset;
    uint32_t fences;
    shmemi_actor_t actor;

    shmemi_state_t *state;
    shmemi_table_t table;
    shmemi_peers_t half_open, attached, graves; /* attached: suspects, too */
    shmemi_peer_t *by_slot[SHMEMI_CLIENTS];
    uint32_t living[SHMEMI_CLIENTS];
    uint32_t half_opens, clients, suspects;

    struct shmemi_job *jobs;      /* running */
    struct shmemi_retry *retries; /* pools whose repair has to wait, see death.c */
    unsigned fork_generation;
};

/* ---- server.c ---- */

/* Tell the observer, if there is one. */
void shmemi_server_observe(shmem_server_t server, shmem_server_event_t event,
                           const shmemi_peer_t *peer);
/* Watch a descriptor for input. */
shmem_status_t shmemi_server_watch(shmem_server_t server, shmemi_source_t *source);
/* Close it; an event that was already fetched finds fd == -1. Nothing when it is -1. */
void shmemi_server_unwatch(shmem_server_t server, shmemi_source_t *source);
/* For tests: how long a connection may wait with its hello. */
void shmemi_server_set_hello_time(shmem_server_t server, int64_t ns);

/* ---- home.c ---- */

shmem_status_t shmemi_home_make(shmem_server_t server);
void shmemi_home_close(shmem_server_t server);
/* Double the usable thread rows. LIMIT: all are usable already. */
shmem_status_t shmemi_home_grow(shmem_server_t server);
/* Count a client without membarrier in or out; when in, writers fence from the return on. */
void shmemi_home_fence(shmem_server_t server, bool more);
/* In a successor: whatever the server before did with its own slot is a dead client's. */
void shmemi_home_resume(shmem_server_t server);

/* ---- connection.c ---- */

void shmemi_connection_accept(shmem_server_t server);
/* Serve the request that a predecessor left unanswered, if there is one. */
void shmemi_connection_redo(shmem_server_t server, shmemi_peer_t *peer);
/* Receive and serve one message. False: none was there. */
bool shmemi_connection_receive(shmem_server_t server, shmemi_peer_t *peer);
/* Send an answer with at most one descriptor (-1: none). LIMIT, NOMEM (with a descriptor only):
 * nothing was sent, and the peer is to be told so by shmemi_connection_refuse(). */
shmem_status_t shmemi_connection_answer(shmem_server_t server, shmemi_peer_t *peer,
                                        const shmemi_wire_message_t *message, int fd);
/* Send the calling thread's error detail. */
void shmemi_connection_refuse(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence,
                              shmem_status_t status);
/* The connection ends: half-open peers go, attached ones become suspects. */
void shmemi_connection_lost(shmem_server_t server, shmemi_peer_t *peer);
/* Half-open connections that are too old. Returns the time of the next one, or SHMEMI_FOREVER. */
int64_t shmemi_connection_expire(shmem_server_t server, int64_t now);

/* ---- clients.c ---- */

void shmemi_peers_append(shmemi_peers_t *peers, shmemi_peer_t *peer);
void shmemi_peers_remove(shmemi_peers_t *peers, shmemi_peer_t *peer);
/* Close what it has and move it to the graves. It must have no slot (any more). */
void shmemi_peer_bury(shmem_server_t server, shmemi_peer_t *peer);
/* Free the dead, at a moment when no event can name them. */
void shmemi_peer_reap(shmem_server_t server);

/* Half open, with a pidfd that its next message has to prove: that one is signed. */
bool shmemi_peer_is_claimed(const shmemi_peer_t *peer);
/* `sender`, if the peer is claimed: the process that sent it. */
void shmemi_clients_hello(shmem_server_t server, shmemi_peer_t *peer,
                          const shmemi_wire_hello_t *hello, pid_t sender);
/* Answer the hello of a peer that has its slot. */
void shmemi_clients_welcome(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence);
void shmemi_clients_goodbye(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence);
void shmemi_clients_counts(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence);

/* ---- segments.c ---- */

void shmemi_segments_create(shmem_server_t server, shmemi_peer_t *peer,
                            const shmemi_wire_create_t *request);
void shmemi_segments_open(shmem_server_t server, shmemi_peer_t *peer,
                          const shmemi_wire_open_t *request);
void shmemi_segments_close(shmem_server_t server, shmemi_peer_t *peer,
                           const shmemi_wire_close_t *request);
/* The peer's connection ended: it gets no answer. */
void shmemi_segments_wait_no_more(shmemi_peer_t *peer);
/* The peer ends: drop all that it has open or waits for. */
void shmemi_segments_release(shmem_server_t server, shmemi_peer_t *peer);
/* In a successor: the entry that somebody waits for is ready, or it is made once more. */
void shmemi_segments_continue(shmem_server_t server, shmemi_entry_t *entry);
/* A PENDING entry is ready (status 0) or failed (`text`): answer all who wait. */
void shmemi_segments_settle(shmem_server_t server, shmemi_entry_t *entry, shmem_status_t status,
                            const char *text);

/* ---- holds.c ---- */

/* The link to the peer's hold of segment `id`, or to NULL. */
shmemi_hold_t **shmemi_hold_find(shmemi_peer_t *peer, uint64_t id);
/* The peer opens the entry once more. LIMIT, NOMEM (quiet). */
shmem_status_t shmemi_hold_add(shmem_server_t server, shmemi_peer_t *peer, shmemi_entry_t *entry,
                               const shmemi_wish_t *wish);
/* It closes it `count` times, by the request of that number. The entry may be gone afterwards. */
void shmemi_hold_drop(shmem_server_t server, shmemi_peer_t *peer, shmemi_hold_t **link,
                      uint32_t count, uint32_t sequence);
/* A hold as its record says. NOMEM (quiet). */
shmem_status_t shmemi_hold_restore(shmemi_peer_t *peer, shmemi_entry_t *entry, uint32_t record,
                                   uint64_t word);
/* The hold that the peer's request of this number changed, or NULL. */
const shmemi_hold_t *shmemi_hold_of_request(const shmemi_peer_t *peer, uint32_t sequence);

/* ---- rights.c ---- */

bool shmemi_rights_access_is_valid(uint32_t access);
/* ACCESS (quiet) with whose it is, its access, and what was wanted. */
shmem_status_t shmemi_rights_check_open(const shmemi_peer_t *peer, const shmemi_spec_t *spec,
                                        uint32_t rights);
/* The same for what only its creator's user and root may do. */
shmem_status_t shmemi_rights_check_owner(const shmemi_peer_t *peer, const shmemi_spec_t *spec);

/* ---- names.c ---- */

void shmemi_names_unlink(shmem_server_t server, shmemi_peer_t *peer,
                         const shmemi_wire_unlink_t *request);
void shmemi_names_list(shmem_server_t server, shmemi_peer_t *peer,
                       const shmemi_wire_list_t *request);

/* ---- making.c ---- */

/* Make the memory of a segment; *bytes of its file. Any thread. Errors as of
 * shmemi_segment_create(), SYSTEM (owner), INVALID (node). */
shmem_status_t shmemi_making_run(const shmemi_spec_t *spec, int *fd, uint64_t *bytes,
                                 uint64_t *page_bytes);
/* Has the node that the segment's memory comes from so much left? NOMEM, INVALID (node). */
shmem_status_t shmemi_making_afford(const shmemi_spec_t *spec, uint64_t bytes);

/* ---- growing.c ---- */

void shmemi_growing_request(shmem_server_t server, shmemi_peer_t *peer,
                            const shmemi_wire_grow_t *request);
/* A thread has reserved the pages up to `bytes` (status 0) or failed (`text`). */
void shmemi_growing_settle(shmem_server_t server, shmemi_entry_t *entry, uint64_t bytes,
                           shmem_status_t status, const char *text);
/* Reserve what a region's file needs to have `bytes`; nothing of it when that fails. Any thread. */
shmem_status_t shmemi_growing_reserve(const shmemi_spec_t *spec, int fd, uint64_t bytes);
/* Write the size into the last page of a region's file. */
shmem_status_t shmemi_growing_publish(int fd, uint64_t file_bytes, uint64_t bytes);

/* ---- reserve.c ---- */

/* Make the memory of a PENDING entry in a thread. */
shmem_status_t shmemi_reserve_start(shmem_server_t server, shmemi_entry_t *entry);
/* Reserve the pages of a region up to `bytes` in a thread. */
shmem_status_t shmemi_reserve_growth(shmem_server_t server, shmemi_entry_t *entry, uint64_t bytes);
/* Some thread has finished. */
void shmemi_reserve_collect(shmem_server_t server);
/* Wait for all threads and drop what they made. */
void shmemi_reserve_fini(shmem_server_t server);

/* ---- death.c ---- */

/* The peer's client is gone: publish that, close what it held and free its slot. Its blocks in
 * pools that others have open come back with the next shmemi_death_retry(). */
void shmemi_death_repair(shmem_server_t server, shmemi_peer_t *peer, bool died);
/* Its process has ended: a goodbye that it sent still counts. */
void shmemi_death_noticed(shmem_server_t server, shmemi_peer_t *peer);
/* Give back blocks of the dead, as far as it is due and quickly done. may_wait: a few ms for a
 * lock. Returns the time of the next try (perhaps past), or SHMEMI_FOREVER. */
int64_t shmemi_death_retry(shmem_server_t server, bool may_wait);
/* Give back later what anybody who is dead by then holds in this pool. */
void shmemi_death_sweep(shmem_server_t server, shmemi_entry_t *entry);
/* The segment goes (entry), or the server (NULL): nothing is left to repair. */
void shmemi_death_forget(shmem_server_t server, const shmemi_entry_t *entry);

/* ---- keeper.c ---- */

/* Make a process that starts a successor when this one ends without shmemi_keeper_stop(). Returns
 * in this server, and, if it is killed, again in each successor, where it has everything resumed:
 * an error there says that this failed. One without a keeper goes on without. */
shmem_status_t shmemi_keeper_start(shmem_server_t server);
void shmemi_keeper_stop(shmem_server_t server);
/* The keeper has ended: another one is due. */
void shmemi_keeper_lost(shmem_server_t server);

/* ---- resume.c ---- */

/* Go on where the server before was killed. */
shmem_status_t shmemi_resume(shmem_server_t server);

#endif
