/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long does a plan take? The hard instances of test/fixtures until they fit into their
 * capacity, beside MiniMalloc, all on one processor; a greedy plan of 10,000 buffers.
 *
 * MiniMalloc (github google/minimalloc, built with cmake -DCMAKE_BUILD_TYPE=Release) is run as the
 * program named by MINIMALLOC in the environment, else as "minimalloc". Its time includes its start
 * and the reading of the table, some milliseconds. The folder of the tables is that of the
 * repository in which the benchmark is started.
 */
#include <inttypes.h>
#include <shmem/plan.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define FIXTURES "test/fixtures/minimalloc/"
enum { MOST = 10000, CAPACITY = 1048576, REPEATS = 5, PEER_REPEATS = 2, MAXIMUM_S = 60 };

typedef struct instance {
    char path[128];
    shmem_plan_buffer_t buffers[MOST];
    size_t count;
    shmem_plan_params_t params;
} instance_t;

static instance_t instance;

static int load(const char *name)
{
    char line[256];
    snprintf(instance.path, sizeof instance.path, FIXTURES "%s.1048576.csv", name);
    FILE *file = fopen(instance.path, "r");
    if (!file)
        return -1;
    instance.count = 0;
    while (fgets(line, sizeof line, file) && instance.count < MOST) {
        shmem_plan_buffer_t b = {0};
        if (sscanf(line, "%*u,%" SCNd64 ",%" SCNd64 ",%" SCNu64, &b.first, &b.last, &b.bytes) == 3)
            instance.buffers[instance.count++] = b;
    }
    fclose(file);
    return instance.count > 0 ? 0 : -1;
}

/* Seconds; ends the program where the plan is not what it should be. */
static double plan(void *unused)
{
    static uint64_t offsets[MOST];
    shmem_plan_result_t result = {.size = sizeof result};
    (void)unused;
    double begin = bench_now_ns();
    shmem_status_t status =
        shmem_plan_solve(instance.buffers, instance.count, &instance.params, offsets, &result);
    double seconds = (bench_now_ns() - begin) / 1e9;
    if (status || !result.fits ||
        shmem_plan_check(instance.buffers, instance.count, offsets, NULL)) {
        fprintf(stderr, "plan_bench: no plan that fits: %s\n", shmem_error_detail()->text);
        exit(1);
    }
    return seconds;
}

/* Seconds of a run of MiniMalloc; *ok: it could be started and found a plan. */
static double peer(void *ok)
{
    const char *program = getenv("MINIMALLOC");
    char input[160], capacity[64], limit[64];
    snprintf(input, sizeof input, "--input=%s", instance.path);
    snprintf(capacity, sizeof capacity, "--capacity=%d", CAPACITY);
    snprintf(limit, sizeof limit, "--timeout=%ds", MAXIMUM_S);
    int status = 0;
    double begin = bench_now_ns();
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(126);
        program = program ? program : "minimalloc";
        execlp(program, program, input, capacity, limit, "--output=/dev/null", (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        *(int *)ok = 0;
    return (bench_now_ns() - begin) / 1e9;
}

static void compare(const char *name)
{
    char what[64];
    int ok = 1;
    snprintf(what, sizeof what, "instance %s until it fits", name);
    if (load(name)) {
        bench_missing("plan", what, "shmem", "no " FIXTURES " here");
        return;
    }
    instance.params = (shmem_plan_params_t)SHMEM_PLAN_PARAMS_INIT;
    instance.params.capacity = CAPACITY;
    instance.params.time_limit = MAXIMUM_S * INT64_C(1000000000);
    bench_report("plan", what, "shmem", "s", bench_repeat(REPEATS, plan, NULL));
    bench_result_t theirs = bench_repeat(PEER_REPEATS, peer, &ok);
    if (ok)
        bench_report("plan", what, "minimalloc", "s", theirs);
    else
        bench_missing("plan", what, "minimalloc", "it does not run; set MINIMALLOC");
}

static void ten_thousand(void)
{
    uint64_t seed = 1;
    instance.params = (shmem_plan_params_t)SHMEM_PLAN_PARAMS_INIT;
    for (instance.count = 0; instance.count < MOST; instance.count++) {
        uint64_t draw[3];
        for (int i = 0; i < 3; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            draw[i] = seed >> 33;
        }
        int64_t first = (int64_t)(draw[0] % 20000), life = 1 + (int64_t)(draw[1] % 200);
        life = draw[1] % 50 == 0 ? 50 * life : life;
        instance.buffers[instance.count] = (shmem_plan_buffer_t){
            .bytes = 256 * (1 + draw[2] % 4096), .first = first, .last = first + life};
    }
    bench_report("plan", "10,000 buffers, greedy", "shmem", "s", bench_repeat(REPEATS, plan, NULL));
}

int main(void)
{
    const char *const names[] = {"A", "C", "E", "G", "I"};
    bench_pin(0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        compare(names[i]);
    ten_thousand();
    return 0;
}
