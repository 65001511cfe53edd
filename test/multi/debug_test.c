/* SPDX-License-Identifier: Apache-2.0 */
/* Debug pools: every kind of mistake is found and told with the call sites of those who made it. */
#include "debug_pool.h"

/* ---- blocks work ---- */

static void sizes_and_alignments(void)
{
    static const size_t sizes[] = {1, 7, 128, 1000, 4096, 32768, 40000, 65536, 1 << 20};
    shmem_pool_t pool = pool_of(64 << 20);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t alignment = 0; alignment <= 2 << 20;
             alignment = alignment ? alignment * 16 : 128) {
            char *block;
            size_t bytes;
            CHECK_OK(shmem_pool_alloc_aligned(pool, sizes[i], alignment, (void **)&block));
            CHECK(((uintptr_t)block & ((alignment ? alignment : 128) - 1)) == 0);
            if (!alignment && (sizes[i] > 32768 || sizes[i] % 4096 == 0))
                CHECK(((uintptr_t)block & 4095) == 0);
            CHECK_OK(shmem_pool_block_bytes(pool, block, &bytes));
            CHECK_EQ(bytes, sizes[i]);
            memset(block, 0x5a, sizes[i]);
            CHECK_OK(shmem_pool_check(pool));
            CHECK_OK(shmem_pool_free(pool, block));
        }
    void *block;
    CHECK_STATUS(shmem_pool_alloc(pool, 0, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_alloc(pool, SIZE_MAX, &block), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_pool_alloc(pool, SIZE_MAX - 4000, &block), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_pool_alloc_aligned(pool, 10, 24, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_alloc_aligned(pool, 10, 4 << 20, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_alloc(pool, 10, NULL), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_pool_alloc_on(pool, 10, 0, SHMEM_POOL_NEAREST, 0, &block));
    CHECK_OK(shmem_pool_free(pool, block));
    CHECK_OK(shmem_pool_alloc_timed(pool, 10, 0, 0, &block));
    CHECK_OK(shmem_pool_root_set(pool, block));
    CHECK_OK(shmem_pool_give(pool, block));
    CHECK_OK(shmem_pool_hold(pool, block));
    void *root;
    CHECK_OK(shmem_pool_root_get(pool, &root));
    CHECK(root == block);
    CHECK_OK(shmem_pool_root_set(pool, NULL));
    CHECK_OK(shmem_pool_free(pool, block));
    CHECK_OK(shmem_pool_free(pool, NULL));
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_info(pool, &info));
    CHECK_EQ(info.debug, 1);
    CHECK_EQ(used(pool), 0);
    CHECK_EQ(info_of(pool).overruns + info_of(pool).uses_after_free, 0);
    done(pool);
}

static void resizing(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    unsigned char *block = site_one(pool, 100);
    memset(block, 42, 100);
    for (size_t bytes = 100; bytes < 3 << 20; bytes *= 3) {
        CHECK_OK(shmem_pool_resize(pool, (void **)&block, bytes));
        for (int i = 0; i < 100; i++)
            CHECK_EQ(block[i], 42);
    }
    CHECK_OK(shmem_pool_resize(pool, (void **)&block, 50));
    unsigned char *same = block;
    CHECK_STATUS(shmem_pool_resize(pool, (void **)&block, 1 << 30), SHMEM_ERR_OVERFLOW);
    CHECK(block == same && block[49] == 42);
    CHECK_EQ(info_of(pool).blocks, 1);
    CHECK_EQ(info_of(pool).bytes, 50);
    CHECK_OK(shmem_pool_free(pool, block));
    CHECK_EQ(used(pool), 0);
    done(pool);
}

/* ---- mistakes ---- */

static void resizing_what_was_overrun(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    char *block = site_one(pool, 100), *same = block;
    memset(block, 42, 100);
    block[100] = 1;
    for (int i = 0; i < 2; i++) { /* counted once */
        CHECK_STATUS(shmem_pool_resize(pool, (void **)&block, i ? 50 : 5000), SHMEM_ERR_CORRUPT);
        detail_has("byte 100 is the first", "(site_one)");
        CHECK(block == same && block[99] == 42);
        CHECK_EQ(info_of(pool).overruns, 1);
        CHECK_EQ(info_of(pool).blocks, 1);
    }
    block[100] = (char)0xfd; /* as it was */
    CHECK_OK(shmem_pool_resize(pool, (void **)&block, 200));
    CHECK(block[99] == 42);
    block[-1] = 1;
    CHECK_STATUS(shmem_pool_resize(pool, (void **)&block, 300), SHMEM_ERR_CORRUPT);
    CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_CORRUPT);
    CHECK_EQ(info_of(pool).overruns, 2);
    CHECK_EQ(used(pool), 0);
    done(pool);
}

/* The byte nearest to the block is named, wherever it lies. */
static void underruns(void)
{
    static const int places[] = {1, 7, 8, 9, 15, 16, 17, 100, 127, 128};
    shmem_pool_t pool = pool_of(16 << 20);
    char text[64];
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++)
        for (int further = 0; further < 2; further++) {
            char *block = site_one(pool, 100);
            block[-places[i]] ^= 0x55;
            if (further)
                for (int k = places[i] + 1; k <= 128; k += 5)
                    block[-k] ^= 0x55;
            snprintf(text, sizeof text, "byte -%d is the nearest", places[i]);
            CHECK_STATUS(shmem_pool_check(pool), SHMEM_ERR_CORRUPT);
            detail_has(text, "written before the start");
            CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_CORRUPT);
            detail_has(text, "(site_one)");
        }
    CHECK_EQ(used(pool), 0);
    done(pool);
}

static void overruns(void)
{
    static const size_t sizes[] = {1, 100, 5000, 50000, 200000};
    shmem_pool_t pool = pool_of(16 << 20);
    uint64_t count = 0;
    char text[64];
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *block = site_one(pool, sizes[i]);
        block[sizes[i]] = 1; /* the first byte behind it */
        snprintf(text, sizeof text, "byte %zu is the first", sizes[i]);
        CHECK_STATUS(shmem_pool_check(pool), SHMEM_ERR_CORRUPT);
        detail_has(text, "(site_one)");
        CHECK_STATUS(shmem_pool_check(pool), SHMEM_ERR_CORRUPT);
        CHECK_EQ(info_of(pool).overruns, ++count);
        CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_CORRUPT);
        detail_has(text, "written behind the end");
        CHECK_EQ(info_of(pool).overruns, count);
        CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_DOUBLE_FREE);
        block = site_two(pool, sizes[i]);
        block[-1] = 1;
        CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_CORRUPT);
        detail_has("written before the start", "(site_two)");
        CHECK_EQ(info_of(pool).overruns, ++count);
        block = site_two(pool, sizes[i]);
        block[-128] = 1;
        CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_CORRUPT);
        detail_has("byte -128 ", "(site_two)");
        CHECK_EQ(info_of(pool).overruns, ++count);
    }
    CHECK_EQ(used(pool), 0);
    done(pool);
}

/* So far that nothing is known of the block any more: it still goes back. */
static void far_overruns(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    size_t bytes;
    char *block = site_one(pool, 1000);
    memset(block + 1000, 0, 400);
    CHECK_STATUS(shmem_pool_block_bytes(pool, block, &bytes), SHMEM_ERR_CORRUPT);
    CHECK_STATUS(shmem_pool_give(pool, block), SHMEM_ERR_CORRUPT);
    CHECK_OK(shmem_pool_check(pool)); /* it looks like one that is being allocated */
    memset(block + 1000, 7, 400);
    CHECK_STATUS(shmem_pool_check(pool), SHMEM_ERR_CORRUPT);
    CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_CORRUPT);
    detail_has("written far behind the end", "not known");
    CHECK_EQ(info_of(pool).overruns, 1);
    CHECK_EQ(used(pool), 0);
    done(pool);
}

static void double_frees(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    static const size_t sizes[] = {100, 5000, 100000, 5000000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = site_one(pool, sizes[i]);
        site_free(pool, block);
        CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_DOUBLE_FREE);
        detail_has("(site_one)", "(site_free)");
        CHECK_OK(shmem_pool_trim(pool));
        CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_DOUBLE_FREE);
        detail_has("(site_one)", "(site_free)");
        CHECK_STATUS(shmem_pool_give(pool, block), SHMEM_ERR_DOUBLE_FREE);
    }
    CHECK_EQ(used(pool), 0);
    done(pool);
}

static void wrong_pointers(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    char *small = site_one(pool, 1000), *large = site_two(pool, 100000), outside;
    CHECK_STATUS(shmem_pool_free(pool, small + 1), SHMEM_ERR_INTERIOR_POINTER);
    detail_has("lies 1 bytes from the start", "(site_one)");
    CHECK_STATUS(shmem_pool_free(pool, small + 128), SHMEM_ERR_INTERIOR_POINTER);
    CHECK_STATUS(shmem_pool_free(pool, small - 128), SHMEM_ERR_INTERIOR_POINTER);
    CHECK_STATUS(shmem_pool_free(pool, large + 4096), SHMEM_ERR_INTERIOR_POINTER);
    detail_has("lies 4096 bytes from the start", "(site_two)");
    CHECK_STATUS(shmem_pool_free(pool, large - 4096), SHMEM_ERR_INTERIOR_POINTER);
    CHECK_STATUS(shmem_pool_free(pool, &outside), SHMEM_ERR_FOREIGN_POINTER);
    site_free(pool, small);
    site_free(pool, large);
    CHECK_EQ(used(pool), 0);
    done(pool);
}

static void writes_after_free(void)
{
    static const size_t sizes[] = {1, 1000, 5000, 100000};
    shmem_pool_t pool = pool_of(16 << 20);
    char text[64];
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *block = site_one(pool, sizes[i]);
        site_free(pool, block);
        block[sizes[i] - 1] = 3;
        CHECK_EQ(info_of(pool).uses_after_free, i);
        CHECK(site_two(pool, sizes[i]) == block);
        snprintf(text, sizeof text, "byte %zu of the block of %zu bytes", sizes[i] - 1, sizes[i]);
        CHECK(strstr(line_with("written after free", text), "(site_free)"));
        CHECK(strstr(line_with("written after free", text), "(site_one)"));
        CHECK_EQ(info_of(pool).uses_after_free, i + 1);
        site_free(pool, block);
        CHECK(site_one(pool, sizes[i]) == block); /* nothing was written this time */
        CHECK_EQ(info_of(pool).uses_after_free, i + 1);
        site_free(pool, block);
    }
    done(pool);
}

/* Small blocks that are not handed out again: a check finds what was written to them. */
static void checking_free_blocks(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    char *first = site_one(pool, 1000), *second = site_two(pool, 1000);
    site_free(pool, first);
    site_free(pool, second);
    CHECK_OK(shmem_pool_check(pool));
    first[17] ^= 1;
    second[999] ^= 1;
    for (int i = 0; i < 2; i++) { /* counted once */
        CHECK_STATUS(shmem_pool_check(pool), SHMEM_ERR_CORRUPT);
        detail_has("written after free", "(site_free)");
        CHECK_EQ(info_of(pool).uses_after_free, 2);
    }
    CHECK_STATUS(shmem_pool_free(pool, first), SHMEM_ERR_DOUBLE_FREE);
    void *block[2] = {site_one(pool, 1000), site_one(pool, 1000)};
    CHECK(block[0] == first || block[1] == first);
    line_with("byte 17 of the block", "(site_one)");
    line_with("byte 999 of the block", "(site_two)");
    CHECK_OK(shmem_pool_check(pool));
    for (int i = 0; i < 2; i++)
        site_free(pool, block[i]);
    CHECK_EQ(info_of(pool).uses_after_free, 2);
    CHECK_EQ(info_of(pool).overruns, 0);
    CHECK_EQ(used(pool), 0);
    done(pool);
}

/* Memory goes through all kinds of hands: nothing is taken for a mistake. */
static void no_false_alarms(void)
{
    enum { BLOCKS = 200 };
    struct {
        unsigned char *at;
        size_t bytes;
    } block[BLOCKS] = {0};
    shmem_pool_t pool = pool_of(16 << 20);
    uint64_t r = 4711;
    for (int i = 0; i < 6000; i++) {
        r = r * 6364136223846793005ull + 1442695040888963407ull;
        unsigned k = (r >> 33) % BLOCKS;
        if (block[k].at) {
            for (size_t j = 0; j < block[k].bytes; j += 97)
                CHECK_EQ(block[k].at[j], k);
            CHECK_OK(shmem_pool_free(pool, block[k].at));
            block[k].at = NULL;
            continue;
        }
        block[k].bytes = 1 + (r >> 40) % (1u << (4 + (r >> 20) % 12));
        CHECK_OK(shmem_pool_alloc(pool, block[k].bytes, (void **)&block[k].at));
        memset(block[k].at, (int)k, block[k].bytes);
        if (r >> 60 == 3)
            CHECK_OK(shmem_pool_give(pool, block[k].at));
        if (r >> 60 == 5)
            CHECK_OK(shmem_pool_trim(pool));
        if (i % 50 == 0)
            CHECK_OK(shmem_pool_check(pool));
    }
    CHECK_OK(shmem_pool_check(pool));
    for (int k = 0; k < BLOCKS; k++)
        CHECK_OK(shmem_pool_free(pool, block[k].at));
    CHECK_EQ(info_of(pool).uses_after_free + info_of(pool).overruns, 0);
    CHECK_EQ(used(pool), 0);
    done(pool);
}

/* ---- at the end ---- */

/* What is never freed is looked at when the pool is closed. */
static void overruns_until_close(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    char *given = site_one(pool, 100);
    given[100] = 1; /* the pool's, soon */
    CHECK_OK(shmem_pool_give(pool, given));
    ((char *)site_one(pool, 300))[300] = 7;
    ((char *)site_two(pool, 100000))[-3] = 7;
    memset((char *)site_two(pool, 1000) + 1000, 7, 400);
    site_two(pool, 4000);
    logged.count = 0;
    shmem_pool_close(pool);
    CHECK(strstr(line_with("byte 300 is the first", name), "(site_one)"));
    CHECK(strstr(line_with("byte -3 is the nearest", name), "(site_two)"));
    line_with("who allocated it is not known", name);
    line_with("closed with 3 blocks, 104300 bytes", name);
    line_with("1 blocks, 300 bytes, allocated at ", "(site_one)");
    CHECK_EQ(logged.count, 6);
    CHECK_OK(shmem_context_finalize(context));
}

static void many_overruns_until_close(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    for (int i = 0; i < 20; i++)
        ((char *)site_one(pool, 100))[100] = 1;
    logged.count = 0;
    shmem_pool_close(pool);
    line_with("and 4 other blocks", name);
    CHECK_EQ(logged.count, 17 + 2);
    CHECK_OK(shmem_context_finalize(context));
}

/* ---- leaks ---- */

static void leaks(void)
{
    shmem_pool_t pool = pool_of(16 << 20);
    for (int i = 0; i < 3; i++)
        site_one(pool, 1000);
    site_two(pool, 70000);
    site_free(pool, site_two(pool, 10));
    CHECK_OK(shmem_pool_give(pool, site_two(pool, 500)));
    CHECK_EQ(info_of(pool).blocks, 5);
    CHECK_EQ(info_of(pool).bytes, 73500);
    logged.count = 0;
    shmem_pool_close(pool);
    line_with("closed with 4 blocks, 73000 bytes", name);
    line_with("3 blocks, 3000 bytes", "(site_one)");
    line_with("1 blocks, 70000 bytes", "(site_two)");
    CHECK_EQ(logged.count, 3);
    CHECK_OK(shmem_context_finalize(context));
}

static void leaks_of_plain_pools(void)
{
    shmem_pool_t pool;
    void *block;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_debug_info_t info = {.size = sizeof info};
    params.bytes = 8 << 20;
    context = job_init(NULL, 0, 1);
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    CHECK_STATUS(shmem_pool_debug_info(pool, &info), SHMEM_ERR_STATE);
    logged.count = 0;
    CHECK_OK(shmem_pool_alloc(pool, 1000, &block));
    CHECK_OK(shmem_pool_alloc(pool, 100000, &block));
    CHECK_OK(shmem_pool_free(pool, block));
    CHECK_OK(shmem_pool_alloc(pool, 50000, &block));
    CHECK_OK(shmem_context_finalize(context));
    line_with("closed with 2 blocks, 54272 bytes", "neither freed");
    CHECK_EQ(logged.count, 1);
}

static void leaks_of_symmetric_memory(void)
{
    shmem_memory_t first, second;
    context = job_init(NULL, 0, 1);
    CHECK_OK(shmem_memory_create(context, &first, 1000));
    CHECK_OK(shmem_memory_create(context, &second, 2000));
    CHECK_OK(shmem_memory_destroy(first));
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    logged.count = 0;
    CHECK_OK(shmem_context_finalize(context));
    line_with("ends with 1 symmetric objects, 2000 bytes", "not destroyed");
    CHECK_EQ(logged.count, 1);
}

static void cases(void)
{
    RUN(sizes_and_alignments);
    RUN(resizing);
    RUN(resizing_what_was_overrun);
    RUN(overruns);
    RUN(underruns);
    RUN(far_overruns);
    RUN(double_frees);
    RUN(wrong_pointers);
    RUN(writes_after_free);
    RUN(checking_free_blocks);
    RUN(no_false_alarms);
    RUN(overruns_until_close);
    RUN(many_overruns_until_close);
    RUN(leaks);
    RUN(leaks_of_plain_pools);
    RUN(leaks_of_symmetric_memory);
}

JOB_MAIN(cases())
