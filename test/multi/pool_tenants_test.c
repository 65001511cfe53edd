/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants of one pool, four times as many processes as processors or more: some flood it, some
 * leak, some are killed at random. Under a quota each harms himself only; without one he harms his
 * own pool only. What is held is exact when they are gone.
 */
#include <stdatomic.h>

#include "job.h"

enum { MIB = 1 << 20, WORKERS = 4, FLOODERS = 4, ROUNDS = 1500, BLOCKS = 32, KILLS = 25 };

#define QUOTA_BYTES ((uint64_t)3 * MIB)
#define LONGEST     2.0 /* seconds that any call of a good tenant may take on a busy machine */

typedef struct board {
    char pool[40];
    _Atomic uint64_t refused, floods;
    _Atomic int ready;
} board_t;

static board_t *board;

static shmem_context_t join_alone(void)
{
    shmem_context_t context;
    CHECK_OK(job_try_init(&context, NULL, 0, 1, 30));
    return context;
}

static shmem_pool_t make(shmem_context_t context, const char *name, uint64_t bytes, uint64_t limit)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes;
    params.limit = limit;
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
    return pool;
}

static uint64_t held(shmem_pool_t pool, const char *task)
{
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    shmem_status_t status = shmem_pool_quota_get(pool, task, &quota);
    CHECK(status == SHMEM_OK || status == SHMEM_ERR_NOT_FOUND);
    return status ? 0 : quota.held;
}

static uint64_t used(shmem_pool_t pool)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_info(pool, &info));
    return info.used_bytes;
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

static size_t draw_size(uint64_t *state)
{
    return 1 + draw(state) % (1u << (4 + draw(state) % 13));
}

/* Takes and gives back; nothing fails, nothing takes long. */
static void work(shmem_pool_t pool, uint64_t seed)
{
    struct {
        unsigned char *block;
        size_t bytes;
    } have[BLOCKS] = {{NULL, 0}};
    for (int i = 0; i < ROUNDS; i++) {
        size_t k = draw(&seed) % BLOCKS;
        double begin = harness_now();
        if (have[k].block) {
            CHECK(have[k].block[0] == (k & 255) && have[k].block[have[k].bytes - 1] == (k & 255));
            CHECK_OK(shmem_pool_free(pool, have[k].block));
            have[k].block = NULL;
        } else {
            have[k].bytes = draw_size(&seed);
            CHECK_OK(shmem_pool_alloc(pool, have[k].bytes, (void **)&have[k].block));
            memset(have[k].block, (int)k, have[k].bytes);
        }
        CHECK(harness_now() - begin < LONGEST);
    }
}

static void worker(void *arg)
{
    shmem_context_t context = join_alone();
    shmem_pool_t pool;
    CHECK_OK(shmem_pool_open_as(context, board->pool, "good", &pool));
    work(pool, (uint64_t)(uintptr_t)arg * 77 + 1);
    CHECK_OK(shmem_context_finalize(context));
}

/* Takes what it gets, and more, for as long as it lives. */
static void flooder(void *arg)
{
    shmem_context_t context = join_alone();
    shmem_pool_t pool;
    uint64_t seed = (uint64_t)(uintptr_t)arg * 991 + 5;
    CHECK_OK(shmem_pool_open_as(context, board->pool, "flood", &pool));
    atomic_fetch_add(&board->ready, 1);
    for (;;) {
        void *block, *kept[64];
        int n = 0;
        while (n < 64 && shmem_pool_alloc(pool, draw_size(&seed), &block) == SHMEM_OK) {
            memset(block, 7, 8);
            kept[n++] = block; /* most are never given back */
        }
        if (n < 64) {
            CHECK(shmem_error_detail()->status == SHMEM_ERR_QUOTA);
            atomic_fetch_add(&board->refused, 1);
            harness_sleep(0.0002);
        }
        while (n > 48)
            CHECK_OK(shmem_pool_free(pool, kept[--n]));
        atomic_fetch_add(&board->floods, 1);
    }
}

static void quota_set(shmem_pool_t pool, const char *task, uint64_t limit)
{
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    quota.limit = limit;
    CHECK_OK(shmem_pool_quota_set(pool, task, &quota));
}

static void kill_and_replace(pid_t *pids, shmem_pool_t pool)
{
    uint64_t seed = 4711;
    for (int i = 0; i < KILLS; i++) {
        size_t k = draw(&seed) % FLOODERS;
        harness_sleep(0.004);
        CHECK(held(pool, "flood") <= QUOTA_BYTES);
        kill(pids[k], SIGKILL);
        CHECK_EQ(harness_wait(pids[k], 20), -SIGKILL);
        pids[k] = harness_fork(flooder, (void *)(uintptr_t)(i + 10));
    }
}

static void await_used(shmem_pool_t pool, uint64_t bytes)
{
    double end = harness_now() + 20;
    while (used(pool) != bytes && harness_now() < end)
        harness_sleep(0.005);
    CHECK_EQ(used(pool), bytes);
}

static void board_make(const char *name)
{
    board = harness_shared(sizeof *board);
    snprintf(board->pool, sizeof board->pool, "%s-%d", name, (int)getpid());
}

/* Flooders under a quota, killed and replaced all the time; nobody else notices. */
static void under_its_quota_nobody_harms_others(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    pid_t workers[WORKERS], flooders[FLOODERS];
    void *block;
    board_make("tenants");
    shmem_context_t context = join_alone();
    shmem_pool_t pool = make(context, board->pool, 24 * MIB, 48 * MIB);
    quota_set(pool, "flood", QUOTA_BYTES);
    CHECK_OK(shmem_pool_alloc(pool, 100000, &block));
    CHECK_OK(shmem_pool_trim(pool));
    uint64_t mine = used(pool);
    for (int i = 0; i < FLOODERS; i++)
        flooders[i] = harness_fork(flooder, (void *)(uintptr_t)i);
    for (int i = 0; i < WORKERS; i++)
        workers[i] = harness_fork(worker, (void *)(uintptr_t)i);
    kill_and_replace(flooders, pool);
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(harness_wait(workers[i], 100), 0);
    double end = harness_now() + 30;
    while (!atomic_load(&board->refused) && harness_now() < end)
        harness_sleep(0.005);
    CHECK(atomic_load(&board->refused) > 0);
    CHECK(held(pool, "flood") <= QUOTA_BYTES);
    for (int i = 0; i < FLOODERS; i++) {
        kill(flooders[i], SIGKILL);
        CHECK_EQ(harness_wait(flooders[i], 20), -SIGKILL);
    }
    await_used(pool, mine);
    CHECK_EQ(held(pool, "flood"), 0);
    CHECK_EQ(held(pool, "good"), 0);
    CHECK_OK(shmem_pool_check(pool));
    CHECK_OK(shmem_pool_free(pool, block));
    CHECK_OK(shmem_context_finalize(context));
}

/* Fills a pool and sits on it. */
static void hog(void *arg)
{
    shmem_context_t context = join_alone();
    shmem_pool_t pool;
    void *block;
    (void)arg;
    CHECK_OK(shmem_pool_open(context, board->pool, &pool));
    while (shmem_pool_alloc(pool, 5000, &block) == SHMEM_OK)
        ;
    CHECK(shmem_error_detail()->status == SHMEM_ERR_NOMEM);
    atomic_fetch_add(&board->ready, 1);
    pause();
}

/* Without a quota a pool can be filled; the others are not touched by that. */
static void a_full_pool_harms_no_other(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    board_make("full");
    shmem_context_t context = join_alone();
    shmem_pool_t full = make(context, board->pool, 4 * MIB, 8 * MIB),
                 other = make(context, NULL, 24 * MIB, 0);
    pid_t hogs[2] = {harness_fork(hog, NULL), harness_fork(hog, NULL)};
    double end = harness_now() + 60;
    while (atomic_load(&board->ready) < 2 && harness_now() < end)
        harness_sleep(0.002);
    void *block;
    CHECK_STATUS(shmem_pool_alloc(full, 100000, &block), SHMEM_ERR_NOMEM);
    work(other, 99);
    kill(hogs[0], SIGKILL);
    kill(hogs[1], SIGKILL);
    CHECK_EQ(harness_wait(hogs[0], 10), -SIGKILL);
    CHECK_EQ(harness_wait(hogs[1], 10), -SIGKILL);
    CHECK_OK(shmem_pool_alloc_timed(full, 3 * MIB, 0, 20000000000, &block)); /* comes back */
    CHECK_OK(shmem_pool_free(full, block));
    CHECK_OK(shmem_pool_trim(full));
    await_used(full, 0);
    CHECK_OK(shmem_pool_check(full));
    CHECK_OK(shmem_pool_check(other));
    CHECK_OK(shmem_context_finalize(context));
}

JOB_MAIN({
    RUN(under_its_quota_nobody_harms_others);
    RUN(a_full_pool_harms_no_other);
})
