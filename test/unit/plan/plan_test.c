/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's contract: what is refused, extremes, fixed buffers, limits of time and capacity. */
#include <stdlib.h>

#include "harness.h"
#include "shmem/plan.h"

#define FOREVER ((int64_t)-1)

static shmem_plan_result_t solve(const shmem_plan_buffer_t *buffers, size_t count, int64_t limit,
                                 uint64_t capacity, uint64_t *offsets)
{
    shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
    shmem_plan_result_t result = {.size = sizeof result};
    uint64_t peak = 0;
    params.time_limit = limit;
    params.capacity = capacity;
    CHECK_OK(shmem_plan_solve(buffers, count, &params, offsets, &result));
    CHECK_OK(shmem_plan_check(buffers, count, offsets, &peak));
    CHECK_EQ(peak, result.peak);
    CHECK(result.lower_bound <= result.peak);
    CHECK_EQ(result.is_optimal, result.lower_bound == result.peak);
    CHECK_EQ(result.fits, !capacity || peak <= capacity);
    return result;
}

/* Refused with this code, a text that has all of `words`, and outputs untouched. */
static void refuse(const shmem_plan_buffer_t *buffers, size_t count, shmem_status_t code,
                   const char *words)
{
    uint64_t offsets[8];
    memset(offsets, 0x5a, sizeof offsets);
    shmem_plan_result_t result = {.size = sizeof result, .peak = 77};
    CHECK_STATUS(shmem_plan_solve(buffers, count, NULL, offsets, &result), code);
    CHECK_EQ(result.peak, 77);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(offsets[i], 0x5a5a5a5a5a5a5a5a);
    if (!strstr(shmem_error_detail()->text, words))
        harness_fail(__FILE__, __LINE__, "no '%s' in '%s'", words, shmem_error_detail()->text);
}

static void lifetimes_are_half_open(void)
{
    shmem_plan_buffer_t b[] = {{.bytes = 100, .first = 0, .last = 5},
                               {.bytes = 100, .first = 5, .last = 9},
                               {.bytes = 50, .first = 4, .last = 5}};
    uint64_t offsets[3];
    shmem_plan_result_t r = solve(b, 2, 0, 0, offsets);
    CHECK_EQ(r.peak, 100);
    CHECK(r.is_optimal && r.fits);
    r = solve(b, 3, 0, 0, offsets);
    CHECK_EQ(r.peak, 150);
    b[0].last = 6; /* now all of them meet the first */
    r = solve(b, 3, 0, 0, offsets);
    CHECK_EQ(r.peak, 200);
    b[0].first = INT64_MIN;
    b[1].last = INT64_MAX;
    CHECK_EQ(solve(b, 3, FOREVER, 0, offsets).peak, 200);
}

static void nothing_to_place(void)
{
    shmem_plan_buffer_t b[] = {{.bytes = 100, .first = 3, .last = 3},
                               {.bytes = 0, .first = 0, .last = 9},
                               {.bytes = 9, .first = 1, .last = 1, .is_fixed = 1, .offset = 512}};
    uint64_t offsets[3] = {7, 7, 7};
    shmem_plan_result_t r = solve(b, 3, FOREVER, 0, offsets);
    CHECK(r.peak == 0 && r.is_optimal);
    CHECK(offsets[0] == 0 && offsets[1] == 0 && offsets[2] == 512);
    CHECK_EQ(solve(NULL, 0, FOREVER, 1, NULL).peak, 0);
    CHECK_OK(shmem_plan_solve(b, 3, NULL, offsets, NULL));
}

static void refused(void)
{
    uint64_t offsets[2] = {0};
    shmem_plan_buffer_t good[2] = {{.bytes = 8, .last = 1}, {.bytes = 8, .last = 1}}, b[2];
    shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
    shmem_plan_result_t result = {0};
    refuse(NULL, 1, SHMEM_ERR_INVALID, "no buffers");
    CHECK_STATUS(shmem_plan_solve(good, 2, NULL, NULL, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_plan_solve(good, 2, NULL, offsets, &result), SHMEM_ERR_INVALID);
    params.size = 3;
    CHECK_STATUS(shmem_plan_solve(good, 2, &params, offsets, NULL), SHMEM_ERR_INVALID);

    memcpy(b, good, sizeof b);
    b[1].first = 2;
    refuse(b, 2, SHMEM_ERR_INVALID, "buffer 1 ends at 1, before it begins at 2");
    memcpy(b, good, sizeof b);
    b[1].alignment = 48;
    refuse(b, 2, SHMEM_ERR_INVALID, "buffer 1 wants an alignment of 48");
    b[1] =
        (shmem_plan_buffer_t){.bytes = 8, .last = 1, .alignment = 64, .is_fixed = 1, .offset = 32};
    refuse(b, 2, SHMEM_ERR_INVALID, "buffer 1 is fixed at 32");
    b[0] = (shmem_plan_buffer_t){.bytes = 65, .last = 1, .is_fixed = 1};
    b[1].offset = 64;
    refuse(b, 2, SHMEM_ERR_INVALID, "buffers 0 [0, 65) and 1 [64, 72) overlap");
    b[1].first = b[1].last = 1; /* not at the same time: no matter */
    b[1].last = 2;
    CHECK_EQ(solve(b, 2, 0, 0, offsets).peak, 72);
}

static void extremes(void)
{
    uint64_t offsets[4];
    shmem_plan_buffer_t b[4] = {{.bytes = INT64_MAX, .last = 1},
                                {.bytes = INT64_MAX, .first = 1, .last = 2}};
    CHECK_EQ(solve(b, 2, FOREVER, UINT64_MAX, offsets).peak, INT64_MAX);
    b[1].first = 0;
    refuse(b, 2, SHMEM_ERR_OVERFLOW, "exceeds 2^63");
    b[0].bytes = (uint64_t)1 << 63;
    refuse(b, 1, SHMEM_ERR_OVERFLOW, "buffer 0");
    b[0].bytes = UINT64_MAX;
    refuse(b, 1, SHMEM_ERR_OVERFLOW, "buffer 0");
    b[0] = (shmem_plan_buffer_t){.bytes = 2, .last = 1, .is_fixed = 1, .offset = INT64_MAX - 1};
    refuse(b, 1, SHMEM_ERR_OVERFLOW, "buffer 0");
    b[0].offset = UINT64_MAX;
    refuse(b, 1, SHMEM_ERR_OVERFLOW, "buffer 0");
    b[0].offset = INT64_MAX - 2;
    CHECK_EQ(solve(b, 1, 0, 0, offsets).peak, INT64_MAX);

    /* alignments that the peak cannot afford, and one that it can */
    for (int i = 0; i < 3; i++)
        b[i] = (shmem_plan_buffer_t){.bytes = 1, .last = 1, .alignment = (uint64_t)1 << 61};
    CHECK_EQ(solve(b, 2, FOREVER, 0, offsets).peak, ((uint64_t)1 << 61) + 1);
    b[0].bytes = b[1].bytes = ((uint64_t)1 << 61) + 1;
    refuse(b, 3, SHMEM_ERR_OVERFLOW, "2^63");
    b[0] = (shmem_plan_buffer_t){.bytes = 1, .last = 1, .alignment = (uint64_t)1 << 63};
    refuse(b, 1, SHMEM_ERR_OVERFLOW, "2^63");
}

/* A trap for greedy plans around a fixed buffer in the air. */
static void fixed_buffers(void)
{
    shmem_plan_buffer_t b[] = {{.bytes = 30, .first = 0, .last = 10, .is_fixed = 1, .offset = 40},
                               {.bytes = 40, .first = 0, .last = 4},
                               {.bytes = 25, .first = 2, .last = 6},
                               {.bytes = 40, .first = 4, .last = 10},
                               {.bytes = 5, .first = 0, .last = 10},
                               {.bytes = 10, .first = 6, .last = 8, .alignment = 16}};
    uint64_t offsets[6];
    shmem_plan_result_t r = solve(b, 6, FOREVER, 0, offsets);
    CHECK(r.is_optimal);
    CHECK_EQ(offsets[0], 40);
    CHECK_EQ(r.peak, 100);
}

static void capacity_and_time(void)
{
    /* two of size 3 beside one of size 4 twice: the bound is 10, greedy by size takes more */
    shmem_plan_buffer_t b[] = {{.bytes = 4, .first = 0, .last = 2},
                               {.bytes = 3, .first = 0, .last = 1},
                               {.bytes = 3, .first = 1, .last = 4},
                               {.bytes = 4, .first = 3, .last = 5},
                               {.bytes = 3, .first = 2, .last = 5}};
    const int64_t limits[] = {0, 1, 1000, FOREVER, INT64_MIN, INT64_MAX};
    uint64_t offsets[5];
    for (int i = 0; i < 6; i++) {
        shmem_plan_result_t r = solve(b, 5, limits[i], 0, offsets);
        CHECK(r.peak >= 10 && (r.is_optimal || i < 3));
        CHECK_EQ(solve(b, 5, limits[i], 1000, offsets).fits, 1);
        r = solve(b, 5, limits[i], 3, offsets); /* proved at once, whatever the limit */
        CHECK(!r.fits && r.lower_bound > 3);
    }
}

static void two_threads(int rank, int n, void *arg)
{
    shmem_plan_buffer_t b[60];
    uint64_t offsets[60];
    (void)n;
    for (int i = 0; i < 60; i++)
        b[i] = (shmem_plan_buffer_t){
            .bytes = 1 + (uint64_t)i * 37 % 19, .first = i % 13, .last = i % 13 + 1 + i % 7};
    for (int i = 0; i < 5; i++)
        solve(b, 60, 20000000, 0, offsets);
    ((uint64_t *)arg)[rank] = solve(b, 60, 0, 0, offsets).peak;
}

static void threads(void)
{
    uint64_t peaks[4];
    harness_pes(4, HARNESS_THREAD, 60, two_threads, peaks);
    for (int i = 1; i < 4; i++)
        CHECK_EQ(peaks[i], peaks[0]);
}

static void checker_finds_faults(void)
{
    shmem_plan_buffer_t b[] = {{.bytes = 10, .first = 0, .last = 5},
                               {.bytes = 10, .first = 4, .last = 9, .alignment = 8},
                               {.bytes = 10, .first = 5, .last = 9, .is_fixed = 1, .offset = 26}};
    uint64_t peak = 5, good[] = {0, 16, 26}, bad[3];
    CHECK_OK(shmem_plan_check(b, 3, good, &peak));
    CHECK_EQ(peak, 36);
    const struct {
        int which;
        uint64_t offset;
        const char *words;
    } faults[] = {{0, 7, "overlap"},   {0, 25, "overlap"},        {1, 8, "overlap"},
                  {1, 12, "multiple"}, {1, 24, "buffers"},        {2, 40, "fixed at 26"},
                  {0, 16, "overlap"},  {0, UINT64_MAX, "beyond"}, {0, INT64_MAX - 3, "beyond"}};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        memcpy(bad, good, sizeof bad);
        bad[faults[i].which] = faults[i].offset;
        peak = 5;
        CHECK_STATUS(shmem_plan_check(b, 3, bad, &peak), SHMEM_ERR_MISMATCH);
        CHECK(strstr(shmem_error_detail()->text, faults[i].words) != NULL);
        CHECK_EQ(peak, 5);
    }
    CHECK_STATUS(shmem_plan_check(b, 3, NULL, &peak), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_plan_check(NULL, 0, NULL, NULL));
}

int main(void)
{
    RUN(lifetimes_are_half_open);
    RUN(nothing_to_place);
    RUN(refused);
    RUN(extremes);
    RUN(fixed_buffers);
    RUN(capacity_and_time);
    RUN(threads);
    RUN(checker_finds_faults);
    return harness_end();
}
