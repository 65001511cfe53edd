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
    /* SYNC event-sets: release, pairs with acquire in event_look() */
    atomic_store_explicit(&event->sets, is_set, memory_order_release);
    return SHMEM_OK;
}

/* Is it set? `taken` first: who advanced it had seen at least as many sets, and so do we; the other
 * way round, a stale `sets` could seem different from a newer `taken`. */
static inline bool event_look(shmemi_event_t *event, uint64_t *taken, uint64_t *sets)
{
    /* SYNC event-taken: acquire, pairs with release in event_take() */
    *taken = atomic_load_explicit(&event->taken, memory_order_acquire);
    /* SYNC event-sets: acquire, pairs with release in shmemi_event_set() */
    *sets = atomic_load_explicit(&event->sets, memory_order_acquire);
    return *sets != *taken;
}

static inline bool event_take(shmemi_event_t *event, uint64_t taken, uint64_t sets)
{
    /* SYNC event-taken: release, pairs with acquire in event_look() */
    return atomic_compare_exchange_strong_explicit(&event->taken, &taken, sets,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static __attribute__((noinline, cold)) shmem_status_t event_bad(const shmemi_event_t *event)
{
    if (event->magic != SHMEMI_EVENT_MAGIC)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "the memory at %p is no event: call shmem_event_init() first",
                           (const void *)event);
    return shmemi_fail(SHMEM_ERR_CORRUPT, "sync",
                       "the event at %p holds impossible values (reset %u, set %llu times, taken "
                       "%llu): something else wrote to its memory",
                       (const void *)event, event->reset, (unsigned long long)event->sets,
                       (unsigned long long)event->taken);
}

/* The thread's identity, and the kind of event as read once. */
static inline shmem_status_t event_start(const shmemi_actor_t *actor, const shmemi_event_t *event,
                                         const shmemi_self_t **self, uint32_t *reset)
{
    *self = shmemi_self(actor);
    if (!*self)
        return shmem_error_detail()->status;
    *reset = *(volatile const uint32_t *)&event->reset;
    if (__builtin_expect(event->magic != SHMEMI_EVENT_MAGIC || *reset > SHMEM_EVENT_AUTO, 0))
        return event_bad(event);
    return SHMEM_OK;
}

shmem_status_t shmemi_event_set(const shmemi_actor_t *actor, shmemi_event_t *event)
{
    const shmemi_self_t *self;
    uint32_t reset = 0;
    shmem_status_t status = event_start(actor, event, &self, &reset);
    if (status)
        return status;
    /* SYNC event-sets: release, pairs with acquire in event_look() */
    atomic_fetch_add_explicit(&event->sets, 1, memory_order_acq_rel);
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
    uint64_t taken, sets;
    shmem_status_t status = event_start(actor, event, &self, &reset);
    if (status)
        return status;
    if (event_look(event, &taken, &sets)) {
        if (taken > sets)
            return event_bad(event);
        event_take(event, taken, sets); /* else somebody else took it */
    }
    return SHMEM_OK;
}

/* ---- wait ---- */

enum { POLLS = 64 }; /* inlined, before the general wait */

typedef struct attempt {
    shmemi_event_t *event;
    bool is_auto;
    bool is_bad;
} attempt_t;

static inline bool attempt_ready(void *arg)
{
    attempt_t *attempt = arg;
    uint64_t taken, sets;
    if (!event_look(attempt->event, &taken, &sets))
        return false;
    if (__builtin_expect(taken > sets, 0))
        return attempt->is_bad = true;
    if (!attempt->is_auto)
        return true;
    if (!event_take(attempt->event, taken, sets))
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
    attempt_t attempt = {event, reset == SHMEM_EVENT_AUTO, false};
    for (int i = actor->crowded || !actor->spin_ns ? 1 : POLLS; i; i--) {
        if (attempt_ready(&attempt))
            return __builtin_expect(attempt.is_bad, 0) ? event_bad(event) : SHMEM_OK;
        shmemi_cpu_relax();
    }
    const shmemi_wait_t wait = {
        .ready = attempt_ready, .arg = &attempt, .kind = SHMEMI_WAIT_EVENT, .object = event};
    status = shmemi_wait_until(actor, &event->bell, &wait, deadline);
    return attempt.is_bad ? event_bad(event) : status;
}
