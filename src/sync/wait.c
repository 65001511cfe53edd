/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting in three steps: poll, give the processor to others, sleep.
 *
 *   sleeper: s = sequence; sleepers++; heavy barrier; ready()? no: futex_wait(sequence, s)
 *   ringer:  store what is waited for; light barrier; sleepers != 0? ->
 *     all    sleepers = 0; sequence++; wake all
 *     one    f = sleepers; sequence++; wake one; nobody there: sleepers = 0 if it is still f
 *
 * Either the ringer sees the flag or the sleeper sees the store. The flag is never taken from a
 * sleeper that needs it: one that announced itself before the ringer looked at (or cleared) the
 * flag holds a sequence from before the bump, and does not fall asleep; one that comes later raises
 * the flag again, or changes it so that it stays. A ringer killed in between, and a sleeper killed
 * after it took a wake meant for another, cost the others one slice.
 */
#include "sync/wait.h"

#include <limits.h>
#include <sched.h>

#include "base/fault.h"
#include "base/status.h"
#include "os/barrier.h"
#include "os/futex.h"

enum {
    POLLS_PER_CLOCK = 32,  /* a look at the clock costs as much as a few polls */
    YIELD_EVERY_NS = 4000, /* between two offers of the processor to others */
    CROWDED_POLLS = 16     /* before the first offer when threads outnumber processors */
};

void shmemi_bell_wake(shmemi_bell_t *bell, int count, shmemi_stats_t *stats)
{
    /* SYNC bell-flag: acquire-release, pairs with release in announce(): cleared before the bump,
     * never after it */
    atomic_exchange_explicit(&bell->sleepers, 0, memory_order_acq_rel);
    SHMEMI_KILL_POINT("sync.bell.ring.cleared");
    /* SYNC bell-sequence: release, pairs with acquire in announce() */
    atomic_fetch_add_explicit(&bell->sequence, 1, memory_order_acq_rel);
    SHMEMI_KILL_POINT("sync.bell.ring.bumped");
    shmemi_futex_wake(&bell->sequence, count);
    if (stats)
        shmemi_stats_add(stats, SHMEMI_STAT_wakes, 1);
}

void shmemi_bell_ring_slow(shmemi_bell_t *bell, shmemi_stats_t *stats)
{
    shmemi_bell_wake(bell, INT_MAX, stats);
}

void shmemi_bell_ring_one_slow(shmemi_bell_t *bell, shmemi_stats_t *stats)
{
    /* SYNC bell-flag: acquire, pairs with release in announce() */
    uint32_t flag = atomic_load_explicit(&bell->sleepers, memory_order_acquire);
    /* SYNC bell-sequence: release, pairs with acquire in announce() */
    atomic_fetch_add_explicit(&bell->sequence, 1, memory_order_acq_rel);
    SHMEMI_KILL_POINT("sync.bell.ring.bumped");
    if (!shmemi_futex_wake(&bell->sequence, 1))
        /* SYNC bell-flag: relaxed, the futex call lies between; an announcement since the load
         * makes it fail */
        atomic_compare_exchange_strong_explicit(&bell->sleepers, &flag, 0, memory_order_relaxed,
                                                memory_order_relaxed);
    if (stats)
        shmemi_stats_add(stats, SHMEMI_STAT_wakes, 1);
}

/* Tell ringers that somebody is about to sleep. Returns the sequence to sleep on. */
static uint32_t announce(shmemi_bell_t *bell)
{
    /* SYNC bell-sequence: acquire, pairs with release in shmemi_bell_wake() */
    uint32_t sequence = atomic_load_explicit(&bell->sequence, memory_order_acquire);
    /* SYNC bell-flag: release, pairs with acquire in shmemi_bell_wake() and
     * shmemi_bell_ring_one_slow(); 0 would be no flag */
    while (atomic_fetch_add_explicit(&bell->sleepers, 1, memory_order_release) == UINT32_MAX)
        ;
    /* SYNC bell-sleepers: heavy barrier, pairs with the light barrier in shmemi_bell_ring() */
    shmemi_heavy_barrier();
    return sequence;
}

bool shmemi_wait_poll(const shmemi_actor_t *actor, bool (*ready)(void *), void *arg,
                      shmemi_deadline_t deadline)
{
    for (int i = actor->crowded ? CROWDED_POLLS : POLLS_PER_CLOCK; i && actor->spin_ns; i--) {
        shmemi_cpu_relax();
        if (ready(arg))
            return true;
    }
    int64_t now = shmemi_clock_now(), end = now + actor->spin_ns;
    int64_t yield_at = actor->crowded ? now : now + YIELD_EVERY_NS;
    if (end > deadline)
        end = deadline;
    while (now < end) {
        if (now >= yield_at) {
            sched_yield();
            yield_at = actor->crowded ? 0 : now + YIELD_EVERY_NS;
        }
        for (int i = actor->crowded ? 1 : POLLS_PER_CLOCK; i; i--) {
            if (ready(arg))
                return true;
            shmemi_cpu_relax();
        }
        now = shmemi_clock_now();
    }
    return false;
}

void shmemi_wait_show(const shmemi_self_t *self, shmemi_wait_kind_t kind, const void *object)
{
    atomic_store_explicit(&self->thread->wait_object, (uint64_t)(uintptr_t)object,
                          memory_order_relaxed);
    atomic_store_explicit(&self->thread->waits, kind, memory_order_relaxed);
}

static shmem_status_t timed_out(const shmemi_wait_t *wait)
{
    static const char *const names[] = {"nothing",   "the mutex",   "a permit of the semaphore",
                                        "the event", "the barrier", "a change of the memory"};
    unsigned kind = wait->kind < SHMEMI_COUNT(names) ? wait->kind : 0;
    return shmemi_quiet(
        SHMEM_ERR_TIMEOUT, "sync",
        "%s at %p was waited for, but did not come within the time given: look at what "
        "should bring it, or wait longer",
        names[kind], wait->object);
}

/* The deadline passed before there was a reason to sleep. */
static shmem_status_t last_try(const shmemi_wait_t *wait)
{
    shmem_status_t status = wait->alive ? wait->alive(wait->arg) : SHMEM_OK;
    if (wait->ready(wait->arg))
        return SHMEM_OK;
    return status ? status : timed_out(wait);
}

/* One slice in the kernel. False: it ended unasked. */
static bool doze(const shmemi_self_t *self, shmemi_bell_t *bell, uint32_t sequence, int64_t now,
                 shmemi_deadline_t deadline)
{
    int64_t slice = now + SHMEMI_SLICE_NS;
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_sleeps, 1);
    int result = shmemi_futex_wait(&bell->sequence, sequence, slice < deadline ? slice : deadline);
    SHMEMI_KILL_POINT("sync.wait.woken");
    return result == 0;
}

static shmem_status_t sleep_until(const shmemi_self_t *self, shmemi_bell_t *bell,
                                  const shmemi_wait_t *wait, shmemi_deadline_t deadline)
{
    int64_t ask_at = 0; /* when to ask whether it can still come */
    for (;;) {
        uint32_t sequence = announce(bell);
        SHMEMI_KILL_POINT("sync.wait.announced");
        int64_t now = shmemi_clock_now();
        shmem_status_t status = SHMEM_OK;
        if (wait->alive && now >= ask_at) {
            ask_at = now + SHMEMI_SLICE_NS;
            status = wait->alive(wait->arg);
        }
        if (wait->ready(wait->arg))
            return SHMEM_OK;
        if (status)
            return status;
        if (now >= deadline)
            return timed_out(wait);
        bool woken = doze(self, bell, sequence, now, deadline);
        if (wait->ready(wait->arg)) {
            if (!woken)
                shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_late_wakes, 1);
            return SHMEM_OK;
        }
    }
}

shmem_status_t shmemi_wait_sleep(const shmemi_self_t *self, shmemi_bell_t *bell,
                                 const shmemi_wait_t *wait, shmemi_deadline_t deadline)
{
    if (shmemi_deadline_passed(deadline))
        return last_try(wait);
    shmemi_wait_show(self, wait->kind, wait->object);
    shmem_status_t status = sleep_until(self, bell, wait, deadline);
    shmemi_wait_show(self, SHMEMI_WAIT_NOTHING, NULL);
    return status;
}

shmem_status_t shmemi_wait_until(const shmemi_actor_t *actor, shmemi_bell_t *bell,
                                 const shmemi_wait_t *wait, shmemi_deadline_t deadline)
{
    if (wait->ready(wait->arg) || shmemi_wait_poll(actor, wait->ready, wait->arg, deadline))
        return SHMEM_OK;
    const shmemi_self_t *self = shmemi_self(actor);
    if (!self)
        return shmem_error_detail()->status;
    return shmemi_wait_sleep(self, bell, wait, deadline);
}
