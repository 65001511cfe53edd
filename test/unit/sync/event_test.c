/* SPDX-License-Identifier: Apache-2.0 */
/* Events: manual wakes all, auto wakes one, nothing is lost. */
#include "sync/event.h"
#include "sync_world.h"

static shmemi_event_t *event;
static shmemi_actor_t me;

static void fresh(int clients, shmem_event_reset_t reset, bool is_set)
{
    world_make(clients);
    event = harness_shared(4096);
    CHECK_OK(shmemi_event_init(event, reset, is_set));
    world_actor(&me, 0, 5000);
}

static shmem_status_t wait_for(shmemi_actor_t *actor, int64_t timeout)
{
    return shmemi_event_wait(actor, event, shmemi_deadline_in(timeout));
}

static void manual(void)
{
    fresh(1, SHMEM_EVENT_MANUAL, false);
    CHECK_STATUS(wait_for(&me, 0), SHMEM_ERR_TIMEOUT);
    CHECK_STATUS(wait_for(&me, 3 * MS), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmemi_event_set(&me, event));
    CHECK_OK(shmemi_event_set(&me, event));
    CHECK_OK(wait_for(&me, 0));
    CHECK_OK(wait_for(&me, -1)); /* stays set */
    CHECK_OK(shmemi_event_reset(&me, event));
    CHECK_OK(shmemi_event_reset(&me, event));
    CHECK_STATUS(wait_for(&me, 0), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmemi_event_init(event, SHMEM_EVENT_MANUAL, true));
    CHECK_OK(wait_for(&me, 0));
    shmemi_actor_fini(&me);
}

static void automatic(void)
{
    fresh(1, SHMEM_EVENT_AUTO, true);
    CHECK_OK(wait_for(&me, -1));
    CHECK_STATUS(wait_for(&me, 0), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmemi_event_set(&me, event));
    CHECK_OK(shmemi_event_set(&me, event)); /* two sets without a wait between are one */
    CHECK_OK(wait_for(&me, 0));
    CHECK_STATUS(wait_for(&me, 0), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmemi_event_set(&me, event));
    CHECK_OK(shmemi_event_reset(&me, event));
    CHECK_STATUS(wait_for(&me, 2 * MS), SHMEM_ERR_TIMEOUT);
    shmemi_actor_fini(&me);
}

static void garbage(void)
{
    fresh(1, SHMEM_EVENT_AUTO, false);
    CHECK_STATUS(shmemi_event_init(event, (shmem_event_reset_t)2, false), SHMEM_ERR_INVALID);
    shmemi_event_t *zero = harness_shared(sizeof *zero);
    CHECK_STATUS(shmemi_event_wait(&me, zero, SHMEMI_FOREVER), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_event_set(&me, zero), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_event_reset(&me, zero), SHMEM_ERR_INVALID);
    CHECK_EQ(zero->sets, 0);
    event->reset = 2;
    CHECK_STATUS(wait_for(&me, -1), SHMEM_ERR_CORRUPT);
    event->reset = SHMEM_EVENT_AUTO;
    atomic_store(&event->taken, 0xdead);
    CHECK_STATUS(wait_for(&me, -1), SHMEM_ERR_CORRUPT);
    CHECK_STATUS(shmemi_event_reset(&me, event), SHMEM_ERR_CORRUPT);
    shmemi_actor_fini(&me);
}

/* ---- sleepers ---- */

static _Atomic int *woken;

static void wait_once(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    CHECK_OK(wait_for(&actor, 20000 * MS));
    atomic_fetch_add(woken, 1);
    shmemi_actor_fini(&actor);
}

static void *wait_once_thread(void *arg)
{
    wait_once(arg);
    return NULL;
}

enum { SLEEPERS = 4 };

static void sleeping_threads(shmem_event_reset_t reset)
{
    fresh(SLEEPERS + 1, reset, false);
    woken = harness_shared(4096);
    pthread_t thread[SLEEPERS];
    for (intptr_t i = 0; i < SLEEPERS; i++)
        CHECK(pthread_create(&thread[i], NULL, wait_once_thread, (void *)(i + 1)) == 0);
    world_await_sleeper(SHMEMI_WAIT_EVENT, SLEEPERS);
    for (int i = 1; i <= SLEEPERS; i++) {
        CHECK_OK(shmemi_event_set(&me, event));
        while (atomic_load(woken) < (reset == SHMEM_EVENT_AUTO ? i : SLEEPERS))
            harness_sleep(0.0001);
        if (reset == SHMEM_EVENT_AUTO) {
            harness_sleep(0.001);
            CHECK_EQ(atomic_load(woken), i); /* one set, one waiter */
        }
    }
    CHECK_EQ(world_stat(SHMEMI_STAT_late_wakes), 0);
    for (int i = 0; i < SLEEPERS; i++)
        pthread_join(thread[i], NULL);
    CHECK_STATUS(wait_for(&me, 0), reset == SHMEM_EVENT_AUTO ? SHMEM_ERR_TIMEOUT : SHMEM_OK);
    shmemi_actor_fini(&me);
}

static void manual_wakes_all(void)
{
    sleeping_threads(SHMEM_EVENT_MANUAL);
}
static void auto_wakes_one(void)
{
    sleeping_threads(SHMEM_EVENT_AUTO);
}

static void set_it(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    CHECK_OK(shmemi_event_set(&actor, event));
    shmemi_actor_fini(&actor);
}

/* A setter killed after its store has set the event; the sleeper finds out by itself. */
static void setter_killed(void)
{
    static const char *const points[] = {"sync.event.set.stored", "sync.bell.ring.cleared",
                                         "sync.bell.ring.bumped"};
    world_needs_kills();
    for (size_t i = 0; i < 2 * SHMEMI_COUNT(points); i++) {
        if (i == 3) /* who wakes one does not pass there */
            continue;
        fresh(3, i % 2 ? SHMEM_EVENT_AUTO : SHMEM_EVENT_MANUAL, false);
        woken = harness_shared(4096);
        pid_t sleeper = world_start(wait_once, 1, NULL);
        world_await_sleeper(SHMEMI_WAIT_EVENT, 1);
        CHECK_EQ(harness_wait(world_start(set_it, 2, points[i / 2]), 10), -SIGKILL);
        double begin = harness_now();
        CHECK_EQ(harness_wait(sleeper, 10), 0);
        CHECK(harness_now() - begin < 1.0);
        shmemi_actor_fini(&me);
    }
}

/* A waiter killed before it consumed an auto event leaves it; killed after, it took it along. */
static void waiter_killed(void)
{
    static const char *const points[] = {"sync.wait.woken", "sync.event.wait.consumed"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        fresh(3, SHMEM_EVENT_AUTO, false);
        woken = harness_shared(4096);
        pid_t victim = world_start(wait_once, 1, points[i]);
        world_await_sleeper(SHMEMI_WAIT_EVENT, 1);
        pid_t survivor = world_start(wait_once, 2, NULL);
        world_await_sleeper(SHMEMI_WAIT_EVENT, 2);
        CHECK_OK(shmemi_event_set(&me, event));
        CHECK_EQ(harness_wait(victim, 10), -SIGKILL);
        world_bury(1);
        if (i == 1)
            CHECK_OK(shmemi_event_set(&me, event));
        double begin = harness_now();
        CHECK_EQ(harness_wait(survivor, 10), 0);
        CHECK(harness_now() - begin < 1.0);
        CHECK_EQ(*woken, 1);
        shmemi_actor_fini(&me);
    }
}

/* ---- request and reply: what was written before a set is seen by who waited ---- */

enum { ROUNDS = 500 };

typedef struct game {
    shmemi_event_t request, reply;
    uint64_t question[16], answer[16]; /* plain */
    int64_t spin;
} game_t;

static void play(int rank, int n, void *arg)
{
    (void)n;
    game_t *game = arg;
    shmemi_actor_t actor;
    world_actor(&actor, rank, game->spin);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        if (rank == 0) {
            for (int k = 0; k < 16; k++)
                game->question[k] = i;
            CHECK_OK(shmemi_event_set(&actor, &game->request));
            CHECK_OK(shmemi_event_wait(&actor, &game->reply, shmemi_deadline_in(5000 * MS)));
            for (int k = 0; k < 16; k++)
                CHECK_EQ(game->answer[k], 2 * i);
        } else {
            CHECK_OK(shmemi_event_wait(&actor, &game->request, shmemi_deadline_in(5000 * MS)));
            for (int k = 0; k < 16; k++) {
                CHECK_EQ(game->question[k], i);
                game->answer[k] = 2 * game->question[k];
            }
            CHECK_OK(shmemi_event_set(&actor, &game->reply));
        }
    }
    shmemi_actor_fini(&actor);
}

static void request_reply(harness_mode_t mode)
{
    for (int fences = 0; fences < 2; fences++)
        for (int64_t spin = 0; spin <= 20000; spin += 20000) {
            world_make(2);
            game_t *game = harness_shared(sizeof *game);
            CHECK_OK(shmemi_event_init(&game->request, SHMEM_EVENT_AUTO, false));
            CHECK_OK(shmemi_event_init(&game->reply, SHMEM_EVENT_AUTO, false));
            game->request.bell.sequence = UINT32_MAX - 3;
            game->spin = spin;
            atomic_store(&world.roster->fence_needed, fences);
            shmemi_barrier_refuse(fences);
            harness_pes(2, mode, 30, play, game);
            shmemi_barrier_refuse(false);
            CHECK(world_stat(SHMEMI_STAT_late_wakes) <= WORLD_LATE);
        }
}

static void request_reply_threads(void)
{
    request_reply(HARNESS_THREAD);
}

static void request_reply_processes(void)
{
    world_needs_kills();
    request_reply(HARNESS_PROC);
}

/* Many setters and waiters of one auto event: every waiter that returns consumed one set. */
static void storm(int rank, int n, void *arg)
{
    shmemi_actor_t actor;
    _Atomic uint64_t *consumed = arg;
    world_actor(&actor, rank, rank % 2 ? 0 : 5000);
    for (int i = 0; i < 800; i++)
        if (rank < n / 2)
            CHECK_OK(shmemi_event_set(&actor, event));
        else if (!wait_for(&actor, 1 * MS))
            atomic_fetch_add(consumed, 1);
    shmemi_actor_fini(&actor);
}

static void many_setters(void)
{
    fresh(7, SHMEM_EVENT_AUTO, false);
    shmemi_actor_fini(&me);
    _Atomic uint64_t *consumed = harness_shared(sizeof *consumed);
    world.client[0] = world.client[6];
    harness_pes(6, HARNESS_THREAD, 60, storm, consumed);
    CHECK(*consumed > 0 && *consumed <= 2400);
}

int main(void)
{
    RUN(manual);
    RUN(automatic);
    RUN(garbage);
    RUN(manual_wakes_all);
    RUN(auto_wakes_one);
    RUN(setter_killed);
    RUN(waiter_killed);
    RUN(request_reply_threads);
    RUN(request_reply_processes);
    RUN(many_setters);
    return harness_end();
}
