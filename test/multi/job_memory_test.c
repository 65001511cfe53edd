/* SPDX-License-Identifier: Apache-2.0 */
/* Symmetric memory objects: sizes, addresses, mapping counts, failures at one PE, reuse. */
#include "job.h"

#include <setjmp.h>

#include "base/fault.h"
#include "job/memory.h"

static void shapes(int rank, int n, void *arg)
{
    static const size_t sizes[] = {
        1, 8, 4095, 4096, 4097, 100000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1};
    (void)arg;
    shmem_context_t c = job_init("shapes", rank, n);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        shmem_memory_t m;
        uint64_t addresses[16], mine_and_theirs[16];
        CHECK_OK(shmem_memory_create(c, &m, sizes[i]));
        char *mine = shmem_memory_map(m);
        CHECK(mine && shmem_memory_bytes(m) == sizes[i]);
        CHECK_EQ((uintptr_t)mine % (sizes[i] >= 2 << 20 ? 2 << 20 : 4096), 0);
        for (size_t b = 0; b < sizes[i]; b++)
            if (mine[b])
                harness_fail(__FILE__, __LINE__, "byte %zu of new memory is %d", b, mine[b]);
        mine[0] = (char)(rank + 1);
        mine[sizes[i] - 1] = (char)(rank + 1);
        uint64_t own = (uint64_t)(uintptr_t)mine;
        CHECK_OK(shmem_coll_allgather(c, addresses, &own, 8));
        for (int r = 0; r < n; r++)
            mine_and_theirs[r] = (uint64_t)(uintptr_t)shmem_memory_address(m, r);
        CHECK(memcmp(addresses, mine_and_theirs, 8 * (size_t)n) == 0); /* the same everywhere */
        for (int r = 0; r < n; r++) {
            const char *theirs = (const char *)(uintptr_t)addresses[r];
            CHECK(theirs[0] == r + 1 && theirs[sizes[i] - 1] == r + 1);
        }
        CHECK_OK(shmem_context_barrier(c));
        CHECK_OK(shmem_memory_destroy(m));
    }
    CHECK_OK(shmem_context_finalize(c));
}

static void sizes_and_addresses(void)
{
    JOB_BOTH(1, 20, shapes, NULL);
    JOB_BOTH(3, 20, shapes, NULL);
}

static sigjmp_buf jump;

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(jump, 1);
}

static bool readable(const volatile char *p)
{
    struct sigaction action = {.sa_handler = on_fault}, old;
    bool ok = false;
    sigaction(SIGSEGV, &action, &old);
    if (sigsetjmp(jump, 1) == 0) {
        (void)*p;
        ok = true;
    }
    sigaction(SIGSEGV, &old, NULL);
    return ok;
}

static void mapping(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("mapping", rank, n);
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, 8192));
    char *mine = shmem_memory_map(m);
    CHECK(shmem_memory_map(m) == mine);
    mine[5] = 55;
    CHECK_OK(shmem_memory_unmap(mine));
    CHECK_EQ(mine[5], 55);
    CHECK_STATUS(shmem_memory_unmap(mine + 4096), SHMEM_ERR_INVALID);
    if (n > 1)
        CHECK_STATUS(shmem_memory_unmap(shmem_memory_address(m, (rank + 1) % n)),
                     SHMEM_ERR_INVALID);
    CHECK_OK(shmem_memory_unmap(mine));
    CHECK(!readable(mine));
    CHECK(shmem_memory_address(m, rank) == NULL);
    CHECK_STATUS(shmem_memory_unmap(mine), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_unmap(NULL), SHMEM_ERR_INVALID);
    CHECK(shmem_memory_map(m) == mine);
    CHECK_EQ(mine[5], 55); /* the contents stayed */
    CHECK_OK(shmem_context_barrier(c));
    CHECK_OK(shmem_memory_destroy(m));
    CHECK(!readable(mine));
    CHECK_OK(shmem_context_finalize(c));
}

static void mappings_are_counted(void)
{
    harness_pes(1, HARNESS_PROC, 20, mapping, NULL);
    harness_pes(3, HARNESS_PROC, 20, mapping, NULL);
}

/* Something goes wrong at one PE: all get the same error, and the next creation works. */
static void failing(int rank, int n, void *arg)
{
    static const char *const points[] = {"job.memory.create", "job.memory.reserve",
                                         "os.segment.reserve", "os.space.map",
                                         "os.segment.populate"};
    (void)arg;
    shmem_context_t c = job_init("failing", rank, n);
    shmem_memory_t mark = (shmem_memory_t)(void *)&mark, m = mark;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        int at = i == 0 ? 0 : n - 1;
        if (rank == at)
            shmemi_fault_arm(points[i], SHMEMI_FAULT_FAIL, 1);
        shmem_status_t status = shmem_memory_create(c, &m, 8192);
        CHECK(status == SHMEM_ERR_INJECTED || status == SHMEM_ERR_NOMEM);
        CHECK(m == mark && shmem_error_detail()->status == status);
        if (rank == at) {
            CHECK_EQ(shmemi_fault_passages(), 1);
        } else {
            char name[24];
            snprintf(name, sizeof name, "on PE %d", at);
            CHECK(strstr(shmem_error_detail()->text, name));
        }
        shmemi_fault_disarm();
        CHECK_OK(shmem_memory_create(c, &m, 8192));
        CHECK(shmem_memory_map(m));
        CHECK_OK(shmem_memory_destroy(m));
        m = mark;
    }
    CHECK_OK(shmem_context_finalize(c));
}

static void failures_are_shared(void)
{
    harness_pes(1, HARNESS_PROC, 20, failing, NULL);
    harness_pes(3, HARNESS_PROC, 20, failing, NULL);
}

static void too_much(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("too-much", rank, n);
    shmem_memory_t m;
    CHECK_STATUS(shmem_memory_create(c, &m, (size_t)1 << 36), SHMEM_ERR_NOMEM);
    char all_parts[64]; /* each of them might fit alone */
    snprintf(all_parts, sizeof all_parts, "asked for %d MiB", n << 16);
    CHECK(strstr(shmem_error_detail()->text, all_parts) != NULL);
    CHECK_OK(shmem_memory_create(c, &m, 1 << 20));
    CHECK_OK(shmem_context_finalize(c));
}

static void more_than_there_is(void)
{
    if (harness_has_tsan())
        SKIP("the range of addresses is small under ThreadSanitizer");
    harness_pes(2, HARNESS_PROC, 20, too_much, NULL);
}

/* Objects come and go; late uses are recognized as long as the grave is kept. */
static void reuse(int rank, int n, void *arg)
{
    enum { LIVE = 5, ROUNDS = 200 };
    (void)arg;
    shmem_context_t c = job_init("reuse", rank, n);
    shmem_memory_t m[LIVE] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        int k = (i * 7) % LIVE;
        CHECK_OK(shmem_memory_destroy(m[k]));
        CHECK_OK(shmem_memory_create(c, &m[k], 1000 + (size_t)i));
        uint64_t *mine = shmem_memory_map(m[k]);
        CHECK(mine && mine[0] == 0);
        mine[0] = (uint64_t)i;
        double sum = 1, out;
        CHECK_OK(shmem_coll_allreduce(c, &out, &sum, 1, SHMEM_TYPE_DOUBLE, SHMEM_SUM));
        CHECK(out == n);
        for (int r = 0; r < n; r++)
            CHECK_EQ(*(uint64_t *)shmem_memory_address(m[k], r), i);
        CHECK_OK(shmem_context_barrier(c));
    }
    CHECK_OK(shmem_context_finalize(c));
}

static void objects_come_and_go(void)
{
    JOB_BOTH(3, 20, reuse, NULL);
}

/* Another process writes nonsense into the control segment: an error, never a crash. */
static void nonsense(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("nonsense", rank, n);
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, 1 << 20));
    float *mine = shmem_memory_map(m);
    CHECK_OK(shmem_context_barrier(c));
    if (rank == 1) { /* steps ahead of everybody */
        harness_sleep(0.1);
        for (int k = 0; k < 2; k++)
            atomic_store(&c->pes[1].line[k].sequence, 1ull << 60);
        c->broken = SHMEM_ERR_STATE;
        CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_STATE);
        return;
    }
    CHECK_STATUS(shmem_coll_allreduce(c, mine, mine, 100000, SHMEM_TYPE_FLOAT, SHMEM_SUM),
                 SHMEM_ERR_CORRUPT);
    CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_CORRUPT);
    CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_CORRUPT);
}

static void nonsense_is_an_error(void)
{
    harness_pes(2, HARNESS_PROC, 10, nonsense, NULL);
}

JOB_MAIN({
    RUN(sizes_and_addresses);
    RUN(mappings_are_counted);
    RUN(failures_are_shared);
    RUN(more_than_there_is);
    RUN(objects_come_and_go);
    RUN(nonsense_is_an_error);
})
