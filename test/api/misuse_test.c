/* SPDX-License-Identifier: Apache-2.0 */
/* What programs get wrong: handles used after their end, places that do not fit, NULL. Each is an
 * error with words, not an access to freed memory. */
#include <shmem/shmem.h>

#include <stdint.h>
#include <stdlib.h>

#include "harness.h"

static shmem_context_t context;

static void begin(void)
{
    CHECK_OK(shmem_context_init(&context));
}

static void says(const char *words)
{
    if (!strstr(shmem_error_detail()->text, words))
        harness_fail(__FILE__, __LINE__, "'%s' lacks '%s'", shmem_error_detail()->text, words);
}

static shmem_pool_t make(const char *name)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t pool;
    params.bytes = 1 << 20;
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
    return pool;
}

/* ---- places ---- */

static void misaligned_objects(void)
{
    static _Alignas(64) char memory[1024];
    for (size_t off = 1; off < 64; off++) {
        char *at = memory + off;
        CHECK_STATUS(shmem_mutex_init((shmem_mutex_t *)(void *)at), SHMEM_ERR_INVALID);
        says("multiple of 64");
        CHECK_STATUS(shmem_event_init((shmem_event_t *)(void *)at, SHMEM_EVENT_AUTO, 0),
                     SHMEM_ERR_INVALID);
        says("multiple of 64");
        CHECK_STATUS(shmem_barrier_init((shmem_barrier_object_t *)(void *)at, 2),
                     SHMEM_ERR_INVALID);
        says("multiple of 64");
        CHECK_STATUS(shmem_semaphore_init(at, 512, 1), SHMEM_ERR_INVALID);
        says("multiple of 64");
    }
    for (size_t i = 0; i < sizeof memory; i++)
        CHECK_EQ(memory[i], 0); /* untouched */
    CHECK_OK(shmem_mutex_init((shmem_mutex_t *)(void *)(memory + 64)));
}

static void no_topology(void)
{
    shmem_topology_node_t node;
    CHECK_EQ(shmem_topology_nodes(NULL), 0);
    CHECK_EQ(shmem_topology_processors(NULL), 0);
    CHECK_EQ(shmem_topology_cache(NULL, 1), 0);
    CHECK(shmem_topology_latency(NULL, 0, 0) < 0 && shmem_topology_bandwidth(NULL, 0, 0) < 0);
    CHECK_STATUS(shmem_topology_node(NULL, 0, &node), SHMEM_ERR_INVALID);
    shmem_topology_destroy(NULL);
}

static void impossible_sizes(void)
{
    char a[8], b[8];
    begin();
    CHECK_STATUS(shmem_coll_allgather(context, b, a, SIZE_MAX), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_coll_allgather(context, a, a, SIZE_MAX), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_coll_broadcast(context, a, SIZE_MAX, 0), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_coll_allreduce(context, b, a, SIZE_MAX / 4, SHMEM_TYPE_INT32, SHMEM_SUM),
                 SHMEM_ERR_OVERFLOW);
    CHECK_OK(shmem_context_finalize(context));
}

/* ---- handles after their end ---- */

static void synchronization_refused(shmem_context_t c)
{
    static shmem_mutex_t mutex;
    static shmem_event_t event;
    static shmem_barrier_object_t barrier;
    static _Alignas(64) char memory[SHMEM_SEMAPHORE_BYTES(1)];
    shmem_semaphore_t *semaphore = (shmem_semaphore_t *)(void *)memory;
    uint32_t token;
    CHECK_OK(shmem_mutex_init(&mutex));
    CHECK_OK(shmem_event_init(&event, SHMEM_EVENT_AUTO, 1));
    CHECK_OK(shmem_barrier_init(&barrier, 1));
    CHECK_OK(shmem_semaphore_init(memory, sizeof memory, 1));
    CHECK_STATUS(shmem_mutex_lock(c, &mutex), SHMEM_ERR_STATE);
    says("finalized");
    CHECK_STATUS(shmem_mutex_trylock(c, &mutex), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_mutex_lock_timed(c, &mutex, 0), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_mutex_unlock(c, &mutex), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_mutex_consistent(c, &mutex), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_event_set(c, &event), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_event_reset(c, &event), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_event_wait(c, &event, 0), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_barrier_arrive(c, &barrier, &token), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_barrier_await(c, &barrier, 0, 0), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_semaphore_try(c, semaphore), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_semaphore_acquire(c, semaphore), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_semaphore_release(c, semaphore), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_semaphore_available(c, semaphore, &token), SHMEM_ERR_STATE);
}

static void context_refused(shmem_context_t c)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t pool = NULL;
    shmem_memory_t memory = NULL;
    char a[8], b[8];
    params.bytes = 4096;
    CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_STATE);
    says("finalized already");
    CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_STATE);
    says("finalized");
    CHECK_STATUS(shmem_context_barrier_timed(c, 0), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_memory_create(c, &memory, 8), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_coll_broadcast(c, a, 8, 0), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_coll_allgather(c, b, a, 8), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_create(c, NULL, &params, &pool), SHMEM_ERR_STATE);
    says("finalized");
    CHECK_STATUS(shmem_pool_open(c, "any", &pool), SHMEM_ERR_STATE);
    CHECK(!pool && !memory);
    CHECK_EQ(shmem_context_rank(c), -1);
    CHECK_EQ(shmem_context_size(c), -1);
}

static void memory_refused(shmem_memory_t m)
{
    uint64_t word = 1;
    CHECK_STATUS(shmem_memory_put(m, 0, 0, &word, 8), SHMEM_ERR_STATE);
    says("end of its context");
    CHECK_STATUS(shmem_memory_get(m, 0, 0, &word, 8), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_memory_fetch_add(m, 0, 0, 1, NULL), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_memory_wait(m, 0, SHMEM_COMPARE_EQ, 0, 0, NULL), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_memory_destroy(m), SHMEM_ERR_STATE);
    CHECK(shmem_memory_map(m) == NULL && shmem_memory_address(m, 0) == NULL);
    CHECK_EQ(shmem_memory_bytes(m), 0);
}

static void pool_refused(shmem_pool_t pool, void *block)
{
    shmem_pool_info_t info = {.size = sizeof info};
    size_t bytes;
    void *other = block;
    CHECK_STATUS(shmem_pool_alloc(pool, 8, &other), SHMEM_ERR_STATE);
    says("pool was closed");
    CHECK_STATUS(shmem_pool_alloc_aligned(pool, 8, 64, &other), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_alloc_on(pool, 8, 0, SHMEM_POOL_NEAREST, 0, &other), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_resize(pool, &other, 100), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_block_bytes(pool, block, &bytes), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_info(pool, &info), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_check(pool), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_trim(pool), SHMEM_ERR_STATE);
    CHECK(other == block);
}

static void after_finalize(void)
{
    shmem_memory_t memory;
    void *block;
    begin();
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    void *mapped = shmem_memory_map(memory);
    shmem_pool_t pool = make(NULL);
    CHECK(mapped != NULL);
    CHECK_OK(shmem_pool_alloc(pool, 100, &block));
    shmem_context_t old = context;
    CHECK_OK(shmem_context_finalize(context));
    for (int turn = 0; turn < 2; turn++) { /* the second time beside a living context */
        context_refused(old);
        synchronization_refused(old);
        memory_refused(memory);
        CHECK_STATUS(shmem_memory_unmap(mapped), SHMEM_ERR_INVALID);
        pool_refused(pool, block);
        shmem_pool_close(pool);
        if (turn == 0)
            begin();
    }
    CHECK_OK(shmem_context_barrier(context));
    CHECK_OK(shmem_context_finalize(context));
}

static void after_close(void)
{
    void *block;
    begin();
    shmem_pool_t pool = make("test/misuse"), again;
    CHECK_OK(shmem_pool_open(context, "test/misuse", &again));
    CHECK(again == pool); /* counted */
    CHECK_OK(shmem_pool_alloc(pool, 100, &block));
    shmem_pool_close(pool);
    CHECK_OK(shmem_pool_free(again, block));
    CHECK_OK(shmem_pool_alloc(again, 100, &block));
    shmem_pool_close(again);
    pool_refused(pool, block);
    shmem_pool_close(pool); /* once too often */
    shmem_pool_t next = make("test/misuse");
    CHECK(next != pool);
    shmem_pool_close(pool);
    CHECK_OK(shmem_pool_alloc(next, 100, &block));
    CHECK_OK(shmem_context_finalize(context));
}

/* More ends than are remembered. */
static void many_ends(void)
{
    enum { TURNS = 150 };
    begin();
    for (int i = 0; i < TURNS; i++) {
        shmem_memory_t memory;
        shmem_pool_t pool = make(NULL);
        CHECK_OK(shmem_memory_create(context, &memory, 8));
        CHECK_OK(shmem_memory_destroy(memory));
        CHECK_STATUS(shmem_memory_destroy(memory), SHMEM_ERR_STATE);
        shmem_pool_close(pool);
        CHECK_STATUS(shmem_pool_trim(pool), SHMEM_ERR_STATE);
    }
    CHECK_OK(shmem_context_finalize(context));
    for (int i = 0; i < TURNS; i++) {
        begin();
        CHECK_OK(shmem_context_finalize(context));
        CHECK_STATUS(shmem_context_finalize(context), SHMEM_ERR_STATE);
    }
}

/* ---- a forked child ---- */

static void finalize_parents(void *arg)
{
    (void)arg;
    CHECK_STATUS(shmem_context_finalize(context), SHMEM_ERR_STATE);
    says("parent of this forked process");
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_STATE);
}

static void the_reason_outlives_finalize(void)
{
    shmem_memory_t memory;
    begin();
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    CHECK(shmem_memory_map(memory) != NULL);
    make(NULL);
    CHECK_EQ(harness_wait(harness_fork(finalize_parents, NULL), 20), 0);
    CHECK_OK(shmem_context_finalize(context));
}

int main(void)
{
    RUN(misaligned_objects);
    RUN(no_topology);
    RUN(impossible_sizes);
    RUN(after_finalize);
    RUN(after_close);
    RUN(many_ends);
    RUN(the_reason_outlives_finalize);
    return harness_end();
}
