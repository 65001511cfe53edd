/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public face of src/sync: check the handles, find the actor, call. The uncontended paths are
 * inlined here, so that a call from a program is one call.
 */
#include "shmem/sync.h"

#include "base/status.h"
#include "job/context.h"
#include "sync/barrier.h"
#include "sync/event.h"
#include "sync/mutex.h"
#include "sync/semaphore.h"

#define MISSING(a, b) __builtin_expect(!(a) | !(b), 0)

static __attribute__((noinline, cold)) shmem_status_t missing(const char *what)
{
    return shmemi_fail(SHMEM_ERR_INVALID, "sync", "%s: an argument is NULL", what);
}

/* An object over two cache lines is no longer changed in one go on every machine. */
static shmem_status_t place_check(const void *object, const char *what)
{
    enum { ALIGNMENT = 64 };
    if (!object)
        return missing(what);
    if ((uintptr_t)object % ALIGNMENT)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "%s: the object at %p must lie on a multiple of %d bytes", what, object,
                           ALIGNMENT);
    return SHMEM_OK;
}

/* ---- mutex ---- */

shmem_status_t shmem_mutex_init(shmem_mutex_t *mutex)
{
    shmem_status_t status = place_check(mutex, __func__);
    return status ? status : shmemi_mutex_init((shmemi_mutex_t *)mutex);
}

shmem_status_t shmem_mutex_lock(shmem_context_t context, shmem_mutex_t *mutex)
{
    if (MISSING(context, mutex))
        return missing(__func__);
    return shmemi_mutex_lock(shmemi_context_actor(context), (shmemi_mutex_t *)mutex,
                             SHMEMI_FOREVER);
}

shmem_status_t shmem_mutex_trylock(shmem_context_t context, shmem_mutex_t *mutex)
{
    if (MISSING(context, mutex))
        return missing(__func__);
    return shmemi_mutex_try(shmemi_context_actor(context), (shmemi_mutex_t *)mutex);
}

shmem_status_t shmem_mutex_lock_timed(shmem_context_t context, shmem_mutex_t *mutex,
                                      int64_t timeout)
{
    if (MISSING(context, mutex))
        return missing(__func__);
    shmemi_actor_t *actor = shmemi_context_actor(context);
    if (shmemi_mutex_take(actor, (shmemi_mutex_t *)mutex))
        return SHMEM_OK;
    return shmemi_mutex_lock_slow(actor, (shmemi_mutex_t *)mutex, shmemi_deadline_in(timeout));
}

shmem_status_t shmem_mutex_unlock(shmem_context_t context, shmem_mutex_t *mutex)
{
    if (MISSING(context, mutex))
        return missing(__func__);
    return shmemi_mutex_unlock(shmemi_context_actor(context), (shmemi_mutex_t *)mutex);
}

shmem_status_t shmem_mutex_consistent(shmem_context_t context, shmem_mutex_t *mutex)
{
    if (MISSING(context, mutex))
        return missing(__func__);
    return shmemi_mutex_consistent(shmemi_context_actor(context), (shmemi_mutex_t *)mutex);
}

/* ---- semaphore ---- */

shmem_status_t shmem_semaphore_init(void *memory, size_t bytes, uint32_t permits)
{
    return memory ? shmemi_semaphore_init(memory, bytes, permits) : missing(__func__);
}

shmem_status_t shmem_semaphore_acquire(shmem_context_t context, shmem_semaphore_t *s)
{
    if (MISSING(context, s))
        return missing(__func__);
    return shmemi_semaphore_acquire(shmemi_context_actor(context), (shmemi_semaphore_t *)s,
                                    SHMEMI_FOREVER);
}

shmem_status_t shmem_semaphore_try(shmem_context_t context, shmem_semaphore_t *s)
{
    if (MISSING(context, s))
        return missing(__func__);
    return shmemi_semaphore_try(shmemi_context_actor(context), (shmemi_semaphore_t *)s);
}

shmem_status_t shmem_semaphore_acquire_timed(shmem_context_t context, shmem_semaphore_t *s,
                                             int64_t timeout)
{
    if (MISSING(context, s))
        return missing(__func__);
    return shmemi_semaphore_acquire(shmemi_context_actor(context), (shmemi_semaphore_t *)s,
                                    shmemi_deadline_in(timeout));
}

shmem_status_t shmem_semaphore_release(shmem_context_t context, shmem_semaphore_t *s)
{
    if (MISSING(context, s))
        return missing(__func__);
    return shmemi_semaphore_release(shmemi_context_actor(context), (shmemi_semaphore_t *)s);
}

shmem_status_t shmem_semaphore_available(shmem_context_t context, shmem_semaphore_t *s,
                                         uint32_t *permits)
{
    if (MISSING(context, s) || !permits)
        return missing(__func__);
    return shmemi_semaphore_available(shmemi_context_actor(context), (shmemi_semaphore_t *)s,
                                      permits);
}

/* ---- event ---- */

shmem_status_t shmem_event_init(shmem_event_t *event, shmem_event_reset_t reset, int is_set)
{
    shmem_status_t status = place_check(event, __func__);
    return status ? status : shmemi_event_init((shmemi_event_t *)event, reset, is_set != 0);
}

shmem_status_t shmem_event_set(shmem_context_t context, shmem_event_t *event)
{
    if (MISSING(context, event))
        return missing(__func__);
    return shmemi_event_set(shmemi_context_actor(context), (shmemi_event_t *)event);
}

shmem_status_t shmem_event_reset(shmem_context_t context, shmem_event_t *event)
{
    if (MISSING(context, event))
        return missing(__func__);
    return shmemi_event_reset(shmemi_context_actor(context), (shmemi_event_t *)event);
}

shmem_status_t shmem_event_wait(shmem_context_t context, shmem_event_t *event, int64_t timeout)
{
    if (MISSING(context, event))
        return missing(__func__);
    return shmemi_event_wait(shmemi_context_actor(context), (shmemi_event_t *)event,
                             shmemi_deadline_in(timeout));
}

/* ---- barrier ---- */

shmem_status_t shmem_barrier_init(shmem_barrier_object_t *barrier, uint32_t participants)
{
    shmem_status_t status = place_check(barrier, __func__);
    return status ? status : shmemi_barrier_init((shmemi_barrier_t *)barrier, participants, 0);
}

shmem_status_t shmem_barrier_arrive(shmem_context_t context, shmem_barrier_object_t *barrier,
                                    uint32_t *token)
{
    if (MISSING(context, barrier) || !token)
        return missing(__func__);
    return shmemi_barrier_arrive(shmemi_context_actor(context), (shmemi_barrier_t *)barrier, token);
}

shmem_status_t shmem_barrier_await(shmem_context_t context, shmem_barrier_object_t *barrier,
                                   uint32_t token, int64_t timeout)
{
    if (MISSING(context, barrier))
        return missing(__func__);
    return shmemi_barrier_await(shmemi_context_actor(context), (shmemi_barrier_t *)barrier, token,
                                shmemi_deadline_in(timeout));
}

shmem_status_t shmem_barrier_wait(shmem_context_t context, shmem_barrier_object_t *barrier,
                                  int64_t timeout)
{
    uint32_t token;
    shmem_status_t status = shmem_barrier_arrive(context, barrier, &token);
    return status ? status : shmem_barrier_await(context, barrier, token, timeout);
}
