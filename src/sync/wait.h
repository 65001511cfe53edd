/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting: poll a while, yield a while when there are more threads than processors, then sleep in
 * the kernel in bounded slices.
 *
 * Every sleep is bounded (SHMEMI_SLICE_NS) so that a lost announcement (a waker killed between its
 * store and its wake, a waiter killed after taking a wake meant for another, a store made behind
 * the library's back) costs at most one slice; on every slice the waiter asks whether what it
 * waits for can still come.
 */
#ifndef SHMEMI_SYNC_WAIT_H
#define SHMEMI_SYNC_WAIT_H

#include "os/clock.h"
#include "sync/roster.h"

#define SHMEMI_SLICE_NS 50000000 /* 50 ms */

typedef enum shmemi_wait_kind {
    SHMEMI_WAIT_NOTHING = 0,
    SHMEMI_WAIT_MUTEX,
    SHMEMI_WAIT_SEMAPHORE,
    SHMEMI_WAIT_EVENT,
    SHMEMI_WAIT_BARRIER,
    SHMEMI_WAIT_BELL
} shmemi_wait_kind_t;

/* A bell: where the threads of one PE or object sleep; whoever changes what they may be waiting for
 * rings it. Self-healing: a sleeper killed with its flag up costs one needless wake. */
typedef struct shmemi_bell {
    _Atomic uint32_t sleepers; /* the flag: not 0: somebody may sleep. Sleepers count it up so that
                                  each announcement shows; the ringer clears it */
    _Atomic uint32_t sequence; /* futex word, bumped by every ring that found sleepers */
} shmemi_bell_t;

/* Tell sleepers that something changed. Cost when nobody sleeps: one load. Call after the store
 * that they wait for. `stats` may be NULL. */
void shmemi_bell_ring_slow(shmemi_bell_t *bell, shmemi_stats_t *stats);
static inline void shmemi_bell_ring(const shmemi_roster_t *roster, shmemi_bell_t *bell,
                                    shmemi_stats_t *stats)
{
    shmemi_light_barrier(roster);
    /* SYNC bell-sleepers: relaxed after the light barrier, pairs with the heavy barrier in
     * announce() */
    if (__builtin_expect(atomic_load_explicit(&bell->sleepers, memory_order_relaxed), 0))
        shmemi_bell_ring_slow(bell, stats);
}

/* Clear the flag, bump, wake up to `count` sleepers, whether or not the flag is up. Those who are
 * not woken sleep with the flag down: whoever was woken must raise it for them. */
void shmemi_bell_wake(shmemi_bell_t *bell, int count, shmemi_stats_t *stats);

/* Like ring, but wakes one sleeper: for objects of which one waiter can take something. The flag
 * stays up as long as anybody was found asleep. */
void shmemi_bell_ring_one_slow(shmemi_bell_t *bell, shmemi_stats_t *stats);
static inline void shmemi_bell_ring_one(const shmemi_roster_t *roster, shmemi_bell_t *bell,
                                        shmemi_stats_t *stats)
{
    shmemi_light_barrier(roster);
    /* SYNC bell-sleepers: relaxed after the light barrier, pairs with the heavy barrier in
     * announce() */
    if (__builtin_expect(atomic_load_explicit(&bell->sleepers, memory_order_relaxed), 0))
        shmemi_bell_ring_one_slow(bell, stats);
}

/* What is waited for. `ready` loads with acquire and returns whether the wait is over; `alive` (may
 * be NULL) is asked about once per slice, never in the polling loop, and returns an error such as
 * SHMEM_ERR_PEER_DEAD to end the wait (it records the detail itself). */
typedef struct shmemi_wait {
    bool (*ready)(void *arg);
    shmem_status_t (*alive)(void *arg);
    void *arg;
    shmemi_wait_kind_t kind;
    const void *object; /* shown by tools */
} shmemi_wait_t;

/* Wait until ready(), a dead peer, or the deadline (SHMEM_ERR_TIMEOUT, quiet). ready() is tried at
 * least once even when the deadline has passed, and always after alive(): what came before the
 * death counts. */
shmem_status_t shmemi_wait_until(const shmemi_actor_t *actor, shmemi_bell_t *bell,
                                 const shmemi_wait_t *wait, shmemi_deadline_t deadline);

/* The last part alone: sleep at once. */
shmem_status_t shmemi_wait_sleep(const shmemi_self_t *self, shmemi_bell_t *bell,
                                 const shmemi_wait_t *wait, shmemi_deadline_t deadline);

/* The first part alone: poll for the actor's spin time, offering the processor to others now and
 * then. True: ready. */
bool shmemi_wait_poll(const shmemi_actor_t *actor, bool (*ready)(void *), void *arg,
                      shmemi_deadline_t deadline);

/* Tell tools what the calling thread waits for; SHMEMI_WAIT_NOTHING when it no longer does. */
void shmemi_wait_show(const shmemi_self_t *self, shmemi_wait_kind_t kind, const void *object);

/* One polite pause inside a polling loop. */
static inline void shmemi_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
