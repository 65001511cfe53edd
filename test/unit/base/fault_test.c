/* SPDX-License-Identifier: Apache-2.0 */
/* Fault points act at the n-th passage of the named point, and statistics describe themselves. */
#include <signal.h>
#include <string.h>

#include "base/fault.h"
#include "base/stats.h"
#include "base/util.h"
#include "harness.h"

static void nothing_armed_nothing_happens(void)
{
    shmemi_fault_disarm();
    CHECK(!SHMEMI_FAULT("a"));
    SHMEMI_KILL_POINT("a");
}

static void fails_at_the_nth_passage_only(void)
{
    shmemi_fault_arm("a.b", SHMEMI_FAULT_FAIL, 3);
    CHECK(!SHMEMI_FAULT("a.b"));
    CHECK(!SHMEMI_FAULT("a.c"));
    CHECK(!SHMEMI_FAULT("a.b"));
    CHECK(SHMEMI_FAULT("a.b"));
    CHECK(!SHMEMI_FAULT("a.b"));
    CHECK_EQ(shmemi_fault_passages(), 4);
    shmemi_fault_disarm();
}

static void prefixes_match(void)
{
    shmemi_fault_arm("a.*", SHMEMI_FAULT_FAIL, 2);
    CHECK(!SHMEMI_FAULT("b.x"));
    CHECK(!SHMEMI_FAULT("a.x"));
    CHECK(SHMEMI_FAULT("a.y"));
    shmemi_fault_arm("a.*", SHMEMI_FAULT_FAIL, 1);
    SHMEMI_KILL_POINT("a.x"); /* a kill point cannot fail */
    shmemi_fault_disarm();
}

static void pass_kill_point(void *arg)
{
    (void)arg;
    SHMEMI_KILL_POINT("k");
    SHMEMI_KILL_POINT("k");
}

static void kills(void)
{
    shmemi_fault_arm("k", SHMEMI_FAULT_KILL, 2);
    CHECK_EQ(harness_wait(harness_fork(pass_kill_point, NULL), 5), -SIGKILL);
    shmemi_fault_arm("k", SHMEMI_FAULT_KILL, 3);
    CHECK_EQ(harness_wait(harness_fork(pass_kill_point, NULL), 5), 0);
    shmemi_fault_disarm();
}

static int called;

static void call(void)
{
    called++;
}

static void calls(void)
{
    shmemi_fault_arm_call("c", call, 2);
    for (int i = 0; i < 4; i++)
        CHECK(!SHMEMI_FAULT("c"));
    CHECK_EQ(called, 1);
    shmemi_fault_disarm();
}

static void statistics_describe_themselves(void)
{
    for (unsigned i = 0; i < SHMEMI_STAT_COUNT; i++) {
        const shmemi_stat_info_t *info = shmemi_stats_describe(i);
        CHECK(info && *info->name && *info->unit && *info->meaning);
    }
    CHECK(shmemi_stats_describe(SHMEMI_STAT_COUNT) == NULL);
    shmemi_stats_t stats;
    memset(&stats, 0, sizeof stats);
    shmemi_stats_add(&stats, SHMEMI_STAT_puts, 2);
    shmemi_stats_add(&stats, SHMEMI_STAT_puts, 3);
    CHECK_EQ(stats.value[SHMEMI_STAT_puts], 5);
    CHECK_EQ(stats.value[SHMEMI_STAT_gets], 0);
}

static void arithmetic_reports_overflow(void)
{
    uint64_t out = 7;
    CHECK(shmemi_round_up(4097, 4096, &out) && out == 8192);
    CHECK(shmemi_round_up(0, 4096, &out) && out == 0);
    out = 7;
    CHECK(!shmemi_round_up(UINT64_MAX - 100, 4096, &out) && out == 7);
    CHECK(shmemi_range_inside(0, 0, 0));
    CHECK(shmemi_range_inside(10, 5, 15));
    CHECK(!shmemi_range_inside(10, 6, 15));
    CHECK(!shmemi_range_inside(UINT64_MAX, 2, 15));
    CHECK(!shmemi_range_inside(10, UINT64_MAX, 15));
    CHECK(!shmemi_is_power_of_two(0) && shmemi_is_power_of_two(1) && !shmemi_is_power_of_two(6));
    CHECK_EQ(shmemi_log2_floor(1), 0);
    CHECK_EQ(shmemi_log2_floor(UINT64_MAX), 63);
    CHECK_EQ(shmemi_log2_ceil(0), 0);
    CHECK_EQ(shmemi_log2_ceil(4), 2);
    CHECK_EQ(shmemi_log2_ceil(5), 3);
}

int main(void)
{
    RUN(nothing_armed_nothing_happens);
    RUN(fails_at_the_nth_passage_only);
    RUN(prefixes_match);
    RUN(kills);
    RUN(calls);
    RUN(statistics_describe_themselves);
    RUN(arithmetic_reports_overflow);
    return harness_end();
}
