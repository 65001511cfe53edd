/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real processes with a pool of a node server, killed at every fault point of pools and at random
 * instants: everything that the dead held comes back, nothing else does, and nobody waits for it.
 */
#include "pool_recover.h"

enum { SURVIVORS = 2, VICTIM = 7, KILLS = 100, AT_ONCE = 4, PASSES = 3, MOST_POINTS = 200 };

/* Points that no worker passes, and which test kills there. */
static const char *const elsewhere[] = {
    "memory.journal.undone", /* pool_kill_test: who repairs is killed as well */
    "memory.pool.header",    /* pool_kill_test: creators */
    "memory.pool.formatted", /* the same */
};

static char points[MOST_POINTS][64];
static int n_points;

static bool is_elsewhere(const char *name)
{
    for (size_t i = 0; i < SHMEMI_COUNT(elsewhere); i++)
        if (strcmp(elsewhere[i], name) == 0)
            return true;
    return false;
}

/* All points that the sources have: none can be forgotten. */
static void points_find(void)
{
    n_points = 0;
    const char *source = getenv("SOURCE_DIR");
    char command[512];
    if (!source)
        SKIP("SOURCE_DIR is not set: which fault points there are is in the sources");
    snprintf(command, sizeof command,
             "cat '%s'/src/memory/*.[ch] | grep -o 'SHMEMI_KILL_POINT(\"[a-z._]*\"' | "
             "cut -d'\"' -f2 | sort -u",
             source);
    FILE *list = popen(command, "r");
    CHECK(list);
    while (n_points < MOST_POINTS && fscanf(list, "%63s", points[n_points]) == 1)
        n_points += !is_elsewhere(points[n_points]);
    pclose(list);
    CHECK(n_points > 50 && n_points < MOST_POINTS);
}

/* The victim dies at the n-th passage of a point; false: it lives, and is killed by hand. */
static bool dies_at(const char *point, unsigned n)
{
    worker_start(VICTIM, point, n);
    pid_t pid = stage->worker[VICTIM].pid;
    siginfo_t info = {0};
    for (double end = harness_now() + 10; harness_now() < end && !info.si_pid;) {
        CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0);
        harness_sleep(0.0002);
    }
    worker_kill(VICTIM);
    return info.si_pid;
}

/* Which pool a point belongs to; some are first passages of a worker's life. */
static bool is_of_debug(const char *point)
{
    return strncmp(point, "memory.debug.", 13) == 0;
}

static void kill_everywhere(bool debug)
{
    points_find();
    stage_begin(debug);
    for (int i = 0; i < SURVIVORS; i++)
        worker_start(i, "", 0);
    for (int i = 0; i < n_points; i++) {
        if (is_of_debug(points[i]) != debug)
            continue;
        unsigned n = strcmp(points[i], "memory.task.named") ? 1 + (unsigned)i % PASSES : 1;
        if (!dies_at(points[i], n))
            harness_fail(__FILE__, __LINE__, "nobody passed %s", points[i]);
        stage_audit();
    }
    stage_end();
}

static void every_point(void)
{
    kill_everywhere(false);
}

static void every_point_of_debug_pools(void)
{
    kill_everywhere(true);
}

/* Kills at any instant, several at once. */
static void any_instant(void)
{
    uint64_t seed = (uint64_t)getpid() | 1;
    unsigned kills = 0;
    stage_begin(false);
    for (int i = 0; i < WORKERS; i++)
        worker_start(i, "", 0);
    while (kills < KILLS) {
        harness_sleep(0.0002 * (double)(seed >> 7 & 63));
        for (unsigned i = 0; i < AT_ONCE; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            if (stage->worker[seed >> 40 & 7].pid) {
                worker_kill(seed >> 40 & 7);
                kills++;
            }
        }
        stage_audit();
        for (int i = 0; i < WORKERS; i++)
            if (!stage->worker[i].pid)
                worker_start(i, "", 0);
    }
    stage_end();
}

JOB_MAIN({
    RUN(every_point);
    RUN(every_point_of_debug_pools);
    RUN(any_instant);
})
