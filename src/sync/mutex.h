/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A robust mutex: one word that names its holder.
 *
 *   word == FREE       nobody holds it
 *   word == POISONED   a dead holder's data was never declared consistent
 *   otherwise          low half: row of the holding thread, bit 31: INCONSISTENT;
 *                      high half: the row's epoch. Alive in the roster, or dead: then the next
 *                      caller takes it over with one compare-and-swap.
 *
 * FREE is not 0 and no row either, so that memory which was never initialized is not mistaken for a
 * free mutex. Unlocking is a plain store: the fence between it and the look at the bell's flag is
 * paid by the sleeper (os/barrier.h). Waking does not hand the mutex over: whoever is first gets
 * it.
 *
 * An unlock must know that the caller is the holder. To read the word that was just locked costs as
 * much as half the lock, so the thread remembers the mutex it took last (`held` in its cache) and
 * reads the word only for others:
 *
 *   self->held == m  =>  m's word names this thread, without INCONSISTENT
 *
 * What it does not do: recursion, priority inheritance, order among waiters.
 */
#ifndef SHMEMI_SYNC_MUTEX_H
#define SHMEMI_SYNC_MUTEX_H

#include "base/fault.h"
#include "shmem/sync.h"
#include "sync/wait.h"

#define SHMEMI_MUTEX_FREE         0x6565726643584c4dull /* low half: "MLXC", no row */
#define SHMEMI_MUTEX_POISONED     0x64616564504c584dull
#define SHMEMI_MUTEX_INCONSISTENT 0x80000000ull
#define SHMEMI_MUTEX_MAGIC        0x3158544du /* "MTX1" */

typedef struct shmemi_mutex {
    _Atomic uint64_t word;
    shmemi_bell_t bell;
    uint32_t magic;
    _Atomic uint32_t
        starving; /* a sleeper has been passed over for long: see shmemi_mutex_wake() */
    uint32_t reserved[10];
} shmemi_mutex_t;
SHMEMI_PIN_SIZE(shmemi_mutex_t, sizeof(shmem_mutex_t));
SHMEMI_PIN(shmemi_mutex_t, bell, 8);
SHMEMI_PIN(shmemi_mutex_t, magic, 16);

shmem_status_t shmemi_mutex_init(shmemi_mutex_t *mutex);
shmem_status_t shmemi_mutex_consistent(const shmemi_actor_t *actor, shmemi_mutex_t *mutex);

/* All but the uncontended case. SHMEMI_FOREVER: no limit; a deadline in the past: one try, which
 * gives TIMEOUT. ..._try_slow gives BUSY instead. */
shmem_status_t shmemi_mutex_lock_slow(const shmemi_actor_t *actor, shmemi_mutex_t *mutex,
                                      shmemi_deadline_t deadline);
shmem_status_t shmemi_mutex_try_slow(const shmemi_actor_t *actor, shmemi_mutex_t *mutex);
shmem_status_t shmemi_mutex_unlock_slow(const shmemi_actor_t *actor, shmemi_mutex_t *mutex);

/* After an unlock: wake one sleeper, and let it go first if it starves. */
void shmemi_mutex_wake(shmemi_mutex_t *mutex, shmemi_stats_t *stats);

/* The word of a mutex that the thread holds. */
static inline uint64_t shmemi_mutex_mine(const shmemi_self_t *self)
{
    return (uint64_t)self->epoch << 32 | self->row;
}

/* Acquire if it is free and the thread's row is in its cache: false says nothing. */
static inline bool shmemi_mutex_take(const shmemi_actor_t *actor, shmemi_mutex_t *mutex)
{
    shmemi_self_t *self = &shmemi_self_cache;
    uint64_t found = SHMEMI_MUTEX_FREE;
    if (__builtin_expect(self->actor_id != actor->id, 0))
        return false;
    /* SYNC mutex-word: acquire, pairs with release in shmemi_mutex_give() */
    bool taken = atomic_compare_exchange_strong_explicit(
        &mutex->word, &found, shmemi_mutex_mine(self), memory_order_acquire, memory_order_relaxed);
    if (__builtin_expect(!taken, 0))
        return false;
    SHMEMI_KILL_POINT("sync.mutex.lock.taken");
    self->held = mutex;
    return true;
}

static inline shmem_status_t shmemi_mutex_lock(const shmemi_actor_t *actor, shmemi_mutex_t *mutex,
                                               shmemi_deadline_t deadline)
{
    return shmemi_mutex_take(actor, mutex) ? SHMEM_OK
                                           : shmemi_mutex_lock_slow(actor, mutex, deadline);
}

static inline shmem_status_t shmemi_mutex_try(const shmemi_actor_t *actor, shmemi_mutex_t *mutex)
{
    return shmemi_mutex_take(actor, mutex) ? SHMEM_OK : shmemi_mutex_try_slow(actor, mutex);
}

/* Release a mutex that `self` holds. While some client lacks membarrier, store and fence are one
 * exchange, which costs half of both; the light barrier after the plain store looks again. */
static inline shmem_status_t shmemi_mutex_give(const shmemi_actor_t *actor,
                                               const shmemi_self_t *self, shmemi_mutex_t *mutex)
{
    SHMEMI_KILL_POINT("sync.mutex.unlock.checked");
    if (__builtin_expect(shmemi_fence_needed(actor->roster), 0)) {
        /* SYNC mutex-word: release, pairs with acquire in shmemi_mutex_take() */
        atomic_exchange_explicit(&mutex->word, SHMEMI_MUTEX_FREE, memory_order_seq_cst);
#if !defined(__x86_64__)
        shmemi_full_fence();
#endif
    } else {
        /* SYNC mutex-word: release, pairs with acquire in shmemi_mutex_take() */
        atomic_store_explicit(&mutex->word, SHMEMI_MUTEX_FREE, memory_order_release);
        shmemi_light_barrier(actor->roster);
    }
    SHMEMI_KILL_POINT("sync.mutex.unlock.stored");
    /* SYNC bell-sleepers: relaxed after the barrier, pairs with the heavy barrier in announce() */
    if (__builtin_expect(atomic_load_explicit(&mutex->bell.sleepers, memory_order_relaxed), 0))
        shmemi_mutex_wake(mutex, &self->thread->stats);
    return SHMEM_OK;
}

static inline shmem_status_t shmemi_mutex_unlock(const shmemi_actor_t *actor, shmemi_mutex_t *mutex)
{
    shmemi_self_t *self = &shmemi_self_cache;
    if (__builtin_expect(self->actor_id != actor->id || self->held != mutex, 0))
        return shmemi_mutex_unlock_slow(actor, mutex);
    self->held = NULL;
    return shmemi_mutex_give(actor, self, mutex);
}

#endif
