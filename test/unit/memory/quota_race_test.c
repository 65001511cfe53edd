/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotas where many are at it: the first use of a name, two tasks at their limits, kills at every
 * point of charging, setting and settling.
 */
#include "quota_world.h"

/* ---- the first use of a name ---- */

enum { NAMES = 20, CONTENDERS = 6 };

static uint32_t (*numbers)[NAMES];

static void name_all(int rank, int n, void *arg)
{
    (void)n;
    (void)arg;
    shmemi_actor_t self;
    world_actor(&self, rank + 1);
    for (int i = 0; i < NAMES; i++) {
        char name[SHMEM_TASK_NAME];
        int k = rank % 2 ? i : NAMES - 1 - i;
        snprintf(name, sizeof name, "name-%d", k);
        shmemi_pool_t *p = world_attach_as(&self, NULL, name);
        numbers[rank][k] = p->task;
        world_alloc(p, 1000 * (size_t)(k + 1));
        shmemi_pool_detach(p);
    }
    shmemi_actor_fini(&self);
}

/* The first use of a name from everywhere at once makes one task. */
static void first_use(harness_mode_t mode)
{
    begin(64 * MIB);
    numbers = harness_shared(sizeof *numbers * CONTENDERS);
    harness_pes(CONTENDERS, mode, 60, name_all, NULL);
    for (int k = 0; k < NAMES; k++) {
        CHECK(numbers[0][k] >= 1 && numbers[0][k] <= NAMES);
        for (int r = 1; r < CONTENDERS; r++)
            CHECK_EQ(numbers[r][k], numbers[0][k]);
        for (int j = 0; j < k; j++)
            CHECK(numbers[0][j] != numbers[0][k]);
    }
    end();
}

static void first_use_by_processes(void)
{
    if (harness_has_tsan())
        SKIP("ThreadSanitizer sees threads only");
    first_use(HARNESS_PROC);
}

static void first_use_by_threads(void)
{
    first_use(HARNESS_THREAD);
}

/* ---- at the limit, from everywhere ---- */

static _Atomic int *done;

static void consume(int rank, int n, void *arg)
{
    enum { N = 40 };
    const int rounds = *(int *)arg;
    shmemi_actor_t self;
    if (rank == n - 1) { /* looks on */
        world_actor(&self, rank + 1);
        shmemi_pool_t *p = world_attach(&self, topology);
        while (atomic_load(done) < n - 1)
            for (uint32_t task = 1; task <= 2; task++)
                CHECK(shmemi_quota_held(p, task) <= 2 * MIB / PAGE);
        shmemi_pool_detach(p);
        shmemi_actor_fini(&self);
        return;
    }
    void *blocks[N];
    uint64_t seed = (uint64_t)rank + 99, refused = 0;
    world_actor(&self, rank + 1);
    shmemi_pool_t *p = world_attach_as(&self, topology, rank % 2 ? "odd" : "even");
    for (int round = 0; round < rounds; round++) {
        int k = 0;
        for (int i = 0; i < N; i++) {
            uint64_t r = world_random(&seed);
            size_t bytes = r % 3 ? 1 + (r >> 8) % 20000 : 1 + (r >> 8) % 400000;
            shmem_status_t status = shmemi_pool_alloc_default(p, bytes, &blocks[k]);
            CHECK(status == SHMEM_OK || status == SHMEM_ERR_QUOTA);
            refused += status != SHMEM_OK;
            k += status == SHMEM_OK;
        }
        while (k)
            CHECK_OK(shmemi_pool_free(p, blocks[--k]));
    }
    CHECK(refused > 0);
    shmemi_pool_detach(p);
    shmemi_actor_fini(&self);
    atomic_fetch_add(done, 1);
}

static void at_the_limit(harness_mode_t mode, const char *machine)
{
    int rounds = 150;
    begin_on(machine, 64 * MIB);
    done = harness_shared(sizeof *done);
    set("even", 2 * MIB, UINT64_MAX, 0, 0);
    set("odd", 2 * MIB, 64 * MIB, UINT64_MAX, 1);
    harness_pes(7, mode, 100, consume, &rounds);
    CHECK(state("even").refused && state("odd").refused);
    CHECK(state("even").held_high <= 2 * MIB && state("even").held_high > MIB);
    end();
}

static void processes_at_the_limit(void)
{
    if (harness_has_tsan())
        SKIP("ThreadSanitizer sees threads only");
    at_the_limit(HARNESS_PROC, NULL);
    at_the_limit(HARNESS_PROC, "node:3 core:1 pu:1");
}

static void threads_at_the_limit(void)
{
    at_the_limit(HARNESS_THREAD, NULL);
}

/* ---- kills ---- */

typedef struct victim {
    const char *point;
    unsigned n;
    void *given;
} victim_t;

static void spend(void *arg)
{
    const victim_t *v = arg;
    shmemi_actor_t self;
    void *block[30], *more;
    world_actor(&self, 1);
    shmemi_fault_arm(v->point, SHMEMI_FAULT_KILL, v->n);
    shmemi_pool_t *p = world_attach_as(&self, NULL, "t"), *q = world_attach_as(&self, NULL, "new");
    for (int i = 0; i < 30; i++)
        block[i] = world_alloc(i % 3 ? p : q, (size_t)(i % 5 + 1) * 9000);
    CHECK_STATUS(shmemi_pool_alloc_default(p, 3 * MIB, &more), SHMEM_ERR_QUOTA);
    CHECK_OK(shmemi_pool_free(p, v->given));
    for (int i = 0; i < 30; i += 2)
        CHECK_OK(shmemi_pool_free(i % 4 ? p : q, block[i]));
    CHECK_OK(shmemi_pool_resize(p, &block[1], 100000));
    CHECK_OK(shmemi_pool_hold(q, block[1]));
    CHECK_OK(shmemi_pool_give(p, block[7]));
    CHECK_OK(shmemi_pool_free(q, block[7]));
    set_in(p, "t", 4 * MIB, MIB, MIB, 1);
    set_in(p, "t", 4 * MIB, UINT64_MAX, 0, 0);
    shmemi_pool_detach(q);
    shmemi_pool_detach(p);
    _exit(0);
}

/* Whatever was going on: afterwards each task holds exactly what the living have, the bucket knows
 * it, and nobody is locked out. */
static void killed_while_spending(void)
{
    static const char *const points[] = {
        "memory.charge.held",   "memory.charge.moved",   "memory.quota.entered",
        "memory.quota.leaving", "memory.quota.settled",  "memory.quota.written",
        "memory.task.named",    "memory.journal.commit", "memory.journal.changed"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        bool more = true;
        begin(32 * MIB);
        for (unsigned n = 1, kills = 0; more && kills < 12; n += 1 + n / 3) {
            shmemi_pool_t *p = world_attach_as(&actor, NULL, "t");
            set("t", 4 * MIB, UINT64_MAX, 0, 0);
            void *mine = world_alloc(p, MIB), *given = world_alloc(p, 50000), *rest;
            victim_t v = {points[i], n, given};
            int end = harness_wait(harness_fork(spend, &v), 30);
            CHECK(end == 0 || end == -SIGKILL);
            world_bury(1);
            world_client_add(1);
            CHECK_OK(shmemi_pool_check(pool));
            shmem_status_t status = shmemi_pool_free(p, given);
            CHECK(status == SHMEM_OK || status == SHMEM_ERR_DOUBLE_FREE);
            CHECK_OK(shmemi_pool_free(p, world_alloc(p, 40000)));
            CHECK_OK(shmemi_pool_trim(p));
            CHECK_EQ(held("t"), MIB);
            set("t", 4 * MIB, UINT64_MAX, 0, 0);
            rest = world_alloc(p, 3 * MIB);
            CHECK_STATUS(shmemi_pool_alloc_default(p, 1, &given), SHMEM_ERR_QUOTA);
            CHECK_OK(shmemi_pool_free(p, rest));
            CHECK_OK(shmemi_pool_free(p, mine));
            shmemi_pool_detach(p);
            CHECK_EQ(world_used(pool), 0);
            more = end != 0;
            kills += more;
            if (!more && !kills)
                harness_fail(__FILE__, __LINE__, "nobody passed %s", points[i]);
        }
        end();
    }
}

static void set_first(void *arg)
{
    shmemi_actor_t self;
    world_actor(&self, 1);
    shmemi_pool_t *p = world_attach_as(&self, NULL, "t");
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    set_in(p, "t", 4 * MIB, UINT64_MAX, 0, 0);
}

/* A task that never had a quota has none, or the one that was being set. */
static void killed_while_setting_the_first(void)
{
    static const char *const points[] = {"memory.quota.written", "memory.quota.settled"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        begin(32 * MIB);
        shmemi_pool_t *p = world_attach_as(&actor, NULL, "t");
        CHECK_EQ(harness_wait(harness_fork(set_first, (void *)(uintptr_t)points[i]), 30), -SIGKILL);
        world_bury(1);
        CHECK_OK(shmemi_pool_free(p, world_alloc(p, 2 * MIB)));
        uint64_t limit = state("t").limit;
        CHECK(limit == UINT64_MAX || limit == 4 * MIB);
        set("t", 3 * MIB, UINT64_MAX, 0, 0);
        CHECK_EQ(state("t").limit, 3 * MIB);
        shmemi_pool_detach(p);
        end();
    }
}

int main(void)
{
    RUN(first_use_by_threads);
    RUN(first_use_by_processes);
    RUN(threads_at_the_limit);
    RUN(processes_at_the_limit);
    RUN(killed_while_spending);
    RUN(killed_while_setting_the_first);
    return harness_end();
}
