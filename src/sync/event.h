/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event: a word that is 0 or 1, and a bell.
 *
 *   manual   set stores 1, wakes all; wait sees 1 and leaves it; reset stores 0
 *   auto     set stores 1, wakes one; wait changes 1 to 0 by one compare-and-swap
 *
 * Setting is an exchange, not a store: it continues the release sequence of earlier sets, so that a
 * wait sees what every one of them published. Two sets without a wait between are one.
 */
#ifndef SHMEMI_SYNC_EVENT_H
#define SHMEMI_SYNC_EVENT_H

#include "shmem/sync.h"
#include "sync/wait.h"

#define SHMEMI_EVENT_MAGIC 0x31545645u /* "EVT1" */

typedef struct shmemi_event {
    _Atomic uint32_t is_set;
    uint32_t reset; /* shmem_event_reset_t */
    shmemi_bell_t bell;
    uint32_t magic;
    uint32_t reserved[11];
} shmemi_event_t;
SHMEMI_PIN_SIZE(shmemi_event_t, sizeof(shmem_event_t));
SHMEMI_PIN(shmemi_event_t, bell, 8);
SHMEMI_PIN(shmemi_event_t, magic, 16);

shmem_status_t shmemi_event_init(shmemi_event_t *event, shmem_event_reset_t reset, bool is_set);
shmem_status_t shmemi_event_set(const shmemi_actor_t *actor, shmemi_event_t *event);
shmem_status_t shmemi_event_reset(const shmemi_actor_t *actor, shmemi_event_t *event);
shmem_status_t shmemi_event_wait(const shmemi_actor_t *actor, shmemi_event_t *event,
                                 shmemi_deadline_t deadline);

#endif
