/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of killed and replaced servers share: a server with a keeper, its end, a client
 * that dies with blocks of a pool. */
#ifndef SHMEM_TEST_MULTI_TAKEOVER_H
#define SHMEM_TEST_MULTI_TAKEOVER_H

#include "pool_user.h"

static inline fixture_server_t *takeover_start(const char *point, unsigned nth, bool later)
{
    fixture_server_t *f = fixture_new();
    f->takeover = 1;
    f->fault_later = later;
    f->exit_when_unused = 1; /* a test that fails leaves nothing running */
    if (point) {
        f->fault_armed = 1;
        snprintf(f->fault, sizeof f->fault, "%s", point);
        f->action = SHMEMI_FAULT_KILL;
        f->nth = nth;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* successors and keepers become ours */
    fixture_start(f);
    CHECK_EQ(atomic_load(&f->ready), 1);
    return f;
}

/* All its processes have ended. */
static inline void takeover_all_gone(void)
{
    double end = harness_now() + 10;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) >= 0) {
        CHECK(harness_now() < end);
        if (pid == 0)
            harness_sleep(0.001);
    }
}

static inline void takeover_kill_server(fixture_server_t *f)
{
    unsigned before = atomic_load(&f->takeovers);
    double end = harness_now() + 10;
    kill(atomic_load(&f->serves), SIGKILL);
    while (atomic_load(&f->takeovers) == before) {
        CHECK(harness_now() < end);
        harness_sleep(0.0005);
    }
}

static inline void takeover_short_life(void *arg)
{
    pool_user_t u;
    void *block;
    pool_user_open(&u, arg, false);
    for (int i = 0; i < 30; i++)
        CHECK_OK(shmemi_pool_alloc(u.pool, (size_t)64 << i % 12, 0, SHMEM_POOL_NEAREST, 0, &block));
    raise(SIGKILL);
}

static inline void takeover_await_used(const pool_user_t *u, uint64_t bytes)
{
    double end = harness_now() + 10;
    while (used_bytes(u) != bytes) {
        if (harness_now() > end)
            CHECK_EQ(used_bytes(u), bytes);
        harness_sleep(0.001);
    }
    CHECK_OK(shmemi_pool_check(u->pool));
}

#endif
