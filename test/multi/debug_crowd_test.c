/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debug pools with several users: mistakes are told across processes, whoever is killed in the
 * middle of an operation leaves nothing behind, threads do not disturb each other.
 */
#include "debug_pool.h"

/* ---- several processes ---- */

typedef struct shared {
    char pool[32];
    void *block[8];
    _Atomic int step;
} shared_t;

static shared_t *shared;

static void other_process(void *arg)
{
    shmem_pool_t pool;
    (void)arg;
    shmem_context_t own = job_init(NULL, 0, 1);
    CHECK_OK(shmem_pool_open(own, shared->pool, &pool));
    site_free(pool, shared->block[0]);
    ((char *)shared->block[1])[1000] = 1;
    shared->block[2] = site_two(pool, 300);
    CHECK_OK(shmem_pool_give(pool, shared->block[2]));
    shmem_pool_close(pool);
    CHECK_OK(shmem_context_finalize(own));
}

/* Any process can tell what another did to its blocks. */
static void across_processes(void)
{
    if (harness_has_tsan())
        SKIP("ThreadSanitizer sees threads only");
    char who[64];
    shmem_pool_t pool = pool_of(16 << 20);
    shared = harness_shared(sizeof *shared);
    strcpy(shared->pool, name);
    shared->block[0] = site_one(pool, 1000);
    shared->block[1] = site_one(pool, 1000);
    pid_t pid = harness_fork(other_process, NULL);
    CHECK_EQ(harness_wait(pid, 30), 0);
    CHECK_STATUS(shmem_pool_free(pool, shared->block[0]), SHMEM_ERR_DOUBLE_FREE);
    snprintf(who, sizeof who, "(site_free) by process %d", (int)pid);
    detail_has(who, "(site_one)");
    CHECK_STATUS(shmem_pool_free(pool, shared->block[1]), SHMEM_ERR_CORRUPT);
    ((char *)shared->block[2])[300] = 1;
    CHECK_STATUS(shmem_pool_free(pool, shared->block[2]), SHMEM_ERR_CORRUPT);
    snprintf(who, sizeof who, "(site_two) by process %d", (int)pid);
    detail_has(who, "behind the end");
    CHECK_EQ(used(pool), 0);
    done(pool);
}

/* ---- killed in the middle ---- */

typedef struct victim {
    const char *point;
    bool frees; /* a block of the survivor */
} victim_t;

static void dies(void *arg)
{
    const victim_t *v = arg;
    shmem_pool_t pool;
    shmem_context_t own = job_init(NULL, 0, 1);
    CHECK_OK(shmem_pool_open(own, shared->pool, &pool));
    void *block = site_two(pool, 3000);
    shmemi_fault_arm(v->point, SHMEMI_FAULT_KILL, 1);
    if (v->frees)
        shmem_pool_free(pool, shared->block[0]);
    site_two(pool, 3000);
    shmem_pool_free(pool, block);
    exit(1);
}

static void wait_used(shmem_pool_t pool, uint64_t bytes)
{
    double end = harness_now() + 20;
    while (used(pool) != bytes && harness_now() < end)
        harness_sleep(0.01);
    CHECK_EQ(used(pool), bytes);
}

static void kills(void)
{
    if (harness_has_tsan())
        SKIP("ThreadSanitizer sees threads only");
    static const char *const points[] = {"memory.debug.taken",    "memory.debug.begun",
                                         "memory.debug.traced",   "memory.debug.poisoning",
                                         "memory.debug.poisoned", "memory.debug.freeing"};
    shmem_pool_t pool = pool_of(16 << 20);
    shared = harness_shared(sizeof *shared);
    strcpy(shared->pool, name);
    for (unsigned i = 0; i < 2 * sizeof points / sizeof *points; i++) {
        victim_t v = {points[i / 2], i % 2};
        shared->block[0] = site_one(pool, 100000);
        uint64_t before = used(pool);
        CHECK_EQ(harness_wait(harness_fork(dies, &v), 30), -SIGKILL);
        if (!v.frees)
            wait_used(pool, before);
        CHECK_OK(shmem_pool_check(pool));
        /* whatever the victim did to it, it is ours: if it was not given back, we can, as soon as
         * the death is known */
        shmem_status_t status;
        double end = harness_now() + 20;
        do
            status = shmem_pool_free(pool, shared->block[0]);
        while (status == SHMEM_ERR_DOUBLE_FREE && used(pool) && harness_now() < end);
        CHECK(status == SHMEM_OK || status == SHMEM_ERR_DOUBLE_FREE);
        wait_used(pool, 0);
        CHECK_EQ(info_of(pool).overruns, 0);
    }
    done(pool);
}

/* ---- threads ---- */

static shmem_pool_t crowd_pool;
static void *_Atomic crowd_box[16];
static _Atomic bool crowd_stop;

static void *trader(void *arg)
{
    uint64_t r = (uint64_t)(uintptr_t)arg * 7919 + 1;
    while (!atomic_load(&crowd_stop)) {
        r = r * 6364136223846793005ull + 1442695040888963407ull;
        size_t bytes = 1 + (r >> 33) % (1u << (4 + (r >> 20) % 13));
        char *block;
        CHECK_OK(shmem_pool_alloc(crowd_pool, bytes, (void **)&block));
        memset(block, 1, bytes);
        CHECK_OK(shmem_pool_free(crowd_pool, atomic_exchange(&crowd_box[r >> 60], block)));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[3];
    crowd_pool = pool_of(16 << 20);
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, trader, (void *)i));
    double end = harness_now() + 0.7;
    for (int i = 0; i < 20 || harness_now() < end; i++) {
        CHECK_OK(shmem_pool_check(crowd_pool));
        info_of(crowd_pool);
    }
    atomic_store(&crowd_stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 16; i++)
        CHECK_OK(shmem_pool_free(crowd_pool, crowd_box[i]));
    CHECK_EQ(info_of(crowd_pool).overruns + info_of(crowd_pool).uses_after_free, 0);
    CHECK_EQ(info_of(crowd_pool).blocks, 0);
    done(crowd_pool);
}

static void cases(void)
{
    RUN(across_processes);
    RUN(kills);
    RUN(threads);
}

JOB_MAIN(cases())
