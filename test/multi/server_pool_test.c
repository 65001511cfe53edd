/* SPDX-License-Identifier: Apache-2.0 */
/* Pools and deaths: the server gives back the blocks of the dead, also when that has to wait. */
#include "pool_user.h"

typedef struct actor {
    fixture_server_t *f;
    _Atomic int step;
} actor_t;

static void allocate(pool_user_t *u, int n)
{
    void *block;
    for (int i = 0; i < n; i++)
        CHECK_OK(shmemi_pool_alloc(u->pool, (size_t)1 << (6 + i % 11), 0, SHMEM_POOL_NEAREST, 0,
                                   &block));
}

static void holder(void *arg)
{
    actor_t *a = arg;
    pool_user_t u;
    pool_user_open(&u, a->f, false);
    allocate(&u, 150);
    atomic_store(&a->step, 1);
    for (;;)
        pause();
}

static void small_holder(void *arg)
{
    actor_t *a = arg;
    pool_user_t u;
    pool_user_open(&u, a->f, false);
    allocate(&u, 3);
    atomic_store(&a->step, 1);
    for (;;)
        pause();
}

static void lock_and_stop(void *arg)
{
    actor_t *a = arg;
    pool_user_t u;
    pool_user_open(&u, a->f, false);
    CHECK_OK(
        shmemi_arena_lock(&u.pool->arenas[0].arena, shmemi_client_actor(u.client), SHMEMI_FOREVER));
    atomic_store(&a->step, 1);
    raise(SIGSTOP);
    shmemi_arena_unlock(&u.pool->arenas[0].arena, shmemi_client_actor(u.client), SHMEM_OK);
    pool_user_close(&u);
}

static pid_t start(void (*function)(void *), fixture_server_t *f)
{
    actor_t *a = harness_shared(sizeof *a);
    a->f = f;
    pid_t pid = harness_fork(function, a);
    double end = harness_now() + 10;
    while (!atomic_load(&a->step)) {
        CHECK(harness_now() < end);
        harness_sleep(0.001);
    }
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    CHECK_EQ(harness_wait(pid, 5), -SIGKILL);
}

static void blocks_come_back(void)
{
    fixture_server_t *f = fixture_server();
    pool_user_t u;
    pool_user_open(&u, f, true);
    uint64_t before = used_bytes(&u);
    for (unsigned round = 1; round <= 3; round++) {
        pid_t pid = start(holder, f);
        CHECK(used_bytes(&u) > before);
        double since = harness_now();
        end(pid);
        FIXTURE_AWAIT(u.client, deaths, round);
        CHECK(harness_now() - since < 1);
        CHECK_EQ(used_bytes(&u), before);
        CHECK_OK(shmemi_pool_check(u.pool));
    }
    CHECK(fixture_counts(u.client).reclaimed_blocks >= 3);
    pool_user_close(&u);
    fixture_end(f);
}

static void goodbye_without_close(void *arg)
{
    actor_t *a = arg;
    pool_user_t u;
    pool_user_open(&u, a->f, false);
    allocate(&u, 50);
    shmemi_client_detach(u.client); /* forgets its pool */
    atomic_store(&a->step, 1);
    _exit(0); /* leaks, as such programs do */
}

static void sloppy_goodbye(void)
{
    fixture_server_t *f = fixture_server();
    pool_user_t u;
    pool_user_open(&u, f, true);
    uint64_t before = used_bytes(&u);
    CHECK_EQ(harness_wait(start(goodbye_without_close, f), 5), 0);
    FIXTURE_AWAIT(u.client, clients, 1);
    CHECK_EQ(used_bytes(&u), before);
    CHECK_OK(shmemi_pool_check(u.pool));
    CHECK_EQ(fixture_counts(u.client).deaths, 0);
    pool_user_close(&u);
    fixture_end(f);
}

static void locked_by_a_sleeper(void)
{
    fixture_server_t *f = fixture_server();
    pool_user_t u;
    pool_user_open(&u, f, true);
    uint64_t before = used_bytes(&u);
    pid_t held[2] = {start(holder, f), start(holder, f)}, stopped = start(lock_and_stop, f);
    end(held[0]);
    end(held[1]);
    FIXTURE_AWAIT(u.client, deaths, 2); /* the server is not stuck */
    CHECK(used_bytes(&u) > before);
    kill(stopped, SIGCONT);
    CHECK_EQ(harness_wait(stopped, 5), 0);
    double limit = harness_now() + 3;
    while (used_bytes(&u) != before) {
        CHECK(harness_now() < limit);
        harness_sleep(0.01);
    }
    CHECK_OK(shmemi_pool_check(u.pool));
    held[0] = start(holder, f); /* the same again, but the sleeper dies */
    stopped = start(lock_and_stop, f);
    end(held[0]);
    end(stopped);
    FIXTURE_AWAIT(u.client, deaths, 4);
    limit = harness_now() + 3;
    while (used_bytes(&u) != before) {
        CHECK(harness_now() < limit);
        harness_sleep(0.01);
    }
    CHECK_OK(shmemi_pool_check(u.pool));
    pool_user_close(&u);
    fixture_end(f);
}

/* One client stopped inside an arena, many others of that pool dead: nobody else waits for it. */
static void stall(void)
{
    enum { DEAD = 30 };
    fixture_server_t *f = fixture_server();
    shmemi_client_t *watcher = fixture_attach(f);
    pool_user_t u;
    pid_t dead[DEAD];
    pool_user_open(&u, f, true);
    uint64_t before = used_bytes(&u);
    for (int i = 0; i < DEAD; i++)
        dead[i] = start(small_holder, f);
    pid_t stopped = start(lock_and_stop, f);
    for (int i = 0; i < DEAD; i++)
        kill(dead[i], SIGKILL);
    double since = harness_now(), longest = 0;
    FIXTURE_AWAIT(watcher, deaths, DEAD);
    CHECK(harness_now() - since < 2);
    for (int i = 0; i < 20; i++) {
        double begin = harness_now();
        shmemi_client_detach(fixture_attach(f));
        double took = harness_now() - begin;
        longest = took > longest ? took : longest;
        harness_sleep(0.05);
    }
    if (longest >= 1)
        harness_fail(__FILE__, __LINE__, "an attach took %.3f s", longest);
    CHECK(used_bytes(&u) > before);
    kill(stopped, SIGCONT);
    CHECK_EQ(harness_wait(stopped, 5), 0);
    for (int i = 0; i < DEAD; i++)
        CHECK_EQ(harness_wait(dead[i], 5), -SIGKILL);
    double limit = harness_now() + 4;
    while (used_bytes(&u) != before) {
        CHECK(harness_now() < limit);
        harness_sleep(0.01);
    }
    CHECK_OK(shmemi_pool_check(u.pool));
    pool_user_close(&u);
    shmemi_client_detach(watcher);
    fixture_end(f);
}

static void create_and_wait(void *arg)
{
    actor_t *a = arg;
    pool_user_t u;
    pool_user_open(&u, a->f, true);
    allocate(&u, 50);
    atomic_store(&a->step, 1);
    for (;;)
        pause();
}

static void everything_closed(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *watcher = fixture_attach(f);
    pid_t creator = start(create_and_wait, f), stopped = start(lock_and_stop, f);
    end(creator); /* its repair waits for the sleeper ... */
    FIXTURE_AWAIT(watcher, deaths, 1);
    CHECK_EQ(fixture_counts(watcher).segments, 1);
    end(stopped); /* ... and is forgotten with the pool */
    FIXTURE_AWAIT(watcher, segments, 0);
    harness_sleep(1.2); /* when it would have been due */
    CHECK_EQ(fixture_counts(watcher).clients, 1);
    shmemi_client_detach(watcher);
    fixture_end(f);
}

/* What stands in a pool's memory is its clients' word only. */
static void nonsense_in_the_pool(void)
{
    fixture_server_t *f = fixture_server();
    pool_user_t u;
    pool_user_open(&u, f, true);
    for (unsigned round = 1; round <= 8; round++) {
        pid_t pid = start(holder, f);
        uint64_t x = 88172645463325252ull * round;
        for (size_t i = 0; i < u.segment.bytes; i += 8 + x % 512) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            *(uint64_t *)((char *)u.memory + (i & ~7ull)) = round % 2 ? x : x >> 40;
        }
        end(pid);
        FIXTURE_AWAIT(u.client, deaths, round);
        shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
        params.bytes = POOL_BYTES;
        memset(u.memory, 0, u.segment.bytes);
        CHECK_OK(shmemi_pool_format(u.memory, u.segment.bytes, &params, u.topology));
    }
    pool_user_close(&u);
    fixture_end(f);
}

int main(void)
{
    RUN(blocks_come_back);
    RUN(sloppy_goodbye);
    RUN(locked_by_a_sleeper);
    RUN(stall);
    RUN(everything_closed);
    RUN(nonsense_in_the_pool);
    return harness_end();
}
