/* SPDX-License-Identifier: Apache-2.0 */
/* Comings and goings of the registry: registrations that fail, engines one after the other in one
 * place, pins while the context is ending. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "job.h"
#include "job/arena_core.h"
#include "job/context.h"

typedef struct count {
    _Atomic int announced, withdrawn;
} count_t;

static shmem_status_t announce(void *user, const shmem_arena_info_t *arena, void **key)
{
    count_t *c = user;
    (void)arena;
    (void)key;
    atomic_fetch_add(&c->announced, 1);
    return SHMEM_OK;
}

static void withdraw(void *user, const shmem_arena_info_t *arena, void *key)
{
    count_t *c = user;
    (void)arena;
    (void)key;
    atomic_fetch_add(&c->withdrawn, 1);
}

static const shmem_engine_ops_t ops = {sizeof ops, "count", announce, withdraw};

static shmem_pool_t growing_pool(shmem_context_t context, const char *what)
{
    char name[64];
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 4 << 20;
    params.limit = 32 << 20;
    snprintf(name, sizeof name, "%s-%d", what, (int)getpid());
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
    return pool;
}

static char *allocated(shmem_pool_t pool, size_t bytes)
{
    void *block;
    CHECK_OK(shmem_pool_alloc(pool, bytes, &block));
    return block;
}

/* A registration that fails keeps no memory; what was looked up before it stays kept. */
static void registration_fails(void)
{
    count_t count = {0};
    shmem_engine_t engine;
    uint64_t returned = 0;
    shmem_context_t context = job_init(NULL, 0, 1);
    shmem_pool_t seen = growing_pool(context, "seen"), pool = growing_pool(context, "unseen");
    char *first = allocated(seen, 4096), *second = allocated(pool, 16 << 20);
    CHECK_OK(shmem_arena_lookup(context, NULL, first, NULL, NULL));
    CHECK_OK(shmem_pool_free(seen, allocated(seen, 16 << 20)));
    CHECK_OK(shmem_pool_free(pool, second));
    for (unsigned n = 1; n <= 2; n++) {
        shmemi_fault_arm("job.arenas.known", SHMEMI_FAULT_FAIL, n);
        CHECK_STATUS(shmem_engine_register(context, &ops, &count, &engine), SHMEM_ERR_NOMEM);
        shmemi_fault_disarm();
    }
    CHECK_OK(shmem_pool_shrink(seen, 0, &returned));
    CHECK_EQ(returned, 0);
    CHECK_OK(shmem_pool_shrink(pool, 0, &returned));
    CHECK(returned >= 16 << 20);
    CHECK_OK(shmem_engine_register(context, &ops, &count, &engine));
    CHECK(count.announced >= 2);
    CHECK_OK(shmem_context_finalize(context));
    CHECK_EQ(count.announced, count.withdrawn);
}

/* Who wants a pin of an engine that goes, and takes it back only when the next one is there,
 * changes nothing for that one. */
static void next_in_its_place(void)
{
    count_t count = {0};
    shmem_engine_t engine;
    shmem_memory_t memory;
    uint64_t pin;
    shmem_context_t context = job_init(NULL, 0, 1);
    _Atomic uint64_t *pins = &context->arenas->engine_pins[0];
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    char *block = shmem_memory_map(memory);
    CHECK_OK(shmem_engine_register(context, &ops, &count, &engine));
    CHECK_OK(shmem_engine_unregister(engine));
    CHECK_EQ(atomic_fetch_add(pins, 1), SHMEMI_ENGINE_CLOSING);
    CHECK_OK(shmem_engine_register(context, &ops, &count, &engine));
    atomic_fetch_sub(pins, 1);
    CHECK_EQ(atomic_load(pins), 0);
    CHECK_OK(shmem_arena_pin(context, engine, block, NULL, NULL, &pin));
    CHECK_STATUS(shmem_engine_unregister(engine), SHMEM_ERR_BUSY);
    CHECK_OK(shmem_arena_unpin(context, pin));
    CHECK_OK(shmem_engine_unregister(engine));
    CHECK_OK(shmem_context_finalize(context));
}

/* ---- while the context is ending ---- */

typedef struct ending {
    _Atomic bool mapped; /* shared by the PEs */
} ending_t;

typedef struct late {
    shmem_context_t context;
    shmem_engine_t engine;
    ending_t *ending;
} late_t;

static bool is_ending(shmem_context_t context)
{
    CHECK_OK(shmemi_arenas_lock(context->arenas, "test"));
    bool is = context->arenas->ending;
    shmemi_arenas_unlock(context->arenas);
    return is;
}

static void *map_late(void *arg)
{
    late_t *l = arg;
    shmem_region_t region;
    uint64_t pin;
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    params.bytes = 4096;
    while (!is_ending(l->context))
        harness_sleep(0.001);
    CHECK_OK(shmem_region_create(l->context, NULL, &params, &region));
    char *at = shmem_region_map(region, SHMEM_MAP_READ_WRITE);
    CHECK(at);
    CHECK_OK(shmem_arena_lookup(l->context, l->engine, at, NULL, NULL));
    CHECK_STATUS(shmem_arena_pin(l->context, NULL, at, NULL, NULL, &pin), SHMEM_ERR_STATE);
    CHECK_OK(shmem_engine_unregister(l->engine));
    CHECK_STATUS(shmem_arena_pin(l->context, NULL, at, NULL, NULL, &pin), SHMEM_ERR_STATE);
    atomic_store(&l->ending->mapped, true);
    return NULL;
}

static void end_in_turn(int rank, int n, void *arg)
{
    ending_t *ending = arg;
    count_t count = {0};
    late_t late = {.context = job_init("ending", rank, n), .ending = ending};
    shmem_memory_t memory;
    pthread_t thread;
    CHECK_OK(shmem_memory_create(late.context, &memory, 4096)); /* the other one is waited for */
    if (rank) {
        while (!atomic_load(&ending->mapped))
            harness_sleep(0.001);
        CHECK_OK(shmem_context_finalize(late.context));
        return;
    }
    CHECK_OK(shmem_engine_register(late.context, &ops, &count, &late.engine));
    CHECK(pthread_create(&thread, NULL, map_late, &late) == 0);
    CHECK_OK(shmem_context_finalize(late.context));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_EQ(count.announced, 1);
    CHECK_EQ(count.withdrawn, 1);
}

/* What is mapped while finalize waits for the other PEs gets no pins either. */
static void pins_at_the_end(void)
{
    ending_t *ending = harness_shared(sizeof *ending);
    harness_pes(2, HARNESS_THREAD, 60, end_in_turn, ending);
    if (harness_has_tsan())
        return;
    atomic_store(&ending->mapped, false);
    harness_pes(2, HARNESS_PROC, 60, end_in_turn, ending);
}

static void cases(void)
{
    RUN(registration_fails);
    RUN(next_in_its_place);
    RUN(pins_at_the_end);
}

JOB_MAIN(cases())
