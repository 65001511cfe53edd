/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/barrier.h"

#include "base/fault.h"
#include "base/status.h"

#define BEGUN_VALID (1ull << 32)

typedef struct await {
    const shmemi_actor_t *actor;
    shmemi_barrier_t *barrier;
    uint32_t participants;
    uint64_t round;
    int64_t doubt_since; /* when a death was first noticed; 0: none */
} await_t;

shmem_status_t shmemi_barrier_init(shmemi_barrier_t *barrier, uint32_t participants, uint32_t round)
{
    if (participants < 1 || participants > SHMEMI_BARRIER_PARTICIPANTS)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "a barrier for %u participants: must be 1 to %d", participants,
                           SHMEMI_BARRIER_PARTICIPANTS);
    *barrier = (shmemi_barrier_t){.magic = SHMEMI_BARRIER_MAGIC, .participants = participants};
    /* SYNC barrier-arrivals: release, pairs with acquire in await_ready() */
    atomic_store_explicit(&barrier->arrivals, (uint64_t)round * participants, memory_order_release);
    return SHMEM_OK;
}

static __attribute__((noinline, cold)) shmem_status_t barrier_bad(const shmemi_barrier_t *barrier,
                                                                  uint32_t participants)
{
    if (barrier->magic != SHMEMI_BARRIER_MAGIC)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "the memory at %p is no barrier: call shmem_barrier_init() first",
                           (const void *)barrier);
    return shmemi_fail(SHMEM_ERR_CORRUPT, "sync",
                       "the barrier at %p claims to have %u participants: something else wrote to "
                       "its memory",
                       (const void *)barrier, participants);
}

/* The thread's identity, and the number of participants as read once. */
static inline shmem_status_t barrier_start(const shmemi_actor_t *actor,
                                           const shmemi_barrier_t *barrier,
                                           const shmemi_self_t **self, uint32_t *participants)
{
    *self = shmemi_self(actor);
    if (!*self)
        return shmem_error_detail()->status;
    *participants = *(volatile const uint32_t *)&barrier->participants;
    if (__builtin_expect(barrier->magic != SHMEMI_BARRIER_MAGIC ||
                             *participants - 1 >= SHMEMI_BARRIER_PARTICIPANTS,
                         0))
        return barrier_bad(barrier, *participants);
    return SHMEM_OK;
}

static inline void first_note(shmemi_barrier_t *barrier, uint32_t deaths)
{
    uint64_t found = 0;
    /* SYNC barrier-begun: release, pairs with acquire in await_alive() */
    if (__builtin_expect(!atomic_load_explicit(&barrier->first, memory_order_relaxed), 0))
        atomic_compare_exchange_strong_explicit(&barrier->first, &found, BEGUN_VALID | deaths,
                                                memory_order_release, memory_order_relaxed);
}

/* `deaths` was read before the arrival: of those who arrive later in this round and die, none is
 * counted in it. */
static inline void round_note(shmemi_barrier_t *barrier, uint64_t round, uint32_t deaths)
{
    _Atomic uint64_t *begun = &barrier->begun[round % 4];
    if (atomic_load_explicit(begun, memory_order_relaxed) != (BEGUN_VALID | deaths))
        /* SYNC barrier-begun: release, pairs with acquire in await_alive() */
        atomic_store_explicit(begun, BEGUN_VALID | deaths, memory_order_release);
}

shmem_status_t shmemi_barrier_arrive(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                     uint32_t *token)
{
    const shmemi_self_t *self;
    uint32_t participants = 0;
    shmem_status_t status = barrier_start(actor, barrier, &self, &participants);
    if (status)
        return status;
    uint32_t deaths = shmemi_roster_deaths(actor->roster);
    first_note(barrier, deaths);
    /* SYNC barrier-arrivals: acquire and release, pairs with itself and with acquire in
     * await_ready(): every arrival passes on what the earlier ones published */
    uint64_t before = atomic_fetch_add_explicit(&barrier->arrivals, 1, memory_order_acq_rel);
    SHMEMI_KILL_POINT("sync.barrier.arrive.counted");
    uint64_t round = before / participants, index = before % participants;
    if (index == participants - 1)
        shmemi_bell_ring(actor->roster, &barrier->bell, &self->thread->stats);
    if (index == 0)
        round_note(barrier, round, deaths);
    *token = (uint32_t)round;
    return SHMEM_OK;
}

static bool await_ready(void *arg)
{
    const await_t *await = arg;
    /* SYNC barrier-arrivals: acquire, pairs with release in shmemi_barrier_arrive() */
    return atomic_load_explicit(&await->barrier->arrivals, memory_order_acquire) >=
           (await->round + 1) * await->participants;
}

static shmem_status_t await_alive(void *arg)
{
    await_t *await = arg;
    /* SYNC barrier-begun: acquire, pairs with release in round_note() */
    uint64_t begun =
        atomic_load_explicit(&await->barrier->begun[(await->round - 1) % 4], memory_order_acquire);
    if (!begun)
        begun = atomic_load_explicit(&await->barrier->first, memory_order_acquire);
    uint32_t deaths = shmemi_roster_deaths(await->actor->roster) - (uint32_t)begun;
    if (!deaths)
        return SHMEM_OK;
    int64_t now = shmemi_clock_now();
    if (!await->doubt_since)
        await->doubt_since = now;
    if (now - await->doubt_since < SHMEMI_BARRIER_GRACE_NS)
        return SHMEM_OK;
    uint64_t arrivals = atomic_load_explicit(&await->barrier->arrivals, memory_order_relaxed);
    return shmemi_fail(SHMEM_ERR_PEER_DEAD, "sync",
                       "the barrier at %p misses %u of %u participants, and %u clients of this "
                       "node died meanwhile: initialize it again for the survivors",
                       (void *)await->barrier,
                       await->participants - (unsigned)(arrivals % await->participants),
                       await->participants, deaths);
}

static shmem_status_t timed_out(const await_t *await)
{
    uint64_t arrivals = atomic_load_explicit(&await->barrier->arrivals, memory_order_relaxed);
    unsigned missing = await->participants - (unsigned)(arrivals % await->participants);
    return shmemi_quiet(SHMEM_ERR_TIMEOUT, "sync",
                        "the barrier at %p misses %u of %u participants at the end of the time "
                        "given; the arrival stands: wait again with the same token",
                        (void *)await->barrier, missing, await->participants);
}

shmem_status_t shmemi_barrier_await(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                    uint32_t token, shmemi_deadline_t deadline)
{
    const shmemi_self_t *self;
    uint32_t participants = 0;
    shmem_status_t status = barrier_start(actor, barrier, &self, &participants);
    if (status)
        return status;
    /* SYNC barrier-arrivals: acquire, pairs with release in shmemi_barrier_arrive() */
    uint64_t now = atomic_load_explicit(&barrier->arrivals, memory_order_acquire) / participants;
    uint32_t ago = (uint32_t)now - token;
    if (ago > UINT32_MAX / 2)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "token %u is of a round of the barrier at %p that has not begun: it is "
                           "in round %u",
                           token, (void *)barrier, (uint32_t)now);
    await_t await = {actor, barrier, participants, now - ago, 0};
    const shmemi_wait_t wait = {.ready = await_ready,
                                .alive = await_alive,
                                .arg = &await,
                                .kind = SHMEMI_WAIT_BARRIER,
                                .object = barrier};
    status = ago ? SHMEM_OK : shmemi_wait_until(actor, &barrier->bell, &wait, deadline);
    if (status == SHMEM_ERR_TIMEOUT)
        return timed_out(&await);
    if (!status)
        shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_barriers, 1);
    return status;
}
