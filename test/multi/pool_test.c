/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools with everything around them: a node server, jobs whose PEs share a pool, creators and users
 * that are killed anywhere, many more PEs than processors.
 */
#include <stdatomic.h>

#include "base/fault.h"
#include "job.h"
#include "job/context.h"
#include "memory/pool_core.h"
#include "os/space.h"

enum { ROUNDS = 400, BOXES = 64 };

/* Blocks on their way from one PE to another, by address. */
typedef struct boxes {
    void *_Atomic box[BOXES];
    char name[64];
    _Atomic int created;
    _Atomic int stage;
} boxes_t;

static boxes_t *boxes;

static void boxes_make(const char *name)
{
    boxes = harness_shared(sizeof *boxes);
    snprintf(boxes->name, sizeof boxes->name, "%s-%d", name, (int)getpid());
}

static uint64_t used(shmem_pool_t pool)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_info(pool, &info));
    return info.used_bytes;
}

/* All try to create it; one does, the others open it, also while it is not ready yet. */
static shmem_pool_t create_or_open(shmem_context_t context, uint64_t bytes)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes;
    shmem_status_t status = shmem_pool_create(context, boxes->name, &params, &pool);
    if (status == SHMEM_OK) {
        atomic_fetch_add(&boxes->created, 1);
        return pool;
    }
    CHECK_EQ(status, SHMEM_ERR_EXISTS);
    CHECK_OK(shmem_pool_open(context, boxes->name, &pool));
    return pool;
}

static void trade_blocks(shmem_pool_t pool, int rank)
{
    uint64_t r = (uint64_t)rank * 7919 + 1;
    for (int i = 0; i < ROUNDS; i++) {
        r = r * 6364136223846793005ull + 1442695040888963407ull;
        size_t bytes = 16 + (size_t)(r >> 33) % (1u << (4 + (r >> 20) % 13));
        uint64_t *block;
        CHECK_OK(shmem_pool_alloc(pool, bytes, (void **)&block));
        block[0] = bytes;
        block[1] = ~(uint64_t)bytes;
        uint64_t *other = atomic_exchange(&boxes->box[(r >> 40) % BOXES], block);
        if (other) {
            CHECK(other[0] == ~other[1]);
            CHECK_OK(shmem_pool_free(pool, other));
        }
    }
}

static void share_a_pool(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t context = job_init("pool", rank, n);
    shmem_pool_t pool = create_or_open(context, 64 << 20);
    CHECK_OK(shmem_context_barrier(context));
    CHECK_EQ(atomic_load(&boxes->created), 1);
    trade_blocks(pool, rank);
    CHECK_OK(shmem_context_barrier(context));
    if (rank == 0)
        for (int i = 0; i < BOXES; i++) {
            CHECK_OK(shmem_pool_free(pool, atomic_exchange(&boxes->box[i], NULL)));
        }
    CHECK_OK(shmem_context_barrier(context));
    CHECK_OK(shmem_pool_trim(pool));
    CHECK_OK(shmem_context_barrier(context));
    if (rank == 0)
        CHECK_EQ(used(pool), 0);
    CHECK_OK(shmem_pool_check(pool));
    shmem_pool_close(pool);
    CHECK_OK(shmem_context_finalize(context));
}

static void pes_as_processes(void)
{
    if (harness_has_tsan())
        SKIP("ThreadSanitizer sees threads only");
    boxes_make("processes");
    harness_pes(4, HARNESS_PROC, 60, share_a_pool, NULL);
}

static void pes_as_threads(void)
{
    boxes_make("threads");
    harness_pes(4, HARNESS_THREAD, 60, share_a_pool, NULL);
}

static void many_pes(void)
{
    boxes_make("many");
    harness_pes(harness_has_tsan() ? 6 : 12, harness_has_tsan() ? HARNESS_THREAD : HARNESS_PROC,
                100, share_a_pool, NULL);
}

/* ---- creators that die ---- */

static void doomed_creator(void *arg)
{
    shmem_context_t context;
    CHECK_OK(job_try_init(&context, NULL, 0, 1, 10));
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    create_or_open(context, 4 << 20);
    _exit(1); /* the point was not passed */
}

/* The name is free again, and the next creator makes a whole pool. */
static void a_creator_dies(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    static const char *const points[] = {"job.pool.created",      "memory.pool.header",
                                         "memory.journal.noted",  "memory.journal.committed",
                                         "memory.pool.formatted", "memory.buddy.inserted"};
    shmem_context_t context;
    boxes_make("creator");
    CHECK_OK(job_try_init(&context, NULL, 0, 1, 10));
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        pid_t pid = harness_fork(doomed_creator, (void *)(uintptr_t)points[i]);
        CHECK_EQ(harness_wait(pid, 20), -SIGKILL);
        shmem_pool_t pool = NULL;
        shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
        params.bytes = 4 << 20;
        shmem_status_t status = SHMEM_ERR_EXISTS;
        for (double end = harness_now() + 1; status == SHMEM_ERR_EXISTS && harness_now() < end;) {
            status = shmem_pool_create(context, boxes->name, &params, &pool);
            if (status == SHMEM_ERR_EXISTS)
                harness_sleep(0.005);
        }
        CHECK_OK(status);
        CHECK_OK(shmem_pool_check(pool));
        shmem_pool_close(pool);
    }
    CHECK_OK(shmem_context_finalize(context));
}

/* A creator that has begun, and never ends. */
static void slow_creator(void *arg)
{
    shmem_context_t c;
    shmemi_segment_t segment;
    void *memory;
    char name[80];
    CHECK_OK(job_try_init(&c, NULL, 0, 1, 10));
    snprintf(name, sizeof name, "pool/%s", boxes->name);
    shmemi_segment_request_t request = {
        .name = name, .bytes = 4 << 20, .kind = SHMEMI_SEGMENT_POOL, .reserve = 1};
    CHECK_OK(shmemi_client_segment_create(c->client, &request, &segment));
    CHECK_OK(shmemi_space_map(segment.offset, segment.bytes, segment.fd, 1, &memory));
    shmemi_pool_claim(memory, c->actor);
    atomic_store((atomic_int *)arg, 1);
    pause();
}

static void opener(void *arg)
{
    shmem_context_t c;
    shmem_pool_t pool;
    CHECK_OK(job_try_init(&c, NULL, 0, 1, 10));
    atomic_store((atomic_int *)arg, 2);
    CHECK_STATUS(shmem_pool_open(c, boxes->name, &pool), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmem_context_finalize(c));
}

/* Who waits for a creator does not wait for a dead one. */
static void a_creator_dies_while_awaited(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    boxes_make("awaited");
    atomic_int *stage = harness_shared(sizeof *stage);
    pid_t creator = harness_fork(slow_creator, stage);
    while (atomic_load(stage) < 1)
        harness_sleep(0.001);
    pid_t waiter = harness_fork(opener, stage);
    while (atomic_load(stage) < 2)
        harness_sleep(0.001);
    harness_sleep(0.1);
    kill(creator, SIGKILL);
    CHECK_EQ(harness_wait(creator, 10), -SIGKILL);
    CHECK_EQ(harness_wait(waiter, 10), 0);
}

/* ---- users that die ---- */

static void doomed_user(void *arg)
{
    shmem_context_t context;
    CHECK_OK(job_try_init(&context, NULL, 0, 1, 10));
    shmem_pool_t pool = create_or_open(context, 64 << 20);
    shmemi_fault_arm("memory.*", SHMEMI_FAULT_KILL, *(unsigned *)arg);
    for (int i = 0; i < 20; i++)
        trade_blocks(pool, i);
    _exit(1);
}

/* Killed anywhere: the survivor goes on, and within a second the pool holds what it holds. */
static void users_die(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    shmem_context_t context;
    boxes_make("users");
    CHECK_OK(job_try_init(&context, NULL, 0, 1, 10));
    shmem_pool_t pool = create_or_open(context, 64 << 20);
    void *kept[20];
    for (int i = 0; i < 20; i++)
        CHECK_OK(shmem_pool_alloc(pool, 2000 * (size_t)(i + 1), &kept[i]));
    uint64_t before = used(pool);
    for (unsigned n = 1; n < 3000; n = n * 2 + 13) {
        pid_t pid = harness_fork(doomed_user, &n);
        CHECK_EQ(harness_wait(pid, 20), -SIGKILL);
        double died = harness_now();
        while (used(pool) != before && harness_now() < died + 5)
            harness_sleep(0.002);
        CHECK_EQ(used(pool), before);
        CHECK(harness_now() - died < 1);
        CHECK_OK(shmem_pool_check(pool));
        for (int i = 0; i < BOXES; i++)
            atomic_store(&boxes->box[i], NULL);
    }
    for (int i = 0; i < 20; i++)
        CHECK_OK(shmem_pool_free(pool, kept[i]));
    CHECK_OK(shmem_pool_trim(pool));
    CHECK_EQ(used(pool), 0);
    CHECK_OK(shmem_context_finalize(context)); /* closes the pool */
}

JOB_MAIN({
    RUN(pes_as_processes);
    RUN(pes_as_threads);
    RUN(many_pes);
    RUN(a_creator_dies);
    RUN(a_creator_dies_while_awaited);
    RUN(users_die);
})
