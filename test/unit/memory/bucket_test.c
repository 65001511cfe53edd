/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of quotas against a model that counts in billionths of a byte, with a clock of the
 * test's own: it stands still, crawls, jumps, goes backwards.
 */
#include "memory/quota.h"
#include "pool_world.h"

typedef unsigned __int128 wide_t;

#define NANO 1000000000ull

/* ---- the model ---- */

typedef struct model {
    wide_t tokens; /* billionths of bytes */
    uint64_t burst, rate, now, pages;
} model_t;

static void model_take(model_t *m, uint64_t pages)
{
    wide_t cost = (wide_t)pages * 4096 * NANO;
    m->tokens = cost <= m->tokens ? m->tokens - cost : m->tokens % NANO;
}

static void model_put(model_t *m, wide_t nano)
{
    wide_t most = (wide_t)m->burst * NANO, room = most > m->tokens ? most - m->tokens : 0;
    m->tokens = nano < room ? m->tokens + nano : most;
}

static void model_step(model_t *m, uint64_t pages, uint64_t now)
{
    int64_t change = (int64_t)(pages - m->pages);
    if (change > 0)
        model_take(m, (uint64_t)change);
    else
        model_put(m, (wide_t)(uint64_t)-change * 4096 * NANO);
    m->pages = pages;
    if (now > m->now) {
        model_put(m, (wide_t)m->rate * (now - m->now));
        m->now = now;
    }
}

/* ---- */

static uint64_t one_of(uint64_t *seed, const uint64_t *values, size_t n)
{
    return values[world_random(seed) % n];
}

static const uint64_t sizes[] = {0,          1,          4095,
                                 4096,       4097,       1u << 20,
                                 1u << 30,   NANO,       (1ull << 32) + 1,
                                 1ull << 62, 1ull << 63, UINT64_MAX - 1,
                                 UINT64_MAX};
static const uint64_t jumps[] = {0,        0,    1,        2,          1000,
                                 NANO - 1, NANO, 7 * NANO, 1ull << 50, 1ull << 62};

/* The bytes agree exactly, whatever the numbers. */
static void like_the_model(void)
{
    uint64_t seed = 4711;
    for (int round = 0; round < 3000; round++) {
        shmemi_bucket_t b = {.limit = UINT64_MAX,
                             .burst = one_of(&seed, sizes, SHMEMI_COUNT(sizes)),
                             .rate = one_of(&seed, sizes, SHMEMI_COUNT(sizes)),
                             .stamp = world_random(&seed) >> 20};
        b.tokens = b.burst;
        b.seen = round % 3 ? 1000 : UINT64_MAX - 5; /* wraps */
        model_t m = {(wide_t)b.burst * NANO, b.burst, b.rate, b.stamp, b.seen};
        uint64_t pages = b.seen, now = b.stamp;
        for (int i = 0; i < 60; i++) {
            uint64_t r = world_random(&seed), size = one_of(&seed, sizes, SHMEMI_COUNT(sizes));
            uint64_t jump = one_of(&seed, jumps, SHMEMI_COUNT(jumps));
            pages += r & 1 ? size >> 13 : -(size >> 13);
            if (r % 11 == 0)
                now = now > jump ? now - jump : 0;
            else if (!__builtin_add_overflow(now, jump, &now))
                ;
            else
                now = UINT64_MAX;
            shmemi_bucket_settle(&b, pages, now);
            model_step(&m, pages, now);
            CHECK(b.tokens == (uint64_t)(m.tokens / NANO));
            CHECK(b.tokens <= b.burst && b.stamp == m.now && b.seen == pages);
        }
    }
}

/* A refill in many small steps is the refill in one step. */
static void nothing_is_lost(void)
{
    static const uint64_t rates[] = {1, 3, 999, 1000000007, 123456789012345};
    for (size_t i = 0; i < SHMEMI_COUNT(rates); i++) {
        shmemi_bucket_t a = {.limit = UINT64_MAX, .burst = UINT64_MAX - 1, .rate = rates[i]}, b = a;
        uint64_t seed = i + 1, now = 0;
        for (int k = 0; k < 100000; k++) {
            now += world_random(&seed) % 3000;
            shmemi_bucket_settle(&a, 0, now);
        }
        shmemi_bucket_settle(&b, 0, now);
        CHECK(a.tokens == b.tokens && a.rest == b.rest);
    }
}

static void limits(void)
{
    const uint64_t page = 4096, most = UINT64_MAX;
    shmemi_bucket_t b = {.limit = 10 * page, .burst = most};
    CHECK(shmemi_bucket_allows(&b, 0, 10) && !shmemi_bucket_allows(&b, 0, 11));
    CHECK(shmemi_bucket_allows(&b, 9, 1) && !shmemi_bucket_allows(&b, 10, 1));
    CHECK(shmemi_bucket_allows(&b, 10, 0) && !shmemi_bucket_allows(&b, 1ull << 52, 1ull << 52));
    CHECK(shmemi_bucket_ever_allows(&b, 10) && !shmemi_bucket_ever_allows(&b, 11));
    b.limit--;
    CHECK(shmemi_bucket_allows(&b, 0, 9) && !shmemi_bucket_allows(&b, 0, 10));
    b.limit = 0;
    CHECK(!shmemi_bucket_allows(&b, 0, 1) && !shmemi_bucket_ever_allows(&b, 1));
    b.limit = most;
    CHECK(shmemi_bucket_allows(&b, most, most) && shmemi_bucket_ever_allows(&b, most));
    b.limit = most - 1;
    CHECK(!shmemi_bucket_allows(&b, 1ull << 51, 1ull << 51));
    CHECK(shmemi_bucket_allows(&b, 1ull << 51, (1ull << 51) - 1));
}

static void delays(void)
{
    const uint64_t page = 4096, never = UINT64_MAX;
    shmemi_bucket_t b = {.limit = never, .burst = 100 * page, .rate = page, .tokens = 3 * page};
    CHECK_EQ(shmemi_bucket_delay(&b, 3), 0);
    CHECK_EQ(shmemi_bucket_delay(&b, 4), NANO);
    CHECK_EQ(shmemi_bucket_delay(&b, 100), 97 * NANO);
    CHECK(shmemi_bucket_delay(&b, 101) == never);
    for (uint64_t pages = 4; pages <= 100; pages++)
        for (uint64_t rate = 1; rate < 1ull << 63; rate = rate * 7 + 1) {
            shmemi_bucket_t before = b, after;
            before.rate = rate;
            before.rest = rate % NANO;
            after = before;
            uint64_t delay = shmemi_bucket_delay(&before, pages);
            shmemi_bucket_settle(&after, 0, delay);
            CHECK(shmemi_bucket_allows(&after, 0, pages));
            shmemi_bucket_settle(&before, 0, delay - 1);
            CHECK(!shmemi_bucket_allows(&before, 0, pages));
        }
    b.rate = 0;
    CHECK(shmemi_bucket_delay(&b, 4) == never);
    b.rate = 1;
    b.burst = never - 1;
    b.tokens = 0;
    CHECK(shmemi_bucket_delay(&b, (1ull << 52) - 1) == never); /* more than 2^64 ns */
}

int main(void)
{
    RUN(like_the_model);
    RUN(nothing_is_lost);
    RUN(limits);
    RUN(delays);
    return harness_end();
}
