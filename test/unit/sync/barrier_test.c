/* SPDX-License-Identifier: Apache-2.0 */
/* The barrier: nobody passes early, rounds wrap around, a dead participant is noticed. */
#include "sync/barrier.h"
#include "sync_world.h"

static shmemi_barrier_t *barrier;

static shmem_status_t await_for(shmemi_actor_t *actor, uint32_t token, int64_t timeout)
{
    return shmemi_barrier_await(actor, barrier, token, shmemi_deadline_in(timeout));
}

static shmem_status_t pass(shmemi_actor_t *actor, int64_t timeout)
{
    uint32_t token;
    shmem_status_t status = shmemi_barrier_arrive(actor, barrier, &token);
    return status ? status : await_for(actor, token, timeout);
}

static void fresh(int clients, uint32_t participants, uint32_t round)
{
    world_make(clients);
    barrier = harness_shared(4096);
    CHECK_OK(shmemi_barrier_init(barrier, participants, round));
}

static void arguments_and_garbage(void)
{
    fresh(1, 1, 0);
    shmemi_actor_t me;
    world_actor(&me, 0, 0);
    CHECK_STATUS(shmemi_barrier_init(barrier, 0, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_barrier_init(barrier, 65536, 0), SHMEM_ERR_INVALID);
    CHECK_OK(pass(&me, -1)); /* alone */
    CHECK_OK(pass(&me, 0));
    shmemi_barrier_t *zero = harness_shared(sizeof *zero);
    uint32_t token = 77;
    CHECK_STATUS(shmemi_barrier_arrive(&me, zero, &token), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_barrier_await(&me, zero, 0, SHMEMI_FOREVER), SHMEM_ERR_INVALID);
    barrier->participants = 0;
    CHECK_STATUS(shmemi_barrier_arrive(&me, barrier, &token), SHMEM_ERR_CORRUPT);
    barrier->participants = 65536;
    CHECK_STATUS(shmemi_barrier_arrive(&me, barrier, &token), SHMEM_ERR_CORRUPT);
    CHECK_STATUS(await_for(&me, 5, -1), SHMEM_ERR_CORRUPT);
    CHECK_EQ(token, 77);
    barrier->participants = 1; /* two rounds have passed */
    CHECK_OK(await_for(&me, 0, -1));
    CHECK_OK(await_for(&me, 1, -1));
    CHECK_STATUS(await_for(&me, 2, 0), SHMEM_ERR_TIMEOUT);
    CHECK_STATUS(await_for(&me, 3, -1), SHMEM_ERR_INVALID);
    CHECK_STATUS(await_for(&me, 3 + UINT32_MAX / 3, -1), SHMEM_ERR_INVALID);
    shmemi_actor_fini(&me);
}

static void split_phase(void)
{
    fresh(2, 2, UINT32_MAX);
    shmemi_actor_t a, b;
    world_actor(&a, 0, 0);
    world_actor(&b, 1, 0);
    for (int i = 0; i < 5; i++) {
        uint32_t token, other;
        CHECK_OK(shmemi_barrier_arrive(&a, barrier, &token));
        CHECK_STATUS(await_for(&a, token, 0), SHMEM_ERR_TIMEOUT);
        CHECK_STATUS(await_for(&a, token, 2 * MS), SHMEM_ERR_TIMEOUT); /* the arrival stands */
        CHECK_OK(shmemi_barrier_arrive(&b, barrier, &other));
        CHECK_EQ(token, other);
        CHECK_EQ(token, UINT32_MAX + (uint32_t)i);
        CHECK_OK(await_for(&a, token, 0));
        CHECK_OK(await_for(&b, other, 0));
    }
    shmemi_actor_fini(&a);
    shmemi_actor_fini(&b);
}

/* ---- rounds ---- */

enum { ROUNDS = 400, MOST = 16 };

typedef struct game {
    uint64_t plain[MOST][16]; /* what each participant wrote in this round */
    int64_t spin;
    bool crowded;
} game_t;

static void play(int rank, int n, void *arg)
{
    game_t *game = arg;
    shmemi_actor_t actor;
    world_actor(&actor, rank, game->spin);
    actor.crowded = game->crowded;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        game->plain[rank][0] = i;
        CHECK_OK(pass(&actor, 20000 * MS));
        for (int k = 0; k < n; k++)
            CHECK_EQ(game->plain[k][0], i);
        CHECK_OK(pass(&actor, 20000 * MS));
    }
    shmemi_actor_fini(&actor);
}

static void rounds(harness_mode_t mode, int n, int64_t spin, bool crowded, bool fences)
{
    fresh(n, (uint32_t)n, UINT32_MAX - ROUNDS);
    game_t *game = harness_shared(sizeof *game);
    game->spin = spin;
    game->crowded = crowded;
    atomic_store(&barrier->bell.sequence, UINT32_MAX - 10);
    atomic_store(&world.roster->fence_needed, fences);
    shmemi_barrier_refuse(fences);
    harness_pes(n, mode, 60, play, game);
    shmemi_barrier_refuse(false);
    CHECK_EQ(barrier->arrivals, (uint64_t)n * (UINT32_MAX - ROUNDS + 2ull * ROUNDS));
    CHECK(world_stat(SHMEMI_STAT_late_wakes) <= WORLD_LATE);
}

static void rounds_of_threads(void)
{
    rounds(HARNESS_THREAD, 2, 50000, false, false);
    rounds(HARNESS_THREAD, 4, 0, false, false);
    rounds(HARNESS_THREAD, 4, 50000, true, true);
}

static void rounds_of_processes(void)
{
    world_needs_kills();
    rounds(HARNESS_PROC, 2, 50000, false, false);
    rounds(HARNESS_PROC, 4, 0, false, true);
    /* far more than processors */
    rounds(HARNESS_PROC, MOST, 50000, true, false);
    rounds(HARNESS_PROC, MOST, 50000, false, false);
}

/* ---- deaths ---- */

enum { PARTIES = 3 };

typedef struct party {
    int client;
    int rounds;       /* passes that must succeed, */
    bool then_misses; /* then one that must fail with PEER_DEAD, */
    bool then_ends;   /* or the end, or sleep until killed */
} party_t;

static void take_part(void *arg)
{
    const party_t *party = arg;
    shmemi_actor_t actor;
    world_actor(&actor, party->client, 0);
    for (int i = 0; i < party->rounds; i++)
        CHECK_OK(pass(&actor, 10000 * MS));
    if (party->then_misses) {
        double begin = harness_now();
        CHECK_STATUS(pass(&actor, 10000 * MS), SHMEM_ERR_PEER_DEAD);
        CHECK(harness_now() - begin < 2.0);
    } else if (!party->then_ends) {
        world_wait_for_death();
    }
    shmemi_actor_fini(&actor);
}

static pid_t start(const party_t *party, const char *kill_at, unsigned passage)
{
    if (kill_at)
        shmemi_fault_arm(kill_at, SHMEMI_FAULT_KILL, passage);
    pid_t pid = harness_fork(take_part, (void *)(intptr_t)party);
    shmemi_fault_disarm();
    return pid;
}

/* A participant dies after `rounds` rounds; the others notice in the next one. */
static void misses_the_dead(int rounds_before)
{
    fresh(PARTIES, PARTIES, UINT32_MAX);
    party_t victim = {0, rounds_before, false, false};
    party_t others[2] = {{1, rounds_before, true, false}, {2, rounds_before, true, false}};
    pid_t pids[PARTIES] = {start(&victim, NULL, 0), start(&others[0], NULL, 0),
                           start(&others[1], NULL, 0)};
    uint64_t others_arrived = PARTIES * ((uint64_t)UINT32_MAX + (unsigned)rounds_before) + 2;
    for (double end = harness_now() + 10; atomic_load(&barrier->arrivals) != others_arrived;) {
        CHECK(harness_now() < end);
        harness_sleep(0.0005);
    }
    harness_sleep(0.01);
    kill(pids[0], SIGKILL);
    CHECK_EQ(harness_wait(pids[0], 10), -SIGKILL);
    double begin = harness_now();
    world_bury(0);
    CHECK_EQ(harness_wait(pids[1], 10), 0);
    CHECK_EQ(harness_wait(pids[2], 10), 0);
    CHECK(harness_now() - begin < 1.0);
}

static void dead_participant(void)
{
    world_needs_kills();
    for (int rounds_before = 0; rounds_before < 3; rounds_before++)
        misses_the_dead(rounds_before);
}

/* It dies between its last arrival and the completion of that round: the round completes, and the
 * next one must notice, although the death was counted before it began. */
static void died_before_the_round_began(void)
{
    world_needs_kills();
    fresh(PARTIES, PARTIES, 7);
    party_t victim = {0, 1, false, false};
    party_t other = {1, 1, true, false};
    pid_t dead = start(&victim, "sync.barrier.arrive.counted", 1);
    CHECK_EQ(harness_wait(dead, 10), -SIGKILL);
    world_bury(0);
    pid_t survivor = start(&other, NULL, 0);
    shmemi_actor_t me;
    world_actor(&me, 2, 0);
    CHECK_OK(pass(&me, 5000 * MS));
    CHECK_STATUS(pass(&me, 5000 * MS), SHMEM_ERR_PEER_DEAD);
    CHECK_EQ(harness_wait(survivor, 10), 0);
    shmemi_actor_fini(&me);
}

/* The last one to arrive dies: its arrival stands, so the round is complete, told or not. */
static void last_arrival_killed(void)
{
    static const char *const points[] = {"sync.barrier.arrive.counted", "sync.bell.ring.cleared",
                                         "sync.bell.ring.bumped"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        fresh(2, 2, 0);
        party_t other = {1, 1, false, true}, victim = {0, 1, false, true};
        pid_t waiter = start(&other, NULL, 0);
        world_await_sleeper(SHMEMI_WAIT_BARRIER, 1);
        CHECK_EQ(harness_wait(start(&victim, points[i], 1), 10), -SIGKILL);
        world_bury(0);
        double begin = harness_now();
        CHECK_EQ(harness_wait(waiter, 10), 0);
        CHECK(harness_now() - begin < 1.0);
    }
}

/* The death of a stranger disturbs nobody whose round completes soon. */
static void strangers_death(void)
{
    fresh(3, 2, 0);
    shmemi_actor_t a, b;
    world_actor(&a, 0, 0);
    world_actor(&b, 1, 0);
    uint32_t token, other;
    CHECK_OK(shmemi_barrier_arrive(&a, barrier, &token));
    world_bury(2);
    CHECK_STATUS(await_for(&a, token, 20 * MS), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmemi_barrier_arrive(&b, barrier, &other));
    CHECK_OK(await_for(&a, token, -1));
    CHECK_OK(await_for(&b, other, -1));
    for (int i = 0; i < 2; i++) { /* two rounds later it is forgotten */
        CHECK_OK(shmemi_barrier_arrive(&a, barrier, &token));
        CHECK_OK(shmemi_barrier_arrive(&b, barrier, &other));
        CHECK_OK(await_for(&a, token, 0));
    }
    CHECK_OK(shmemi_barrier_arrive(&a, barrier, &token));
    CHECK_STATUS(await_for(&a, token, 400 * MS), SHMEM_ERR_TIMEOUT);
    shmemi_actor_fini(&a);
    shmemi_actor_fini(&b);
}

int main(void)
{
    RUN(arguments_and_garbage);
    RUN(split_phase);
    RUN(rounds_of_threads);
    RUN(rounds_of_processes);
    RUN(dead_participant);
    RUN(died_before_the_round_began);
    RUN(last_arrival_killed);
    RUN(strangers_death);
    return harness_end();
}
