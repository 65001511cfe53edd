/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random jobs: PEs draw the same program of collectives, one of them is killed at a random passage
 * of a random fault point. Survivors end soon and with PEER_DEAD, results until then are right, and
 * afterwards the server holds nothing. Seconds to run: SHMEM_SOAK_SECONDS (60).
 */
#include "job.h"

#include <time.h>

#include "base/fault.h"
#include "node/client.h"

static unsigned seed;

static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

typedef struct pe {
    shmem_context_t c;
    shmem_memory_t m;
    char *mine, *other;
    int rank, n;
} pe_t;

enum { PART = 1 << 20 };

static shmem_status_t sum(pe_t *pe, unsigned count, bool symmetric, bool in_place)
{
    double *src = (double *)(void *)(symmetric ? pe->mine : pe->other);
    double *dst = in_place ? src : src + PART / 16;
    for (unsigned i = 0; i < count; i++)
        src[i] = (double)(i + (unsigned)pe->rank);
    shmem_status_t status =
        shmem_coll_allreduce(pe->c, dst, src, count, SHMEM_TYPE_DOUBLE, SHMEM_SUM);
    for (unsigned i = 0; i < count && !status; i++)
        CHECK(dst[i] == (double)pe->n * i + pe->n * (pe->n - 1) / 2.0);
    return status;
}

static shmem_status_t spread(pe_t *pe, unsigned bytes, bool symmetric, int root)
{
    char *buffer = symmetric ? pe->mine : pe->other;
    memset(buffer, pe->rank == root ? 7 : 1, bytes);
    shmem_status_t status = shmem_coll_broadcast(pe->c, buffer, bytes, root);
    CHECK(status || !bytes || (buffer[0] == 7 && buffer[bytes - 1] == 7));
    return status;
}

static shmem_status_t neighbours(pe_t *pe, uint64_t turn)
{
    size_t word = PART - 8;
    shmem_status_t status = shmem_memory_put_signal(pe->m, (pe->rank + 1) % pe->n, PART - 64, &turn,
                                                    sizeof turn, word, turn, SHMEM_SIGNAL_OP_SET);
    if (!status)
        status = shmem_memory_wait(pe->m, word, SHMEM_COMPARE_GE, turn, SHMEM_FOREVER, NULL);
    return status ? status : shmem_context_barrier(pe->c);
}

static shmem_status_t another(pe_t *pe, unsigned bytes)
{
    shmem_memory_t m;
    shmem_status_t status = shmem_memory_create(pe->c, &m, bytes + 1);
    if (!status && shmem_memory_map(m))
        status = shmem_memory_destroy(m);
    return status;
}

static shmem_status_t program(pe_t *pe, unsigned common)
{
    shmem_status_t status = SHMEM_OK;
    for (int k = 1; k < 40 && !status; k++) {
        unsigned what = draw(&common, 6), small = draw(&common, 3), size = draw(&common, 60000);
        unsigned a = draw(&common, 2), b = draw(&common, 2), root = draw(&common, 1000);
        if (small)
            size %= 300;
        if (what == 0)
            status = shmem_context_barrier(pe->c);
        else if (what < 3)
            status = sum(pe, size, a, b);
        else if (what == 3)
            status = spread(pe, size * 8, a, (int)root % pe->n);
        else if (what == 4)
            status = neighbours(pe, (uint64_t)k);
        else
            status = another(pe, size * 8);
    }
    return status;
}

static void allowed(shmem_status_t status, const char *where)
{
    if (status && status != SHMEM_ERR_PEER_DEAD)
        harness_fail(__FILE__, __LINE__, "%s: %s: %s", where, shmem_status_name(status),
                     shmem_error_detail()->text);
}

static void one_pe(int rank, int n, void *arg)
{
    int victim = *(int *)arg;
    unsigned common = seed, own = seed * 31 + (unsigned)rank;
    static const char *const points[] = {"job.*", "job.step.*", "sync.*", "job.memory.*", "os.*"};
    pe_t pe = {.rank = rank, .n = n};
    if (rank == victim)
        shmemi_fault_arm(points[draw(&own, 5)], SHMEMI_FAULT_KILL, 1 + draw(&own, 150));
    double begin = harness_now();
    shmem_status_t status = job_try_init(&pe.c, "soak", rank, n, 2);
    if (status) {
        CHECK(status == SHMEM_ERR_PEER_DEAD || status == SHMEM_ERR_TIMEOUT);
        return;
    }
    pe.other = malloc(PART);
    status = shmem_memory_create(pe.c, &pe.m, PART);
    pe.mine = status ? NULL : shmem_memory_map(pe.m);
    if (!status && !pe.mine)
        status = shmem_error_detail()->status;
    if (!status)
        status = program(&pe, common);
    allowed(status, "program");
    allowed(shmem_context_finalize(pe.c), "finalize");
    CHECK(harness_now() - begin < 20);
    free(pe.other);
}

static void nothing_is_left(void)
{
    shmemi_settings_t settings;
    shmemi_client_t *client;
    shmemi_server_counts_t now;
    double end = harness_now() + 5;
    CHECK_OK(shmemi_settings_load(&settings));
    snprintf(settings.server, sizeof settings.server, "%s", job_server.address);
    CHECK_OK(shmemi_client_attach(&settings, "counter", &client));
    do {
        CHECK(harness_now() < end);
        CHECK_OK(shmemi_client_counts(client, &now));
    } while (now.clients > 1 || now.segments > 1);
    shmemi_client_detach(client);
}

static void random_jobs(void)
{
    const char *text = getenv("SHMEM_SOAK_SECONDS");
    double end = harness_now() + (text ? atof(text) : 60);
    unsigned state = (unsigned)time(NULL), jobs = 0, deaths = 0;
    for (; harness_now() < end; jobs++) {
        pid_t pids[8];
        seed = draw(&state, 1u << 24);
        int n = 2 + (int)draw(&state, 7), victim = (int)draw(&state, (unsigned)n + 1);
        fflush(NULL);
        for (int r = 0; r < n; r++)
            if ((pids[r] = fork()) == 0) {
                one_pe(r, n, &victim);
                exit(0);
            }
        for (int r = 0; r < n; r++) {
            int code = harness_wait(pids[r], 30);
            deaths += code == -SIGKILL;
            if (code && !(r == victim && code == -SIGKILL))
                harness_fail(__FILE__, __LINE__, "seed %u: PE %d of %d, victim %d, ended with %d",
                             seed, r, n, victim, code);
        }
        nothing_is_left();
    }
    fprintf(stderr, "%u jobs, %u deaths\n", jobs, deaths);
    CHECK(jobs > 0);
}

JOB_MAIN({ RUN(random_jobs); })
