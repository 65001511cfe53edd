/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/semaphore.h"

#include <string.h>

#include "base/fault.h"
#include "base/status.h"
#include "sync/row.h"

/* Where this thread last took a permit: where it gives one back first. */
static _Thread_local struct {
    const shmemi_semaphore_t *semaphore;
    uint32_t index;
} last_taken;

typedef struct attempt {
    const shmemi_actor_t *actor;
    const shmemi_self_t *self;
    shmemi_semaphore_t *semaphore;
    uint32_t permits;  /* read once and checked: the memory may change under us */
    uint32_t released; /* at the beginning of the last search */
    bool search;       /* look at all words even if nothing was released */
    bool bury;         /* and at whether their holders live */
} attempt_t;

shmem_status_t shmemi_semaphore_init(void *memory, size_t bytes, uint32_t permits)
{
    shmemi_semaphore_t *semaphore = memory;
    if ((uintptr_t)memory % 64)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "a semaphore at %p: must lie on a multiple of 64 bytes", memory);
    if (permits < 1 || permits > SHMEMI_SEMAPHORE_PERMITS)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync", "a semaphore of %u permits: must be 1 to %d",
                           permits, SHMEMI_SEMAPHORE_PERMITS);
    if (bytes < SHMEM_SEMAPHORE_BYTES(permits))
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "a semaphore of %u permits needs %zu bytes, given are %zu", permits,
                           SHMEM_SEMAPHORE_BYTES(permits), bytes);
    memset(memory, 0, SHMEM_SEMAPHORE_BYTES(permits));
    semaphore->permits = permits;
    semaphore->inverse = ~permits;
    semaphore->magic = SHMEMI_SEMAPHORE_MAGIC;
    return SHMEM_OK;
}

static shmem_status_t attempt_start(attempt_t *attempt, const shmemi_actor_t *actor,
                                    shmemi_semaphore_t *semaphore)
{
    const shmemi_self_t *self = shmemi_self(actor);
    if (!self)
        return shmem_error_detail()->status;
    if (semaphore->magic != SHMEMI_SEMAPHORE_MAGIC)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "the memory at %p is no semaphore: call shmem_semaphore_init() first",
                           (void *)semaphore);
    uint32_t permits = *(volatile const uint32_t *)&semaphore->permits;
    if (permits < 1 || permits > SHMEMI_SEMAPHORE_PERMITS || semaphore->inverse != ~permits)
        return shmemi_fail(SHMEM_ERR_CORRUPT, "sync",
                           "the semaphore at %p claims to have %u permits: something else wrote "
                           "to its memory",
                           (void *)semaphore, permits);
    *attempt = (attempt_t){actor, self, semaphore, permits, 0, true, false};
    return SHMEM_OK;
}

static inline bool holder_alive(const attempt_t *attempt, uint64_t holder)
{
    return shmemi_roster_client_alive(attempt->actor->roster, (uint32_t)(holder >> 32),
                                      (uint32_t)holder);
}

static inline bool word_change(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
    /* SYNC semaphore-word: acquire and release, pairs with itself: what was written under a permit
     * is seen by who takes it next */
    return atomic_compare_exchange_strong_explicit(word, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* Where this thread begins to search: neighbours on different cache lines. */
static inline uint32_t home(const attempt_t *attempt)
{
    return attempt->self->row * 8 % attempt->permits;
}

/* Look through all words for one that can be had, and take it. */
static bool take_any(attempt_t *attempt)
{
    uint64_t mine = shmemi_row_owner(attempt->actor->slot, attempt->actor->epoch), living = mine;
    uint32_t index = home(attempt);
    for (uint32_t i = 0; i < attempt->permits; i++, index++) {
        if (index == attempt->permits)
            index = 0;
        _Atomic uint64_t *word = &attempt->semaphore->holders[index];
        /* acquire: the holder is looked up in the roster after its name was read */
        uint64_t holder = atomic_load_explicit(word, memory_order_acquire);
        if (holder && (!attempt->bury || holder == living))
            continue;
        if (holder && holder_alive(attempt, holder)) {
            living = holder;
            continue;
        }
        if (word_change(word, holder, mine)) {
            SHMEMI_KILL_POINT("sync.semaphore.acquire.taken");
            last_taken.semaphore = attempt->semaphore;
            last_taken.index = index;
            return true;
        }
    }
    return false;
}

static bool attempt_ready(void *arg)
{
    attempt_t *attempt = arg;
    /* SYNC semaphore-released: acquire, pairs with release in shmemi_semaphore_release() */
    uint32_t released = atomic_load_explicit(&attempt->semaphore->released, memory_order_acquire);
    if (released == attempt->released && !attempt->search)
        return false;
    attempt->released = released;
    attempt->search = false;
    bool taken = take_any(attempt);
    attempt->bury = false;
    return taken;
}

/* Once per slice: search everything, and take what the dead held. */
static shmem_status_t attempt_bury(void *arg)
{
    attempt_t *attempt = arg;
    attempt->search = attempt->bury = true;
    return SHMEM_OK;
}

static uint32_t count_available(const attempt_t *attempt)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < attempt->permits; i++) {
        uint64_t holder =
            atomic_load_explicit(&attempt->semaphore->holders[i], memory_order_relaxed);
        count += !holder || !holder_alive(attempt, holder);
    }
    return count;
}

shmem_status_t shmemi_semaphore_acquire(const shmemi_actor_t *actor, shmemi_semaphore_t *semaphore,
                                        shmemi_deadline_t deadline)
{
    attempt_t attempt;
    shmem_status_t status = attempt_start(&attempt, actor, semaphore);
    if (status || attempt_ready(&attempt))
        return status;
    const shmemi_wait_t wait = {.ready = attempt_ready,
                                .alive = attempt_bury,
                                .arg = &attempt,
                                .kind = SHMEMI_WAIT_SEMAPHORE,
                                .object = semaphore};
    return shmemi_wait_until(actor, &semaphore->bell, &wait, deadline);
}

shmem_status_t shmemi_semaphore_try(const shmemi_actor_t *actor, shmemi_semaphore_t *semaphore)
{
    attempt_t attempt;
    shmem_status_t status = attempt_start(&attempt, actor, semaphore);
    if (status || attempt_ready(&attempt))
        return status;
    attempt_bury(&attempt);
    if (attempt_ready(&attempt))
        return SHMEM_OK;
    return shmemi_quiet(SHMEM_ERR_BUSY, "sync", "all %u permits of the semaphore at %p are taken",
                        attempt.permits, (void *)semaphore);
}

shmem_status_t shmemi_semaphore_release(const shmemi_actor_t *actor, shmemi_semaphore_t *semaphore)
{
    attempt_t attempt;
    shmem_status_t status = attempt_start(&attempt, actor, semaphore);
    if (status)
        return status;
    uint64_t mine = shmemi_row_owner(actor->slot, actor->epoch);
    uint32_t index = home(&attempt);
    if (last_taken.semaphore == semaphore && last_taken.index < attempt.permits)
        index = last_taken.index;
    for (uint32_t i = 0; i < attempt.permits; i++, index++) {
        if (index == attempt.permits)
            index = 0;
        _Atomic uint64_t *word = &semaphore->holders[index];
        if (atomic_load_explicit(word, memory_order_relaxed) != mine || !word_change(word, mine, 0))
            continue;
        SHMEMI_KILL_POINT("sync.semaphore.release.given");
        /* SYNC semaphore-released: release, pairs with acquire in attempt_ready() */
        atomic_fetch_add_explicit(&semaphore->released, 1, memory_order_release);
        SHMEMI_KILL_POINT("sync.semaphore.release.counted");
        shmemi_bell_ring_one(actor->roster, &semaphore->bell, &attempt.self->thread->stats);
        return SHMEM_OK;
    }
    return shmemi_fail(SHMEM_ERR_NOT_OWNER, "sync",
                       "the calling client holds no permit of the semaphore at %p",
                       (void *)semaphore);
}

shmem_status_t shmemi_semaphore_available(const shmemi_actor_t *actor,
                                          shmemi_semaphore_t *semaphore, uint32_t *permits)
{
    attempt_t attempt;
    shmem_status_t status = attempt_start(&attempt, actor, semaphore);
    if (!status)
        *permits = count_available(&attempt);
    return status;
}
