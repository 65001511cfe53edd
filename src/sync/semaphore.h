/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A semaphore whose permits name their holders: one word per permit.
 *
 *   holders[i] == 0   permit i is free
 *   otherwise         it belongs to the client (slot << 32 | epoch), alive; if that client is gone,
 *                     the permit is free and the next caller takes it over
 *   permits held by a client == number of words that name it
 *
 * Taking and giving back are one compare-and-swap each, so a kill never loses a permit. `released`
 * counts releases, for waiters only: they look through the words again when it changed.
 *
 * What it does not do: order among waiters; permits are not counted per thread.
 */
#ifndef SHMEMI_SYNC_SEMAPHORE_H
#define SHMEMI_SYNC_SEMAPHORE_H

#include "shmem/sync.h"
#include "sync/wait.h"

#define SHMEMI_SEMAPHORE_MAGIC 0x314d4553u /* "SEM1" */
enum { SHMEMI_SEMAPHORE_PERMITS = 65536 };

typedef struct shmemi_semaphore {
    uint32_t magic;
    uint32_t permits;
    uint32_t inverse; /* ~permits: who overwrites one must not make us write behind our memory */
    uint32_t reserved[13];
    shmemi_bell_t bell; /* rings one */
    _Atomic uint32_t released;
    uint32_t reserved2[13];
    _Atomic uint64_t holders[];
} shmemi_semaphore_t;
SHMEMI_PIN(shmemi_semaphore_t, bell, 64);
SHMEMI_PIN(shmemi_semaphore_t, holders, 128);

shmem_status_t shmemi_semaphore_init(void *memory, size_t bytes, uint32_t permits);
/* A deadline in the past: one try, which gives TIMEOUT; ..._try gives BUSY instead. */
shmem_status_t shmemi_semaphore_acquire(const shmemi_actor_t *actor, shmemi_semaphore_t *semaphore,
                                        shmemi_deadline_t deadline);
shmem_status_t shmemi_semaphore_try(const shmemi_actor_t *actor, shmemi_semaphore_t *semaphore);
shmem_status_t shmemi_semaphore_release(const shmemi_actor_t *actor, shmemi_semaphore_t *semaphore);
shmem_status_t shmemi_semaphore_available(const shmemi_actor_t *actor,
                                          shmemi_semaphore_t *semaphore, uint32_t *permits);

#endif
