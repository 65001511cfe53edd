/* SPDX-License-Identifier: Apache-2.0 */
/* What programs get wrong: handles used after their end, places that do not fit, NULL. Each is an
 * error with words, not an access to freed memory. */
#include <shmem/shmem.h>

#include <stdint.h>
#include <stdlib.h>
#include <signal.h>
#include <unistd.h>

#include "harness.h"
#include "own_server.h"

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

/* ---- words ---- */

static void pools_are_named(void)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t pool = NULL;
    params.bytes = 1 << 20;
    begin();
    CHECK_STATUS(shmem_pool_open(context, "test/nope", &pool), SHMEM_ERR_NOT_FOUND);
    says("there is no pool 'test/nope' at the node server");
    says("is its creator running, with the same SHMEM_SERVER?");
    make("test/words");
    CHECK_STATUS(shmem_pool_create(context, "test/words", &params, &pool), SHMEM_ERR_EXISTS);
    says("a pool 'test/words' exists already: open it");
    static const char *const dots[] = {"..", "a/..", "../a", "a/../b"};
    for (int i = 0; i < 4; i++) {
        CHECK_STATUS(shmem_pool_open(context, dots[i], &pool), SHMEM_ERR_INVALID);
        says("pool name");
        CHECK_STATUS(shmem_pool_create(context, dots[i], &params, &pool), SHMEM_ERR_INVALID);
        says("no '..' between slashes");
    }
    CHECK(!pool);
    CHECK_OK(shmem_context_finalize(context));
}

static void calls_are_named(void)
{
    shmem_memory_t memory;
    char byte = 0;
    begin();
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    CHECK_STATUS(shmem_memory_put(memory, 0, 0, &byte, 1), SHMEM_ERR_STATE);
    says("the 1st that the context created");
    CHECK(shmem_memory_map(memory) != NULL);
    CHECK_STATUS(shmem_memory_put(memory, 0, 0, NULL, 1), SHMEM_ERR_INVALID);
    says("shmem_memory_put of 1 bytes: the buffer is NULL");
    CHECK_STATUS(shmem_memory_get(memory, 0, 0, NULL, 1), SHMEM_ERR_INVALID);
    says("shmem_memory_get of 1 bytes: the buffer is NULL");
    CHECK_STATUS(shmem_coll_broadcast(context, NULL, 4, 0), SHMEM_ERR_INVALID);
    says("the buffer is NULL");
    CHECK_STATUS(shmem_coll_broadcast(context, &byte, 1, 1), SHMEM_ERR_INVALID);
    says("from PE 1: the job has PEs 0 to 0");
    CHECK_STATUS(shmem_coll_allreduce(context, NULL, &byte, 1, SHMEM_TYPE_INT32, SHMEM_SUM),
                 SHMEM_ERR_INVALID);
    says("dst is NULL");
    CHECK_STATUS(shmem_coll_allgather(context, &byte, NULL, 1), SHMEM_ERR_INVALID);
    says("src is NULL");
    CHECK_OK(shmem_context_finalize(context));
}

static void signal_inside_the_data(void)
{
    shmem_memory_t memory;
    char data[64] = {0};
    begin();
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    CHECK(shmem_memory_map(memory) != NULL);
    for (size_t word = 0; word < 4096; word += 8) {
        bool inside = word + 8 > 1004 && word < 1004 + sizeof data;
        CHECK_STATUS(shmem_memory_put_signal(memory, 0, 1004, data, sizeof data, word, 1,
                                             SHMEM_SIGNAL_OP_SET),
                     inside ? SHMEM_ERR_INVALID : SHMEM_OK);
        if (inside)
            says("inside the 64 bytes of data");
    }
    CHECK_OK(shmem_memory_put_signal(memory, 0, 1000, data, 0, 1000, 1, SHMEM_SIGNAL_OP_SET));
    CHECK_OK(shmem_context_finalize(context));
}

static void timeouts_say_what_is_missing(void)
{
    static shmem_event_t event;
    static shmem_barrier_object_t barrier;
    shmem_memory_t memory;
    uint64_t three = 3;
    uint32_t token;
    begin();
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    CHECK(shmem_memory_map(memory) != NULL);
    CHECK_OK(shmem_memory_put(memory, 0, 16, &three, 8));
    CHECK_STATUS(shmem_memory_wait(memory, 16, SHMEM_COMPARE_GE, 5, 1000000, NULL),
                 SHMEM_ERR_TIMEOUT);
    says("PE 0 waited for the word at offset 16 of its part to be >= 5");
    says("it is 3");
    CHECK_OK(shmem_event_init(&event, SHMEM_EVENT_AUTO, 0));
    CHECK_STATUS(shmem_event_wait(context, &event, 1000000), SHMEM_ERR_TIMEOUT);
    says("the event at 0x");
    CHECK_OK(shmem_barrier_init(&barrier, 3));
    CHECK_OK(shmem_barrier_arrive(context, &barrier, &token));
    CHECK_STATUS(shmem_barrier_await(context, &barrier, token, 1000000), SHMEM_ERR_TIMEOUT);
    says("misses 2 of 3 participants");
    CHECK_OK(shmem_context_finalize(context));
}

/* Two processes, or two threads, at one mutex. */
static void hold_and_linger(void *arg)
{
    shmem_mutex_t *mutex = arg;
    _Atomic int *stage = (_Atomic int *)(void *)(mutex + 1);
    begin();
    CHECK_OK(shmem_mutex_lock(context, mutex));
    *stage = 1;
    for (;;)
        pause();
}

static void holders_are_named(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed, and ThreadSanitizer sees threads only");
    char held[64], died[64];
    shmem_mutex_t *mutex = harness_shared(2 * sizeof *mutex);
    _Atomic int *stage = (_Atomic int *)(void *)(mutex + 1);
    CHECK_OK(shmem_mutex_init(mutex));
    pid_t pid = harness_fork(hold_and_linger, mutex);
    while (!*stage)
        harness_sleep(0.001);
    begin();
    snprintf(held, sizeof held, "a thread of process %d (api.misuse_test) holds it", (int)pid);
    snprintf(died, sizeof died, "a thread of process %d, died inside", (int)pid);
    CHECK_STATUS(shmem_mutex_lock_timed(context, mutex, 1000000), SHMEM_ERR_TIMEOUT);
    says(held);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK_EQ(harness_wait(pid, 10), -SIGKILL);
    CHECK_STATUS(shmem_mutex_lock_timed(context, mutex, 5000000000), SHMEM_ERR_OWNER_DIED);
    says(died);
    CHECK_OK(shmem_mutex_consistent(context, mutex));
    CHECK_OK(shmem_mutex_unlock(context, mutex));
    CHECK_OK(shmem_context_finalize(context));
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
    pid_t server = own_server_start();
    RUN(misaligned_objects);
    RUN(no_topology);
    RUN(impossible_sizes);
    RUN(after_finalize);
    RUN(after_close);
    RUN(many_ends);
    RUN(pools_are_named);
    RUN(calls_are_named);
    RUN(signal_inside_the_data);
    RUN(timeouts_say_what_is_missing);
    RUN(holders_are_named);
    RUN(the_reason_outlives_finalize);
    own_server_stop(server);
    return harness_end();
}
