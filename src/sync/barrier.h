/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A central barrier: it counts arrivals, and never stops.
 *
 *   round in progress == arrivals / participants      missing == participants - arrivals %
 * participants An arrival is one fetch-and-add, so a kill leaves it done or not. The token is the
 * round in which the caller arrived; its wait is over when arrivals >= (token + 1) * participants.
 *   begun[r mod 4] == VALID | deaths in the roster just before the first arrival of round r; if
 * that one was killed before it could note it, an older count. first: of the barrier's first round.
 *
 * Death: whoever is missing in round r had arrived in round r - 1; so a missing participant that
 * died did so after begun[r - 1]. The barrier does not know names: a death of another client looks
 * the same, which is why a round gets GRACE to complete in spite of it.
 *
 * The first line is written at each arrival, without reading it before (a line that is read first
 * and written then travels twice); the second hardly ever.
 */
#ifndef SHMEMI_SYNC_BARRIER_H
#define SHMEMI_SYNC_BARRIER_H

#include "shmem/sync.h"
#include "sync/wait.h"

#define SHMEMI_BARRIER_MAGIC    0x31524142u /* "BAR1" */
#define SHMEMI_BARRIER_GRACE_NS 200000000   /* 200 ms */
enum { SHMEMI_BARRIER_PARTICIPANTS = 65535 };

typedef struct shmemi_barrier {
    _Atomic uint64_t arrivals;
    uint32_t reserved[14];
    uint32_t magic;
    uint32_t participants;
    shmemi_bell_t bell;
    _Atomic uint64_t first;
    _Atomic uint64_t begun[4];
    uint32_t reserved2[2];
} shmemi_barrier_t;
SHMEMI_PIN_SIZE(shmemi_barrier_t, sizeof(shmem_barrier_object_t));
SHMEMI_PIN(shmemi_barrier_t, magic, 64);
SHMEMI_PIN(shmemi_barrier_t, bell, 72);
SHMEMI_PIN(shmemi_barrier_t, begun, 88);

/* `round`: the first one (0; tests begin near the wrap). */
shmem_status_t shmemi_barrier_init(shmemi_barrier_t *barrier, uint32_t participants,
                                   uint32_t round);
shmem_status_t shmemi_barrier_arrive(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                     uint32_t *token);
shmem_status_t shmemi_barrier_await(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                    uint32_t token, shmemi_deadline_t deadline);

#endif
