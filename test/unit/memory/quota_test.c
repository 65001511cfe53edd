/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotas of tasks: limits, buckets, waiting, refunds, names. Held bytes are compared exactly; the
 * walker compares them with the blocks.
 */
#include "quota_world.h"

/* ---- the limit ---- */

static void a_limit(void)
{
    begin(64 * MIB);
    shmemi_pool_t *p = world_attach_as(&actor, NULL, "train/a");
    void *blocks[10], *block = &actor;
    set("train/a", 8 * MIB, UINT64_MAX, 0, 0);
    for (int i = 0; i < 8; i++)
        blocks[i] = world_alloc(p, MIB);
    CHECK_EQ(held("train/a"), 8 * MIB);
    CHECK_STATUS(shmemi_pool_alloc_default(p, MIB, &block), SHMEM_ERR_QUOTA);
    CHECK(block == &actor && text_has("train/a") && text_has("8388608"));
    CHECK_STATUS(shmemi_pool_alloc_default(p, 1, &block), SHMEM_ERR_QUOTA);
    CHECK_STATUS(shmemi_pool_alloc_default(p, 9 * MIB, &block), SHMEM_ERR_QUOTA);
    CHECK(text_has("never"));
    CHECK_EQ(state("train/a").refused, 3);
    CHECK_EQ(state("train/a").held_high, 8 * MIB);
    CHECK_OK(shmemi_pool_free(pool, world_alloc(pool, 20 * MIB))); /* others don't feel it */
    CHECK_OK(shmemi_pool_free(p, blocks[7]));
    blocks[7] = world_alloc(p, MIB);
    /* a lower limit takes nothing away; a higher one counts at once */
    set("train/a", 4 * MIB, UINT64_MAX, 0, 0);
    CHECK_EQ(held("train/a"), 8 * MIB);
    CHECK_OK(shmemi_pool_free(p, blocks[7]));
    CHECK_OK(shmemi_pool_trim(p));
    CHECK_STATUS(shmemi_pool_alloc_default(p, 1, &block), SHMEM_ERR_QUOTA);
    set("train/a", 9 * MIB, UINT64_MAX, 0, 0);
    blocks[7] = world_alloc(p, MIB);
    set("train/a", UINT64_MAX, UINT64_MAX, 0, 0);
    blocks[8] = world_alloc(p, 30 * MIB);
    CHECK_EQ(held("train/a"), 38 * MIB);
    for (int i = 0; i < 9; i++)
        CHECK_OK(shmemi_pool_free(p, blocks[i]));
    shmemi_pool_detach(p);
    end();
}

/* Small blocks use the quota to the last page, and all of it comes back. */
static void small_blocks_to_the_last_page(void)
{
    static const size_t sizes[] = {100, 700, 3000, 4096, 10000, 16000};
    enum { MOST = 20000 };
    static void *blocks[MOST];
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++) {
        begin(256 * MIB);
        shmemi_pool_t *p = world_attach_as(&actor, NULL, "small");
        set("small", MIB, UINT64_MAX, 0, 0);
        for (int round = 0; round < 3; round++) {
            int n = 0;
            shmem_status_t status;
            while (!(status = shmemi_pool_alloc_default(p, sizes[i], &blocks[n])) && ++n < MOST)
                ;
            CHECK_EQ(status, SHMEM_ERR_QUOTA);
            CHECK(held("small") <= MIB && held("small") + sizes[i] + PAGE > MIB);
            CHECK_OK(shmemi_pool_check(pool));
            while (n)
                CHECK_OK(shmemi_pool_free(p, blocks[--n]));
            CHECK_OK(shmemi_pool_trim(p));
            CHECK_EQ(held("small"), 0);
        }
        shmemi_pool_detach(p);
        end();
    }
}

/* What caches keep does not stand in the way. */
static void caches_give_way(void)
{
    begin(256 * MIB);
    shmemi_pool_t *p = world_attach_as(&actor, NULL, "t");
    set("t", 4 * MIB, UINT64_MAX, 0, 0);
    for (int round = 0; round < 5; round++) {
        void *blocks[60];
        for (int i = 0; i < 60; i++)
            blocks[i] = world_alloc(p, i % 2 ? 40000 : 500 * (size_t)i + 1);
        for (int i = 0; i < 60; i++)
            CHECK_OK(shmemi_pool_free(p, blocks[i]));
        CHECK_OK(shmemi_pool_free(p, world_alloc(p, 4 * MIB)));
    }
    shmemi_pool_detach(p);
    end();
}

static void resizing(void)
{
    begin(64 * MIB);
    shmemi_pool_t *p = world_attach_as(&actor, NULL, "a"), *q = world_attach_as(&actor, NULL, "b");
    set("a", MIB, UINT64_MAX, 0, 0);
    void *block = world_alloc(p, 40000), *before;
    CHECK_OK(shmemi_pool_resize(p, &block, 600000));
    CHECK_EQ(held("a"), 147 * PAGE); /* in place, or moved and the old one given back */
    CHECK_STATUS(shmemi_pool_resize(p, &block, 3 * MIB), SHMEM_ERR_QUOTA);
    CHECK_EQ(held("a"), 147 * PAGE);
    CHECK_OK(shmemi_pool_resize(p, &block, 50000));
    CHECK_EQ(held("a"), 13 * PAGE);
    before = block;
    CHECK_OK(shmemi_pool_resize(q, &block, 30 * PAGE)); /* another task pays for the new block */
    CHECK(before != block);
    CHECK_EQ(held("a"), 0);
    CHECK_EQ(held("b"), 30 * PAGE);
    set("b", 0, UINT64_MAX, 0, 0);
    CHECK_OK(shmemi_pool_resize(q, &block, 10 * PAGE));
    CHECK_EQ(held("b"), 10 * PAGE);
    CHECK_OK(shmemi_pool_free(p, block));
    shmemi_pool_detach(p);
    shmemi_pool_detach(q);
    end();
}

/* ---- the bucket ---- */

static void a_bucket_that_does_not_refill(void)
{
    for (int keep = 0; keep < 2; keep++) {
        begin(64 * MIB);
        shmemi_pool_t *p = world_attach_as(&actor, NULL, "t");
        void *block, *more;
        set("t", UINT64_MAX, 4 * MIB, 0, keep);
        CHECK_EQ(state("t").tokens, 4 * MIB);
        block = world_alloc(p, 3 * MIB);
        CHECK_EQ(state("t").tokens, MIB);
        CHECK_STATUS(shmemi_pool_alloc_default(p, 2 * MIB, &more), SHMEM_ERR_QUOTA);
        CHECK(text_has(keep ? "it does not refill" : "only when some is given back"));
        CHECK_STATUS(shmemi_pool_alloc_default(p, 5 * MIB, &more), SHMEM_ERR_QUOTA);
        CHECK(text_has("never"));
        CHECK_OK(shmemi_pool_free(p, block));
        CHECK_EQ(state("t").tokens, keep ? MIB : 4 * MIB);
        CHECK_EQ(shmemi_pool_alloc_default(p, 2 * MIB, &more), keep ? SHMEM_ERR_QUOTA : SHMEM_OK);
        if (!keep)
            CHECK_OK(shmemi_pool_free(p, more));
        set("t", UINT64_MAX, 8 * MIB, 0, keep); /* starts full */
        CHECK_EQ(state("t").tokens, 8 * MIB);
        shmemi_pool_detach(p);
        end();
    }
}

static void a_bucket_that_refills(void)
{
    begin(64 * MIB);
    shmemi_pool_t *p = world_attach_as(&actor, NULL, "t");
    void *block;
    set("t", UINT64_MAX, 4 * MIB, 40 * MIB, 1);
    for (int i = 0; i < 4; i++) {
        double start = harness_now();
        CHECK_OK(shmemi_pool_alloc_timed(p, 4 * MIB, 0, SHMEM_FOREVER, &block));
        CHECK_OK(shmemi_pool_free(p, block));
        CHECK(!i || harness_now() - start > 0.08); /* 4 MiB take 0.1 s */
        CHECK(harness_now() - start < 10);
    }
    /* rates of any size */
    set("t", UINT64_MAX, UINT64_MAX - 1, UINT64_MAX, 1);
    CHECK(state("t").tokens == UINT64_MAX - 1);
    CHECK_OK(shmemi_pool_free(p, world_alloc(p, 60 * MIB)));
    shmemi_pool_detach(p);
    end();
}

/* ---- waiting ---- */

static void timeouts(void)
{
    begin(16 * MIB);
    shmemi_pool_t *p = world_attach_as(&actor, NULL, "t");
    void *block = world_alloc(p, MIB), *more = &actor;
    set("t", 2 * MIB, UINT64_MAX, 0, 0);
    CHECK_STATUS(shmemi_pool_alloc_timed(p, 2 * MIB, 0, 0, &more), SHMEM_ERR_TIMEOUT);
    CHECK(text_has("holds 1048576 bytes of its limit"));
    double start = harness_now();
    CHECK_STATUS(shmemi_pool_alloc_timed(p, 2 * MIB, 0, 120000000, &more), SHMEM_ERR_TIMEOUT);
    CHECK(harness_now() - start >= 0.12 && harness_now() - start < 20);
    CHECK_STATUS(shmemi_pool_alloc_timed(p, 3 * MIB, 0, SHMEM_FOREVER, &more), SHMEM_ERR_QUOTA);
    set("t", UINT64_MAX, MIB, 1, 0);
    CHECK_STATUS(shmemi_pool_alloc_timed(p, 2 * MIB, 0, SHMEM_FOREVER, &more), SHMEM_ERR_QUOTA);
    set("t", UINT64_MAX, UINT64_MAX, 0, 0);
    CHECK_STATUS(shmemi_pool_alloc_timed(p, 16 * MIB, 0, 60000000, &more), SHMEM_ERR_TIMEOUT);
    CHECK(text_has("largest free block"));
    CHECK_STATUS(shmemi_pool_alloc_timed(p, 17 * MIB, 0, SHMEM_FOREVER, &more), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmemi_pool_alloc_timed(p, 0, 0, SHMEM_FOREVER, &more), SHMEM_ERR_INVALID);
    CHECK(more == &actor);
    CHECK_OK(shmemi_pool_free(p, block));
    CHECK_OK(shmemi_pool_alloc_timed(p, 100, 64, 0, &more));
    CHECK_OK(shmemi_pool_free(p, more));
    shmemi_pool_detach(p);
    end();
}

typedef struct waiter {
    int client;
    size_t bytes;
    void *block; /* that somebody else frees */
} waiter_t;

static void wait_for_room(void *arg)
{
    const waiter_t *w = arg;
    shmemi_actor_t self;
    void *block;
    world_actor(&self, w->client);
    shmemi_pool_t *p = world_attach_as(&self, NULL, "t");
    CHECK_OK(shmemi_pool_alloc_timed(p, w->bytes, 0, 30000000000, &block));
    CHECK_OK(shmemi_pool_free(p, block));
    shmemi_pool_detach(p);
    shmemi_actor_fini(&self);
}

/* Who waits at the limit sleeps: it does not try again and again. */
static void waiters_sleep(void)
{
    begin(16 * MIB);
    shmemi_pool_t *p = world_attach_as(&actor, NULL, "t");
    shmem_quota_t q = SHMEM_QUOTA_INIT;
    set("t", 4 * MIB, UINT64_MAX, 0, 0);
    void *block = world_alloc(p, 3 * MIB), *more;
    CHECK_STATUS(shmemi_pool_alloc_timed(p, 2 * MIB, 0, 300000000, &more), SHMEM_ERR_TIMEOUT);
    CHECK_OK(shmemi_pool_quota_get(p, "t", &q));
    CHECK(q.refused >= 1 && q.refused < 50);
    CHECK_OK(shmemi_pool_free(p, block));
    shmemi_pool_detach(p);
    end();
}

/* Somebody gives back, or the quota is raised, or others' room comes: the waiter goes on. */
static void waiters_go_on(void)
{
    world_needs_kills();
    begin(16 * MIB);
    for (int how = 0; how < 3; how++) {
        shmemi_pool_t *p = world_attach_as(&actor, NULL, "t");
        set("t", how == 2 ? UINT64_MAX : 4 * MIB, UINT64_MAX, 0, 0);
        void *block = world_alloc(p, how == 2 ? 12 * MIB : 3 * MIB);
        waiter_t w = {1, how == 2 ? 14 * MIB : 2 * MIB, NULL};
        pid_t killed = harness_fork(wait_for_room, &(waiter_t){2, w.bytes, NULL});
        pid_t child = harness_fork(wait_for_room, &w);
        harness_sleep(0.1);
        kill(killed, SIGKILL); /* a killed waiter harms nobody */
        CHECK_EQ(harness_wait(killed, 10), -SIGKILL);
        world_bury(2); /* it may have been killed with a lock in its hands */
        double start = harness_now();
        if (how == 1)
            set("t", 8 * MIB, UINT64_MAX, 0, 0);
        else
            CHECK_OK(shmemi_pool_free(p, block));
        CHECK_EQ(harness_wait(child, 30), 0);
        CHECK(harness_now() - start < 15);
        if (how == 1)
            CHECK_OK(shmemi_pool_free(p, block));
        world_client_add(2);
        shmemi_pool_detach(p);
        CHECK_OK(shmemi_pool_check(pool));
    }
    end();
}

/* ---- refunds ---- */

/* Whoever frees, whoever owns: the task that paid gets it back, once. */
static void whoever_frees(void)
{
    begin(64 * MIB);
    shmemi_pool_t *a = world_attach_as(&actor, NULL, "a"), *b = world_attach_as(&actor, NULL, "b");
    static const size_t sizes[] = {200, 5000, 40000, 300000, 5000000};
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++) {
        void *block = world_alloc(a, sizes[i]);
        CHECK(held("a") >= sizes[i]);
        CHECK_EQ(held("b"), 0);
        CHECK_OK(shmemi_pool_free(b, block));
        CHECK_STATUS(shmemi_pool_free(b, block), SHMEM_ERR_DOUBLE_FREE);
        CHECK_STATUS(shmemi_pool_free(a, block), SHMEM_ERR_DOUBLE_FREE);
        CHECK_OK(shmemi_pool_trim(a));
        CHECK_OK(shmemi_pool_trim(b));
        CHECK_EQ(held("a"), 0);
        CHECK_EQ(held("b"), 0);
    }
    /* what b frees is not b's to keep */
    void *block = world_alloc(a, 40000);
    CHECK_OK(shmemi_pool_free(b, block));
    CHECK_EQ(held("a"), 0);
    void *other = world_alloc(b, 40000);
    CHECK_EQ(held("b"), 10 * PAGE);
    CHECK_OK(shmemi_pool_free(b, other));
    shmemi_pool_detach(a);
    shmemi_pool_detach(b);
    end();
}

/* A client with several views: closing one gives back what its task holds, no more. */
static void views_of_one_client(void)
{
    begin(64 * MIB);
    shmemi_pool_t *a = world_attach_as(&actor, NULL, "a"), *b = world_attach_as(&actor, NULL, "b");
    unsigned char *of_b[3];
    for (int i = 0; i < 3; i++) {
        world_alloc(a, (size_t)1 << (8 + 6 * i));
        of_b[i] = world_alloc(b, (size_t)1 << (8 + 6 * i));
        memset(of_b[i], i + 1, (size_t)1 << (8 + 6 * i));
    }
    uint64_t before = held("b");
    CHECK(held("a") > MIB && before > MIB);
    shmemi_pool_detach(a);
    CHECK_EQ(held("a"), 0);
    CHECK_EQ(held("b"), before);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(of_b[i][0], i + 1);
        CHECK_OK(shmemi_pool_free(b, of_b[i]));
    }
    shmemi_pool_detach(b);
    end();
}

/* Holding moves the charge of whole pages; the page of words that a span needs for owners is
 * charged to the span's task. Neither passes a limit. */
static void giving_and_holding(void)
{
    begin(64 * MIB);
    shmemi_pool_t *a = world_attach_as(&actor, NULL, "a"), *b = world_attach_as(&actor, NULL, "b");
    void *block = world_alloc(a, MIB), *small = world_alloc(a, 100);
    uint64_t before = held("a");
    set("b", MIB - PAGE, UINT64_MAX, 0, 0);
    CHECK_OK(shmemi_pool_give(a, block));
    CHECK_STATUS(shmemi_pool_hold(b, block), SHMEM_ERR_QUOTA);
    CHECK(text_has("never"));
    CHECK_EQ(held("a"), before);
    CHECK_EQ(held("b"), 0);
    set("b", MIB, UINT64_MAX, 0, 0);
    CHECK_OK(shmemi_pool_hold(b, block));
    CHECK_EQ(held("a"), before - MIB);
    CHECK_EQ(held("b"), MIB);
    set("a", before - MIB, UINT64_MAX, 0, 0);
    CHECK_STATUS(shmemi_pool_give(a, small), SHMEM_ERR_QUOTA);
    CHECK_STATUS(shmemi_pool_hold(b, small), SHMEM_ERR_QUOTA);
    CHECK_EQ(held("a"), before - MIB);
    set("a", before - MIB + PAGE, UINT64_MAX, 0, 0);
    CHECK_OK(shmemi_pool_give(a, small));
    CHECK_EQ(held("a"), before - MIB + PAGE);
    CHECK_OK(shmemi_pool_free(b, small));
    CHECK_OK(shmemi_pool_free(a, block));
    CHECK_EQ(held("b"), 0);
    shmemi_pool_detach(a);
    shmemi_pool_detach(b);
    end();
}

/* ---- names ---- */

static void names(void)
{
    static const char *const bad[] = {"a b", "..", "x/../y", "\x80",
                                      "0123456789012345678901234567890123456789012345678"};
    begin(MIB);
    char name[SHMEM_TASK_NAME], long_name[] = "01234567890123456789012345678901234567890123456";
    shmem_quota_t q = SHMEM_QUOTA_INIT;
    for (size_t i = 0; i < SHMEMI_COUNT(bad); i++)
        CHECK_STATUS(shmemi_pool_quota_set(pool, bad[i], &q), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_quota_get(pool, "none", &q), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmemi_pool_quota_set(pool, "t", NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_pool_task(pool, 0, name), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmemi_pool_quota_set(pool, long_name, &q));
    CHECK_OK(shmemi_pool_task(pool, 0, name));
    CHECK_STR(name, long_name);
    for (int i = 1; i < SHMEMI_TASKS - 1; i++) {
        snprintf(name, sizeof name, "task-%d", i);
        CHECK_OK(shmemi_pool_quota_set(pool, name, &q));
        CHECK_OK(shmemi_pool_quota_set(pool, name, &q));
    }
    CHECK_STATUS(shmemi_pool_quota_set(pool, "one.more", &q), SHMEM_ERR_LIMIT);
    shmemi_pool_source_t source = {.memory = world.memory,
                                   .segment_bytes = world.segment_bytes,
                                   .actor = &actor,
                                   .task = "one.more",
                                   .fd = -1};
    shmemi_pool_t *none;
    CHECK_STATUS(shmemi_pool_attach(&source, &none), SHMEM_ERR_LIMIT);
    CHECK_OK(shmemi_pool_task(pool, SHMEMI_TASKS - 2, name));
    CHECK_STR(name, "task-126");
    CHECK_STATUS(shmemi_pool_task(pool, SHMEMI_TASKS - 1, name), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmemi_pool_task(pool, SIZE_MAX, name), SHMEM_ERR_NOT_FOUND);
    end();
}

int main(void)
{
    RUN(a_limit);
    RUN(small_blocks_to_the_last_page);
    RUN(caches_give_way);
    RUN(resizing);
    RUN(a_bucket_that_does_not_refill);
    RUN(a_bucket_that_refills);
    RUN(timeouts);
    RUN(waiters_sleep);
    RUN(waiters_go_on);
    RUN(whoever_frees);
    RUN(views_of_one_client);
    RUN(giving_and_holding);
    RUN(names);
    return harness_end();
}
