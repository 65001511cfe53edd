/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads and processes on one pool: remote frees, threads that end, races for one block.
 */
#include <pthread.h>

#include "pool_world.h"

static shmemi_actor_t actor;
static shmemi_pool_t *pool;
static _Atomic int stage;

static void begin(uint64_t bytes)
{
    world_make(8);
    world_pool(bytes, SHMEM_POOL_NEAREST, 0, NULL);
    world_actor(&actor, 0);
    pool = world_attach(&actor, NULL);
}

static void end(void)
{
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_EQ(world_used(pool), 0);
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
}

static void in_thread(void *(*function)(void *), void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, arg) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- errors across threads ---- */

static void *free_twice(void *arg)
{
    CHECK_OK(shmemi_pool_free(pool, arg));
    CHECK_STATUS(shmemi_pool_free(pool, arg), SHMEM_ERR_DOUBLE_FREE);
    CHECK_STATUS(shmemi_pool_free(pool, (char *)arg + 64), SHMEM_ERR_INTERIOR_POINTER);
    return NULL;
}

static void double_frees_across_threads(void)
{
    begin(64 << 20);
    for (size_t n = 100; n <= 1 << 20; n *= 3) {
        void *a = world_alloc(pool, n), *b = world_alloc(pool, n);
        if (n <= 32768) {
            in_thread(free_twice, a);
            CHECK_STATUS(shmemi_pool_free(pool, a), SHMEM_ERR_DOUBLE_FREE);
            CHECK_OK(shmemi_pool_trim(pool)); /* collects */
            CHECK_STATUS(shmemi_pool_free(pool, a), SHMEM_ERR_DOUBLE_FREE);
        } else {
            CHECK_OK(shmemi_pool_free(pool, a));
        }
        CHECK_OK(shmemi_pool_free(pool, b));
    }
    CHECK(world_stat(SHMEMI_STAT_remote_frees) >= 5);
    end();
}

enum { RACERS = 4, RACES = 2000 };
static void *contested[RACES];
static _Atomic int won[RACES];
static _Atomic int ready;

static void racer(int rank, int n, void *arg)
{
    (void)rank;
    (void)arg;
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < n)
        ;
    for (int i = 0; i < RACES; i++) {
        shmem_status_t status = shmemi_pool_free(pool, contested[i]);
        if (status == SHMEM_OK)
            atomic_fetch_add(&won[i], 1);
        else
            CHECK_EQ(status, SHMEM_ERR_DOUBLE_FREE);
    }
}

/* Several threads free the same blocks at the same time: each block is freed once. (The owner's own
 * free is not among them: a remote free that it cannot see yet is caught by the others only.) */
static void races_for_one_block(size_t bytes)
{
    begin(256 << 20);
    for (int i = 0; i < RACES; i++) {
        contested[i] = world_alloc(pool, bytes);
        atomic_store(&won[i], 0);
    }
    atomic_store(&ready, 0);
    harness_pes(RACERS, HARNESS_THREAD, 60, racer, NULL);
    for (int i = 0; i < RACES; i++)
        CHECK_EQ(atomic_load(&won[i]), 1);
    end();
}

static void races_for_small_blocks(void)
{
    races_for_one_block(500);
}

static void races_for_large_blocks(void)
{
    races_for_one_block(40000);
}

/* ---- producer and consumer ---- */

enum { QUEUE = 1000, ITEMS = 200000 };
static void *_Atomic queue[QUEUE];

static void produce(void)
{
    for (int i = 0; i < ITEMS; i++) {
        void *p = world_alloc(pool, 100 + (size_t)(i % 7) * 300);
        *(int *)p = i;
        void *empty = NULL;
        while (!atomic_compare_exchange_weak(&queue[i % QUEUE], &empty, p)) {
            empty = NULL;
            sched_yield();
        }
    }
}

static void consume(void)
{
    for (int i = 0; i < ITEMS; i++) {
        void *p;
        while (!(p = atomic_exchange(&queue[i % QUEUE], NULL)))
            sched_yield();
        CHECK_EQ(*(int *)p, i);
        CHECK_OK(shmemi_pool_free(pool, p));
    }
}

static void produce_or_consume(int rank, int n, void *arg)
{
    (void)n;
    (void)arg;
    if (rank == 0)
        produce();
    else
        consume();
}

/* What the consumer frees goes home: the producer does not take more and more. */
static void freed_objects_go_home(void)
{
    begin(64 << 20);
    harness_pes(2, HARNESS_THREAD, 100, produce_or_consume, NULL);
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmemi_pool_describe(pool, &info));
    CHECK(info.high_water <= 8 << 20); /* 1,000 items of 1 KiB on average are in flight */
    end();
}

/* ---- threads that end ---- */

static void *left[3000];

static void *leave_blocks(void *arg)
{
    for (int i = 0; i < 3000; i++)
        left[i] = world_alloc(pool, 900);
    for (int i = 0; i < 3000; i += 3)
        CHECK_OK(shmemi_pool_free(pool, left[i]));
    CHECK_OK(shmemi_pool_free(pool, world_alloc(pool, 100000)));
    return arg;
}

static void blocks_outlive_their_thread(void)
{
    begin(64 << 20);
    in_thread(leave_blocks, NULL);
    uint64_t used = world_used(pool);
    void *more[900];
    for (int i = 0; i < 900; i++) /* from what the thread left */
        more[i] = world_alloc(pool, 900);
    CHECK_EQ(world_used(pool), used);
    for (int i = 0; i < 900; i++)
        CHECK_OK(shmemi_pool_free(pool, more[i]));
    for (int i = 0; i < 3000; i++)
        if (i % 3)
            CHECK_OK(shmemi_pool_free(pool, left[i]));
    CHECK_STATUS(shmemi_pool_free(pool, left[1]), SHMEM_ERR_DOUBLE_FREE);
    end();
}

static void *touch_and_go(void *arg)
{
    void *small = world_alloc(pool, 64), *large = world_alloc(pool, 64 << 10);
    CHECK_OK(shmemi_pool_free(pool, large));
    CHECK_OK(shmemi_pool_free(pool, small));
    return arg;
}

/* Threads come and go: neither rows nor spans nor cached blocks pile up. */
static void many_short_threads(void)
{
    begin(64 << 20);
    for (int i = 0; i < 1500; i++)
        in_thread(touch_and_go, NULL);
    CHECK_EQ(world_used(pool), 0);
    end();
}

/* ---- memory that others need ---- */

/* Holds much in its caches, then goes on with little. */
static void *hoard(void *arg)
{
    static void *block[4000];
    for (int i = 0; i < 4000; i++)
        block[i] = world_alloc(pool, 1000);
    atomic_store(&stage, 1);
    while (atomic_load(&stage) != 2)
        sched_yield();
    void *large = world_alloc(pool, 50000);
    for (int i = 0; i < 200; i++) {
        CHECK_OK(shmemi_pool_free(pool, large));
        large = world_alloc(pool, 50000);
    }
    CHECK_OK(shmemi_pool_free(pool, large));
    atomic_store(&stage, 3);
    while (atomic_load(&stage) != 4)
        sched_yield();
    return memcpy(arg, block, sizeof block);
}

/* What others freed in a thread's spans is not lost to them: when somebody finds no memory, the
 * thread gives it back as soon as it allocates or frees anything. */
static void others_get_what_a_thread_does_not_need(void)
{
    static void *block[4000];
    pthread_t thread;
    begin(5 << 20);
    atomic_store(&stage, 0);
    CHECK(pthread_create(&thread, NULL, hoard, block) == 0);
    while (atomic_load(&stage) != 1)
        sched_yield();
    void *large = NULL;
    CHECK_STATUS(shmemi_pool_alloc_default(pool, 3 << 20, &large), SHMEM_ERR_NOMEM);
    /* the blocks lie 1,024 bytes apart, from the start of the pool */
    for (int i = 0, freed = 0; freed < 4000; i++) {
        CHECK(i < 5 << 10);
        freed += shmemi_pool_free(pool, pool->data + (size_t)i * 1024) == SHMEM_OK;
    }
    CHECK_STATUS(shmemi_pool_alloc_default(pool, 3 << 20, &large), SHMEM_ERR_NOMEM);
    atomic_store(&stage, 2);
    while (atomic_load(&stage) != 3)
        sched_yield();
    CHECK_OK(shmemi_pool_alloc_default(pool, 3 << 20, &large));
    CHECK_OK(shmemi_pool_free(pool, large));
    atomic_store(&stage, 4);
    CHECK(pthread_join(thread, NULL) == 0);
    end();
}

/* ---- several pools, several clients in one thread ---- */

static void views_side_by_side(void)
{
    begin(16 << 20);
    shmemi_actor_t other;
    world_actor(&other, 1);
    shmemi_pool_t *mine = pool, *same = world_attach(&other, NULL);
    void *first_memory = world.memory;
    uint64_t first_bytes = world.segment_bytes;
    world_pool(16 << 20, SHMEM_POOL_NEAREST, 0, NULL);
    shmemi_pool_t *second = world_attach(&actor, NULL);
    for (int i = 0; i < 300; i++) {
        void *a = world_alloc(mine, 200), *b = world_alloc(same, 200),
             *c = world_alloc(second, 200);
        CHECK_STATUS(shmemi_pool_free(second, a), SHMEM_ERR_FOREIGN_POINTER);
        CHECK_STATUS(shmemi_pool_free(mine, c), SHMEM_ERR_FOREIGN_POINTER);
        CHECK_OK(shmemi_pool_free(same, a)); /* another client's block of the same pool */
        CHECK_OK(shmemi_pool_free(mine, b));
        CHECK_OK(shmemi_pool_free(second, c));
    }
    CHECK_OK(shmemi_pool_check(second));
    shmemi_pool_detach(second);
    shmemi_pool_detach(same);
    shmemi_actor_fini(&other);
    world.memory = first_memory;
    world.segment_bytes = first_bytes;
    end();
}

/* A view may go while threads that used it live on. */
static void *outlive_the_view(void *arg)
{
    CHECK_OK(shmemi_pool_free(pool, world_alloc(pool, 100)));
    atomic_store(&stage, 1);
    while (atomic_load(&stage) != 2)
        sched_yield();
    return arg;
}

static void a_view_ends_before_its_threads(void)
{
    begin(16 << 20);
    pthread_t thread;
    atomic_store(&stage, 0);
    CHECK(pthread_create(&thread, NULL, outlive_the_view, NULL) == 0);
    while (atomic_load(&stage) != 1)
        sched_yield();
    shmemi_pool_detach(pool);
    pool = world_attach(&actor, NULL);
    CHECK_EQ(world_used(pool), 0);
    atomic_store(&stage, 2);
    CHECK(pthread_join(thread, NULL) == 0);
    end();
}

/* In the middle of an operation that cuts a block from the only free one. */
static void *holds_the_lock(void *arg)
{
    shmemi_arena_t *arena = arg;
    uint32_t page, pages;
    CHECK_OK(shmemi_arena_lock(arena, &actor, SHMEMI_FOREVER));
    CHECK_OK(shmemi_buddy_remove_largest(arena, 0, &page, &pages));
    CHECK_EQ(pages, arena->pages);
    atomic_store(&stage, 1);
    harness_sleep(0.1);
    CHECK_STATUS(shmemi_arena_unlock(arena, &actor, SHMEM_ERR_NOMEM), SHMEM_ERR_NOMEM);
    return NULL;
}

/* However long that takes, nobody else is told that there is no memory. */
static void nobody_mistakes_it_for_empty(void)
{
    static const size_t sizes[] = {100, 20000, 100000, 4 << 20};
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++) {
        pthread_t thread;
        begin(4 << 20);
        atomic_store(&stage, 0);
        CHECK(pthread_create(&thread, NULL, holds_the_lock, &pool->arenas[0].arena) == 0);
        while (!atomic_load(&stage))
            sched_yield();
        CHECK_OK(shmemi_pool_free(pool, world_alloc(pool, sizes[i])));
        CHECK(pthread_join(thread, NULL) == 0);
        end();
    }
}

/* ---- processes ---- */

static void *handed[200];

static void free_all(void *arg)
{
    shmemi_actor_t self;
    (void)arg;
    world_actor(&self, 2);
    shmemi_pool_t *p = world_attach(&self, NULL);
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(*(int *)handed[i], i);
        CHECK_OK(shmemi_pool_free(p, handed[i]));
        CHECK_STATUS(shmemi_pool_free(p, handed[i]), SHMEM_ERR_DOUBLE_FREE);
    }
    shmemi_pool_detach(p);
    shmemi_actor_fini(&self);
}

static void another_process_frees(void)
{
    if (harness_has_tsan())
        SKIP("ThreadSanitizer sees threads only");
    begin(64 << 20);
    for (int i = 0; i < 200; i++) {
        handed[i] = world_alloc(pool, (size_t)(i + 1) * 500);
        *(int *)handed[i] = i;
    }
    CHECK_EQ(harness_wait(harness_fork(free_all, NULL), 20), 0);
    for (int i = 0; i < 200; i++)
        CHECK_STATUS(shmemi_pool_free(pool, handed[i]), SHMEM_ERR_DOUBLE_FREE);
    end();
}

int main(void)
{
    RUN(double_frees_across_threads);
    RUN(races_for_small_blocks);
    RUN(races_for_large_blocks);
    RUN(freed_objects_go_home);
    RUN(blocks_outlive_their_thread);
    RUN(many_short_threads);
    RUN(others_get_what_a_thread_does_not_need);
    RUN(views_side_by_side);
    RUN(a_view_ends_before_its_threads);
    RUN(nobody_mistakes_it_for_empty);
    RUN(another_process_frees);
    return harness_end();
}
