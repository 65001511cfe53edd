/* SPDX-License-Identifier: Apache-2.0 */
/* The mutex when its users are killed, at every step of every path. */
#include "sync/mutex.h"
#include "sync_world.h"

static shmemi_mutex_t *mutex;
static _Atomic int *inside; /* number of threads between lock and unlock */

static void fresh(int clients)
{
    world_make(clients);
    mutex = harness_shared(4096);
    inside = harness_shared(4096);
    CHECK_OK(shmemi_mutex_init(mutex));
}

static shmem_status_t lock_for(shmemi_actor_t *actor, int64_t timeout)
{
    return shmemi_mutex_lock(actor, mutex, shmemi_deadline_in(timeout));
}

/* ---- children ---- */

static void lock_hold_unlock(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    shmem_status_t status = lock_for(&actor, -1);
    CHECK(status == SHMEM_OK || status == SHMEM_ERR_OWNER_DIED);
    if (status)
        CHECK_OK(shmemi_mutex_consistent(&actor, mutex));
    CHECK_EQ(atomic_fetch_add(inside, 1), 0);
    harness_sleep(0.02);
    atomic_fetch_sub(inside, 1);
    CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
    shmemi_actor_fini(&actor);
}

static void lock_and_wait_for_death(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    CHECK_OK(lock_for(&actor, -1));
    atomic_store(inside, 1);
    world_wait_for_death();
}

static void inherit_without_repair(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    CHECK_STATUS(lock_for(&actor, -1), SHMEM_ERR_OWNER_DIED);
    CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
    shmemi_actor_fini(&actor);
}

static void expect_poisoned(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    CHECK_STATUS(lock_for(&actor, -1), SHMEM_ERR_POISONED);
    shmemi_actor_fini(&actor);
}

static pid_t start_holder(int client)
{
    atomic_store(inside, 0);
    pid_t pid = world_start(lock_and_wait_for_death, client, NULL);
    while (!atomic_load(inside))
        harness_sleep(0.0005);
    return pid;
}

static void end_holder(pid_t pid, int client)
{
    atomic_store(inside, 0);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK_EQ(harness_wait(pid, 10), -SIGKILL);
    world_bury(client);
}

/* What every death must leave: somebody can lock (OK or OWNER_DIED), repair, unlock. */
static void works_again(int client)
{
    shmemi_actor_t actor;
    world_actor(&actor, client, 0);
    double begin = harness_now();
    shmem_status_t status = lock_for(&actor, 5000 * MS);
    CHECK(status == SHMEM_OK || status == SHMEM_ERR_OWNER_DIED);
    CHECK(harness_now() - begin < 1.0);
    if (status)
        CHECK_OK(shmemi_mutex_consistent(&actor, mutex));
    CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
    CHECK_OK(lock_for(&actor, 0));
    CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
    CHECK_EQ(mutex->word, SHMEMI_MUTEX_FREE);
    shmemi_actor_fini(&actor);
}

/* ---- cases ---- */

static void holder_dies(void)
{
    world_needs_kills();
    fresh(4);
    pid_t holder = start_holder(1), waiters[2];
    for (int i = 0; i < 2; i++)
        waiters[i] = world_start(lock_hold_unlock, 2 + i, NULL);
    world_await_sleeper(SHMEMI_WAIT_MUTEX, 2);
    double begin = harness_now();
    end_holder(holder, 1);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(harness_wait(waiters[i], 10), 0);
    CHECK(harness_now() - begin < 1.0);
    works_again(0);
}

/* Until the server says so, nobody is dead: the lock stays, time-outs work. */
static void death_is_the_servers_word(void)
{
    world_needs_kills();
    fresh(2);
    pid_t holder = start_holder(1);
    CHECK(kill(holder, SIGKILL) == 0);
    CHECK_EQ(harness_wait(holder, 10), -SIGKILL);
    shmemi_actor_t actor;
    world_actor(&actor, 0, 0);
    CHECK_STATUS(lock_for(&actor, 80 * MS), SHMEM_ERR_TIMEOUT);
    CHECK_STATUS(shmemi_mutex_try(&actor, mutex), SHMEM_ERR_BUSY);
    world_bury(1);
    CHECK_STATUS(shmemi_mutex_try(&actor, mutex), SHMEM_ERR_OWNER_DIED);
    shmemi_actor_fini(&actor);
}

/* The row of the dead holder belongs to another thread by now: its epoch tells them apart. */
static void row_is_reused(void)
{
    world_needs_kills();
    fresh(3);
    atomic_store(&world.roster->thread_limit, 3);
    pid_t holder = start_holder(1);
    uint32_t row = (uint32_t)atomic_load(&mutex->word);
    end_holder(holder, 1);
    shmemi_actor_t actors[2];
    for (int i = 0; i < 2; i++) {
        world_actor(&actors[i], i ? 2 : 0, 0);
        CHECK(shmemi_self(&actors[i]));
    }
    int heir = shmemi_self(&actors[0])->row == row ? 0 : 1;
    CHECK_EQ(shmemi_self(&actors[heir])->row, row);
    CHECK_STATUS(shmemi_mutex_unlock(&actors[heir], mutex), SHMEM_ERR_NOT_OWNER);
    CHECK_STATUS(lock_for(&actors[heir], -1), SHMEM_ERR_OWNER_DIED);
    CHECK_OK(shmemi_mutex_consistent(&actors[heir], mutex));
    CHECK_OK(shmemi_mutex_unlock(&actors[heir], mutex));
    for (int i = 0; i < 2; i++)
        shmemi_actor_fini(&actors[i]);
}

static void killed_alone(void)
{
    static const char *const points[] = {"sync.mutex.lock.taken", "sync.mutex.unlock.checked",
                                         "sync.mutex.unlock.stored"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        fresh(2);
        CHECK_EQ(harness_wait(world_start(lock_hold_unlock, 1, points[i]), 10), -SIGKILL);
        world_bury(1);
        works_again(0);
    }
}

/* The holder is killed in its unlock while another sleeps: the sleeper gets the mutex. */
static void killed_with_a_sleeper(void)
{
    static const char *const points[] = {"sync.mutex.unlock.checked", "sync.mutex.unlock.stored",
                                         "sync.bell.ring.cleared", "sync.bell.ring.bumped"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        fresh(3);
        atomic_store(inside, 0);
        pid_t holder = world_start(lock_hold_unlock, 1, points[i]);
        while (!atomic_load(inside))
            harness_sleep(0.0002);
        pid_t sleeper = world_start(lock_hold_unlock, 2, NULL);
        CHECK_EQ(harness_wait(holder, 10), -SIGKILL);
        world_bury(1);
        double begin = harness_now();
        CHECK_EQ(harness_wait(sleeper, 10), 0);
        CHECK(harness_now() - begin < 1.0);
        works_again(0);
    }
}

/* Waiters are killed at every step; one that lives still gets its turn. */
static void waiter_killed(void)
{
    static const char *const points[] = {"sync.wait.announced", "sync.wait.woken",
                                         "sync.mutex.lock.taken", "sync.mutex.lock.flagged",
                                         "sync.mutex.unlock.stored"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        fresh(4);
        pid_t holder = world_start(lock_hold_unlock, 1, NULL);
        while (!atomic_load(inside))
            harness_sleep(0.0002);
        pid_t victim = world_start(lock_hold_unlock, 2, points[i]);
        harness_sleep(0.002);
        pid_t survivor = world_start(lock_hold_unlock, 3, NULL);
        CHECK_EQ(harness_wait(victim, 10), -SIGKILL);
        world_bury(2);
        double begin = harness_now();
        CHECK_EQ(harness_wait(holder, 10), 0);
        CHECK_EQ(harness_wait(survivor, 10), 0);
        CHECK(harness_now() - begin < 1.0);
        works_again(0);
    }
}

/* An heir dies, too, before and after its repair. */
static void heir_dies(void)
{
    static const char *const points[] = {"sync.mutex.inherit.taken", "sync.mutex.unlock.checked"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        fresh(3);
        end_holder(start_holder(1), 1);
        CHECK_EQ(harness_wait(world_start(lock_hold_unlock, 2, points[i]), 10), -SIGKILL);
        world_bury(2);
        works_again(0);
    }
}

static void poison(void)
{
    world_needs_kills();
    for (int killed = 0; killed < 2; killed++) {
        fresh(6);
        pid_t holder = start_holder(1);
        pid_t heir =
            world_start(inherit_without_repair, 2, killed ? "sync.mutex.poison.stored" : NULL);
        world_await_sleeper(SHMEMI_WAIT_MUTEX, 1);
        end_holder(holder, 1);
        CHECK_EQ(harness_wait(heir, 10), killed ? -SIGKILL : 0);
        CHECK_EQ(harness_wait(world_start(expect_poisoned, 3, NULL), 10), 0);
        shmemi_actor_t actor;
        world_actor(&actor, 0, 0);
        CHECK_STATUS(shmemi_mutex_try(&actor, mutex), SHMEM_ERR_POISONED);
        CHECK_STATUS(shmemi_mutex_unlock(&actor, mutex), SHMEM_ERR_NOT_OWNER);
        CHECK_STATUS(shmemi_mutex_consistent(&actor, mutex), SHMEM_ERR_NOT_OWNER);
        CHECK_OK(shmemi_mutex_init(mutex));
        CHECK_OK(shmemi_mutex_try(&actor, mutex));
        CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
        shmemi_actor_fini(&actor);
    }
}

static void wait_for_poison(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 0);
    shmem_status_t status = lock_for(&actor, -1);
    if (status == SHMEM_ERR_OWNER_DIED) { /* the heir: lets the others sleep, then poisons */
        harness_sleep(0.15);
        CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
    } else {
        CHECK_STATUS(status, SHMEM_ERR_POISONED);
        atomic_fetch_add(inside, 1);
    }
    shmemi_actor_fini(&actor);
}

/* Everybody asleep when it happens is told. */
static void poison_reaches_sleepers(void)
{
    world_needs_kills();
    fresh(6);
    pid_t holder = start_holder(1), waiters[4];
    for (int i = 0; i < 4; i++)
        waiters[i] = world_start(wait_for_poison, 2 + i, NULL);
    world_await_sleeper(SHMEMI_WAIT_MUTEX, 4);
    end_holder(holder, 1);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(harness_wait(waiters[i], 10), 0);
    CHECK_EQ(*inside, 3);
}

/* ---- a storm: many processes, one killed every few milliseconds ---- */

enum { STORM = 6, VICTIMS = 60 };

typedef struct storm {
    uint64_t plain, copy;
    _Atomic uint64_t repaired;
    _Atomic int stop;
} storm_t;
static storm_t *storm;

static void storm_process(void *arg)
{
    shmemi_actor_t actor;
    world_actor(&actor, (int)(intptr_t)arg, 5000);
    while (!atomic_load(&storm->stop)) {
        shmem_status_t status = lock_for(&actor, 20000 * MS);
        if (status == SHMEM_ERR_OWNER_DIED) {
            CHECK(storm->plain == storm->copy || storm->plain == storm->copy + 1);
            storm->copy = storm->plain;
            atomic_fetch_add(&storm->repaired, 1);
            CHECK_OK(shmemi_mutex_consistent(&actor, mutex));
        } else {
            CHECK_OK(status);
        }
        CHECK_EQ(storm->plain, storm->copy);
        storm->plain++;
        if (storm->plain % 8 == 0)
            harness_sleep(0);
        storm->copy++;
        CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
    }
    shmemi_actor_fini(&actor);
}

static void killed_at_random(void)
{
    world_needs_kills();
    fresh(STORM);
    storm = harness_shared(sizeof *storm);
    pid_t pids[STORM];
    for (int i = 0; i < STORM; i++)
        pids[i] = world_start(storm_process, i, NULL);
    for (int i = 0; i < VICTIMS; i++) {
        int k = i % STORM;
        harness_sleep(0.003 + 0.0007 * (i % 5));
        CHECK(kill(pids[k], SIGKILL) == 0);
        CHECK_EQ(harness_wait(pids[k], 10), -SIGKILL);
        world_bury(k);
        CHECK_OK(
            slots_add(world.roster, "test", 0, 0, &world.client[k].slot, &world.client[k].epoch));
        pids[k] = world_start(storm_process, k, NULL);
    }
    atomic_store(&storm->stop, 1);
    for (int i = 0; i < STORM; i++)
        CHECK_EQ(harness_wait(pids[i], 30), 0);
    fprintf(stderr, "%llu turns, %llu repairs after %d kills\n", (unsigned long long)storm->plain,
            (unsigned long long)storm->repaired, VICTIMS);
    CHECK_EQ(world_rows(), 0);
    CHECK_EQ(mutex->word, SHMEMI_MUTEX_FREE);
}

int main(void)
{
    RUN(holder_dies);
    RUN(death_is_the_servers_word);
    RUN(row_is_reused);
    RUN(killed_alone);
    RUN(killed_with_a_sleeper);
    RUN(waiter_killed);
    RUN(heir_dies);
    RUN(poison);
    RUN(poison_reaches_sleepers);
    RUN(killed_at_random);
    return harness_end();
}
