/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event: two counters and a bell.
 *
 *   it is set   <=>  sets != taken;  taken <= sets
 *   set         sets++
 *   wait, auto  one compare-and-swap of taken to the value of sets that was seen
 *   reset       the same; wait, manual: changes nothing
 *
 * Two sets without a wait between are thus one. A set continues the release sequence of earlier
 * ones, so that a wait sees what every one of them published.
 *
 * Three cache lines: the setter writes the first without reading it before, the waiter reads it and
 * writes the second, and what hardly ever changes lies on the third. So a hand-over moves one line
 * once to the setter and once to the waiter, and nothing else.
 */
#ifndef SHMEMI_SYNC_EVENT_H
#define SHMEMI_SYNC_EVENT_H

#include "shmem/sync.h"
#include "sync/wait.h"

#define SHMEMI_EVENT_MAGIC 0x31545645u /* "EVT1" */

typedef struct shmemi_event {
    _Atomic uint64_t sets;
    uint32_t reserved[14];
    _Atomic uint64_t taken;
    uint32_t reserved2[14];
    uint32_t magic;
    uint32_t reset; /* shmem_event_reset_t */
    shmemi_bell_t bell;
    uint32_t reserved3[12];
} shmemi_event_t;
SHMEMI_PIN_SIZE(shmemi_event_t, sizeof(shmem_event_t));
SHMEMI_PIN(shmemi_event_t, taken, 64);
SHMEMI_PIN(shmemi_event_t, magic, 128);
SHMEMI_PIN(shmemi_event_t, bell, 136);

shmem_status_t shmemi_event_init(shmemi_event_t *event, shmem_event_reset_t reset, bool is_set);
shmem_status_t shmemi_event_set(const shmemi_actor_t *actor, shmemi_event_t *event);
shmem_status_t shmemi_event_reset(const shmemi_actor_t *actor, shmemi_event_t *event);
shmem_status_t shmemi_event_wait(const shmemi_actor_t *actor, shmemi_event_t *event,
                                 shmemi_deadline_t deadline);

#endif
