/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mutex when it is not simply free: waiting, dead holders, poison, misuse.
 *
 * A waiter keeps its hands off the word for longer and longer between two looks, so that the holder
 * works undisturbed; a mutex under heavy load thus stays on one processor for many turns. A woken
 * waiter does not raise the flag while it is trying, so that unlocks meanwhile cost no system call;
 * the flag goes up before it sleeps again and when it has the mutex.
 */
#include "sync/mutex.h"

#include <limits.h>
#include <sched.h>

#include "base/status.h"

enum {
    FIRST_PAUSE = 4,       /* polite pauses before the second look, */
    LAST_PAUSE = 16,       /* doubled up to this */
    YIELD_EVERY_NS = 5000, /* between two offers of the processor to others */
    CROWDED_SPIN_NS = 5000,
    STARVING_NS = 1000000, /* asleep or passed over for this long: the next unlock steps back */
    STEP_BACK_NS = 100000  /* for at most this long: a wake-up from deep sleep */
};

typedef struct attempt {
    const shmemi_actor_t *actor;
    const shmemi_self_t *self;
    shmemi_mutex_t *mutex;
    shmem_status_t status; /* valid when attempt_ready() said true */
    int64_t starves_at;    /* valid when it sleeps */
} attempt_t;

shmem_status_t shmemi_mutex_init(shmemi_mutex_t *mutex)
{
    *mutex = (shmemi_mutex_t){.magic = SHMEMI_MUTEX_MAGIC};
    /* SYNC mutex-word: release, pairs with acquire in shmemi_mutex_take() */
    atomic_store_explicit(&mutex->word, SHMEMI_MUTEX_FREE, memory_order_release);
    return SHMEM_OK;
}

static shmem_status_t mutex_bad(const shmemi_mutex_t *mutex, uint64_t word)
{
    if (mutex->magic != SHMEMI_MUTEX_MAGIC)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "the memory at %p is no mutex: call shmem_mutex_init() first",
                           (const void *)mutex);
    return shmemi_fail(SHMEM_ERR_CORRUPT, "sync",
                       "the mutex at %p holds the impossible word %#llx: something else wrote to "
                       "its memory",
                       (const void *)mutex, (unsigned long long)word);
}

static inline uint32_t word_row(uint64_t word)
{
    return (uint32_t)word & ~(uint32_t)SHMEMI_MUTEX_INCONSISTENT;
}

static bool word_possible(uint64_t word)
{
    return word == SHMEMI_MUTEX_FREE || word == SHMEMI_MUTEX_POISONED ||
           (word_row(word) && word_row(word) < SHMEMI_THREADS && word >> 32);
}

static inline bool word_change(shmemi_mutex_t *mutex, uint64_t *from, uint64_t to)
{
    /* SYNC mutex-word: acquire, pairs with release in shmemi_mutex_give() */
    return atomic_compare_exchange_strong_explicit(&mutex->word, from, to, memory_order_acquire,
                                                   memory_order_acquire);
}

static const char *holder_words(const shmemi_actor_t *actor, uint64_t word, char who[SHMEMI_WHO])
{
    return shmemi_roster_who(actor->roster, word_row(word), (uint32_t)(word >> 32), who,
                             SHMEMI_WHO);
}

static shmem_status_t timed_out(const shmemi_actor_t *actor, const shmemi_mutex_t *mutex)
{
    char who[SHMEMI_WHO];
    uint64_t word = atomic_load_explicit(&mutex->word, memory_order_relaxed);
    if (word == SHMEMI_MUTEX_FREE || !word_possible(word))
        return shmemi_quiet(SHMEM_ERR_TIMEOUT, "sync",
                            "the mutex at %p was not had within the time given; nobody holds it "
                            "just now: wait longer",
                            (const void *)mutex);
    return shmemi_quiet(SHMEM_ERR_TIMEOUT, "sync",
                        "the mutex at %p was not had within the time given; a thread of %s holds "
                        "it",
                        (const void *)mutex, holder_words(actor, word, who));
}

/* The holder is dead: take over. The word names the heir at once, so that the heir may die, too. */
static bool attempt_inherit(attempt_t *attempt, uint64_t word)
{
    char who[SHMEMI_WHO];
    uint64_t mine = shmemi_mutex_mine(attempt->self) | SHMEMI_MUTEX_INCONSISTENT;
    if (!word_change(attempt->mutex, &word, mine))
        return false;
    SHMEMI_KILL_POINT("sync.mutex.inherit.taken");
    attempt->status =
        shmemi_quiet(SHMEM_ERR_OWNER_DIED, "sync",
                     "the mutex at %p is yours, but its last holder, a thread of %s, died inside: "
                     "repair what it protects, then call shmem_mutex_consistent()",
                     (void *)attempt->mutex, holder_words(attempt->actor, word, who));
    return true;
}

/* One look at the word. True: the outcome is in attempt->status. */
static bool attempt_ready(void *arg)
{
    attempt_t *attempt = arg;
    uint64_t mine = shmemi_mutex_mine(attempt->self);
    /* SYNC mutex-holder: acquire, pairs with the fence in shmemi_row_claim(): who is named is
     * looked up in the roster after his name was read, or he could be taken for his row's last
     * owner */
    uint64_t word = atomic_load_explicit(&attempt->mutex->word, memory_order_acquire);
    while (word == SHMEMI_MUTEX_FREE)
        if (word_change(attempt->mutex, &word, mine)) {
            SHMEMI_KILL_POINT("sync.mutex.lock.taken");
            attempt->status = SHMEM_OK;
            return true;
        }
    if (word == SHMEMI_MUTEX_POISONED)
        attempt->status =
            shmemi_quiet(SHMEM_ERR_POISONED, "sync",
                         "the mutex at %p was unlocked by an heir that did not repair its data",
                         (void *)attempt->mutex);
    else if ((word & ~SHMEMI_MUTEX_INCONSISTENT) == mine)
        attempt->status =
            shmemi_fail(SHMEM_ERR_DEADLOCK, "sync",
                        "the calling thread holds the mutex at %p already", (void *)attempt->mutex);
    else if (!word_possible(word))
        attempt->status = mutex_bad(attempt->mutex, word);
    else if (!shmemi_roster_thread_alive(attempt->actor->roster, word_row(word),
                                         (uint32_t)(word >> 32)))
        return attempt_inherit(attempt, word);
    else
        return false;
    return true;
}

/* The same for one that sleeps between two looks. */
static bool attempt_ready_asleep(void *arg)
{
    attempt_t *attempt = arg;
    if (attempt_ready(attempt))
        return true;
    if (shmemi_clock_now() >= attempt->starves_at)
        atomic_store_explicit(&attempt->mutex->starving, 1, memory_order_relaxed);
    return false;
}

/* Try for a while without sleeping. True: the outcome is in attempt->status. */
static bool attempt_spin(attempt_t *attempt, shmemi_deadline_t deadline)
{
    const shmemi_actor_t *actor = attempt->actor;
    int64_t now = shmemi_clock_now(), end = now + actor->spin_ns;
    int64_t yield_at = now + (actor->crowded ? 0 : YIELD_EVERY_NS);
    if (actor->crowded && actor->spin_ns > CROWDED_SPIN_NS)
        end = now + CROWDED_SPIN_NS;
    if (end > deadline)
        end = deadline;
    for (int pause = FIRST_PAUSE; now < end; now = shmemi_clock_now()) {
        for (int i = 0; i < pause; i++)
            shmemi_cpu_relax();
        if (attempt_ready(attempt))
            return true;
        if (pause < LAST_PAUSE)
            pause *= 2;
        if (now >= yield_at) {
            sched_yield();
            yield_at = now + YIELD_EVERY_NS;
        }
    }
    return false;
}

static shmem_status_t attempt_start(attempt_t *attempt, const shmemi_actor_t *actor,
                                    shmemi_mutex_t *mutex)
{
    const shmemi_self_t *self = shmemi_self(actor);
    if (!self)
        return shmem_error_detail()->status;
    if (mutex->magic != SHMEMI_MUTEX_MAGIC)
        return mutex_bad(mutex, 0);
    *attempt = (attempt_t){actor, self, mutex, SHMEM_OK, 0};
    return SHMEM_OK;
}

shmem_status_t shmemi_mutex_lock_slow(const shmemi_actor_t *actor, shmemi_mutex_t *mutex,
                                      shmemi_deadline_t deadline)
{
    attempt_t attempt;
    shmem_status_t status = attempt_start(&attempt, actor, mutex);
    if (status)
        return status;
    if (attempt_ready(&attempt))
        return attempt.status;
    shmemi_stats_add(&attempt.self->thread->stats, SHMEMI_STAT_lock_waits, 1);
    if (attempt_spin(&attempt, deadline))
        return attempt.status;
    attempt.starves_at = shmemi_clock_now() + STARVING_NS;
    const shmemi_wait_t wait = {
        .ready = attempt_ready_asleep, .arg = &attempt, .kind = SHMEMI_WAIT_MUTEX, .object = mutex};
    status = shmemi_wait_sleep(attempt.self, &mutex->bell, &wait, deadline);
    if (status)
        return status == SHMEM_ERR_TIMEOUT ? timed_out(actor, mutex) : status;
    /* What is owed to the other sleepers. The unlock that follows reads it in this same thread; a
     * poisoned mutex needs no flag. */
    atomic_store_explicit(&mutex->bell.sleepers, 1, memory_order_relaxed);
    SHMEMI_KILL_POINT("sync.mutex.lock.flagged");
    return attempt.status;
}

shmem_status_t shmemi_mutex_try_slow(const shmemi_actor_t *actor, shmemi_mutex_t *mutex)
{
    attempt_t attempt;
    shmem_status_t status = attempt_start(&attempt, actor, mutex);
    if (status)
        return status;
    return attempt_ready(&attempt)
               ? attempt.status
               : shmemi_quiet(SHMEM_ERR_BUSY, "sync", "the mutex at %p is held by another thread",
                              (void *)mutex);
}

void shmemi_mutex_wake(shmemi_mutex_t *mutex, shmemi_stats_t *stats)
{
    bool starving = atomic_load_explicit(&mutex->starving, memory_order_relaxed);
    if (starving)
        atomic_store_explicit(&mutex->starving, 0, memory_order_relaxed);
    shmemi_bell_wake(&mutex->bell, 1, stats);
    if (!starving)
        return;
    int64_t end = shmemi_clock_now() + STEP_BACK_NS;
    while (atomic_load_explicit(&mutex->word, memory_order_relaxed) == SHMEMI_MUTEX_FREE &&
           shmemi_clock_now() < end)
        sched_yield();
}

static shmem_status_t mutex_not_owner(const shmemi_mutex_t *mutex, uint64_t word)
{
    if (mutex->magic != SHMEMI_MUTEX_MAGIC || !word_possible(word))
        return mutex_bad(mutex, word);
    return shmemi_fail(SHMEM_ERR_NOT_OWNER, "sync",
                       "the calling thread does not hold the mutex at %p%s", (const void *)mutex,
                       word == SHMEMI_MUTEX_FREE ? ": nobody does" : "");
}

shmem_status_t shmemi_mutex_unlock_slow(const shmemi_actor_t *actor, shmemi_mutex_t *mutex)
{
    const shmemi_self_t *self = shmemi_self(actor);
    if (!self)
        return shmem_error_detail()->status;
    uint64_t mine = shmemi_mutex_mine(self);
    uint64_t word = atomic_load_explicit(&mutex->word, memory_order_relaxed);
    if (word == mine)
        return shmemi_mutex_give(actor, self, mutex);
    if (word != (mine | SHMEMI_MUTEX_INCONSISTENT))
        return mutex_not_owner(mutex, word);
    /* SYNC mutex-word: release, pairs with acquire in shmemi_mutex_take() */
    atomic_store_explicit(&mutex->word, SHMEMI_MUTEX_POISONED, memory_order_release);
    SHMEMI_KILL_POINT("sync.mutex.poison.stored");
    shmemi_bell_wake(&mutex->bell, INT_MAX, &self->thread->stats);
    return SHMEM_OK;
}

shmem_status_t shmemi_mutex_consistent(const shmemi_actor_t *actor, shmemi_mutex_t *mutex)
{
    const shmemi_self_t *self = shmemi_self(actor);
    if (!self)
        return shmem_error_detail()->status;
    uint64_t mine = shmemi_mutex_mine(self);
    uint64_t word = atomic_load_explicit(&mutex->word, memory_order_relaxed);
    if (word == mine)
        return SHMEM_OK;
    if (word != (mine | SHMEMI_MUTEX_INCONSISTENT))
        return mutex_not_owner(mutex, word);
    atomic_store_explicit(&mutex->word, mine, memory_order_relaxed);
    return SHMEM_OK;
}
