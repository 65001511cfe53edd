/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: nothing is lost between a store and a sleep, whoever is killed, and time is kept. */
#include <limits.h>

#include "sync_world.h"

typedef struct place {
    _Atomic uint64_t value;
    shmemi_bell_t bell;
    _Atomic uint64_t echo;
    shmemi_bell_t echo_bell;
    _Atomic int dead;
} place_t;

typedef struct look {
    place_t *place;
    uint64_t wanted;
    int asked;
} look_t;

static bool value_ready(void *arg)
{
    look_t *look = arg;
    return atomic_load_explicit(&look->place->value, memory_order_acquire) >= look->wanted;
}

static bool echo_ready(void *arg)
{
    look_t *look = arg;
    return atomic_load_explicit(&look->place->echo, memory_order_acquire) >= look->wanted;
}

static shmem_status_t place_alive(void *arg)
{
    look_t *look = arg;
    look->asked++;
    return atomic_load(&look->place->dead) ? SHMEM_ERR_PEER_DEAD : SHMEM_OK;
}

static shmem_status_t wait_value(shmemi_actor_t *actor, place_t *place, uint64_t wanted,
                                 int64_t timeout)
{
    look_t look = {place, wanted, 0};
    const shmemi_wait_t wait = {
        .ready = value_ready, .alive = place_alive, .arg = &look, .kind = SHMEMI_WAIT_BELL};
    return shmemi_wait_until(actor, &place->bell, &wait, shmemi_deadline_in(timeout));
}

static shmem_status_t wait_echo(shmemi_actor_t *actor, place_t *place, uint64_t wanted,
                                int64_t timeout)
{
    look_t look = {place, wanted, 0};
    const shmemi_wait_t wait = {.ready = echo_ready, .arg = &look, .kind = SHMEMI_WAIT_BELL};
    return shmemi_wait_until(actor, &place->echo_bell, &wait, shmemi_deadline_in(timeout));
}

static place_t *fresh(int clients)
{
    world_make(clients);
    return harness_shared(sizeof(place_t));
}

static void time_is_kept(void)
{
    place_t *place = fresh(1);
    shmemi_actor_t actor;
    for (int64_t spin = 0; spin <= 50000; spin += 50000) {
        world_actor(&actor, 0, spin);
        place->value = 1;
        CHECK_OK(wait_value(&actor, place, 1, 0)); /* ready beats a deadline in the past */
        CHECK_STATUS(wait_value(&actor, place, 2, 0), SHMEM_ERR_TIMEOUT);
        static const double times[] = {0.001, 0.02, 0.13};
        for (size_t i = 0; i < SHMEMI_COUNT(times); i++) {
            double begin = harness_now();
            CHECK_STATUS(wait_value(&actor, place, 2, (int64_t)(times[i] * 1e9)),
                         SHMEM_ERR_TIMEOUT);
            double took = harness_now() - begin;
            CHECK(took >= times[i] && took < times[i] + 1.0);
        }
        shmemi_actor_fini(&actor);
    }
    CHECK_EQ(place->dead, 0);
}

static void try_leaves_no_trace(void)
{
    place_t *place = fresh(1);
    shmemi_actor_t actor;
    world_actor(&actor, 0, 0);
    CHECK_STATUS(wait_value(&actor, place, 1, 0), SHMEM_ERR_TIMEOUT);
    CHECK_EQ(place->bell.sleepers, 0);
    shmemi_bell_ring(world.roster, &place->bell, NULL);
    CHECK_EQ(place->bell.sequence, 0); /* nobody slept: no bump, no system call */
    CHECK_EQ(world_stat(SHMEMI_STAT_sleeps), 0);
    shmemi_actor_fini(&actor);
}

static void dead_peer(void)
{
    place_t *place = fresh(1);
    shmemi_actor_t actor;
    world_actor(&actor, 0, 1000);
    atomic_store(&place->dead, 1);
    CHECK_STATUS(wait_value(&actor, place, 1, -1), SHMEM_ERR_PEER_DEAD);
    CHECK_STATUS(wait_value(&actor, place, 1, 0), SHMEM_ERR_PEER_DEAD); /* a try learns it, too */
    place->value = 1;
    CHECK_OK(wait_value(&actor, place, 1, -1)); /* what came before the death counts */
    shmemi_actor_fini(&actor);
}

/* ---- two sides ---- */

static void pong(void *arg)
{
    place_t *place = arg;
    shmemi_actor_t actor;
    world_actor(&actor, 1, 0);
    CHECK_OK(wait_value(&actor, place, 1, 10000 * MS));
    shmemi_actor_fini(&actor);
}

static void *pong_thread(void *arg)
{
    pong(arg);
    return NULL;
}

static void wake_one(place_t *place)
{
    world_await_sleeper(SHMEMI_WAIT_BELL, 1);
    atomic_store_explicit(&place->value, 1, memory_order_release);
    shmemi_bell_ring(world.roster, &place->bell, NULL);
}

static void ring_wakes_thread(void)
{
    place_t *place = fresh(2);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pong_thread, place) == 0);
    wake_one(place);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_EQ(place->bell.sequence, 1);
    CHECK_EQ(world_stat(SHMEMI_STAT_late_wakes), 0);
}

static void ring_wakes_process(void)
{
    world_needs_kills();
    place_t *place = fresh(2);
    pid_t child = harness_fork(pong, place);
    wake_one(place);
    CHECK_EQ(harness_wait(child, 10), 0);
    CHECK_EQ(world_stat(SHMEMI_STAT_late_wakes), 0);
}

/* A store behind the library's back, and a death, are found within a slice. */
static void bounded_sleep(void)
{
    place_t *place = fresh(2);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pong_thread, place) == 0);
    world_await_sleeper(SHMEMI_WAIT_BELL, 1);
    double begin = harness_now();
    atomic_store(&place->value, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(harness_now() - begin < 1.0);
    CHECK_EQ(world_stat(SHMEMI_STAT_late_wakes), 1);
}

static void ring_and_die(void *arg)
{
    place_t *place = arg;
    atomic_store(&place->value, 1);
    shmemi_bell_ring(world.roster, &place->bell, NULL);
}

static void ringer_killed(void)
{
    static const char *const points[] = {"sync.bell.ring.cleared", "sync.bell.ring.bumped"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        place_t *place = fresh(2);
        pid_t sleeper = harness_fork(pong, place);
        world_await_sleeper(SHMEMI_WAIT_BELL, 1);
        shmemi_fault_arm(points[i], SHMEMI_FAULT_KILL, 1);
        pid_t ringer = harness_fork(ring_and_die, place);
        shmemi_fault_disarm();
        CHECK_EQ(harness_wait(ringer, 10), -SIGKILL);
        double begin = harness_now();
        CHECK_EQ(harness_wait(sleeper, 10), 0);
        CHECK(harness_now() - begin < 0.5);
    }
}

/* A sleeper killed with its flag up costs the next ring one needless wake, and nobody waits. */
static void sleeper_killed(void)
{
    static const char *const points[] = {"sync.wait.announced", "sync.wait.woken"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        place_t *place = fresh(3);
        shmemi_fault_arm(points[i], SHMEMI_FAULT_KILL, 1);
        pid_t sleeper = harness_fork(pong, place);
        shmemi_fault_disarm();
        CHECK_EQ(harness_wait(sleeper, 10), -SIGKILL);
        world_bury(1);
        CHECK_EQ(place->bell.sleepers, 1);
        shmemi_bell_ring(world.roster, &place->bell, NULL);
        CHECK_EQ(place->bell.sleepers, 0);
        CHECK_EQ(place->bell.sequence, 1);
    }
}

/* ---- ping-pong: a lost wake-up would show as a late one ---- */

enum { ROUNDS = 400 };

typedef struct game {
    place_t *place;
    int64_t spin;
    bool crowded;
} game_t;

static void play(int rank, int n, void *arg)
{
    (void)n;
    const game_t *game = arg;
    place_t *place = game->place;
    shmemi_actor_t actor;
    world_actor(&actor, rank, game->spin);
    actor.crowded = game->crowded;
    for (uint64_t i = 1; i <= ROUNDS; i++)
        if (rank == 0) {
            atomic_store_explicit(&place->value, i, memory_order_release);
            shmemi_bell_ring(world.roster, &place->bell, NULL);
            CHECK_OK(wait_echo(&actor, place, i, 5000 * MS));
        } else {
            CHECK_OK(wait_value(&actor, place, i, 5000 * MS));
            atomic_store_explicit(&place->echo, i, memory_order_release);
            shmemi_bell_ring(world.roster, &place->echo_bell, NULL);
        }
    shmemi_actor_fini(&actor);
}

static void ping_pong(harness_mode_t mode, int64_t spin, bool crowded, bool fences)
{
    game_t game = {fresh(2), spin, crowded};
    atomic_store(&game.place->bell.sequence, UINT32_MAX - ROUNDS / 2); /* over the wrap */
    atomic_store(&game.place->echo_bell.sequence, UINT32_MAX - ROUNDS / 2);
    atomic_store(&world.roster->fence_needed, fences);
    shmemi_barrier_refuse(fences);
    harness_pes(2, mode, 30, play, &game);
    shmemi_barrier_refuse(false);
    CHECK_EQ(game.place->echo, ROUNDS);
    CHECK(world_stat(SHMEMI_STAT_late_wakes) <= WORLD_LATE);
}

static void no_wake_is_lost(void)
{
    for (int fences = 0; fences < 2; fences++)
        for (int64_t spin = 0; spin <= 20000; spin += 5000)
            ping_pong(HARNESS_THREAD, spin, spin == 5000, fences);
}

static void no_wake_is_lost_between_processes(void)
{
    world_needs_kills();
    for (int fences = 0; fences < 2; fences++)
        for (int64_t spin = 0; spin <= 20000; spin += 5000)
            ping_pong(HARNESS_PROC, spin, spin == 5000, fences);
}

/* ---- bells that wake one ---- */

enum { TAKERS = 6, TAKES = 300 };

typedef struct basket {
    _Atomic uint64_t tokens, taken;
    shmemi_bell_t bell;
} basket_t;

static bool take_token(void *arg)
{
    basket_t *basket = arg;
    uint64_t tokens = atomic_load(&basket->tokens);
    while (tokens)
        if (atomic_compare_exchange_weak(&basket->tokens, &tokens, tokens - 1))
            return true;
    return false;
}

static void take_many(int rank, int n, void *arg)
{
    (void)n;
    basket_t *basket = arg;
    shmemi_actor_t actor;
    world_actor(&actor, rank, 0);
    const shmemi_wait_t wait = {.ready = take_token, .arg = basket, .kind = SHMEMI_WAIT_BELL};
    if (rank == 0) /* gives two at a time: two sleepers are wanted */
        for (int i = 0; i < TAKERS * TAKES / 2; i++) {
            atomic_fetch_add(&basket->tokens, 1);
            shmemi_bell_ring_one(world.roster, &basket->bell, NULL);
            atomic_fetch_add(&basket->tokens, 1);
            shmemi_bell_ring_one(world.roster, &basket->bell, NULL);
            if (i % 16 == 0)
                harness_sleep(0.0005);
        }
    else
        for (int i = 0; i < TAKES; i++) {
            CHECK_OK(shmemi_wait_until(&actor, &basket->bell, &wait, shmemi_deadline_in(-1)));
            atomic_fetch_add(&basket->taken, 1);
        }
    shmemi_actor_fini(&actor);
}

static void each_ring_wakes_one(void)
{
    world_make(TAKERS + 1);
    basket_t *basket = harness_shared(sizeof *basket);
    harness_pes(TAKERS + 1, HARNESS_THREAD, 30, take_many, basket);
    CHECK_EQ(basket->taken, TAKERS * TAKES);
    CHECK_EQ(basket->tokens, 0);
    CHECK(world_stat(SHMEMI_STAT_late_wakes) <= WORLD_LATE);
}

int main(void)
{
    RUN(time_is_kept);
    RUN(try_leaves_no_trace);
    RUN(dead_peer);
    RUN(ring_wakes_thread);
    RUN(ring_wakes_process);
    RUN(bounded_sleep);
    RUN(ringer_killed);
    RUN(sleeper_killed);
    RUN(no_wake_is_lost);
    RUN(no_wake_is_lost_between_processes);
    RUN(each_ring_wakes_one);
    return harness_end();
}
