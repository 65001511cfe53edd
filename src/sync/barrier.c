/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/barrier.h"

#include "base/fault.h"
#include "base/status.h"

#define BEGUN_VALID (1ull << 32)

typedef struct await {
    const shmemi_actor_t *actor;
    shmemi_barrier_t *barrier;
    uint32_t token;
    int64_t doubt_since; /* when a death was first noticed; 0: none */
} await_t;

shmem_status_t shmemi_barrier_init(shmemi_barrier_t *barrier, uint32_t participants, uint32_t round)
{
    if (participants < 1 || participants > SHMEMI_BARRIER_PARTICIPANTS)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "a barrier for %u participants: must be 1 to %d", participants,
                           SHMEMI_BARRIER_PARTICIPANTS);
    *barrier = (shmemi_barrier_t){.magic = SHMEMI_BARRIER_MAGIC, .participants = participants};
    /* SYNC barrier-word: release, pairs with acquire in await_ready() */
    atomic_store_explicit(&barrier->word, round, memory_order_release);
    return SHMEM_OK;
}

static shmem_status_t barrier_check(const shmemi_barrier_t *barrier, uint32_t participants,
                                    uint64_t word)
{
    if (barrier->magic != SHMEMI_BARRIER_MAGIC)
        return shmemi_fail(SHMEM_ERR_INVALID, "sync",
                           "the memory at %p is no barrier: call shmem_barrier_init() first",
                           (const void *)barrier);
    if (participants < 1 || participants > SHMEMI_BARRIER_PARTICIPANTS ||
        word >> 32 >= participants)
        return shmemi_fail(SHMEM_ERR_CORRUPT, "sync",
                           "the barrier at %p holds impossible values (%u arrivals of %u "
                           "participants): something else wrote to its memory",
                           (const void *)barrier, (unsigned)(word >> 32), participants);
    return SHMEM_OK;
}

static _Atomic uint64_t *begun_at(shmemi_barrier_t *barrier, uint32_t round)
{
    return &barrier->begun[round % 4];
}

/* Deaths are counted from here on: stored before the round begins, so by the last arrival. */
static void round_prepare(const shmemi_actor_t *actor, shmemi_barrier_t *barrier, uint32_t round)
{
    /* SYNC barrier-begun: release, pairs with acquire in await_alive() */
    atomic_store_explicit(begun_at(barrier, round),
                          BEGUN_VALID | shmemi_roster_deaths(actor->roster), memory_order_release);
}

static void first_round_prepare(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                uint32_t round)
{
    uint64_t found = 0;
    /* SYNC barrier-begun: release, pairs with acquire in await_alive() */
    if (!atomic_load_explicit(begun_at(barrier, round), memory_order_relaxed))
        atomic_compare_exchange_strong_explicit(begun_at(barrier, round), &found,
                                                BEGUN_VALID | shmemi_roster_deaths(actor->roster),
                                                memory_order_release, memory_order_relaxed);
}

shmem_status_t shmemi_barrier_arrive(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                     uint32_t *token)
{
    const shmemi_self_t *self = shmemi_self(actor);
    if (!self)
        return shmem_error_detail()->status;
    uint32_t participants = *(volatile const uint32_t *)&barrier->participants;
    uint64_t word = atomic_load_explicit(&barrier->word, memory_order_relaxed), next;
    do {
        shmem_status_t status = barrier_check(barrier, participants, word);
        if (status)
            return status;
        uint32_t round = (uint32_t)word;
        first_round_prepare(actor, barrier, round);
        next = word + (1ull << 32);
        if (next >> 32 == participants) {
            next = round + 1u;
            round_prepare(actor, barrier, (uint32_t)next);
            SHMEMI_KILL_POINT("sync.barrier.arrive.prepared");
        }
        /* SYNC barrier-word: acquire and release, pairs with itself and with acquire in
         * await_ready(): every arrival passes on what the earlier ones published */
    } while (!atomic_compare_exchange_weak_explicit(&barrier->word, &word, next,
                                                    memory_order_acq_rel, memory_order_relaxed));
    SHMEMI_KILL_POINT("sync.barrier.arrive.counted");
    *token = (uint32_t)word;
    if ((uint32_t)next != (uint32_t)word)
        shmemi_bell_ring(actor->roster, &barrier->bell, &self->thread->stats);
    return SHMEM_OK;
}

static bool await_ready(void *arg)
{
    await_t *await = arg;
    /* SYNC barrier-word: acquire, pairs with release in shmemi_barrier_arrive() */
    return (uint32_t)atomic_load_explicit(&await->barrier->word, memory_order_acquire) !=
           await->token;
}

static shmem_status_t await_alive(void *arg)
{
    await_t *await = arg;
    /* SYNC barrier-begun: acquire, pairs with release in round_prepare() */
    uint64_t begun =
        atomic_load_explicit(begun_at(await->barrier, await->token - 1), memory_order_acquire);
    if (!begun)
        begun = atomic_load_explicit(begun_at(await->barrier, await->token), memory_order_acquire);
    uint32_t deaths = shmemi_roster_deaths(await->actor->roster) - (uint32_t)begun;
    if (!deaths)
        return SHMEM_OK;
    int64_t now = shmemi_clock_now();
    if (!await->doubt_since)
        await->doubt_since = now;
    if (now - await->doubt_since < SHMEMI_BARRIER_GRACE_NS)
        return SHMEM_OK;
    uint64_t word = atomic_load_explicit(&await->barrier->word, memory_order_relaxed);
    return shmemi_fail(SHMEM_ERR_PEER_DEAD, "sync",
                       "the barrier at %p misses %u of %u participants, and %u clients of this "
                       "node died meanwhile: initialize it again for the survivors",
                       (void *)await->barrier,
                       await->barrier->participants - (unsigned)(word >> 32),
                       await->barrier->participants, deaths);
}

shmem_status_t shmemi_barrier_await(const shmemi_actor_t *actor, shmemi_barrier_t *barrier,
                                    uint32_t token, shmemi_deadline_t deadline)
{
    const shmemi_self_t *self = shmemi_self(actor);
    if (!self)
        return shmem_error_detail()->status;
    shmem_status_t status = barrier_check(
        barrier, barrier->participants, atomic_load_explicit(&barrier->word, memory_order_relaxed));
    if (status)
        return status;
    await_t await = {actor, barrier, token, 0};
    const shmemi_wait_t wait = {.ready = await_ready,
                                .alive = await_alive,
                                .arg = &await,
                                .kind = SHMEMI_WAIT_BARRIER,
                                .object = barrier};
    status = shmemi_wait_until(actor, &barrier->bell, &wait, deadline);
    if (!status)
        shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_barriers, 1);
    return status;
}
