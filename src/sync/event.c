/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/event.h"

#include "base/fault.h"
#include "base/status.h"

shmem_status_t shmemi_event_init(shmemi_event_t *event, shmem_event_reset_t reset, bool is_set)
{
    if (reset != SHMEM_EVENT_MANUAL && reset != SHMEM_EVENT_AUTO)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "an event with reset %d: must be SHMEM_EVENT_MANUAL or _AUTO",
                           (int)reset);
    *event = (shmemi_event_t){.reset = reset, .magic = SHMEMI_EVENT_MAGIC};
    /* SYNC event-set: release, pairs with acquire in event_ready_manual() and event_ready_auto() */
    atomic_store_explicit(&event->is_set, is_set, memory_order_release);
    return SHMEM_OK;
}

static shmem_status_t event_check(const shmemi_event_t *event, uint32_t reset, uint32_t is_set)
{
    if (event->magic != SHMEMI_EVENT_MAGIC)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "the memory at %p is no event: call shmem_event_init() first",
                           (const void *)event);
    if (reset > SHMEM_EVENT_AUTO || is_set > 1)
        return shmemi_fail(SHMEM_ERR_CORRUPT, "sync",
                           "the event at %p holds impossible values (reset %u, set %u): something "
                           "else wrote to its memory",
                           (const void *)event, reset, is_set);
    return SHMEM_OK;
}

static inline shmem_status_t event_start(const shmemi_actor_t *actor, const shmemi_event_t *event,
                                         const shmemi_self_t **self, uint32_t *reset)
{
    *self = shmemi_self(actor);
    if (!*self)
        return shmem_error_detail()->status;
    *reset = *(volatile const uint32_t *)&event->reset;
    uint32_t is_set = atomic_load_explicit(&event->is_set, memory_order_relaxed);
    if (__builtin_expect(
            event->magic == SHMEMI_EVENT_MAGIC && *reset <= SHMEM_EVENT_AUTO && is_set <= 1, 1))
        return SHMEM_OK;
    return event_check(event, *reset, is_set);
}

shmem_status_t shmemi_event_set(const shmemi_actor_t *actor, shmemi_event_t *event)
{
    const shmemi_self_t *self;
    uint32_t reset = 0;
    shmem_status_t status = event_start(actor, event, &self, &reset);
    if (status)
        return status;
    /* SYNC event-set: release, pairs with acquire in event_ready_manual() and event_ready_auto() */
    atomic_exchange_explicit(&event->is_set, 1, memory_order_acq_rel);
    SHMEMI_KILL_POINT("sync.event.set.stored");
    if (reset == SHMEM_EVENT_AUTO)
        shmemi_bell_ring_one(actor->roster, &event->bell, &self->thread->stats);
    else
        shmemi_bell_ring(actor->roster, &event->bell, &self->thread->stats);
    return SHMEM_OK;
}

shmem_status_t shmemi_event_reset(const shmemi_actor_t *actor, shmemi_event_t *event)
{
    const shmemi_self_t *self;
    uint32_t reset = 0;
    shmem_status_t status = event_start(actor, event, &self, &reset);
    if (!status)
        atomic_store_explicit(&event->is_set, 0, memory_order_relaxed);
    return status;
}

static bool event_ready_manual(void *arg)
{
    shmemi_event_t *event = arg;
    /* SYNC event-set: acquire, pairs with release in shmemi_event_set() */
    return atomic_load_explicit(&event->is_set, memory_order_acquire) == 1;
}

static bool event_more(void *arg)
{
    shmemi_event_t *event = arg;
    return atomic_load_explicit(&event->is_set, memory_order_relaxed) == 1;
}

static bool event_ready_auto(void *arg)
{
    shmemi_event_t *event = arg;
    uint32_t found = 1;
    if (!event_more(event))
        return false;
    /* SYNC event-set: acquire, pairs with release in shmemi_event_set() */
    if (!atomic_compare_exchange_strong_explicit(&event->is_set, &found, 0, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    SHMEMI_KILL_POINT("sync.event.wait.consumed");
    return true;
}

shmem_status_t shmemi_event_wait(const shmemi_actor_t *actor, shmemi_event_t *event,
                                 shmemi_deadline_t deadline)
{
    const shmemi_self_t *self;
    uint32_t reset = 0;
    shmem_status_t status = event_start(actor, event, &self, &reset);
    if (status)
        return status;
    bool is_auto = reset == SHMEM_EVENT_AUTO;
    const shmemi_wait_t wait = {.ready = is_auto ? event_ready_auto : event_ready_manual,
                                .arg = event,
                                .kind = SHMEMI_WAIT_EVENT,
                                .object = event,
                                .more = is_auto ? event_more : NULL};
    return shmemi_wait_until(actor, &event->bell, &wait, deadline);
}
