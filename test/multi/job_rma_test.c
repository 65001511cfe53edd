/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided operations: results, order, waking, and every error. */
#include "job.h"

static void errors(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("rma-errors", rank, n);
    shmem_memory_t m;
    char data[16] = {0};
    uint64_t old = 5;
    CHECK_OK(shmem_memory_create(c, &m, 1000));
    CHECK_STATUS(shmem_memory_put(m, 0, 0, data, 8), SHMEM_ERR_STATE); /* not mapped */
    CHECK_STATUS(shmem_memory_wait(m, 0, SHMEM_COMPARE_EQ, 0, 0, NULL), SHMEM_ERR_STATE);
    char *mine = shmem_memory_map(m);
    CHECK(mine);
    CHECK_STATUS(shmem_memory_put(NULL, 0, 0, data, 8), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_put(m, -1, 0, data, 8), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_put(m, n, 0, data, 8), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_put(m, 0, 993, data, 8), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_memory_put(m, 0, 1001, data, 0), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_memory_put(m, 0, SIZE_MAX, data, 2), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_memory_put(m, 0, 8, data, SIZE_MAX - 4), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_memory_put(m, 0, 0, NULL, 8), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_memory_put(m, 0, 1000, NULL, 0));
    CHECK_STATUS(shmem_memory_get(m, 0, 999, data, 2), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_memory_get(m, n, 0, data, 2), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_get(m, 0, 0, NULL, 2), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_fetch_add(m, 0, 4, 1, &old), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_fetch_add(m, 0, 1000, 1, &old), SHMEM_ERR_OVERFLOW);
    CHECK_EQ(old, 5);
    CHECK_STATUS(shmem_memory_signal(m, 0, 12, 1, SHMEM_SIGNAL_OP_SET), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_signal(m, 0, 8, 1, (shmem_signal_op_t)2), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_put_signal(m, 0, 0, data, 8, 996, 1, SHMEM_SIGNAL_OP_SET),
                 SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_memory_wait(m, 4, SHMEM_COMPARE_EQ, 0, 0, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_wait(m, 0, (shmem_compare_t)6, 0, 0, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_wait(m, 1000, SHMEM_COMPARE_EQ, 0, 0, NULL), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_memory_wait(m, 0, SHMEM_COMPARE_NE, 0, 0, NULL), SHMEM_ERR_TIMEOUT);
    CHECK_STATUS(shmem_copy(NULL, data, 4), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_copy(data + 2, data, 4), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_copy(data + 8, data, 8));
    CHECK(shmem_memory_address(m, n) == NULL && shmem_memory_address(m, -1) == NULL);
    CHECK_OK(shmem_context_barrier(c));
    CHECK_OK(shmem_memory_destroy(m));
    CHECK_STATUS(shmem_memory_put(m, 0, 0, data, 8), SHMEM_ERR_STATE); /* late use */
    CHECK(shmem_memory_map(m) == NULL);
    CHECK_STATUS(shmem_memory_destroy(m), SHMEM_ERR_STATE);
    CHECK_OK(shmem_context_finalize(c));
}

static void errors_are_told(void)
{
    JOB_BOTH(2, 20, errors, NULL);
}

/* A ring of PEs passes blocks with put-with-signal: the signal implies the data. */
static void ring(int rank, int n, void *arg)
{
    enum { ROUNDS = 300, BYTES = 5000 };
    (void)arg;
    shmem_context_t c = job_init("ring", rank, n);
    shmem_memory_t m;
    static _Thread_local char data[BYTES], seen[BYTES];
    uint64_t word;
    CHECK_OK(shmem_memory_create(c, &m, 64 + 2 * BYTES));
    CHECK(shmem_memory_map(m));
    int next = (rank + 1) % n, previous = (rank + n - 1) % n;
    for (int k = 1; k <= ROUNDS; k++) {
        memset(data, k + rank, BYTES);
        CHECK_OK(shmem_memory_put_signal(m, next, 64 + (size_t)(k % 2) * BYTES, data, BYTES, 0, 1,
                                         SHMEM_SIGNAL_OP_ADD));
        CHECK_OK(shmem_memory_wait(m, 0, SHMEM_COMPARE_GE, (uint64_t)k, SHMEM_FOREVER, &word));
        CHECK_OK(shmem_memory_get(m, rank, 64 + (size_t)(k % 2) * BYTES, seen, BYTES));
        for (int i = 0; i < BYTES; i++)
            CHECK_EQ(seen[i], (char)(k + previous));
        if (k % 2) /* the sender waits until both halves are free again */
            continue;
        CHECK_OK(shmem_memory_signal(m, previous, 8, (uint64_t)k, SHMEM_SIGNAL_OP_SET));
        CHECK_OK(shmem_memory_wait(m, 8, SHMEM_COMPARE_EQ, (uint64_t)k, SHMEM_FOREVER, NULL));
    }
    CHECK_OK(shmem_context_finalize(c));
}

static void signals_imply_data(void)
{
    JOB_BOTH(2, 30, ring, NULL);
    JOB_BOTH(5, 30, ring, NULL);
}

static void adders(int rank, int n, void *arg)
{
    enum { ROUNDS = 5000 };
    (void)arg;
    shmem_context_t c = job_init("adders", rank, n);
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, 4096));
    uint64_t *mine = shmem_memory_map(m);
    uint64_t last = 0, old;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_OK(shmem_memory_fetch_add(m, 0, 8, 1, &old));
        CHECK(i == 0 || old > last);
        last = old;
        CHECK_OK(shmem_memory_fetch_add(m, n - 1, 16, (uint64_t)-1, NULL));
    }
    CHECK_OK(shmem_context_barrier(c));
    CHECK(rank != 0 || mine[1] == (uint64_t)n * ROUNDS);
    CHECK(rank != n - 1 || mine[2] == (uint64_t)-n * ROUNDS);
    CHECK_OK(shmem_context_finalize(c));
}

static void additions_are_atomic(void)
{
    JOB_BOTH(4, 30, adders, NULL);
}

/* A sleeper is woken by a plain put, by a signal, and finds a store made behind our back. */
static void sleepers(int rank, int n, void *arg)
{
    (void)arg;
    (void)n;
    shmem_context_t c = job_init("sleepers", rank, n);
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, 4096));
    CHECK(shmem_memory_map(m));
    for (int i = 0; i < 20; i++) {
        uint64_t value = (uint64_t)i + 1, seen = 0;
        CHECK_OK(shmem_context_barrier(c));
        if (rank == 0) {
            harness_sleep(0.01);
            if (i % 2)
                CHECK_OK(shmem_memory_put(m, 1, 0, &value, sizeof value));
            else
                CHECK_OK(shmem_memory_signal(m, 1, 0, value, SHMEM_SIGNAL_OP_SET));
        } else {
            double begin = harness_now();
            CHECK_OK(shmem_memory_wait(m, 0, SHMEM_COMPARE_EQ, value, 5000000000, &seen));
            CHECK_EQ(seen, value);
            CHECK(harness_now() - begin > 0.003 && harness_now() - begin < 2);
        }
    }
    CHECK_OK(shmem_context_barrier(c));
    if (rank == 0) {
        harness_sleep(0.02);
        *(volatile uint64_t *)shmem_memory_address(m, 1) = 100;
    } else {
        CHECK_OK(shmem_memory_wait(m, 0, SHMEM_COMPARE_GT, 99, 5000000000, NULL));
    }
    CHECK_OK(shmem_context_finalize(c));
}

static void sleepers_are_woken(void)
{
    harness_pes(2, HARNESS_PROC, 30, sleepers, NULL);
}

static void comparisons(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("comparisons", rank, n);
    shmem_memory_t m;
    static const struct {
        shmem_compare_t compare;
        int less, equal, more; /* does 5 compare so with 6, 5, 4? */
    } table[] = {{SHMEM_COMPARE_EQ, 0, 1, 0}, {SHMEM_COMPARE_NE, 1, 0, 1},
                 {SHMEM_COMPARE_GT, 0, 0, 1}, {SHMEM_COMPARE_GE, 0, 1, 1},
                 {SHMEM_COMPARE_LT, 1, 0, 0}, {SHMEM_COMPARE_LE, 1, 1, 0}};
    CHECK_OK(shmem_memory_create(c, &m, 64));
    *(uint64_t *)shmem_memory_map(m) = 5;
    for (size_t i = 0; i < 6; i++) {
        CHECK_EQ(shmem_memory_wait(m, 0, table[i].compare, 6, 0, NULL),
                 table[i].less ? SHMEM_OK : SHMEM_ERR_TIMEOUT);
        CHECK_EQ(shmem_memory_wait(m, 0, table[i].compare, 5, 0, NULL),
                 table[i].equal ? SHMEM_OK : SHMEM_ERR_TIMEOUT);
        CHECK_EQ(shmem_memory_wait(m, 0, table[i].compare, 4, 1000, NULL),
                 table[i].more ? SHMEM_OK : SHMEM_ERR_TIMEOUT);
    }
    CHECK_OK(shmem_context_finalize(c));
}

static void all_comparisons(void)
{
    harness_pes(1, HARNESS_THREAD, 10, comparisons, NULL);
}

JOB_MAIN({
    RUN(errors_are_told);
    RUN(signals_imply_data);
    RUN(additions_are_atomic);
    RUN(sleepers_are_woken);
    RUN(all_comparisons);
})
