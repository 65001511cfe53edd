/* SPDX-License-Identifier: Apache-2.0 */
/* The mutex: what it answers, and that it excludes, alone and under load. */
#include "sync/mutex.h"
#include "sync_world.h"

static shmemi_mutex_t *mutex;
static shmemi_actor_t me;

static void fresh(int clients)
{
    world_make(clients);
    mutex = harness_shared(4096);
    CHECK_OK(shmemi_mutex_init(mutex));
    world_actor(&me, 0, 20000);
}

static shmem_status_t lock_for(shmemi_actor_t *actor, int64_t timeout)
{
    return shmemi_mutex_lock(actor, mutex, shmemi_deadline_in(timeout));
}

static void alone(void)
{
    fresh(1);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lock_for(&me, -1));
        CHECK_STATUS(lock_for(&me, -1), SHMEM_ERR_DEADLOCK);
        CHECK_STATUS(shmemi_mutex_try(&me, mutex), SHMEM_ERR_DEADLOCK);
        CHECK_OK(shmemi_mutex_consistent(&me, mutex)); /* nothing to do */
        CHECK_OK(shmemi_mutex_unlock(&me, mutex));
        CHECK_STATUS(shmemi_mutex_unlock(&me, mutex), SHMEM_ERR_NOT_OWNER);
        CHECK_STATUS(shmemi_mutex_consistent(&me, mutex), SHMEM_ERR_NOT_OWNER);
        CHECK_OK(shmemi_mutex_try(&me, mutex));
        CHECK_OK(shmemi_mutex_unlock(&me, mutex));
        CHECK_OK(lock_for(&me, 0));
        CHECK_OK(shmemi_mutex_unlock(&me, mutex));
    }
    CHECK_EQ(mutex->word, SHMEMI_MUTEX_FREE);
    CHECK_EQ(world_stat(SHMEMI_STAT_wakes), 0);
    shmemi_actor_fini(&me);
}

/* Locks of a thread may be nested and released in any order: the one-entry memory of what is held
 * must never vouch for another. */
static void nested(void)
{
    fresh(2);
    shmemi_mutex_t *other = mutex + 1;
    shmemi_actor_t second;
    world_actor(&second, 1, 0);
    CHECK_OK(shmemi_mutex_init(other));
    CHECK_OK(lock_for(&me, -1));
    CHECK_OK(shmemi_mutex_lock(&me, other, SHMEMI_FOREVER));
    CHECK_OK(shmemi_mutex_unlock(&me, mutex));
    CHECK_STATUS(shmemi_mutex_unlock(&me, mutex), SHMEM_ERR_NOT_OWNER);
    CHECK_STATUS(shmemi_mutex_unlock(&second, other), SHMEM_ERR_NOT_OWNER);
    CHECK_STATUS(shmemi_mutex_try(&second, other), SHMEM_ERR_BUSY);
    CHECK_OK(shmemi_mutex_try(&second, mutex));
    CHECK_STATUS(shmemi_mutex_unlock(&me, mutex), SHMEM_ERR_NOT_OWNER);
    CHECK_OK(shmemi_mutex_unlock(&me, other));
    CHECK_OK(shmemi_mutex_unlock(&second, mutex));
    CHECK_EQ(mutex->word, SHMEMI_MUTEX_FREE);
    CHECK_EQ(other->word, SHMEMI_MUTEX_FREE);
    shmemi_actor_fini(&second);
    shmemi_actor_fini(&me);
}

static void garbage(void)
{
    fresh(1);
    shmemi_mutex_t *zero = harness_shared(sizeof *zero);
    CHECK_STATUS(shmemi_mutex_lock(&me, zero, SHMEMI_FOREVER), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_mutex_try(&me, zero), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_mutex_unlock(&me, zero), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_mutex_consistent(&me, zero), SHMEM_ERR_INVALID);
    CHECK_EQ(zero->word, 0);
    memset(zero, 0xa5, sizeof *zero);
    CHECK_STATUS(shmemi_mutex_lock(&me, zero, SHMEMI_FOREVER), SHMEM_ERR_INVALID);
    static const uint64_t words[] = {0,          1,           0x100000000,         SHMEMI_THREADS,
                                     UINT64_MAX, 0x180000000, 0x100000000 | 16384, ~0ull << 32};
    for (size_t i = 0; i < SHMEMI_COUNT(words); i++) {
        atomic_store(&mutex->word, words[i]);
        CHECK_STATUS(lock_for(&me, -1), SHMEM_ERR_CORRUPT);
        CHECK_STATUS(shmemi_mutex_try(&me, mutex), SHMEM_ERR_CORRUPT);
        CHECK_STATUS(shmemi_mutex_unlock(&me, mutex), SHMEM_ERR_CORRUPT);
        CHECK_EQ(mutex->word, words[i]);
    }
    shmemi_actor_fini(&me);
}

static void *hold_until_told(void *arg)
{
    shmemi_actor_t actor;
    atomic_int *told = arg;
    world_actor(&actor, 1, 0);
    CHECK_OK(lock_for(&actor, -1));
    atomic_store(told, 1);
    while (atomic_load(told) != 2)
        harness_sleep(0.0005);
    CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
    shmemi_actor_fini(&actor);
    return NULL;
}

static void timeouts(void)
{
    fresh(2);
    atomic_int told = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, hold_until_told, &told) == 0);
    while (atomic_load(&told) != 1)
        harness_sleep(0.0005);
    CHECK_STATUS(shmemi_mutex_try(&me, mutex), SHMEM_ERR_BUSY);
    CHECK_STATUS(lock_for(&me, 0), SHMEM_ERR_TIMEOUT);
    CHECK_STATUS(shmemi_mutex_unlock(&me, mutex), SHMEM_ERR_NOT_OWNER);
    static const double times[] = {0.002, 0.08};
    for (size_t i = 0; i < SHMEMI_COUNT(times); i++) {
        double begin = harness_now();
        CHECK_STATUS(lock_for(&me, (int64_t)(times[i] * 1e9)), SHMEM_ERR_TIMEOUT);
        CHECK(harness_now() - begin >= times[i] && harness_now() - begin < times[i] + 1);
    }
    CHECK_EQ(shmemi_self(&me)->thread->waits, SHMEMI_WAIT_NOTHING);
    atomic_store(&told, 2);
    CHECK_OK(lock_for(&me, -1));
    CHECK_OK(shmemi_mutex_unlock(&me, mutex));
    pthread_join(thread, NULL);
    shmemi_actor_fini(&me);
}

/* A thread that ends while it holds the mutex has died, as far as the mutex is concerned. */
static void *lock_and_end(void *arg)
{
    CHECK_OK(lock_for(arg, -1));
    return NULL;
}

static void thread_ends_inside(void)
{
    fresh(1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, lock_and_end, &me) == 0);
    pthread_join(thread, NULL);
    CHECK_STATUS(shmemi_mutex_try(&me, mutex), SHMEM_ERR_OWNER_DIED);
    CHECK_STATUS(shmemi_mutex_try(&me, mutex), SHMEM_ERR_DEADLOCK);
    CHECK_OK(shmemi_mutex_consistent(&me, mutex));
    CHECK_OK(shmemi_mutex_unlock(&me, mutex));
    CHECK_OK(lock_for(&me, -1));
    CHECK_OK(shmemi_mutex_unlock(&me, mutex));
    shmemi_actor_fini(&me);
}

static void child_with_parents_actor(void *arg)
{
    (void)arg;
    CHECK_STATUS(lock_for(&me, -1), SHMEM_ERR_STATE);
    CHECK_STATUS(shmemi_mutex_try(&me, mutex), SHMEM_ERR_STATE);
    CHECK_STATUS(shmemi_mutex_unlock(&me, mutex), SHMEM_ERR_STATE);
    CHECK_STATUS(shmemi_mutex_consistent(&me, mutex), SHMEM_ERR_STATE);
}

static void forked_child(void)
{
    world_needs_kills();
    fresh(1);
    CHECK_OK(lock_for(&me, -1));
    CHECK_EQ(harness_wait(harness_fork(child_with_parents_actor, NULL), 10), 0);
    CHECK_OK(shmemi_mutex_unlock(&me, mutex));
    shmemi_actor_fini(&me);
}

/* ---- exclusion ---- */

enum { TURNS = 4000 };

typedef struct load {
    uint64_t plain; /* not atomic: a race detector sees it if the mutex does not exclude */
    uint64_t copy;
    int64_t spin;
    bool crowded;
} load_t;

static load_t *load;

static void take_turns(int rank, int n, void *arg)
{
    (void)n;
    (void)arg;
    shmemi_actor_t actor;
    world_actor(&actor, rank, load->spin);
    actor.crowded = load->crowded;
    for (int i = 0; i < TURNS; i++) {
        shmem_status_t status = SHMEM_ERR_BUSY;
        if (i % 16 == 3)
            status = shmemi_mutex_try(&actor, mutex);
        else if (i % 16 == 5)
            status = lock_for(&actor, 100000);
        if (status == SHMEM_ERR_BUSY || status == SHMEM_ERR_TIMEOUT)
            status = lock_for(&actor, -1);
        CHECK_OK(status);
        CHECK_EQ(load->plain, load->copy);
        load->plain++;
        if (i % 64 == 0)
            harness_sleep(0); /* asleep inside, so that others sleep outside */
        load->copy++;
        CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
    }
    shmemi_actor_fini(&actor);
}

static void exclude(harness_mode_t mode, int n, int64_t spin, bool crowded, bool fences)
{
    world_make(n);
    mutex = harness_shared(4096);
    load = harness_shared(sizeof *load);
    *load = (load_t){0, 0, spin, crowded};
    CHECK_OK(shmemi_mutex_init(mutex));
    atomic_store(&mutex->bell.sequence, UINT32_MAX - 5);
    atomic_store(&world.roster->fence_needed, fences);
    shmemi_barrier_refuse(fences);
    harness_pes(n, mode, 60, take_turns, NULL);
    shmemi_barrier_refuse(false);
    CHECK_EQ(load->plain, (uint64_t)n * TURNS);
    CHECK_EQ(load->copy, (uint64_t)n * TURNS);
    CHECK_EQ(mutex->word, SHMEMI_MUTEX_FREE);
}

static void excludes_threads(void)
{
    exclude(HARNESS_THREAD, 2, 50000, false, false);
    exclude(HARNESS_THREAD, 8, 50000, false, false);
    exclude(HARNESS_THREAD, 8, 0, false, false); /* straight to sleep */
    exclude(HARNESS_THREAD, 8, 50000, true, true);
}

static void excludes_processes(void)
{
    world_needs_kills();
    exclude(HARNESS_PROC, 2, 50000, false, false);
    exclude(HARNESS_PROC, 16, 50000, false, false);
    exclude(HARNESS_PROC, 8, 0, false, false);
    exclude(HARNESS_PROC, 8, 50000, true, true);
}

/* ---- turns ---- */

static _Atomic uint64_t *turns; /* of the greedy one, of the other */

/* The greedy one holds it for 0.2 ms and locks again at once; the other sleeps between two looks,
 * so that it is always late. */
static void greedy_and_other(int rank, int n, void *arg)
{
    (void)n;
    (void)arg;
    shmemi_actor_t actor;
    world_actor(&actor, rank, 0);
    for (double end = harness_now() + 0.7; harness_now() < end;) {
        CHECK_OK(lock_for(&actor, -1));
        for (double held = harness_now() + 0.0002; rank == 0 && harness_now() < held;)
            ;
        atomic_fetch_add(&turns[rank], 1);
        CHECK_OK(shmemi_mutex_unlock(&actor, mutex));
        if (rank)
            harness_sleep(0.0001);
    }
    shmemi_actor_fini(&actor);
}

static void nobody_starves(void)
{
    world_make(2);
    mutex = harness_shared(4096);
    turns = harness_shared(4096);
    CHECK_OK(shmemi_mutex_init(mutex));
    harness_pes(2, HARNESS_THREAD, 20, greedy_and_other, NULL);
    fprintf(stderr, "%llu turns of the greedy one, %llu of the other\n",
            (unsigned long long)turns[0], (unsigned long long)turns[1]);
    CHECK(turns[1] >= 10);
}

int main(void)
{
    RUN(alone);
    RUN(nested);
    RUN(garbage);
    RUN(timeouts);
    RUN(thread_ends_inside);
    RUN(forked_child);
    RUN(excludes_threads);
    RUN(excludes_processes);
    RUN(nobody_starves);
    return harness_end();
}
