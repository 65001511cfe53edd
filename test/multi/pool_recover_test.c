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

/* The names that a command of the shell finds, into names[MOST_POINTS]; returns their number. */
static int names_find(const char *command, char (*names)[64])
{
    int n = 0;
    FILE *list = popen(command, "r");
    CHECK(list);
    while (n < MOST_POINTS && fscanf(list, "%63s", names[n]) == 1)
        n++;
    pclose(list);
    CHECK(n < MOST_POINTS);
    return n;
}

static const char *source_dir(void)
{
    const char *source = getenv("SOURCE_DIR");
    if (!source)
        SKIP("SOURCE_DIR is not set: which fault points there are is in the sources");
    return source;
}

#define POINTS_IN "grep -oh 'SHMEMI_KILL_POINT(\"[a-z._]*\"' %s/%s | cut -d'\"' -f2 | sort -u"

/* All points that the layer has: none can be forgotten. */
static void points_find(void)
{
    char command[512];
    snprintf(command, sizeof command, POINTS_IN, source_dir(), "src/memory/*.[ch]");
    int n = names_find(command, points);
    n_points = 0;
    for (int i = 0; i < n; i++)
        if (!is_elsewhere(points[i]))
            memmove(points[n_points++], points[i], sizeof points[i]);
    CHECK(n_points > 50);
}

/* Those of creating and destroying pools are in other tests of this folder. */
static void points_of_the_job_layer(void)
{
    char command[512];
    snprintf(command, sizeof command, POINTS_IN, source_dir(), "src/job/pool*.c");
    int n = names_find(command, points);
    CHECK(n > 3);
    for (int i = 0; i < n; i++) {
        snprintf(command, sizeof command, "grep -qF '\"%.63s\"' %.300s/test/multi/pool_*_test.c",
                 points[i], source_dir());
        if (system(command) != 0)
            harness_fail(__FILE__, __LINE__, "no test kills at %s", points[i]);
    }
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
    RUN(points_of_the_job_layer);
    RUN(every_point);
    RUN(every_point_of_debug_pools);
    RUN(any_instant);
})
