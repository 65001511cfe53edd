/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Synchronization objects in shared memory: mutex, semaphore, event, barrier.
 *
 * An object is plain memory of a fixed layout that the caller provides: in symmetric memory, a pool
 * block, or any mapping that all users share (also private memory, between threads). Initialize it
 * once, before others use it; all users must be clients of the same node server (their contexts
 * say so), because holders are named by the server's roster. Nothing has to be destroyed: the
 * memory may simply be reused when nobody uses the object any more.
 *
 * Threads and processes: every function may be called by any thread of any client, except where it
 * says otherwise. Blocking functions poll a while (SHMEM_SPIN), then sleep in the kernel. Timeouts
 * are nanoseconds on the monotonic clock; negative waits for ever, 0 tries once.
 *
 * Death: a client killed at any instruction harms nobody. What it held is found free or reported
 * (see each object); a killed waiter never blocks a waker. Without a node server (it was killed)
 * deaths go unnoticed until a server runs again; timeouts still work.
 *
 * Alignment: every object lies on a multiple of 64 bytes. Variables, symmetric memory and pool
 * blocks do; in memory of another kind (malloc, offsets in a buffer) it is for the caller to see to
 * that. The init functions refuse anything else with INVALID.
 *
 * Errors of all: INVALID (NULL, not initialized), CORRUPT (impossible content), STATE (context of a
 * forked parent, finalized context), LIMIT (too many threads).
 */
#ifndef SHMEM_SYNC_H
#define SHMEM_SYNC_H

#include <shmem/context.h>

#ifdef __cplusplus
extern "C" {
#define SHMEM_ALIGNED(n) alignas(n)
#else
#define SHMEM_ALIGNED(n) _Alignas(n)
#endif

/* ---- mutex: one holder, robust ---- */

typedef struct shmem_mutex {
    SHMEM_ALIGNED(64) uint64_t opaque[8];
} shmem_mutex_t;

SHMEM_API shmem_status_t shmem_mutex_init(shmem_mutex_t *mutex);

/*
 * Acquire. SHMEM_OK, or SHMEM_ERR_OWNER_DIED: acquired as well, but the last holder died inside;
 * repair what the mutex protects and call shmem_mutex_consistent() before unlocking, otherwise the
 * unlock poisons it and everybody gets SHMEM_ERR_POISONED from then on.
 * Not acquired: DEADLOCK (the calling thread holds it), POISONED, TIMEOUT (lock_timed), BUSY
 * (trylock).
 */
SHMEM_API shmem_status_t shmem_mutex_lock(shmem_context_t context, shmem_mutex_t *mutex);
SHMEM_API shmem_status_t shmem_mutex_trylock(shmem_context_t context, shmem_mutex_t *mutex);
SHMEM_API shmem_status_t shmem_mutex_lock_timed(shmem_context_t context, shmem_mutex_t *mutex,
                                                int64_t timeout);
/* Release. NOT_OWNER: the calling thread does not hold it (nothing happens). */
SHMEM_API shmem_status_t shmem_mutex_unlock(shmem_context_t context, shmem_mutex_t *mutex);
/* The caller, who holds it after SHMEM_ERR_OWNER_DIED, has repaired the data. NOT_OWNER. */
SHMEM_API shmem_status_t shmem_mutex_consistent(shmem_context_t context, shmem_mutex_t *mutex);

/* ---- semaphore: a number of permits that return when their holder dies ---- */

/* Bytes of a semaphore with `permits` permits (1 to 65536); alignment 64. */
#define SHMEM_SEMAPHORE_BYTES(permits) (128 + 8 * (((size_t)(permits) + 7) & ~(size_t)7))

typedef struct shmem_semaphore shmem_semaphore_t; /* memory of SHMEM_SEMAPHORE_BYTES(permits) */

/* A semaphore with `permits` permits, all free, in memory of `bytes` at `memory`; 1 permit makes a
 * binary one. INVALID: too few bytes, misaligned, permits out of range. */
SHMEM_API shmem_status_t shmem_semaphore_init(void *memory, size_t bytes, uint32_t permits);

/* Take one permit; it belongs to the calling client until one of its threads releases it, or until
 * the client dies, which frees it. TIMEOUT; BUSY (try). */
SHMEM_API shmem_status_t shmem_semaphore_acquire(shmem_context_t context, shmem_semaphore_t *s);
SHMEM_API shmem_status_t shmem_semaphore_try(shmem_context_t context, shmem_semaphore_t *s);
SHMEM_API shmem_status_t shmem_semaphore_acquire_timed(shmem_context_t context,
                                                       shmem_semaphore_t *s, int64_t timeout);
/* Give one permit back. NOT_OWNER: the calling client holds none. */
SHMEM_API shmem_status_t shmem_semaphore_release(shmem_context_t context, shmem_semaphore_t *s);
/* Permits free at this moment (those of dead holders count as free). */
SHMEM_API shmem_status_t shmem_semaphore_available(shmem_context_t context, shmem_semaphore_t *s,
                                                   uint32_t *permits);

/* ---- event: set or not set ---- */

typedef struct shmem_event {
    SHMEM_ALIGNED(64) uint64_t opaque[24];
} shmem_event_t;

typedef enum shmem_event_reset {
    SHMEM_EVENT_MANUAL = 0, /* stays set until shmem_event_reset(): wakes all */
    SHMEM_EVENT_AUTO = 1    /* the wait that sees it resets it: wakes one */
} shmem_event_reset_t;

SHMEM_API shmem_status_t shmem_event_init(shmem_event_t *event, shmem_event_reset_t reset,
                                          int is_set);
/* Set it. Everything written before is visible to who waited successfully. Never blocks. */
SHMEM_API shmem_status_t shmem_event_set(shmem_context_t context, shmem_event_t *event);
SHMEM_API shmem_status_t shmem_event_reset(shmem_context_t context, shmem_event_t *event);
/* Wait until it is set. TIMEOUT. A waiter killed between seeing an auto-reset event and returning
 * has consumed it. */
SHMEM_API shmem_status_t shmem_event_wait(shmem_context_t context, shmem_event_t *event,
                                          int64_t timeout);

/* ---- barrier: n participants meet ---- */

typedef struct shmem_barrier_object {
    SHMEM_ALIGNED(64) uint64_t opaque[16];
} shmem_barrier_object_t;

/* For `participants` threads (1 to 65535) of any clients. */
SHMEM_API shmem_status_t shmem_barrier_init(shmem_barrier_object_t *barrier, uint32_t participants);
/* Arrive and wait for the others: shmem_barrier_arrive() followed by shmem_barrier_await(). */
SHMEM_API shmem_status_t shmem_barrier_wait(shmem_context_t context,
                                            shmem_barrier_object_t *barrier, int64_t timeout);
/* Split phase: arrive, do other work, then wait with the token. Exactly one arrival for each
 * participant and round. */
SHMEM_API shmem_status_t shmem_barrier_arrive(shmem_context_t context,
                                              shmem_barrier_object_t *barrier, uint32_t *token);
/* TIMEOUT: the arrival stands; wait again with the same token. PEER_DEAD: a client of this node
 * died since the barrier's previous round began, and this round is still not complete 0.2 s later
 * (the barrier cannot know its participants by name; initialize it again for the survivors). */
SHMEM_API shmem_status_t shmem_barrier_await(shmem_context_t context,
                                             shmem_barrier_object_t *barrier, uint32_t token,
                                             int64_t timeout);

#ifdef __cplusplus
}
#endif
#endif
