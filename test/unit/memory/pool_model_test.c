/* SPDX-License-Identifier: Apache-2.0 */
/* Random work against a model: one worker, several threads, several processes. */
#include "pool_model.h"

enum { WORKERS = 3 };

static model_shared_t *shared;
static shmemi_actor_t actor; /* of the parent, or of all threads */
static shmemi_pool_t *pool;
static uint64_t pool_bytes, steps;
static bool one_client; /* threads of one process with one view, or a client each */
static unsigned long long seed0 = 0x9e3779b97f4a7c15ull;

static void begin(uint64_t bytes, uint64_t n)
{
    pool_bytes = bytes;
    n *= POOL_SOAK;
    steps = harness_has_tsan() || harness_has_asan() ? n / 8 : n;
    world_make(WORKERS + 1);
    world_pool(bytes, SHMEM_POOL_NEAREST, 0, NULL);
    world_actor(&actor, 0);
    pool = world_attach(&actor, NULL);
    shared = harness_shared(sizeof *shared);
}

static void end(void)
{
    model_drain(pool, shared);
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_EQ(world_used(pool), 0);
    CHECK_EQ(world_stat(SHMEMI_STAT_allocs), world_stat(SHMEMI_STAT_frees));
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
}

static void worker(int rank, int n, void *arg)
{
    (void)arg;
    model_t *m = calloc(1, sizeof *m);
    shmemi_actor_t self;
    m->pool = pool;
    if (!one_client) {
        world_actor(&self, rank + 1);
        m->pool = world_attach(&self, NULL);
    }
    m->shared = shared;
    m->seed = seed0 * (uint64_t)(2 * rank + 1);
    m->largest = pool_bytes / 24;
    m->budget = pool_bytes / (size_t)n / 2;
    model_run(m, steps);
    /* a client's blocks go with it: first let the others free what it passed on */
    atomic_fetch_add(&shared->done, 1);
    for (double limit = harness_now() + 60 * POOL_SOAK;
         !one_client && atomic_load(&shared->done) < (uint32_t)n; harness_sleep(0.001))
        CHECK(harness_now() < limit);
    if (!one_client) {
        if (rank == 0) {
            model_drain(m->pool, shared);
            atomic_fetch_add(&shared->done, 1);
        }
        while (atomic_load(&shared->done) < (uint32_t)n + 1)
            harness_sleep(0.001);
        CHECK_OK(shmemi_pool_check(m->pool));
        shmemi_pool_detach(m->pool);
        shmemi_actor_fini(&self);
    }
    free(m);
}

static void one_worker_small_pool(void)
{
    begin(3 << 20, 200000);
    one_client = true;
    worker(0, 1, NULL);
    end();
}

static void one_worker_large_pool(void)
{
    begin(600 << 20, 200000);
    one_client = true;
    worker(0, 1, NULL);
    end();
}

static void threads_of_one_client(void)
{
    begin(80 << 20, 200000);
    one_client = true;
    harness_pes(WORKERS, HARNESS_THREAD, 60 * POOL_SOAK, worker, NULL);
    end();
}

static void clients_as_threads(void)
{
    begin(20 << 20, 200000);
    one_client = false;
    harness_pes(WORKERS, HARNESS_THREAD, 60 * POOL_SOAK, worker, NULL);
    end();
}

static void clients_as_processes(void)
{
    if (harness_has_tsan())
        SKIP("ThreadSanitizer sees threads only");
    begin(80 << 20, 200000);
    one_client = false;
    harness_pes(WORKERS, HARNESS_PROC, 60 * POOL_SOAK, worker, NULL);
    end();
}

/* So little memory that requests fail all the time. */
static void always_short(void)
{
    begin(700 * 1024, 100000);
    one_client = true;
    harness_pes(WORKERS, HARNESS_THREAD, 60 * POOL_SOAK, worker, NULL);
    end();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed0 = strtoull(argv[1], NULL, 0) | 1;
    RUN(one_worker_small_pool);
    RUN(one_worker_large_pool);
    RUN(threads_of_one_client);
    RUN(clients_as_threads);
    RUN(clients_as_processes);
    RUN(always_short);
    return harness_end();
}
