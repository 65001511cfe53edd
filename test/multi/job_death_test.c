/* SPDX-License-Identifier: Apache-2.0 */
/* A PE is killed: every survivor's blocking call ends within a second and names it; and at every
 * fault point, after which everything is gone and a new job works. */
#include "job.h"

#include <fcntl.h>

#include "base/fault.h"
#include "node/client.h"

#define WITHIN 1.0 /* seconds after the death */

typedef enum blocking {
    BARRIER,
    TIMED_BARRIER,
    CREATE,
    DESTROY,
    SMALL_SUM,
    LARGE_SUM,
    LARGE_PRIVATE_SUM,
    BROADCAST,
    LARGE_BROADCAST,
    ALLGATHER,
    WAIT,
    FINALIZE,
    KINDS
} blocking_t;

static float private_data[300000];

static shmem_status_t block(blocking_t kind, shmem_context_t c, shmem_memory_t m)
{
    shmem_memory_t made;
    char byte = 0, many[64];
    float *data = shmem_memory_address(m, shmem_context_rank(c));
    switch (kind) {
    case BARRIER:
        return shmem_context_barrier(c);
    case TIMED_BARRIER:
        return shmem_context_barrier_timed(c, 20000000000);
    case CREATE:
        return shmem_memory_create(c, &made, 4096);
    case DESTROY:
        return shmem_memory_destroy(m);
    case SMALL_SUM:
        return shmem_coll_allreduce(c, data, data, 4, SHMEM_TYPE_FLOAT, SHMEM_SUM);
    case LARGE_SUM:
        return shmem_coll_allreduce(c, data, data, 300000, SHMEM_TYPE_FLOAT, SHMEM_SUM);
    case LARGE_PRIVATE_SUM:
        return shmem_coll_allreduce(c, private_data, private_data, 300000, SHMEM_TYPE_FLOAT,
                                    SHMEM_SUM);
    case BROADCAST:
        return shmem_coll_broadcast(c, &byte, 1, 1);
    case LARGE_BROADCAST:
        return shmem_coll_broadcast(c, data, 1000000, 1);
    case ALLGATHER:
        return shmem_coll_allgather(c, many, &byte, 1);
    case WAIT:
        return shmem_memory_wait(m, 1200000, SHMEM_COMPARE_NE, 0, SHMEM_FOREVER, NULL);
    default:
        return shmem_context_finalize(c);
    }
}

static double *died_at;

static void named(const char *text, int victim)
{
    char name[16];
    snprintf(name, sizeof name, "PE %d", victim);
    if (!strstr(text, name) || !strstr(text, "died"))
        harness_fail(__FILE__, __LINE__, "PE %d died, the text says: %s", victim, text);
}

/* The last PE dies while the others wait for it; PE 0 is already waiting, others come later. */
static void blocked(int rank, int n, void *arg)
{
    blocking_t kind = *(blocking_t *)arg;
    int victim = n - 1;
    shmem_context_t c = job_init("deaths", rank, n);
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, 1500000));
    CHECK(shmem_memory_map(m));
    CHECK_OK(shmem_context_barrier(c));
    if (rank == victim) {
        harness_sleep(0.02);
        *died_at = harness_now();
        raise(SIGKILL);
    }
    if (rank == 1)
        harness_sleep(0.1);
    CHECK_STATUS(block(kind, c, m), SHMEM_ERR_PEER_DEAD);
    CHECK(harness_now() - *died_at < WITHIN);
    named(shmem_error_detail()->text, victim);
    if (kind == FINALIZE)
        return;
    double begin = harness_now();
    CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_PEER_DEAD); /* and every later one */
    CHECK_STATUS(block(SMALL_SUM, c, m), SHMEM_ERR_PEER_DEAD);
    if (kind != DESTROY)
        CHECK_STATUS(shmem_memory_destroy(m), SHMEM_ERR_PEER_DEAD);
    CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_PEER_DEAD);
    CHECK(harness_now() - begin < WITHIN);
    named(shmem_error_detail()->text, victim);
    CHECK(!strstr(shmem_error_detail()->text, "finalize")); /* that is done */
}

static void every_blocking_call_ends(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = 2; n <= 4; n += 2) {
            blocking_t k = (blocking_t)kind;
            job_with_death(n, n - 1, 10, blocked, &k);
        }
    blocking_t k = BARRIER;
    job_with_death(12, 11, 10, blocked, &k);
}

/* ---- at every fault point ---- */

/* One job from end to end; the first failure decides what the rest may say. */
static shmem_status_t whole_job(int rank, int n)
{
    shmem_context_t c;
    shmem_memory_t m = NULL;
    shmem_status_t status = job_try_init(&c, "points", rank, n, 1.0);
    if (status)
        return status;
    status = shmem_memory_create(c, &m, 1500000);
    char *mine = status ? NULL : shmem_memory_map(m);
    float *data = (float *)(void *)mine;
    uint64_t value = 7;
    if (mine) {
        status = shmem_memory_put(m, (rank + 1) % n, 1400000, &value, sizeof value);
        if (!status)
            status = shmem_memory_put_signal(m, (rank + 1) % n, 1400008, &value, 8, 1400016, 1,
                                             SHMEM_SIGNAL_OP_SET);
        if (!status)
            status = shmem_memory_wait(m, 1400016, SHMEM_COMPARE_EQ, 1, SHMEM_FOREVER, NULL);
    }
    for (int kind = BARRIER; kind <= ALLGATHER && !status; kind++)
        if (kind != CREATE && kind != DESTROY)
            status = block((blocking_t)kind, c, m);
    if (!status)
        status = shmem_coll_allreduce(c, private_data, data, 300000, SHMEM_TYPE_FLOAT, SHMEM_SUM);
    if (m && !status)
        status = shmem_memory_destroy(m);
    shmem_status_t last = shmem_context_finalize(c);
    return status ? status : last;
}

typedef struct point {
    const char *name;
    unsigned passage;
    int victim;
} point_t;

/* Then a PE that comes later may find that the others gave up, and wait for them in vain. */
static bool dies_while_joining(const point_t *point)
{
    return strstr(point->name, "control") || strstr(point->name, "init") ||
           (strstr(point->name, "counted") && point->passage == 1);
}

static void killed_at(int rank, int n, void *arg)
{
    const point_t *point = arg;
    if (rank == point->victim)
        shmemi_fault_arm(point->name, SHMEMI_FAULT_KILL, point->passage);
    double begin = harness_now();
    shmem_status_t status = whole_job(rank, n);
    if (rank == point->victim)
        harness_fail(__FILE__, __LINE__, "point %s, passage %u, was not reached (%u passages)",
                     point->name, point->passage, shmemi_fault_passages());
    CHECK(harness_now() - begin < 4);
    if (status != SHMEM_OK && status != SHMEM_ERR_PEER_DEAD && status != SHMEM_ERR_TIMEOUT &&
        status != SHMEM_ERR_STATE)
        harness_fail(__FILE__, __LINE__, "killed at %s: PE %d got %s: %s", point->name, rank,
                     shmem_status_name(status), shmem_error_detail()->text);
    if ((status == SHMEM_ERR_TIMEOUT || status == SHMEM_ERR_STATE) && !dies_while_joining(point))
        harness_fail(__FILE__, __LINE__, "killed at %s: PE %d got %s: %s", point->name, rank,
                     shmem_status_name(status), shmem_error_detail()->text);
}

static shmemi_server_counts_t counts(void)
{
    shmemi_settings_t settings;
    shmemi_client_t *client;
    shmemi_server_counts_t now;
    CHECK_OK(shmemi_settings_load(&settings));
    snprintf(settings.server, sizeof settings.server, "%s", job_server.address);
    CHECK_OK(shmemi_client_attach(&settings, "counter", &client));
    CHECK_OK(shmemi_client_counts(client, &now));
    shmemi_client_detach(client);
    return now;
}

static void nothing_is_left(void)
{
    double end = harness_now() + 2;
    shmemi_server_counts_t now;
    while ((now = counts()).segments > 1 || now.clients > 1) {
        if (harness_now() > end)
            harness_fail(__FILE__, __LINE__, "%llu clients, %llu segments are left",
                         (unsigned long long)now.clients, (unsigned long long)now.segments);
        harness_sleep(0.002);
    }
}

static void fine_job(int rank, int n, void *arg)
{
    (void)arg;
    CHECK_OK(whole_job(rank, n));
}

static void every_point(void)
{
    static const point_t points[] = {
        {"job.control.opened", 1, 0},    {"job.control.identified", 1, 1},
        {"job.control.claimed", 1, 1},   {"job.init.claimed", 1, 0},
        {"job.init.joined", 1, 1},       {"job.step.written", 2, 0},
        {"job.step.published", 3, 1},    {"job.step.counted", 1, 2},
        {"job.step.counted", 5, 0},      {"job.memory.created", 1, 0},
        {"job.memory.filled", 1, 2},     {"job.put.copied", 1, 1},
        {"job.put_signal.copied", 1, 1}, {"job.signal.set", 1, 0},
        {"job.coll.sent", 2, 1},         {"job.allreduce.block", 2, 1},
        {"job.allreduce.slice", 1, 1},   {"job.broadcast.copied", 1, 2},
        {"job.step.written", 12, 1},     {"job.memory.destroy.met", 1, 0},
        {"job.finalize.met", 1, 1},      {"job.control.closed", 1, 2},
    };
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        point_t point = points[i];
        job_with_death(4, point.victim, 10, killed_at, &point);
        nothing_is_left();
    }
    harness_pes(4, HARNESS_PROC, 10, fine_job, NULL);
    nothing_is_left();
}

/* Whoever comes last releases the others, and dies before it rings those that sleep. */
static void last_dies(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("last", rank, n);
    shmemi_fault_arm("job.step.released", SHMEMI_FAULT_KILL, 1);
    if (rank == n - 1)
        harness_sleep(0.1);
    CHECK_OK(shmem_context_barrier(c)); /* it is complete: no reason to fail */
    shmemi_fault_disarm();
    CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_PEER_DEAD);
    CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_PEER_DEAD);
}

static void a_releaser_dies(void)
{
    job_with_death(4, 3, 10, last_dies, NULL);
    nothing_is_left();
}

/* PE 2 finalizes because of a death while PE 1, who has not looked, calls a barrier: both name the
 * dead, neither complains of the other's call. */
static void one_knows_sooner(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("sooner", rank, n);
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, 1500000));
    CHECK(shmem_memory_map(m));
    CHECK_OK(shmem_context_barrier(c));
    if (rank == 0) {
        shmemi_fault_arm("job.step.counted", SHMEMI_FAULT_KILL, 1);
        shmem_context_barrier(c);
    }
    if (rank == 1)
        harness_sleep(0.3);
    CHECK_STATUS(block(rank == 1 ? BARRIER : WAIT, c, m), SHMEM_ERR_PEER_DEAD);
    named(shmem_error_detail()->text, 0);
    CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_PEER_DEAD);
    named(shmem_error_detail()->text, 0);
}

static void a_death_is_no_mismatch(void)
{
    for (int n = 3; n <= 4; n++)
        job_with_death(n, 0, 10, one_knows_sooner, NULL);
    nothing_is_left();
}

static void a_rank_cannot_come_back(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("comeback", rank, n), again;
    if (rank == 1)
        raise(SIGKILL);
    CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_PEER_DEAD);
    CHECK_STATUS(job_try_init(&again, "comeback", 1, n, 1), SHMEM_ERR_PEER_DEAD);
    CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_PEER_DEAD);
}

static void a_dead_rank_is_not_replaced(void)
{
    job_with_death(2, 1, 10, a_rank_cannot_come_back, NULL);
    nothing_is_left();
}

/* ---- the server dies, too ---- */

static void without_server(int rank, int n, void *arg)
{
    bool someone_dies = *(bool *)arg;
    shmem_context_t c = job_init("orphans", rank, n);
    shmem_memory_t m, more;
    double in = 1, out;
    CHECK_OK(shmem_memory_create(c, &m, 1500000));
    CHECK(shmem_memory_map(m));
    CHECK_OK(shmem_context_barrier(c));
    if (rank == 0)
        kill(job_server.pid, SIGKILL);
    harness_sleep(rank == 1 ? 0.5 : 0.05);
    CHECK_OK(shmem_coll_allreduce(c, &out, &in, 1, SHMEM_TYPE_DOUBLE, SHMEM_SUM));
    CHECK(out == n);
    CHECK_STATUS(shmem_memory_create(c, &more, 4096), SHMEM_ERR_SERVER_LOST);
    CHECK_OK(block(LARGE_SUM, c, m)); /* what is mapped goes on */
    if (!someone_dies) {
        CHECK_OK(shmem_context_finalize(c));
        return;
    }
    if (rank == n - 1) {
        *died_at = harness_now();
        raise(SIGKILL);
    }
    CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_PEER_DEAD);
    CHECK(harness_now() - *died_at < WITHIN);
    named(shmem_error_detail()->text, n - 1);
    CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_PEER_DEAD);
}

static void deaths_are_noticed_without_a_server(void)
{
    job_server_t kept = job_server;
    for (int dies = 0; dies < 2; dies++) {
        bool someone_dies = dies;
        job_server = job_server_start();
        job_with_death(3, dies ? 2 : -1, 10, without_server, &someone_dies);
        job_server_stop(&job_server);
    }
    job_server = kept;
}

/* A PE closes all descriptors, ours included, and opens files of its own in their place. */
static void close_everything(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("closefrom", rank, n);
    CHECK_OK(shmem_context_barrier(c));
    if (rank == 1) {
        closefrom(3);
        for (int i = 0; i < 30; i++)
            CHECK(open("/proc/self/exe", O_RDONLY | O_CLOEXEC) >= 0);
    } else {
        harness_sleep(0.3); /* the others sleep, and ask who lives */
    }
    CHECK_OK(shmem_context_barrier(c));
    _exit(0);
}

static void closed_descriptors_are_no_death(void)
{
    harness_pes(3, HARNESS_PROC, 20, close_everything, NULL);
}

JOB_MAIN({
    harness_use_processors(2); /* so that 4 PEs are a crowd, whose steps are counted */
    died_at = harness_shared(sizeof *died_at);
    RUN(every_blocking_call_ends);
    RUN(every_point);
    RUN(a_releaser_dies);
    RUN(a_death_is_no_mismatch);
    RUN(a_dead_rank_is_not_replaced);
    RUN(deaths_are_noticed_without_a_server);
    RUN(closed_descriptors_are_no_death);
})
