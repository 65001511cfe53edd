/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Synchronization as programs use it: libshmem.so, a node server that notices deaths, processes
 * that are killed.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "../multi/job.h"

#define MS 1000000ll

typedef struct shared {
    shmem_mutex_t mutex;
    shmem_event_t event, answer;
    shmem_barrier_object_t barrier;
    _Alignas(64) char semaphore[SHMEM_SEMAPHORE_BYTES(3)];
    uint64_t counter; /* plain, under the mutex */
    _Atomic int inside, ready;
} shared_t;

static shared_t *shared;
static shmem_semaphore_t *semaphore;

static void fresh(void)
{
    shared = harness_shared(sizeof *shared);
    semaphore = (shmem_semaphore_t *)shared->semaphore;
    CHECK_OK(shmem_mutex_init(&shared->mutex));
    CHECK_OK(shmem_event_init(&shared->event, SHMEM_EVENT_AUTO, 0));
    CHECK_OK(shmem_event_init(&shared->answer, SHMEM_EVENT_MANUAL, 0));
    CHECK_OK(shmem_barrier_init(&shared->barrier, 3));
    CHECK_OK(shmem_semaphore_init(shared->semaphore, sizeof shared->semaphore, 3));
}

/* A client of the test's server, a job of its own. */
static shmem_context_t join(void)
{
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    shmem_context_t context;
    params.server = job_server.address;
    params.pes = 1;
    CHECK_OK(shmem_context_init_params(&context, &params));
    return context;
}

/* A killed process reports to nobody but its parent: wait for it, and for the server to notice. */
static void kill_and_wait(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK_EQ(harness_wait(pid, 10), -SIGKILL);
}

static pid_t start(void (*function)(void *))
{
    int before = atomic_load(&shared->ready);
    pid_t pid = harness_fork(function, NULL);
    while (atomic_load(&shared->ready) == before)
        harness_sleep(0.0005);
    return pid;
}

static void needs_processes(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed, and ThreadSanitizer sees threads only");
}

/* ---- one process ---- */

static void null_arguments(void)
{
    fresh();
    shmem_context_t c = join();
    uint32_t n = 7;
    CHECK_STATUS(shmem_mutex_init(NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_mutex_lock(NULL, &shared->mutex), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_mutex_lock(c, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_mutex_trylock(c, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_mutex_lock_timed(c, NULL, 1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_mutex_unlock(NULL, &shared->mutex), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_mutex_consistent(c, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_semaphore_init(NULL, 1000, 1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_semaphore_acquire(NULL, semaphore), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_semaphore_try(c, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_semaphore_acquire_timed(c, NULL, 1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_semaphore_release(c, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_semaphore_available(c, semaphore, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_semaphore_available(c, NULL, &n), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_event_init(NULL, SHMEM_EVENT_AUTO, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_event_set(NULL, &shared->event), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_event_reset(c, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_event_wait(c, NULL, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_barrier_init(NULL, 1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_barrier_arrive(c, &shared->barrier, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_barrier_wait(c, NULL, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_barrier_await(NULL, &shared->barrier, 0, 0), SHMEM_ERR_INVALID);
    CHECK_EQ(n, 7);
    CHECK_OK(shmem_context_finalize(c));
}

static void alone(void)
{
    fresh();
    shmem_context_t c = join();
    uint32_t n = 0, token = 0;
    CHECK_OK(shmem_mutex_lock(c, &shared->mutex));
    CHECK_STATUS(shmem_mutex_lock(c, &shared->mutex), SHMEM_ERR_DEADLOCK);
    CHECK_STATUS(shmem_mutex_lock_timed(c, &shared->mutex, 0), SHMEM_ERR_DEADLOCK);
    CHECK_OK(shmem_mutex_unlock(c, &shared->mutex));
    CHECK_STATUS(shmem_mutex_unlock(c, &shared->mutex), SHMEM_ERR_NOT_OWNER);
    CHECK_OK(shmem_mutex_trylock(c, &shared->mutex));
    CHECK_OK(shmem_mutex_unlock(c, &shared->mutex));
    for (int i = 0; i < 3; i++)
        CHECK_OK(shmem_semaphore_acquire(c, semaphore));
    CHECK_STATUS(shmem_semaphore_try(c, semaphore), SHMEM_ERR_BUSY);
    CHECK_STATUS(shmem_semaphore_acquire_timed(c, semaphore, 1 * MS), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmem_semaphore_release(c, semaphore));
    CHECK_OK(shmem_semaphore_available(c, semaphore, &n));
    CHECK_EQ(n, 1);
    CHECK_STATUS(shmem_event_wait(c, &shared->event, 1 * MS), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmem_event_set(c, &shared->event));
    CHECK_OK(shmem_event_wait(c, &shared->event, SHMEM_FOREVER));
    CHECK_OK(shmem_barrier_arrive(c, &shared->barrier, &token));
    CHECK_STATUS(shmem_barrier_await(c, &shared->barrier, token, 1 * MS), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmem_context_finalize(c));
    /* the permits of a client that left are free */
    c = join();
    CHECK_OK(shmem_semaphore_available(c, semaphore, &n));
    CHECK_EQ(n, 3);
    CHECK_OK(shmem_context_finalize(c));
}

static shmem_context_t parents;

static void child_of_fork(void *arg)
{
    (void)arg;
    uint32_t n;
    CHECK_STATUS(shmem_mutex_lock(parents, &shared->mutex), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_mutex_unlock(parents, &shared->mutex), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_semaphore_try(parents, semaphore), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_semaphore_available(parents, semaphore, &n), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_event_set(parents, &shared->event), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_barrier_wait(parents, &shared->barrier, 0), SHMEM_ERR_STATE);
    shmem_context_t own = join();
    CHECK_STATUS(shmem_mutex_trylock(own, &shared->mutex), SHMEM_ERR_BUSY);
    CHECK_OK(shmem_context_finalize(own));
}

static void forked_child(void)
{
    needs_processes();
    fresh();
    parents = join();
    CHECK_OK(shmem_mutex_lock(parents, &shared->mutex));
    CHECK_EQ(harness_wait(harness_fork(child_of_fork, NULL), 10), 0);
    CHECK_OK(shmem_mutex_unlock(parents, &shared->mutex));
    CHECK_OK(shmem_context_finalize(parents));
}

static void *lock_and_linger(void *context)
{
    CHECK_OK(shmem_mutex_lock(context, &shared->mutex));
    CHECK_OK(shmem_mutex_unlock(context, &shared->mutex));
    atomic_store(&shared->ready, 1);
    while (atomic_load(&shared->ready) != 2)
        harness_sleep(0.0005);
    return NULL;
}

/* A thread outlives the context that it used. */
static void thread_outlives_context(void)
{
    fresh();
    pthread_t thread;
    shmem_context_t c = join();
    CHECK(pthread_create(&thread, NULL, lock_and_linger, c) == 0);
    while (atomic_load(&shared->ready) != 1)
        harness_sleep(0.0005);
    CHECK_OK(shmem_context_finalize(c));
    atomic_store(&shared->ready, 2);
    pthread_join(thread, NULL);
}

/* ---- together ---- */

enum { PES = 6, TURNS = 2000 };

static void take_turns(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = join();
    for (int i = 0; i < TURNS; i++) {
        CHECK_OK(shmem_mutex_lock(c, &shared->mutex));
        shared->counter++;
        CHECK_OK(shmem_mutex_unlock(c, &shared->mutex));
        if (i % 4)
            continue;
        CHECK_OK(shmem_semaphore_acquire(c, semaphore));
        CHECK(atomic_fetch_add(&shared->inside, 1) < 3);
        atomic_fetch_sub(&shared->inside, 1);
        CHECK_OK(shmem_semaphore_release(c, semaphore));
    }
    CHECK_OK(shmem_barrier_wait(c, &shared->barrier, SHMEM_FOREVER));
    CHECK_EQ(shared->counter, (uint64_t)n * TURNS);
    if (rank == 0)
        CHECK_OK(shmem_event_set(c, &shared->answer));
    CHECK_OK(shmem_event_wait(c, &shared->answer, SHMEM_FOREVER));
    CHECK_OK(shmem_context_finalize(c));
}

static void threads_together(void)
{
    fresh();
    CHECK_OK(shmem_barrier_init(&shared->barrier, PES));
    harness_pes(PES, HARNESS_THREAD, 60, take_turns, NULL);
}

static void processes_together(void)
{
    needs_processes();
    fresh();
    CHECK_OK(shmem_barrier_init(&shared->barrier, PES));
    harness_pes(PES, HARNESS_PROC, 60, take_turns, NULL);
}

/* ---- deaths ---- */

static void hold_everything(void *arg)
{
    (void)arg;
    shmem_context_t c = join();
    CHECK_OK(shmem_mutex_lock(c, &shared->mutex));
    for (int i = 0; i < 3; i++)
        CHECK_OK(shmem_semaphore_acquire(c, semaphore));
    atomic_fetch_add(&shared->ready, 1);
    harness_sleep(30); /* until killed; not for ever, should the test fail */
}

static void inherit(void *arg)
{
    (void)arg;
    shmem_context_t c = join();
    atomic_fetch_add(&shared->ready, 1);
    shmem_status_t status = shmem_mutex_lock(c, &shared->mutex);
    if (status == SHMEM_ERR_OWNER_DIED) {
        shared->counter++;
        CHECK_OK(shmem_mutex_consistent(c, &shared->mutex));
    } else {
        CHECK_OK(status);
    }
    CHECK_OK(shmem_mutex_unlock(c, &shared->mutex));
    CHECK_OK(shmem_semaphore_acquire(c, semaphore));
    CHECK_OK(shmem_semaphore_release(c, semaphore));
    CHECK_OK(shmem_context_finalize(c));
}

static void holder_is_killed(void)
{
    needs_processes();
    fresh();
    shmem_context_t c = join();
    uint32_t n = 7;
    pid_t holder = start(hold_everything), heirs[3];
    for (int i = 0; i < 3; i++)
        heirs[i] = start(inherit);
    CHECK_STATUS(shmem_mutex_lock_timed(c, &shared->mutex, 20 * MS), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmem_semaphore_available(c, semaphore, &n));
    CHECK_EQ(n, 0);
    double begin = harness_now();
    kill_and_wait(holder);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(harness_wait(heirs[i], 10), 0);
    CHECK(harness_now() - begin < 1.0);
    CHECK_EQ(shared->counter, 1); /* one heir was told */
    CHECK_OK(shmem_semaphore_available(c, semaphore, &n));
    CHECK_EQ(n, 3);
    CHECK_OK(shmem_mutex_trylock(c, &shared->mutex));
    CHECK_OK(shmem_mutex_unlock(c, &shared->mutex));
    CHECK_OK(shmem_context_finalize(c));
}

static void sleep_on_everything(void *arg)
{
    (void)arg;
    shmem_context_t c = join();
    atomic_fetch_add(&shared->ready, 1);
    int which = atomic_load(&shared->ready) % 3;
    if (which == 0)
        (void)!shmem_mutex_lock(c, &shared->mutex);
    else if (which == 1)
        (void)!shmem_semaphore_acquire(c, semaphore);
    else
        (void)!shmem_event_wait(c, &shared->answer, SHMEM_FOREVER);
    harness_sleep(30); /* until killed; not for ever, should the test fail */
}

/* Killed waiters hold nobody up. */
static void waiters_are_killed(void)
{
    needs_processes();
    fresh();
    shmem_context_t c = join();
    pid_t waiter[6];
    CHECK_OK(shmem_mutex_lock(c, &shared->mutex));
    for (int i = 0; i < 3; i++)
        CHECK_OK(shmem_semaphore_acquire(c, semaphore));
    for (int i = 0; i < 6; i++)
        waiter[i] = start(sleep_on_everything);
    harness_sleep(0.02);
    for (int i = 0; i < 6; i++)
        kill_and_wait(waiter[i]);
    double begin = harness_now();
    CHECK_OK(shmem_mutex_unlock(c, &shared->mutex));
    CHECK_OK(shmem_mutex_lock(c, &shared->mutex));
    CHECK_OK(shmem_mutex_unlock(c, &shared->mutex));
    CHECK_OK(shmem_semaphore_release(c, semaphore));
    CHECK_OK(shmem_semaphore_acquire(c, semaphore));
    CHECK_OK(shmem_event_set(c, &shared->answer));
    CHECK_OK(shmem_event_wait(c, &shared->answer, 0));
    CHECK(harness_now() - begin < 0.2);
    CHECK_OK(shmem_context_finalize(c));
}

static void pass_until_peer_dies(void *arg)
{
    (void)arg;
    shmem_context_t c = join();
    shmem_status_t status;
    atomic_fetch_add(&shared->ready, 1);
    while (!(status = shmem_barrier_wait(c, &shared->barrier, SHMEM_FOREVER)))
        ;
    CHECK_STATUS(status, SHMEM_ERR_PEER_DEAD);
    CHECK_OK(shmem_context_finalize(c));
}

static void barrier_member_is_killed(void)
{
    needs_processes();
    fresh();
    pid_t member[3];
    for (int i = 0; i < 3; i++)
        member[i] = start(pass_until_peer_dies);
    harness_sleep(0.05);
    double begin = harness_now();
    kill_and_wait(member[1]);
    CHECK_EQ(harness_wait(member[0], 10), 0);
    CHECK_EQ(harness_wait(member[2], 10), 0);
    CHECK(harness_now() - begin < 1.0);
}

int main(void)
{
    job_server = job_server_start();
    RUN(null_arguments);
    RUN(alone);
    RUN(forked_child);
    RUN(thread_outlives_context);
    RUN(threads_together);
    RUN(processes_together);
    RUN(holder_is_killed);
    RUN(waiters_are_killed);
    RUN(barrier_member_is_killed);
    job_server_stop(&job_server);
    return harness_end();
}
