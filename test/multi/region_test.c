/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions between processes: users who are killed at every point leave nothing and change nothing
 * for the others; growth races; jobs of processes and of threads; opening again asks nobody.
 */
#include <grp.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "job.h"
#include "job/region_handle.h"

#define MIB (1ull << 20)

static shmem_context_t attach(void)
{
    shmem_context_t context;
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    params.server = job_server.address;
    params.pes = 1;
    CHECK_OK(shmem_context_init_params(&context, &params));
    return context;
}

static shmem_region_t make(shmem_context_t context, const char *name, uint64_t bytes,
                           uint64_t limit)
{
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t region = NULL;
    params.bytes = bytes;
    params.limit = limit;
    CHECK_OK(shmem_region_create(context, name, &params, &region));
    return region;
}

static shmem_region_t open_for(shmem_context_t context, const char *name, shmem_mapping_t rights)
{
    shmem_region_t region = NULL;
    CHECK_OK(shmem_region_open(context, name, rights, &region));
    return region;
}

static uint64_t *map(shmem_region_t region, shmem_mapping_t rights)
{
    uint64_t *memory = shmem_region_map(region, rights);
    if (!memory)
        harness_fail(__FILE__, __LINE__, "map: %s", shmem_error_detail()->text);
    return memory;
}

static uint64_t bytes_of(shmem_region_t region)
{
    shmem_region_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_region_info(region, &info));
    return info.bytes;
}

static shmemi_server_counts_t counts(shmem_context_t context)
{
    shmemi_server_counts_t counts;
    CHECK_OK(shmemi_client_counts(context->client, &counts));
    return counts;
}

/* A thread of the server may still be making what a dead client wanted. */
static void await_counts(shmem_context_t context, uint64_t clients, uint64_t segments)
{
    double end = harness_now() + 10;
    while (counts(context).clients != clients || counts(context).segments != segments) {
        CHECK(harness_now() < end);
        harness_sleep(0.001);
    }
}

/* ---- users who are killed ---- */

static const char *const points[] = {
    "job.region.created",   "job.region.opened",   "job.region.mapped", "job.region.grown",
    "job.region.destroyed", "job.region.unmapped", "node.request.sent",
};
enum { POINTS = sizeof points / sizeof points[0], PASSAGES = 40 };

typedef struct kill_plan {
    const char *point;
    unsigned nth;
    _Atomic unsigned passages;
} kill_plan_t;

static void user(void *arg)
{
    kill_plan_t *plan = arg;
    shmem_context_t context = attach();
    shmemi_fault_arm(plan->point, SHMEMI_FAULT_KILL, plan->nth);
    shmem_region_t kept = open_for(context, "kept", SHMEM_MAP_READ_WRITE);
    shmem_region_t reader = open_for(context, "kept", SHMEM_MAP_READ);
    uint64_t *memory = map(kept, SHMEM_MAP_READ_WRITE);
    shmem_region_t own = make(context, "own", 4096, 40 * MIB);
    map(own, SHMEM_MAP_READ_WRITE)[0] = 1;
    CHECK_OK(shmem_region_resize(own, 20 * MIB));
    uint64_t wanted = bytes_of(kept) + 4096;
    CHECK_OK(shmem_region_resize(kept, wanted));
    memory[wanted / 8 - 1] = 1;
    CHECK_OK(shmem_region_destroy(context, "own"));
    shmem_region_close(own);
    shmem_region_close(reader);
    CHECK_OK(shmem_region_unmap(kept));
    shmem_region_close(kept);
    atomic_store(&plan->passages, shmemi_fault_passages());
    CHECK_OK(shmem_context_finalize(context));
}

/* What must hold for the others whatever happened. */
static void look_after(shmem_context_t context, shmem_region_t kept, uint64_t segments)
{
    static shmem_region_entry_t entries[8];
    size_t count;
    await_counts(context, 1, segments);
    CHECK_OK(shmem_region_list(context, entries, 8, &count));
    CHECK_EQ(count, 1);
    CHECK_STR(entries[0].name, "kept");
    CHECK_EQ(entries[0].users, 1);
    CHECK_EQ(entries[0].bytes, bytes_of(kept));
    CHECK_EQ(*(uint64_t *)map(kept, SHMEM_MAP_READ_WRITE), 4711);
    CHECK_OK(shmem_region_unmap(kept));
    shmem_region_t own = make(context, "own", 4096, 0); /* its name is free */
    CHECK_EQ(map(own, SHMEM_MAP_READ_WRITE)[0], 0);
    shmem_region_close(own);
}

static void users_are_killed(void)
{
    job_server = job_server_start();
    kill_plan_t *plan = harness_shared(sizeof *plan);
    shmem_context_t context = attach();
    shmem_region_t kept = make(context, "kept", 4096, 4 * MIB);
    *map(kept, SHMEM_MAP_READ_WRITE) = 4711;
    CHECK_OK(shmem_region_unmap(kept));
    uint64_t segments = counts(context).segments; /* the context has one of its own */
    for (int i = 0; i < POINTS; i++) {
        unsigned killed = 0;
        int code = -SIGKILL;
        for (plan->nth = 1; code && plan->nth < PASSAGES; plan->nth++) {
            plan->point = points[i];
            atomic_store(&plan->passages, 0);
            code = harness_wait(harness_fork(user, plan), 20);
            CHECK(code == 0 || code == -SIGKILL);
            killed += code != 0;
            look_after(context, kept, segments);
        }
        CHECK(killed > 0 && code == 0);
    }
    CHECK_OK(shmem_region_resize(kept, 4 * MIB));
    shmem_region_close(kept);
    CHECK_OK(shmem_context_finalize(context));
    job_server_stop(&job_server);
}

/* ---- opening again ---- */

/* The server sleeps: what asks it would hang. */
static void open_asks_nobody(void)
{
    enum { ROUNDS = 20000 };
    job_server = job_server_start();
    shmem_context_t context = attach();
    shmem_region_t region = make(context, "fast", 4096, 0), reader;
    reader = open_for(context, "fast", SHMEM_MAP_READ);
    kill(job_server.pid, SIGSTOP);
    double start = harness_now();
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(open_for(context, "fast", SHMEM_MAP_READ) == reader);
        CHECK(open_for(context, "fast", SHMEM_MAP_READ_WRITE) == region);
        shmem_region_close(reader);
        shmem_region_close(region);
    }
    double ns = (harness_now() - start) * 1e9 / (2 * ROUNDS);
    kill(job_server.pid, SIGCONT);
    printf("open and close of an open region: %.0f ns\n", ns);
    /* a name that went away elsewhere: the next open asks, and is right */
    shmem_context_t other = attach();
    CHECK_OK(shmem_region_destroy(other, "fast"));
    shmem_region_t second = make(other, "fast", 8192, 0), found;
    CHECK_OK(shmem_region_open(context, "fast", SHMEM_MAP_READ_WRITE, &found));
    CHECK(found != region && bytes_of(found) == 8192);
    shmem_region_close(found);
    shmem_region_close(second);
    CHECK_STATUS(shmem_region_open(context, "fast", SHMEM_MAP_READ, &found), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmem_context_finalize(other));
    CHECK_OK(shmem_context_finalize(context));
    job_server_stop(&job_server);
}

/* ---- what a program may do to a region, and to names of regions ---- */

static void set_size(shmem_region_t region, uint64_t bytes)
{
    CHECK_EQ(pwrite(region->segment.fd, &bytes, sizeof bytes,
                    (off_t)(region->segment.bytes - SHMEMI_PAGE)),
             sizeof bytes);
}

static void size_that_is_overwritten(void)
{
    job_server = job_server_start();
    shmem_context_t context = attach();
    shmem_region_t region = make(context, "hurt", 4096, MIB), reader;
    shmem_region_info_t info = {.size = sizeof info};
    static const uint64_t sizes[] = {0, MIB + 1, UINT64_MAX, 1ull << 63};
    map(region, SHMEM_MAP_READ_WRITE);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        set_size(region, sizes[i]);
        CHECK_STATUS(shmem_region_info(region, &info), SHMEM_ERR_CORRUPT);
        CHECK_STATUS(shmem_region_resize(region, 8192), SHMEM_ERR_CORRUPT);
        CHECK_STATUS(shmem_region_protect(region, 0, 4096, SHMEM_MAP_READ), SHMEM_ERR_CORRUPT);
        reader = open_for(context, "hurt", SHMEM_MAP_READ);
        CHECK(!shmem_region_map(reader, SHMEM_MAP_READ));
        CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_CORRUPT);
        shmem_region_close(reader);
    }
    set_size(region, MIB); /* possible, and wrong: the server knows better */
    shmem_region_entry_t entry;
    size_t count;
    CHECK_OK(shmem_region_list(context, &entry, 1, &count));
    CHECK_EQ(entry.bytes, 4096);
    set_size(region, 1);
    CHECK_STATUS(shmem_region_resize(region, 2048), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_region_resize(region, 8192));
    CHECK_EQ(bytes_of(region), 8192);
    shmem_region_close(region);
    CHECK_OK(shmem_context_finalize(context));
    job_server_stop(&job_server);
}

static void called_like_a_region(void)
{
    job_server = job_server_start();
    shmem_context_t context = attach();
    shmemi_segment_request_t r = {.huge = SHMEMI_HUGE_OFF, .reserve = 1};
    shmemi_segment_t one, two;
    shmem_region_t region = NULL;
    r.name = SHMEMI_REGION_PREFIX "small";
    r.bytes = 4096;
    CHECK_OK(shmemi_client_segment_create(context->client, &r, &one));
    r.name = SHMEMI_REGION_PREFIX "plain";
    r.bytes = 2 * 4096;
    CHECK_OK(shmemi_client_segment_create(context->client, &r, &two));
    CHECK_STATUS(shmem_region_open(context, "small", SHMEM_MAP_READ, &region), SHMEM_ERR_CORRUPT);
    CHECK(!region);
    region = open_for(context, "plain", SHMEM_MAP_READ_WRITE);
    CHECK(!shmem_region_map(region, SHMEM_MAP_READ));
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_CORRUPT);
    shmem_region_close(region);
    shmemi_client_segment_close(context->client, &one);
    shmemi_client_segment_close(context->client, &two);
    CHECK_OK(shmem_context_finalize(context));
    job_server_stop(&job_server);
}

/* ---- threads of one context ---- */

static shmem_context_t shared;

/* All open, map, use, close and destroy the same few names. */
static void busy(int rank, int n, void *arg)
{
    enum { ROUNDS = 300, NAMES = 3 };
    unsigned seed = (unsigned)rank * 7919u + 1;
    (void)n, (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        char name[16];
        shmem_region_t region;
        shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
        params.bytes = 8192;
        params.limit = MIB;
        seed = seed * 1103515245u + 12345u;
        snprintf(name, sizeof name, "busy/%u", (seed >> 16) % NAMES);
        shmem_status_t status = shmem_region_create(shared, name, &params, &region);
        if (status == SHMEM_ERR_EXISTS)
            status = shmem_region_open(shared, name, SHMEM_MAP_READ_WRITE, &region);
        if (status == SHMEM_ERR_NOT_FOUND) /* destroyed or closed meanwhile */
            continue;
        CHECK_OK(status);
        _Atomic uint64_t *memory = (_Atomic uint64_t *)map(region, SHMEM_MAP_READ_WRITE);
        atomic_fetch_add(memory, 1);
        if ((seed >> 20) % 8 == 0) {
            status = shmem_region_destroy(shared, name);
            CHECK(status == SHMEM_OK || status == SHMEM_ERR_NOT_FOUND);
        }
        if ((seed >> 20) % 8 == 1) {
            status = shmem_region_resize(region, 16384);
            CHECK(status == SHMEM_OK || status == SHMEM_ERR_INVALID);
        }
        atomic_fetch_add(memory, 1);
        CHECK_OK(shmem_region_unmap(region));
        shmem_region_close(region);
    }
}

static void threads(void)
{
    job_server = job_server_start();
    shared = attach();
    uint64_t segments = counts(shared).segments;
    size_t listed;
    harness_pes(4, HARNESS_THREAD, 60, busy, NULL);
    CHECK_EQ(counts(shared).segments, segments);
    CHECK_OK(shmem_region_list(shared, NULL, 0, &listed));
    CHECK_EQ(listed, 0);
    CHECK_OK(shmem_context_finalize(shared));
    job_server_stop(&job_server);
}

/* ---- two users ---- */

static void stranger(void *arg)
{
    enum { STRANGER = 64001 };
    shmem_region_t region;
    (void)arg;
    CHECK(setgroups(0, NULL) == 0 && setresgid(STRANGER, STRANGER, STRANGER) == 0);
    CHECK(setresuid(STRANGER, STRANGER, STRANGER) == 0);
    shmem_context_t context = attach();
    CHECK_STATUS(shmem_region_open(context, "board", SHMEM_MAP_READ_WRITE, &region),
                 SHMEM_ERR_ACCESS);
    CHECK(strstr(shmem_error_detail()->text, "region 'board' belongs to user 0"));
    CHECK(strstr(shmem_error_detail()->text, "access 0604; user 64001"));
    CHECK_STATUS(shmem_region_destroy(context, "board"), SHMEM_ERR_ACCESS);
    region = open_for(context, "board", SHMEM_MAP_READ);
    CHECK_EQ(*map(region, SHMEM_MAP_READ), 4711);
    CHECK_STATUS(shmem_region_protect(region, 0, 4096, SHMEM_MAP_READ_WRITE), SHMEM_ERR_ACCESS);
    CHECK(mprotect(shmem_region_map(region, SHMEM_MAP_READ), 4096, PROT_READ | PROT_WRITE) != 0);
    CHECK_STATUS(shmem_region_open(context, "secret", SHMEM_MAP_READ, &region), SHMEM_ERR_ACCESS);
    region = make(context, "own", 4096, 0);
    shmem_pool_t pool;
    void *block;
    CHECK_STATUS(shmem_pool_open(context, "readable", &pool), SHMEM_ERR_ACCESS);
    CHECK_OK(shmem_pool_open(context, "open", &pool));
    CHECK_OK(shmem_pool_alloc(pool, 5000, &block));
    memset(block, 1, 5000);
    CHECK_OK(shmem_pool_free(pool, block));
    CHECK_STATUS(shmem_pool_destroy(context, "open"), SHMEM_ERR_ACCESS);
    CHECK_OK(shmem_context_finalize(context));
}

static void two_users(void)
{
    if (geteuid() != 0)
        SKIP("only root can become another user");
    job_server = job_server_start_for(1);
    shmem_context_t context = attach();
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t board;
    params.bytes = 4096;
    params.access = SHMEM_ACCESS_OTHER_READ;
    CHECK_OK(shmem_region_create(context, "board", &params, &board));
    *map(board, SHMEM_MAP_READ_WRITE) = 4711;
    make(context, "secret", 4096, 0);
    shmem_pool_params_t pool_params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t pool;
    pool_params.bytes = MIB;
    pool_params.access = SHMEM_ACCESS_OTHER_READ;
    CHECK_OK(shmem_pool_create(context, "readable", &pool_params, &pool));
    pool_params.access |= SHMEM_ACCESS_OTHER_WRITE;
    CHECK_OK(shmem_pool_create(context, "open", &pool_params, &pool));
    CHECK_EQ(harness_wait(harness_fork(stranger, NULL), 20), 0);
    CHECK_OK(shmem_context_finalize(context));
    job_server_stop(&job_server);
}

/* ---- jobs ---- */

static void pe(int rank, int n, void *arg)
{
    enum { STEPS = 12 };
    shmem_context_t context = job_init(arg, rank, n);
    shmem_region_t region = rank == 0 ? make(context, arg, 4096, 64 * MIB) : NULL;
    CHECK_OK(shmem_context_barrier(context));
    if (rank)
        region = open_for(context, arg, SHMEM_MAP_READ_WRITE);
    uint64_t *memory = map(region, SHMEM_MAP_READ_WRITE);
    for (uint64_t i = 1; i <= STEPS; i++) { /* all want it larger at once */
        uint64_t wanted = i * MIB + (uint64_t)rank * 4096;
        shmem_status_t status = shmem_region_resize(region, wanted);
        if (status != SHMEM_ERR_INVALID)
            CHECK_OK(status);
        CHECK(bytes_of(region) >= wanted);
        memory[wanted / 8 - 1] = wanted;
    }
    CHECK_OK(shmem_context_barrier(context));
    CHECK_EQ(bytes_of(region), STEPS * MIB + (uint64_t)(n - 1) * 4096);
    for (uint64_t i = 1; i <= STEPS; i++)
        for (uint64_t r = 0; r < (uint64_t)n; r++)
            CHECK_EQ(memory[(i * MIB + r * 4096) / 8 - 1], i * MIB + r * 4096);
    CHECK_OK(shmem_context_barrier(context));
    if (rank % 2) /* others still have it mapped, perhaps in the same process */
        shmem_region_close(region);
    CHECK_OK(shmem_context_barrier(context));
    if (rank % 2 == 0)
        memory[rank] = 1;
    CHECK_OK(shmem_context_finalize(context));
}

static void in_jobs(void)
{
    job_server = job_server_start();
    char name[] = "job-region";
    JOB_BOTH(4, 60, pe, name);
    job_server_stop(&job_server);
}

int main(void)
{
    RUN(users_are_killed);
    RUN(open_asks_nobody);
    RUN(size_that_is_overwritten);
    RUN(called_like_a_region);
    RUN(threads);
    RUN(two_users);
    RUN(in_jobs);
    return harness_end();
}
