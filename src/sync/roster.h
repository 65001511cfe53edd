/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The roster: a segment that all clients of a node server map, saying who is alive.
 *
 *   header | clients[client_capacity] | threads[thread_capacity]
 *
 * A client is a (slot, epoch) pair, a thread a (row, epoch) pair. Shared objects name their holder
 * by row and epoch; the holder is alive exactly while threads[row].epoch equals the epoch recorded.
 *
 *   Invariants  clients[s].epoch changes only when the client of slot s ends (server writes).
 *               threads[r].owner == 0  <=>  row r is free; otherwise it is the owning client's
 *               (slot << 32 | low 32 bits of its epoch).
 *               threads[r].epoch is bumped *before* owner becomes 0, so a stale pair never matches;
 *               while that happens bit 63 of owner is set.
 *   Row 0 is never handed out: a lock word of 0 means free.
 *
 * Written by processes that may be killed at any instruction: claiming a row is one CAS. The server
 * frees the rows of a dead client; without a server a row is freed by its thread only.
 * What it does not do: deciding who is dead (node/ does, by pidfd).
 */
#ifndef SHMEMI_SYNC_ROSTER_H
#define SHMEMI_SYNC_ROSTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/sanitizer.h"
#include "base/stats.h"
#include "base/util.h"
#include "shmem/status.h"

#define SHMEMI_ROSTER_MAGIC 0x31524d4853ull /* "SHMR1" */
enum {
    SHMEMI_ROSTER_VERSION = 2,
    SHMEMI_SYNC_OBJECTS_VERSION = 1, /* layouts of mutex, semaphore, event, barrier, bell */
    SHMEMI_CLIENTS = 4096,           /* capacity; slot 0 is the server itself */
    SHMEMI_THREADS = 16384,          /* capacity; row 0 unused */
    SHMEMI_CLIENT_NAME = 32
};

typedef enum shmemi_client_state {
    SHMEMI_CLIENT_FREE = 0,
    SHMEMI_CLIENT_LIVE = 1,
    SHMEMI_CLIENT_DEAD = 2 /* ended without detaching; repair is in progress */
} shmemi_client_state_t;

typedef struct shmemi_roster_client {
    _Atomic uint32_t epoch;
    _Atomic uint32_t state; /* shmemi_client_state_t */
    int32_t pid;            /* for messages only */
    uint32_t uid;
    char name[SHMEMI_CLIENT_NAME];
    uint64_t reserved[2];
} shmemi_roster_client_t;
SHMEMI_PIN_SIZE(shmemi_roster_client_t, 64);

typedef struct shmemi_roster_thread {
    _Atomic uint64_t owner;       /* 0 free, else slot << 32 | client epoch */
    _Atomic uint32_t epoch;       /* bumped when the row is freed; starts at 1, never 0 */
    _Atomic uint32_t waits;       /* what it waits for: shmemi_wait_kind_t, 0 nothing (for tools) */
    _Atomic uint64_t wait_object; /* address in the unified range, or 0 */
    _Atomic int32_t pid;          /* of the last owner, for messages; stays when the row is freed */
    uint32_t reserved0;
    uint64_t reserved[12];
    shmemi_stats_t stats; /* written by the owning thread only */
} shmemi_roster_thread_t;
SHMEMI_PIN_SIZE(shmemi_roster_thread_t, 512);

typedef struct shmemi_roster {
    uint64_t magic;
    uint32_t version;
    uint32_t client_capacity;
    uint32_t thread_capacity;
    uint32_t layout;               /* hash of the layouts compiled in, see shmemi_roster_layout() */
    _Atomic uint32_t ready;        /* 1: initialized; stored last */
    _Atomic uint32_t fence_needed; /* number of live clients without membarrier */
    _Atomic uint32_t deaths;       /* bumped after every death; also a futex word */
    _Atomic uint32_t thread_limit; /* rows below this have their pages reserved */
    uint64_t space_base, space_bytes;
    _Atomic uint64_t names_gone; /* bumped after each name of a segment that went away */
    uint64_t reserved[504];
    shmemi_roster_client_t clients[SHMEMI_CLIENTS];
    shmemi_roster_thread_t threads[SHMEMI_THREADS];
} shmemi_roster_t;
SHMEMI_PIN(shmemi_roster_t, clients, 4096);
SHMEMI_PIN(shmemi_roster_t, threads, 4096 + 64 * SHMEMI_CLIENTS);

/* Hash over sizes and versions of everything shared; differing builds refuse each other. */
uint32_t shmemi_roster_layout(void);

/* Initialize zeroed memory of sizeof(shmemi_roster_t); client 0, the server, is there with epoch 1.
 * thread_limit: rows usable at once. */
void shmemi_roster_init(shmemi_roster_t *roster, uint32_t thread_limit);

/* Is this memory a roster that this build understands? VERSION with both sides named. */
shmem_status_t shmemi_roster_check(const shmemi_roster_t *roster);

/*
 * Server side. Every client may write into the roster: the server says here what is true, and never
 * reads it from there. `rows`: thread_limit.
 */

/* The epoch of who has a slot after the client with this one; 0: after nobody. */
uint32_t shmemi_roster_epoch_after(uint32_t epoch);
/* Client (slot, epoch) is there. The slot was free; it is not 0. */
void shmemi_roster_client_set(shmemi_roster_t *roster, uint32_t slot, uint32_t epoch,
                              const char *name, int pid, unsigned uid);
/* Client (slot, epoch) is gone: the slot's next epoch is there, its rows are free (their epochs are
 * bumped), and, if it `died`, `deaths` is bumped and its futex woken. The slot is free afterwards.
 */
void shmemi_roster_client_remove(shmemi_roster_t *roster, uint32_t slot, uint32_t epoch,
                                 uint32_t rows, bool died);
/* Whatever a slot says: this epoch and state. The name goes with FREE. */
void shmemi_roster_client_correct(shmemi_roster_t *roster, uint32_t slot, uint32_t epoch,
                                  shmemi_client_state_t state);
/* By the successor of a server that was killed: the killed one's epoch and rows go as those of a
 * client that died. Returns the epoch of the server from now on. */
uint32_t shmemi_roster_server_next(shmemi_roster_t *roster, uint32_t epoch, uint32_t rows);

/* Is the client (slot, epoch) still there? Out-of-range slots are dead. */
bool shmemi_roster_client_alive(const shmemi_roster_t *roster, uint32_t slot, uint32_t epoch);

/* The name of the client in a slot (which it chose, and may be changing), printable, into
 * name[bytes]. */
void shmemi_roster_client_name(const shmemi_roster_t *roster, uint32_t slot, char *name,
                               size_t bytes);

/* Is the thread (row, epoch) still there? Out-of-range rows are dead. */
static inline bool shmemi_roster_thread_alive(const shmemi_roster_t *roster, uint32_t row,
                                              uint32_t epoch)
{
    if (!row || !epoch || row >= SHMEMI_THREADS ||
        row >= atomic_load_explicit(&roster->thread_limit, memory_order_relaxed))
        return false;
    /* SYNC roster-epoch: acquire, pairs with release in row_finish_free() */
    return atomic_load_explicit(&roster->threads[row].epoch, memory_order_acquire) == epoch;
}

/* Who is or was thread (row, epoch)? "process 4711 (PE 1 of 4)" into text[bytes]; as far as known:
 * rows of the dead are used again. Returns text. */
enum { SHMEMI_WHO = 80 };
const char *shmemi_roster_who(const shmemi_roster_t *roster, uint32_t row, uint32_t epoch,
                              char *text, size_t bytes);

/* Number of deaths so far. Everything that a dead client held is recognizable as such by who sees
 * its death counted here. */
static inline uint32_t shmemi_roster_deaths(const shmemi_roster_t *roster)
{
    /* SYNC roster-deaths: acquire, pairs with release in shmemi_roster_client_remove() */
    return atomic_load_explicit(&roster->deaths, memory_order_acquire);
}

/*
 * An actor: a client as the calling code sees it. One per context. It finds the calling thread's
 * row (claimed at the thread's first use, given back when the thread ends or the actor is closed).
 * The client must be in the roster (shmemi_roster_client_set(), or slot 0, epoch 1: the server).
 */
typedef struct shmemi_actor {
    shmemi_roster_t *roster;
    uint32_t slot, epoch;     /* of the client */
    uint32_t fork_generation; /* of the process that made it; a forked child is refused */
    uint64_t id;              /* unique in the process, never reused: key of the thread cache;
                                 0: closed */
    int64_t spin_ns;          /* polling before sleeping */
    const uint32_t *living;   /* of a server: the epochs of all that live, 0 nobody, by slots */
    bool crowded;             /* more busy threads than processors: poll less, yield first */
    shmem_status_t (*grow)(void *user); /* asks for more rows when none is free; or NULL */
    void *grow_user;
} shmemi_actor_t;

/* Is client (slot, epoch) alive? A server's actor does not ask the roster. */
static inline bool shmemi_actor_sees(const shmemi_actor_t *actor, uint32_t slot, uint32_t epoch)
{
    if (!actor->living)
        return shmemi_roster_client_alive(actor->roster, slot, epoch);
    return slot < SHMEMI_CLIENTS && epoch && actor->living[slot] == epoch;
}

void shmemi_actor_init(shmemi_actor_t *actor, shmemi_roster_t *roster, uint32_t slot,
                       uint32_t epoch, int64_t spin_ns);
/* Gives back all rows of this actor. No thread may be inside a call with it. Twice is harmless, and
 * so are threads that used it and end later. In a forked child the parent's rows stay. */
void shmemi_actor_fini(shmemi_actor_t *actor);

/* The calling thread's identity for an actor. */
typedef struct shmemi_self {
    uint64_t actor_id;
    uint32_t row, epoch;
    shmemi_roster_thread_t *thread; /* == &roster->threads[row] */
    const void *held; /* a mutex that the thread holds for sure (sync/mutex.h), or NULL */
} shmemi_self_t;

/* One-entry cache of the calling thread: the last actor it used. Reset in a forked child. No actor
 * has the number of the empty cache. */
#define SHMEMI_SELF_EMPTY                                                                          \
    {                                                                                              \
        UINT64_MAX, 0, 0, NULL, NULL                                                               \
    }
extern _Thread_local shmemi_self_t shmemi_self_cache;

/* Slow path: look up or claim; asks actor->grow for rows. NULL with the detail set: LIMIT (no row),
 * STATE (forked child using its parent's context; closed; unknown to the server), NOMEM. */
const shmemi_self_t *shmemi_self_lookup(const shmemi_actor_t *actor);

static inline const shmemi_self_t *shmemi_self(const shmemi_actor_t *actor)
{
    if (__builtin_expect(shmemi_self_cache.actor_id == actor->id, 1))
        return &shmemi_self_cache;
    return shmemi_self_lookup(actor);
}

/* A full fence. ThreadSanitizer does not know stand-alone fences: there, an atomic operation. */
static inline void shmemi_full_fence(void)
{
#if SHMEMI_TSAN
    _Atomic int word = 0;
    atomic_fetch_add_explicit(&word, 1, memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Does some client lack membarrier, so that frequent sides must fence? */
static inline bool shmemi_fence_needed(const shmemi_roster_t *roster)
{
    /* SYNC fence-needed: relaxed; pairs with the server's heavy barrier: a client that lacks
     * membarrier is admitted only after the server set this flag and ran one */
    return atomic_load_explicit(&roster->fence_needed, memory_order_relaxed) != 0;
}

/* Between a store that peers wait for and the load of the flag that says somebody sleeps: a
 * compiler barrier, or a full fence while some client lacks membarrier (see os/barrier.h). */
static inline void shmemi_light_barrier(const shmemi_roster_t *roster)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(shmemi_fence_needed(roster), 0))
        shmemi_full_fence();
    else
        atomic_signal_fence(memory_order_seq_cst);
}

#endif
