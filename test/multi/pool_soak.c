/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool in the hands of eight processes that are killed at random, over and over: two minutes, or
 * SHMEM_TEST_SECONDS (3600: an hour), and a thousand kills at least. The accounts are checked after
 * every few kills; now and then a pool is left to itself for some time first.
 */
#include "pool_recover.h"

enum { KILLS = 1000, DEFAULT_SECONDS = 120, AT_ONCE = 6, CALM = 40 };

static uint64_t seed;

static unsigned random_below(unsigned n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(seed >> 40) % n;
}

static unsigned kill_some(void)
{
    unsigned kills = 0;
    for (unsigned i = 1 + random_below(AT_ONCE); i; i--) {
        int victim = (int)random_below(WORKERS);
        if (!stage->worker[victim].pid)
            continue;
        worker_kill(victim);
        kills++;
        harness_sleep(1e-6 * random_below(300));
    }
    return kills;
}

static void start_all(void)
{
    for (int i = 0; i < WORKERS; i++)
        if (!stage->worker[i].pid)
            worker_start(i, "", 0);
}

static void random_kills(void)
{
    const char *text = getenv("SHMEM_TEST_SECONDS");
    double begin = harness_now(), end = begin + (text ? atof(text) : DEFAULT_SECONDS);
    unsigned kills = 0, audits = 0;
    seed = (uint64_t)getpid();
    stage_begin(false);
    start_all();
    while (harness_now() < end || kills < KILLS) {
        harness_sleep(1e-6 * random_below(audits % CALM ? 12000 : 500000));
        kills += kill_some();
        stage_audit();
        start_all();
        audits++;
    }
    printf("   %u kills, %u audits in %.0f s\n", kills, audits, harness_now() - begin);
    stage_end();
}

JOB_MAIN({ RUN(random_kills); })
