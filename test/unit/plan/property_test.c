/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random instances: the exact search against an optimum found by trying all orders, plans of larger
 * instances against the checker, repeatability, time limits.
 *
 * In an optimal plan with the least sum of offsets every buffer lies at the lowest place that those
 * below it leave: so one of the orders in which each buffer takes the lowest free place is optimal.
 */
#include <stdlib.h>

#include "harness.h"
#include "shmem/plan.h"

enum { SMALL = 6, LARGE = 400 };

static uint64_t seed = 12345;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* ---- the optimum by trying all orders ---- */

static int meet(const shmem_plan_buffer_t *a, const shmem_plan_buffer_t *b)
{
    return a->first < b->last && b->first < a->last && a->bytes && b->bytes;
}

static uint64_t lowest_place(const shmem_plan_buffer_t *b, const uint64_t *offsets, unsigned done,
                             int number)
{
    uint64_t alignment = b[number].alignment ? b[number].alignment : 1, offset = 0;
    for (int i = 0; i < SMALL; i++) {
        if (!(done >> i & 1) || !meet(&b[i], &b[number]))
            continue;
        if (offset < offsets[i] + b[i].bytes && offsets[i] < offset + b[number].bytes) {
            offset = (offsets[i] + b[i].bytes + alignment - 1) / alignment * alignment;
            i = -1;
        }
    }
    return offset;
}

static void try_orders(const shmem_plan_buffer_t *b, uint64_t *offsets, unsigned done,
                       uint64_t peak, uint64_t *best)
{
    if (peak >= *best)
        return;
    if (done == (1u << SMALL) - 1)
        *best = peak;
    for (int i = 0; i < SMALL; i++) {
        if (done >> i & 1)
            continue;
        offsets[i] = lowest_place(b, offsets, done, i);
        uint64_t end = offsets[i] + b[i].bytes;
        try_orders(b, offsets, done | 1u << i, end > peak ? end : peak, best);
    }
}

static uint64_t optimum(const shmem_plan_buffer_t *b)
{
    uint64_t offsets[SMALL], best = UINT64_MAX, peak = 0;
    unsigned done = 0;
    for (int i = 0; i < SMALL; i++)
        if (b[i].is_fixed) {
            offsets[i] = b[i].offset;
            done |= 1u << i;
            peak = offsets[i] + b[i].bytes > peak ? offsets[i] + b[i].bytes : peak;
        }
    try_orders(b, offsets, done, peak, &best);
    return best;
}

/* kind: 0 plain, 1 with alignments, 2 with a fixed buffer, 3 with both and large units */
static void draw_small(shmem_plan_buffer_t *b, int kind)
{
    for (int i = 0; i < SMALL; i++) {
        int64_t first = (int64_t)draw(6);
        b[i] = (shmem_plan_buffer_t){
            .bytes = 1 + draw(12), .first = first, .last = first + 1 + (int64_t)draw(4)};
        if (kind & 1)
            b[i].alignment = (uint64_t)1 << draw(4);
        if (kind == 3 && seed >> 60 & 1)
            b[i].bytes *= 8;
    }
    if (kind & 2) {
        b[0].is_fixed = 1;
        b[0].offset = draw(4) * 8;
    }
}

static void against_all_orders(void)
{
    int better = 0, rounds = harness_has_tsan() || harness_has_asan() ? 300 : 1500;
    for (int round = 0; round < rounds; round++) {
        shmem_plan_buffer_t b[SMALL];
        uint64_t offsets[SMALL], peak;
        shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
        shmem_plan_result_t exact = {.size = sizeof exact}, greedy = exact;
        draw_small(b, round % 4);
        params.time_limit = -1;
        CHECK_OK(shmem_plan_solve(b, SMALL, &params, offsets, &exact));
        CHECK_OK(shmem_plan_check(b, SMALL, offsets, &peak));
        CHECK_OK(shmem_plan_solve(b, SMALL, NULL, offsets, &greedy));
        CHECK_EQ(exact.peak, peak);
        CHECK(exact.is_optimal && exact.peak <= greedy.peak);
        CHECK(greedy.lower_bound <= exact.peak);
        CHECK_EQ(exact.peak, optimum(b));
        better += exact.peak < greedy.peak;

        /* one byte less: proved that it does not fit; exactly that: it does */
        params.capacity = exact.peak;
        CHECK_OK(shmem_plan_solve(b, SMALL, &params, offsets, &greedy));
        CHECK(greedy.fits);
        params.capacity = exact.peak - 1;
        if (params.capacity) {
            CHECK_OK(shmem_plan_solve(b, SMALL, &params, offsets, &greedy));
            CHECK(!greedy.fits && greedy.lower_bound >= exact.peak);
        }
    }
    CHECK(better > rounds / 100); /* the search had something to do */
}

/* ---- larger ones ---- */

static void draw_large(shmem_plan_buffer_t *b, size_t count, int kind)
{
    for (size_t i = 0; i < count; i++) {
        int64_t first = (int64_t)draw(count) - 50;
        b[i] = (shmem_plan_buffer_t){
            .bytes = 1 + draw(1000000), .first = first, .last = first + (int64_t)draw(count / 8)};
        if (kind & 1)
            b[i].alignment = (uint64_t)1 << draw(13);
        if ((kind & 2) && i % 50 == 0) { /* far apart: these never overlap */
            b[i].is_fixed = 1;
            b[i].offset = i * (1 << 20);
        }
    }
}

static void valid_repeatable_in_time(void)
{
    static shmem_plan_buffer_t b[LARGE];
    static uint64_t offsets[LARGE], again[LARGE];
    for (int kind = 0; kind < 4; kind++) {
        shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
        shmem_plan_result_t greedy = {.size = sizeof greedy}, cut = greedy;
        uint64_t peak;
        draw_large(b, LARGE, kind);
        CHECK_OK(shmem_plan_solve(b, LARGE, &params, offsets, &greedy));
        CHECK_OK(shmem_plan_check(b, LARGE, offsets, NULL));
        CHECK_OK(shmem_plan_solve(b, LARGE, &params, again, &cut));
        CHECK(memcmp(offsets, again, sizeof offsets) == 0);

        params.time_limit = 200000000;
        double begin = harness_now();
        CHECK_OK(shmem_plan_solve(b, LARGE, &params, offsets, &cut));
        CHECK(harness_now() - begin < 0.2 + 5); /* for a machine that is busy otherwise */
        CHECK_OK(shmem_plan_check(b, LARGE, offsets, &peak));
        CHECK(peak == cut.peak && cut.peak <= greedy.peak && cut.lower_bound >= greedy.lower_bound);
    }
}

/* Twins: many equal buffers, as the blocks of a cache. */
static void equal_buffers(void)
{
    static shmem_plan_buffer_t b[LARGE];
    static uint64_t offsets[LARGE];
    for (size_t i = 0; i < LARGE; i++) {
        int64_t first = (int64_t)draw(20) * 5;
        b[i] = (shmem_plan_buffer_t){.bytes = 4096, .first = first, .last = first + 10};
    }
    shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
    shmem_plan_result_t result = {.size = sizeof result};
    params.time_limit = 2000000000;
    CHECK_OK(shmem_plan_solve(b, LARGE, &params, offsets, &result));
    CHECK_OK(shmem_plan_check(b, LARGE, offsets, NULL));
    CHECK(result.is_optimal);
}

/* Whatever the bytes mean, it is an error or a valid plan. */
static void garbage(void)
{
    for (int round = 0; round < 3000; round++) {
        shmem_plan_buffer_t b[8];
        uint64_t offsets[8];
        for (size_t i = 0; i < sizeof b; i++)
            ((unsigned char *)b)[i] = (unsigned char)(draw(4) ? 0 : draw(256));
        for (int i = 0; i < 8; i++)
            b[i].alignment = draw(8) ? (uint64_t)1 << draw(64) : b[i].alignment;
        shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
        params.time_limit = 1000000;
        params.capacity = draw(2) ? seed : 0;
        if (shmem_plan_solve(b, 1 + draw(8), &params, offsets, NULL))
            continue;
        size_t n = 0;
        while (n < 8 && shmem_plan_solve(b, n + 1, &params, offsets, NULL) == SHMEM_OK)
            n++;
        CHECK_OK(shmem_plan_solve(b, n, &params, offsets, NULL));
        CHECK_OK(shmem_plan_check(b, n, offsets, NULL));
    }
}

int main(void)
{
    RUN(against_all_orders);
    RUN(valid_repeatable_in_time);
    RUN(equal_buffers);
    RUN(garbage);
    return harness_end();
}
