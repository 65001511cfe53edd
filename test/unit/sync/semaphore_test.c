/* SPDX-License-Identifier: Apache-2.0 */
/* The semaphore: permits are counted, never lost, and come back from the dead. */
#include "sync/semaphore.h"
#include "sync_world.h"

static shmemi_semaphore_t *semaphore;
static shmemi_actor_t me;

static void fresh(int clients, uint32_t permits)
{
    world_make(clients);
    semaphore = harness_shared(SHMEM_SEMAPHORE_BYTES(permits));
    CHECK_OK(shmemi_semaphore_init(semaphore, SHMEM_SEMAPHORE_BYTES(permits), permits));
    world_actor(&me, 0, 5000);
}

static shmem_status_t acquire_for(shmemi_actor_t *actor, int64_t timeout)
{
    return shmemi_semaphore_acquire(actor, semaphore, shmemi_deadline_in(timeout));
}

static uint32_t available(void)
{
    uint32_t permits = UINT32_MAX;
    CHECK_OK(shmemi_semaphore_available(&me, semaphore, &permits));
    return permits;
}

static void arguments(void)
{
    world_make(0);
    char *memory = harness_shared(SHMEM_SEMAPHORE_BYTES(65536) + 64);
    size_t bytes = SHMEM_SEMAPHORE_BYTES(5);
    CHECK_EQ(bytes, 128 + 64);
    CHECK_STATUS(shmemi_semaphore_init(memory, bytes, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_semaphore_init(memory, SIZE_MAX, 65537), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_semaphore_init(memory, SIZE_MAX, UINT32_MAX), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_semaphore_init(memory, bytes - 1, 5), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_semaphore_init(memory + 8, bytes, 5), SHMEM_ERR_INVALID);
    for (size_t i = 0; i < bytes; i++)
        CHECK_EQ(memory[i], 0);
    CHECK_OK(shmemi_semaphore_init(memory, bytes, 5));
    CHECK_OK(shmemi_semaphore_init(memory, SHMEM_SEMAPHORE_BYTES(65536), 65536));
}

static void counts(void)
{
    static const uint32_t sizes[] = {1, 2, 7, 8, 9, 100, 65536};
    for (size_t s = 0; s < SHMEMI_COUNT(sizes); s++) {
        uint32_t n = sizes[s];
        fresh(2, n);
        shmemi_actor_t other;
        world_actor(&other, 1, 0);
        CHECK_EQ(available(), n);
        CHECK_STATUS(shmemi_semaphore_release(&me, semaphore), SHMEM_ERR_NOT_OWNER);
        for (uint32_t i = 0; i < n && i < 200; i++)
            CHECK_OK(i % 2 ? shmemi_semaphore_try(&me, semaphore) : acquire_for(&me, -1));
        for (uint32_t i = 200; i < n; i++)
            atomic_store(&semaphore->holders[i], shmemi_row_owner(me.slot, me.epoch));
        if (n <= 200) {
            CHECK_EQ(available(), 0);
            CHECK_STATUS(shmemi_semaphore_try(&me, semaphore), SHMEM_ERR_BUSY);
            CHECK_STATUS(acquire_for(&me, 0), SHMEM_ERR_TIMEOUT);
            CHECK_STATUS(acquire_for(&me, 2 * MS), SHMEM_ERR_TIMEOUT);
        }
        CHECK_STATUS(shmemi_semaphore_release(&other, semaphore), SHMEM_ERR_NOT_OWNER);
        uint32_t held = n - available();
        for (uint32_t i = 0; i < held && i < 300; i++)
            CHECK_OK(shmemi_semaphore_release(&me, semaphore));
        CHECK_EQ(n - available(), held > 300 ? held - 300 : 0);
        if (held <= 300)
            CHECK_STATUS(shmemi_semaphore_release(&me, semaphore), SHMEM_ERR_NOT_OWNER);
        shmemi_actor_fini(&other);
        shmemi_actor_fini(&me);
    }
}

static void garbage(void)
{
    fresh(1, 4);
    shmemi_semaphore_t *zero = harness_shared(4096);
    uint32_t permits = 77;
    CHECK_STATUS(shmemi_semaphore_acquire(&me, zero, SHMEMI_FOREVER), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_semaphore_release(&me, zero), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_semaphore_available(&me, zero, &permits), SHMEM_ERR_INVALID);
    CHECK_EQ(permits, 77);
    semaphore->permits = 0;
    CHECK_STATUS(shmemi_semaphore_try(&me, semaphore), SHMEM_ERR_CORRUPT);
    semaphore->permits = 65537;
    CHECK_STATUS(acquire_for(&me, -1), SHMEM_ERR_CORRUPT);
    semaphore->permits = 5; /* plausible, but more than there is memory for */
    CHECK_STATUS(shmemi_semaphore_try(&me, semaphore), SHMEM_ERR_CORRUPT);
    CHECK_STATUS(shmemi_semaphore_available(&me, semaphore, &permits), SHMEM_ERR_CORRUPT);
    semaphore->permits = 4;
    /* holders that cannot be: nobody, so the permit is free */
    for (int i = 0; i < 4; i++)
        atomic_store(&semaphore->holders[i], UINT64_MAX - (uint64_t)i);
    CHECK_EQ(available(), 4);
    for (int i = 0; i < 4; i++)
        CHECK_OK(shmemi_semaphore_try(&me, semaphore));
    CHECK_STATUS(shmemi_semaphore_try(&me, semaphore), SHMEM_ERR_BUSY);
    shmemi_actor_fini(&me);
}

static void *release_permit(void *actor)
{
    CHECK_OK(shmemi_semaphore_release(actor, semaphore));
    return NULL;
}

/* Permits belong to the client: another of its threads may give them back, and the end of the
 * thread that took them changes nothing. */
static void of_the_client(void)
{
    fresh(2, 3);
    CHECK_OK(acquire_for(&me, -1));
    CHECK_OK(acquire_for(&me, -1));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, release_permit, &me) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ(available(), 2);
    shmemi_actor_t other;
    world_actor(&other, 1, 0);
    CHECK_OK(acquire_for(&other, -1));
    shmemi_actor_fini(&other); /* gone without giving it back */
    CHECK_EQ(available(), 1);
    slots_remove(world.roster, world.client[1].slot, false);
    CHECK_EQ(available(), 2);
    CHECK_OK(shmemi_semaphore_release(&me, semaphore));
    shmemi_actor_fini(&me);
}

/* ---- deaths ---- */

static void acquire_twice_release(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    CHECK_OK(acquire_for(&actor, -1));
    CHECK_OK(acquire_for(&actor, -1));
    harness_sleep(0.01);
    CHECK_OK(shmemi_semaphore_release(&actor, semaphore));
    CHECK_OK(shmemi_semaphore_release(&actor, semaphore));
    shmemi_actor_fini(&actor);
}

static void killed_at_every_step(void)
{
    static const char *const points[] = {"sync.semaphore.acquire.taken",
                                         "sync.semaphore.release.given",
                                         "sync.semaphore.release.counted"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        fresh(2, 2);
        CHECK_EQ(harness_wait(world_start(acquire_twice_release, 1, points[i]), 10), -SIGKILL);
        CHECK(available() < 2);
        world_bury(1);
        CHECK_EQ(available(), 2);
        CHECK_OK(acquire_for(&me, 1000 * MS));
        CHECK_OK(acquire_for(&me, 1000 * MS));
        CHECK_STATUS(shmemi_semaphore_try(&me, semaphore), SHMEM_ERR_BUSY);
        CHECK_OK(shmemi_semaphore_release(&me, semaphore));
        CHECK_OK(shmemi_semaphore_release(&me, semaphore));
        shmemi_actor_fini(&me);
    }
}

static void hold_two(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    CHECK_OK(acquire_for(&actor, -1));
    CHECK_OK(acquire_for(&actor, -1));
    world_wait_for_death();
}

static void acquire_once(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    CHECK_OK(acquire_for(&actor, -1));
    shmemi_actor_fini(&actor);
}

/* Two sleepers, two permits of a dead holder: both get one within a second. */
static void sleepers_inherit(void)
{
    world_needs_kills();
    fresh(4, 2);
    pid_t holder = world_start(hold_two, 1, NULL), sleeper[2];
    while (available())
        harness_sleep(0.0005);
    for (int i = 0; i < 2; i++)
        sleeper[i] = world_start(acquire_once, 2 + i, NULL);
    world_await_sleeper(SHMEMI_WAIT_SEMAPHORE, 2);
    kill(holder, SIGKILL);
    CHECK_EQ(harness_wait(holder, 10), -SIGKILL);
    double begin = harness_now();
    world_bury(1);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(harness_wait(sleeper[i], 10), 0);
    CHECK(harness_now() - begin < 1.0);
    shmemi_actor_fini(&me);
}

/* A sleeper is killed when it was woken: the permit is for the next one. */
static void woken_sleeper_killed(void)
{
    static const char *const points[] = {"sync.wait.woken", "sync.semaphore.acquire.taken"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        fresh(3, 1);
        CHECK_OK(acquire_for(&me, -1));
        pid_t victim = world_start(acquire_once, 1, points[i]);
        world_await_sleeper(SHMEMI_WAIT_SEMAPHORE, 1);
        pid_t survivor = world_start(acquire_once, 2, NULL);
        world_await_sleeper(SHMEMI_WAIT_SEMAPHORE, 2);
        CHECK_OK(shmemi_semaphore_release(&me, semaphore));
        CHECK_EQ(harness_wait(victim, 10), -SIGKILL);
        world_bury(1);
        double begin = harness_now();
        CHECK_EQ(harness_wait(survivor, 10), 0);
        CHECK(harness_now() - begin < 1.0);
        shmemi_actor_fini(&me);
    }
}

/* ---- load ---- */

enum { PERMITS = 3, TURNS = 1500 };
static _Atomic int *inside;

static void take_turns(int rank, int n, void *arg)
{
    (void)n;
    shmemi_actor_t actor;
    world_actor(&actor, rank, *(int64_t *)arg);
    for (int i = 0; i < TURNS; i++) {
        if (i % 8 != 3 || shmemi_semaphore_try(&actor, semaphore))
            CHECK_OK(acquire_for(&actor, -1));
        CHECK(atomic_fetch_add(inside, 1) < PERMITS);
        if (i % 32 == 0)
            harness_sleep(0);
        atomic_fetch_sub(inside, 1);
        CHECK_OK(shmemi_semaphore_release(&actor, semaphore));
    }
    shmemi_actor_fini(&actor);
}

static void limits_users(harness_mode_t mode, int64_t spin, bool fences)
{
    fresh(9, PERMITS);
    inside = harness_shared(4096);
    atomic_store(&world.roster->fence_needed, fences);
    shmemi_barrier_refuse(fences);
    atomic_store(&semaphore->released, UINT32_MAX - 100);
    atomic_store(&semaphore->bell.sequence, UINT32_MAX - 5);
    shmemi_actor_fini(&me);
    harness_pes(8, mode, 60, take_turns, &spin);
    shmemi_barrier_refuse(false);
    CHECK(world_stat(SHMEMI_STAT_late_wakes) <= WORLD_LATE);
    world_actor(&me, 8, 0);
    CHECK_EQ(available(), PERMITS);
    shmemi_actor_fini(&me);
}

static void limits_threads(void)
{
    limits_users(HARNESS_THREAD, 0, false);
    limits_users(HARNESS_THREAD, 50000, true);
}

static void limits_processes(void)
{
    world_needs_kills();
    limits_users(HARNESS_PROC, 0, false);
    limits_users(HARNESS_PROC, 50000, false);
}

int main(void)
{
    RUN(arguments);
    RUN(counts);
    RUN(garbage);
    RUN(of_the_client);
    RUN(killed_at_every_step);
    RUN(sleepers_inherit);
    RUN(woken_sleeper_killed);
    RUN(limits_threads);
    RUN(limits_processes);
    return harness_end();
}
