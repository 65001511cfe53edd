/* SPDX-License-Identifier: Apache-2.0 */
/* A pool used by one client: sizes, alignment, errors, resize, exhaustion, counters. */
#include <pthread.h>

#include "pool_world.h"

static shmemi_actor_t actor;
static shmemi_pool_t *pool;

static void begin(uint64_t bytes)
{
    world_make(4);
    world_pool(bytes, SHMEM_POOL_NEAREST, 0, NULL);
    world_actor(&actor, 0);
    pool = world_attach(&actor, NULL);
    CHECK_OK(shmemi_pool_check(pool));
}

static void end(void)
{
    CHECK_OK(shmemi_pool_check(pool));
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
}

static void every_size(void)
{
    begin(512 << 20);
    for (size_t n = 1; n <= 70000; n += n < 5000 ? 1 : 97) {
        unsigned char *a = world_alloc(pool, n), *b = world_alloc(pool, n);
        size_t got = 0;
        CHECK((uintptr_t)a % 128 == 0 && (uintptr_t)b % 128 == 0);
        CHECK(n % 4096 || (uintptr_t)a % 4096 == 0);
        CHECK(n <= 32768 || (uintptr_t)a % 4096 == 0);
        CHECK_OK(shmemi_pool_block_bytes(pool, a, &got));
        CHECK(got >= n && got % 128 == 0 && (n <= 1024 ? got - n < 128 : got - n <= n / 8 + 1));
        CHECK(a + got <= b || b + got <= a);
        memset(a, 1, got);
        memset(b, 2, got);
        CHECK(a[0] == 1 && a[got - 1] == 1);
        CHECK_OK(shmemi_pool_free(pool, a));
        CHECK_OK(shmemi_pool_free(pool, b));
    }
    end();
}

static void every_alignment(void)
{
    begin(512 << 20);
    for (size_t a = 1; a <= 2 << 20; a *= 2)
        for (size_t n = 1; n <= 3 << 20; n = n * 3 + 1) {
            void *block = NULL;
            CHECK_OK(shmemi_pool_alloc(pool, n, a, SHMEM_POOL_NEAREST, 0, &block));
            CHECK((uintptr_t)block % (a > 128 ? a : 128) == 0);
            memset(block, 5, n);
            CHECK_OK(shmemi_pool_free(pool, block));
        }
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_EQ(world_used(pool), 0);
    end();
}

static void bad_requests(void)
{
    static const size_t huge[] = {((size_t)1 << 31) - 1, (size_t)1 << 31, (size_t)1 << 32,
                                  ((size_t)1 << 63) - 1, (size_t)1 << 63, SIZE_MAX - 4095,
                                  SIZE_MAX - 127,        SIZE_MAX};
    begin(16 << 20);
    void *block = &actor;
    for (size_t i = 0; i < SHMEMI_COUNT(huge); i++) {
        CHECK_STATUS(shmemi_pool_alloc_default(pool, huge[i], &block), SHMEM_ERR_OVERFLOW);
        CHECK_STATUS(shmemi_pool_alloc(pool, huge[i], 1 << 20, SHMEM_POOL_NEAREST, 0, &block),
                     SHMEM_ERR_OVERFLOW);
    }
    CHECK_STATUS(shmemi_pool_alloc_default(pool, 0, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_alloc_default(pool, 8, NULL), SHMEM_ERR_INVALID);
    static const size_t bad[] = {3, 100, 4097, 4 << 20, SIZE_MAX, (size_t)1 << 63};
    for (size_t i = 0; i < SHMEMI_COUNT(bad); i++)
        CHECK_STATUS(shmemi_pool_alloc(pool, 8, bad[i], SHMEM_POOL_NEAREST, 0, &block),
                     SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_alloc(pool, 8, 0, SHMEM_POOL_BIND, 1, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_alloc(pool, 8, 0, SHMEM_POOL_BIND, -1, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_alloc(pool, 8, 0, (shmem_pool_policy_t)9, 0, &block),
                 SHMEM_ERR_INVALID);
    CHECK(block == &actor);
    CHECK_EQ(world_used(pool), 0);
    end();
}

/* The pool as a single block, and one byte more. */
static void the_whole_pool(void)
{
    static const uint64_t sizes[] = {4096, 5 * 4096, (3 << 20) + 4096, 64 << 20};
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++) {
        begin(sizes[i]);
        void *block;
        CHECK_STATUS(shmemi_pool_alloc_default(pool, sizes[i] + 1, &block), SHMEM_ERR_OVERFLOW);
        for (int k = 0; k < 3; k++) {
            block = world_alloc(pool, sizes[i]);
            CHECK_EQ(world_used(pool), sizes[i]);
            CHECK_STATUS(shmemi_pool_alloc_default(pool, 1, &block), SHMEM_ERR_NOMEM);
            CHECK(strstr(shmem_error_detail()->text, "free in all 0 bytes") != NULL);
            CHECK_OK(shmemi_pool_free(pool, block));
        }
        CHECK_OK(shmemi_pool_trim(pool));
        CHECK_EQ(world_used(pool), 0);
        end();
    }
}

static void bad_frees_of_small_blocks(void)
{
    begin(512 << 20);
    for (size_t n = 1; n <= 32768; n = n * 2 + 13) {
        unsigned char *a = world_alloc(pool, n), *b = world_alloc(pool, n);
        size_t got;
        CHECK_OK(shmemi_pool_block_bytes(pool, a, &got));
        static const size_t offsets[] = {1, 8, 64, 127};
        for (size_t i = 0; i < SHMEMI_COUNT(offsets); i++)
            CHECK_STATUS(shmemi_pool_free(pool, a + offsets[i]), SHMEM_ERR_INTERIOR_POINTER);
        CHECK_STATUS(shmemi_pool_free(pool, a + got - 1), SHMEM_ERR_INTERIOR_POINTER);
        CHECK_STATUS(shmemi_pool_block_bytes(pool, a + 1, &got), SHMEM_ERR_INTERIOR_POINTER);
        CHECK_OK(shmemi_pool_free(pool, a));
        CHECK_STATUS(shmemi_pool_free(pool, a), SHMEM_ERR_DOUBLE_FREE);
        CHECK_STATUS(shmemi_pool_block_bytes(pool, a, &got), SHMEM_ERR_DOUBLE_FREE);
        CHECK_STATUS(shmemi_pool_resize(pool, (void **)&a, 5), SHMEM_ERR_DOUBLE_FREE);
        CHECK_OK(shmemi_pool_free(pool, b));
        CHECK_STATUS(shmemi_pool_free(pool, b), SHMEM_ERR_DOUBLE_FREE);
        CHECK_OK(shmemi_pool_trim(pool)); /* the span is gone */
        CHECK_STATUS(shmemi_pool_free(pool, b), SHMEM_ERR_DOUBLE_FREE);
    }
    CHECK_EQ(world_used(pool), 0);
    end();
}

static void bad_frees_of_large_blocks(void)
{
    begin(512 << 20);
    for (size_t n = 33000; n <= 8 << 20; n = n * 2 + 13) {
        unsigned char *a = world_alloc(pool, n), *b = world_alloc(pool, n);
        size_t got;
        CHECK_OK(shmemi_pool_block_bytes(pool, a, &got));
        static const size_t offsets[] = {1, 128, 4095, 4096, 8192, 8193};
        for (size_t i = 0; i < SHMEMI_COUNT(offsets); i++) {
            CHECK_STATUS(shmemi_pool_free(pool, a + offsets[i]), SHMEM_ERR_INTERIOR_POINTER);
            CHECK_STATUS(shmemi_pool_block_bytes(pool, a + offsets[i], &got),
                         SHMEM_ERR_INTERIOR_POINTER);
        }
        CHECK_STATUS(shmemi_pool_free(pool, a + n - 1), SHMEM_ERR_INTERIOR_POINTER);
        CHECK_OK(shmemi_pool_free(pool, a));
        CHECK_STATUS(shmemi_pool_free(pool, a), SHMEM_ERR_DOUBLE_FREE);
        CHECK_OK(shmemi_pool_trim(pool));
        CHECK_STATUS(shmemi_pool_free(pool, a), SHMEM_ERR_DOUBLE_FREE);
        CHECK_STATUS(shmemi_pool_resize(pool, (void **)&a, 5), SHMEM_ERR_DOUBLE_FREE);
        CHECK_OK(shmemi_pool_free(pool, b));
        CHECK_STATUS(shmemi_pool_free(pool, b), SHMEM_ERR_DOUBLE_FREE);
    }
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_EQ(world_used(pool), 0);
    end();
}

static void foreign_pointers(void)
{
    begin(1 << 20);
    int local;
    unsigned char *block = world_alloc(pool, 4096);
    void *foreign[] = {&local,
                       pool,
                       world.memory,
                       (unsigned char *)pool->data - 1,
                       (unsigned char *)pool->data + (1 << 20),
                       (void *)8,
                       (void *)UINTPTR_MAX};
    for (size_t i = 0; i < SHMEMI_COUNT(foreign); i++) {
        size_t got;
        CHECK_STATUS(shmemi_pool_free(pool, foreign[i]), SHMEM_ERR_FOREIGN_POINTER);
        CHECK_STATUS(shmemi_pool_block_bytes(pool, foreign[i], &got), SHMEM_ERR_FOREIGN_POINTER);
        CHECK_STATUS(shmemi_pool_resize(pool, &foreign[i], 9), SHMEM_ERR_FOREIGN_POINTER);
    }
    CHECK_OK(shmemi_pool_free(pool, NULL));
    CHECK_OK(shmemi_pool_free(pool, block));
    end();
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 7 + seed);
}

static bool filled(const unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (unsigned char)(i * 7 + seed))
            return false;
    return true;
}

static void resizing(void)
{
    static const size_t sizes[] = {1,     128,    129,     1000,    4096,  5000, 32768,
                                   32769, 100000, 1 << 20, 3 << 20, 40000, 4097, 1,
                                   70000, 69632,  65537,   65536,   100};
    begin(512 << 20);
    unsigned char *p = world_alloc(pool, 77), *before;
    fill(p, 77, 0);
    size_t old = 77;
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++) {
        before = p;
        CHECK_OK(shmemi_pool_resize(pool, (void **)&p, sizes[i]));
        CHECK(filled(p, old < sizes[i] ? old : sizes[i], (unsigned)i));
        if (old > 32768 && sizes[i] > 32768 && sizes[i] < old)
            CHECK(p == before);
        fill(p, sizes[i], (unsigned)i + 1);
        old = sizes[i];
        CHECK_OK(shmemi_pool_check(pool));
    }
    before = p;
    CHECK_STATUS(shmemi_pool_resize(pool, (void **)&p, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_resize(pool, (void **)&p, SIZE_MAX), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmemi_pool_resize(pool, (void **)&p, 512 << 20), SHMEM_ERR_NOMEM);
    CHECK(p == before && filled(p, 100, (unsigned)SHMEMI_COUNT(sizes)));
    void *none = NULL;
    CHECK_STATUS(shmemi_pool_resize(pool, &none, 8), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_resize(pool, NULL, 8), SHMEM_ERR_INVALID);
    CHECK_OK(shmemi_pool_free(pool, p));
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_EQ(world_used(pool), 0);
    end();
}

/* A large block grows into the pages that were trimmed from it. */
static void growing_in_place(void)
{
    begin(512 << 20);
    unsigned char *p = world_alloc(pool, 33000), *before = p; /* 9 pages of 16 */
    fill(p, 33000, 1);
    for (size_t n = 40000; n <= 65536; n += 5000)
        CHECK_OK(shmemi_pool_resize(pool, (void **)&p, n));
    CHECK(p == before && filled(p, 33000, 1));
    CHECK_EQ(world_used(pool), 16 * 4096);
    CHECK_EQ(world_stat(SHMEMI_STAT_allocs), 1);
    CHECK_OK(shmemi_pool_resize(pool, (void **)&p, 40 << 20));
    CHECK(filled(p, 33000, 1));
    CHECK_OK(shmemi_pool_free(pool, p));
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_EQ(world_used(pool), 0);
    CHECK_EQ(world_stat(SHMEMI_STAT_alloc_bytes), world_stat(SHMEMI_STAT_free_bytes));
    end();
}

/* Small blocks until nothing is left: every page is used in the end; all comes back. */
static void exhaustion(size_t bytes, uint64_t pool_bytes)
{
    begin(pool_bytes);
    size_t n = 0, most = pool_bytes / 128 + 1;
    void **blocks = malloc(most * sizeof *blocks);
    while (shmemi_pool_alloc_default(pool, bytes, &blocks[n]) == SHMEM_OK) {
        memset(blocks[n], (int)n, bytes);
        CHECK(++n < most);
    }
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_NOMEM);
    CHECK(world_used(pool) >= pool_bytes - (bytes > 4096 ? pool_bytes / 10 : 0));
    CHECK(n * bytes > pool_bytes / 4 * 3);
    CHECK_OK(shmemi_pool_check(pool));
    for (size_t i = 0; i < n; i++) {
        CHECK(*(unsigned char *)blocks[i] == (unsigned char)i);
        CHECK_OK(shmemi_pool_free(pool, blocks[i]));
    }
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_EQ(world_used(pool), 0);
    free(blocks);
    end();
}

static void exhausted_by_small_blocks(void)
{
    exhaustion(100, 1 << 20);
    exhaustion(1024, 5 << 20);
    exhaustion(4096, 3 * 4096);
    exhaustion(30000, 65 << 20);
    exhaustion(1 << 20, 64 << 20);
}

/* Near the end of a pool the work for one allocation does not grow with the number of spans: to
 * serve these from single pages looks at as many spans as a bounded number of trims does. */
static void filling_up_is_bounded_work(void)
{
    enum { N = 400000 };
    void **blocks = malloc(N * sizeof *blocks);
    for (int round = 0; round < 2; round++) {
        uint64_t mib = 256u << round, n = 0, singles = 0;
        begin(mib << 20);
        while (n < N && !shmemi_pool_alloc_default(pool, 1702, &blocks[n])) {
            size_t got;
            CHECK_OK(shmemi_pool_block_bytes(pool, blocks[n++], &got));
            singles += got == 4096;
        }
        CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_NOMEM);
        CHECK_EQ(world_used(pool), mib << 20);
        uint64_t looked = shmemi_heap_cache.heap->looked, spans = mib << 20 >> 12;
        CHECK(singles > 1000 && n > singles);
        CHECK(looked > 0 && looked <= SHMEMI_TRIM_SHARE * singles + 4 * spans);
        while (n)
            CHECK_OK(shmemi_pool_free(pool, blocks[--n]));
        CHECK_OK(shmemi_pool_trim(pool));
        CHECK_EQ(world_used(pool), 0);
        end();
    }
    free(blocks);
}

/* Empty spans and cached blocks of the thread don't stand in the way of a large request. */
static void caches_give_way(void)
{
    begin(16 << 20);
    void *blocks[256];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 256; i++)
            blocks[i] = world_alloc(pool, i % 2 ? 1000 : 40000);
        for (int i = 0; i < 256; i++)
            CHECK_OK(shmemi_pool_free(pool, blocks[i]));
        CHECK(world_used(pool) > 0);
        CHECK_OK(shmemi_pool_free(pool, world_alloc(pool, 16 << 20)));
    }
    CHECK_EQ(world_used(pool), 0);
    end();
}

static void counters(void)
{
    begin(512 << 20);
    void *small = world_alloc(pool, 100), *large = world_alloc(pool, 100000);
    CHECK_EQ(world_stat(SHMEMI_STAT_allocs), 2);
    CHECK_EQ(world_stat(SHMEMI_STAT_alloc_bytes), 128 + 102400);
    CHECK_OK(shmemi_pool_free(pool, small));
    CHECK_STATUS(shmemi_pool_free(pool, small), SHMEM_ERR_DOUBLE_FREE);
    CHECK_EQ(world_stat(SHMEMI_STAT_frees), 1);
    CHECK_EQ(world_stat(SHMEMI_STAT_free_bytes), 128);
    CHECK_OK(shmemi_pool_free(pool, large));
    CHECK_EQ(world_stat(SHMEMI_STAT_frees), 2);
    CHECK_EQ(world_stat(SHMEMI_STAT_free_bytes), world_stat(SHMEMI_STAT_alloc_bytes));
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmemi_pool_describe(pool, &info));
    CHECK_EQ(info.bytes, 512 << 20);
    CHECK_EQ(info.nodes, 1);
    CHECK(info.base == pool->data && (uintptr_t)info.base % (2 << 20) == 0);
    CHECK(info.high_water >= info.used_bytes && info.high_water >= 100000);
    info.size = 8;
    CHECK_STATUS(shmemi_pool_describe(pool, &info), SHMEM_ERR_INVALID);
    end();
}

/* A span comes back when its last object goes: no more than one spare for each class stays. */
static void empty_spans_go_back(void)
{
    enum { N = 20000 };
    begin(512 << 20);
    static void *blocks[N];
    for (int i = 0; i < N; i++)
        blocks[i] = world_alloc(pool, 1000);
    CHECK(world_used(pool) >= N * 1024);
    for (int i = 0; i < N; i++)
        CHECK_OK(shmemi_pool_free(pool, blocks[i]));
    CHECK(world_used(pool) <= 2 * 65536);
    end();
}

static void headers_are_checked(void)
{
    begin(1 << 20);
    shmemi_pool_t *other = NULL;
    shmemi_pool_header_t *h = world.memory;
    uint64_t bytes = world.segment_bytes;
    CHECK_STATUS(world_view(world.memory, bytes - 4096, &actor, NULL, &other), SHMEM_ERR_CORRUPT);
    CHECK_STATUS(world_view(world.memory, 100, &actor, NULL, &other), SHMEM_ERR_CORRUPT);
    h->version++;
    CHECK_STATUS(world_view(world.memory, bytes, &actor, NULL, &other), SHMEM_ERR_VERSION);
    h->version--;
    h->layout ^= 1;
    CHECK_STATUS(world_view(world.memory, bytes, &actor, NULL, &other), SHMEM_ERR_VERSION);
    h->layout ^= 1;
    atomic_store(&h->ready, 0);
    CHECK_STATUS(world_view(world.memory, bytes, &actor, NULL, &other), SHMEM_ERR_CORRUPT);
    atomic_store(&h->ready, 1);
    h->nodes = 1000;
    CHECK_STATUS(world_view(world.memory, bytes, &actor, NULL, &other), SHMEM_ERR_CORRUPT);
    h->nodes = 1;
    h->bytes *= 2;
    CHECK_STATUS(world_view(world.memory, bytes, &actor, NULL, &other), SHMEM_ERR_CORRUPT);
    h->bytes /= 2;
    h->policy = 77;
    CHECK_STATUS(world_view(world.memory, bytes, &actor, NULL, &other), SHMEM_ERR_CORRUPT);
    h->policy = SHMEM_POOL_BIND;
    h->node = 1;
    CHECK_STATUS(world_view(world.memory, bytes, &actor, NULL, &other), SHMEM_ERR_CORRUPT);
    h->policy = SHMEM_POOL_NEAREST;
    shmemi_fault_arm("memory.view.nodes", SHMEMI_FAULT_FAIL, 1);
    CHECK(world_view(world.memory, bytes, &actor, NULL, &other) != SHMEM_OK);
    CHECK_EQ(shmemi_fault_passages(), 1);
    shmemi_fault_disarm();
    CHECK(other == NULL);
    end();
}

static void a_detached_view_gives_all_back(void)
{
    begin(512 << 20);
    shmemi_actor_t second;
    world_actor(&second, 1);
    shmemi_pool_t *other = world_attach(&second, NULL);
    void *kept = world_alloc(pool, 50000), *small = world_alloc(pool, 1000);
    for (int i = 0; i < 100; i++)
        world_alloc(other, 100 + (size_t)i * 1000);
    CHECK_OK(shmemi_pool_check(pool));
    shmemi_pool_detach(other);
    shmemi_actor_fini(&second);
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_EQ(world_used(pool), 13 * 4096 + 65536);
    CHECK_OK(shmemi_pool_free(pool, kept));
    CHECK_OK(shmemi_pool_free(pool, small));
    shmemi_pool_detach(NULL);
    end();
}

/* Nothing came of it: the block is whose it was, and stays when who tried goes. */
static void a_failed_resize_leaves_the_owner(void)
{
    begin(16 << 20);
    shmemi_actor_t second;
    world_actor(&second, 1);
    shmemi_pool_t *other = world_attach(&second, NULL);
    void *block = world_alloc(pool, 1 << 20), *same = block;
    void *rest = world_alloc(pool, 8 << 20);
    CHECK_STATUS(shmemi_pool_resize(other, &same, 15 << 20), SHMEM_ERR_NOMEM);
    CHECK(same == block);
    shmemi_pool_detach(other);
    shmemi_actor_fini(&second);
    CHECK_OK(shmemi_pool_free(pool, rest));
    CHECK_OK(shmemi_pool_free(pool, block));
    end();
}

static void in_child(void *arg)
{
    void *block = arg, *other;
    CHECK_STATUS(shmemi_pool_alloc_default(pool, 8, &other), SHMEM_ERR_STATE);
    CHECK_STATUS(shmemi_pool_free(pool, block), SHMEM_ERR_STATE);
    CHECK_STATUS(shmemi_pool_resize(pool, &block, 8), SHMEM_ERR_STATE);
    CHECK_STATUS(shmemi_pool_root_set(pool, arg), SHMEM_ERR_STATE);
    shmemi_pool_detach(pool);
}

static void a_forked_child_is_refused(void)
{
    if (harness_has_tsan())
        SKIP("forks");
    begin(16 << 20);
    void *block = world_alloc(pool, 100), *large = world_alloc(pool, 100000);
    CHECK_OK(shmemi_pool_free(pool, world_alloc(pool, 100000)));
    uint64_t used = world_used(pool);
    CHECK_EQ(harness_wait(harness_fork(in_child, block), 10), 0);
    CHECK_EQ(world_used(pool), used);
    CHECK_OK(shmemi_pool_free(pool, block));
    CHECK_OK(shmemi_pool_free(pool, large));
    end();
}

int main(void)
{
    RUN(every_size);
    RUN(every_alignment);
    RUN(bad_requests);
    RUN(the_whole_pool);
    RUN(bad_frees_of_small_blocks);
    RUN(bad_frees_of_large_blocks);
    RUN(foreign_pointers);
    RUN(resizing);
    RUN(growing_in_place);
    RUN(exhausted_by_small_blocks);
    RUN(filling_up_is_bounded_work);
    RUN(caches_give_way);
    RUN(counters);
    RUN(empty_spans_go_back);
    RUN(headers_are_checked);
    RUN(a_detached_view_gives_all_back);
    RUN(a_failed_resize_leaves_the_owner);
    RUN(a_forked_child_is_refused);
    return harness_end();
}
