/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A central barrier: one word holds round and arrivals.
 *
 *   word == arrivals << 32 | round,  0 <= arrivals < participants
 *   An arrival adds one; the last one instead stores 0 << 32 | round + 1. A kill leaves the word
 *   before or after the arrival, nothing between.
 *   The token is the round in which the caller arrived; its wait is over when round != token.
 *   begun[r mod 4] == VALID | deaths in the roster when round r began (in the first round: at its
 *   first arrival).
 *
 * Death: whoever is missing in round r had arrived in round r - 1, which began at begun[r - 1]; so
 * a missing participant that died did so after that count. The barrier does not know names: a death
 * of another client looks the same, which is why a round gets GRACE to complete in spite of it.
 */
#ifndef SHMEMI_SYNC_BARRIER_H
#define SHMEMI_SYNC_BARRIER_H

#include "shmem/sync.h"
#include "sync/wait.h"

#define SHMEMI_BARRIER_MAGIC    0x31524142u /* "BAR1" */
#define SHMEMI_BARRIER_GRACE_NS 200000000   /* 200 ms */
enum { SHMEMI_BARRIER_PARTICIPANTS = 65535 };

typedef struct shmemi_barrier {
    _Atomic uint64_t word;
    shmemi_bell_t bell;
    uint32_t magic;
    uint32_t participants;
    uint32_t reserved[10];
    _Atomic uint64_t begun[4];
    uint32_t reserved2[8];
} shmemi_barrier_t;
SHMEMI_PIN_SIZE(shmemi_barrier_t, sizeof(shmem_barrier_object_t));
SHMEMI_PIN(shmemi_barrier_t, bell, 8);
SHMEMI_PIN(shmemi_barrier_t, magic, 16);
SHMEMI_PIN(shmemi_barrier_t, begun, 64);

/* `round`: the first one (0; tests begin near the wrap). */
shmem_status_t shmemi_barrier_init(shmemi_barrier_t *barrier, uint32_t participants,
                                   uint32_t round);
shmem_status_t shmemi_barrier_arrive(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                     uint32_t *token);
shmem_status_t shmemi_barrier_await(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                    uint32_t token, shmemi_deadline_t deadline);

#endif
