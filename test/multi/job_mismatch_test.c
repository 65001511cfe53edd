/* SPDX-License-Identifier: Apache-2.0 */
/* PEs that call different things: every PE gets MISMATCH with both calls in the text, and all may
 * go on. Arguments refused at one PE are told to the others. */
#include "job.h"

typedef shmem_status_t call_t(shmem_context_t c, shmem_memory_t m);

static _Thread_local char buffer[4096];

static shmem_status_t barrier(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_context_barrier(c);
}

static shmem_status_t create_1m(shmem_context_t c, shmem_memory_t m)
{
    shmem_memory_t made = m;
    shmem_status_t status = shmem_memory_create(c, &made, 1048576);
    CHECK(status == SHMEM_OK || made == m); /* outputs untouched */
    return status;
}

static shmem_status_t create_4k(shmem_context_t c, shmem_memory_t m)
{
    shmem_memory_t made = m;
    return shmem_memory_create(c, &made, 4096);
}

static shmem_status_t sum_5(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_coll_allreduce(c, buffer, buffer, 5, SHMEM_TYPE_FLOAT, SHMEM_SUM);
}

static shmem_status_t sum_6(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_coll_allreduce(c, buffer, buffer, 6, SHMEM_TYPE_FLOAT, SHMEM_SUM);
}

static shmem_status_t max_5(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_coll_allreduce(c, buffer, buffer, 5, SHMEM_TYPE_FLOAT, SHMEM_MAX);
}

static shmem_status_t sum_5_int(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_coll_allreduce(c, buffer, buffer, 5, SHMEM_TYPE_INT32, SHMEM_SUM);
}

static shmem_status_t sum_large(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    static _Thread_local float large[200000];
    return shmem_coll_allreduce(c, large, large, 200000, SHMEM_TYPE_FLOAT, SHMEM_SUM);
}

static shmem_status_t broadcast_0(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_coll_broadcast(c, buffer, 64, 0);
}

static shmem_status_t broadcast_1(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_coll_broadcast(c, buffer, 64, 1);
}

static shmem_status_t gather_8(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    char in[8] = {0};
    return shmem_coll_allgather(c, buffer, in, 8);
}

static shmem_status_t create_refused(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_memory_create(c, NULL, 4096);
}

static shmem_status_t broadcast_refused(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_coll_broadcast(c, NULL, 64, 0);
}

static shmem_status_t sum_refused(shmem_context_t c, shmem_memory_t m)
{
    (void)m;
    return shmem_coll_allreduce(c, buffer, buffer, SIZE_MAX / 2, SHMEM_TYPE_FLOAT, SHMEM_SUM);
}

static const struct {
    call_t *first, *others;
    const char *text_first, *text_others;
    shmem_status_t status_first; /* 0: MISMATCH like the others */
} pairs[] = {
    {create_1m, create_4k, "shmem_memory_create(1048576 bytes)", "shmem_memory_create(4096 bytes)",
     0},
    {barrier, create_4k, "shmem_context_barrier()", "shmem_memory_create(4096 bytes)", 0},
    {barrier, sum_large, "shmem_context_barrier()", "allreduce(200000 elements, float, sum)", 0},
    {sum_5, sum_6, "5 elements", "6 elements", 0},
    {sum_5, max_5, "float, sum", "float, max", 0},
    {sum_5, sum_5_int, "float, sum", "int32, sum", 0},
    {sum_large, sum_5, "200000 elements", "5 elements", 0},
    {broadcast_0, broadcast_1, "root 0", "root 1", 0},
    {broadcast_0, gather_8, "shmem_coll_broadcast(64 bytes", "shmem_coll_allgather(8 bytes)", 0},
    {create_refused, create_4k, "refused", "shmem_memory_create(4096 bytes)", SHMEM_ERR_INVALID},
    {broadcast_refused, broadcast_0, "refused", "shmem_coll_broadcast(64", SHMEM_ERR_INVALID},
    {sum_refused, sum_5, "refused", "5 elements", SHMEM_ERR_OVERFLOW},
};

static void check_text(shmem_status_t status, size_t pair)
{
    const char *text = shmem_error_detail()->text;
    CHECK_EQ(shmem_error_detail()->status, status);
    if (status != SHMEM_ERR_MISMATCH)
        return;
    if (!strstr(text, pairs[pair].text_first) || !strstr(text, pairs[pair].text_others) ||
        !strstr(text, "PE 0"))
        harness_fail(__FILE__, __LINE__, "pair %zu: '%s'", pair, text);
}

static void mismatches(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("mismatches", rank, n);
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, 4096));
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        shmem_status_t status = rank == 0 ? pairs[p].first(c, m) : pairs[p].others(c, m);
        shmem_status_t want = SHMEM_ERR_MISMATCH;
        if (rank == 0 && pairs[p].status_first)
            want = pairs[p].status_first;
        CHECK_EQ(status, want);
        check_text(status, p);
        CHECK_OK(shmem_context_barrier(c)); /* all may go on */
        CHECK_OK(pairs[p].others == sum_refused ? SHMEM_OK : sum_5(c, m));
    }
    CHECK_OK(shmem_memory_destroy(m));
    CHECK_OK(shmem_context_finalize(c));
}

static void mismatches_are_named(void)
{
    for (int n = 2; n <= 4; n++)
        JOB_BOTH(n, 20, mismatches, NULL);
    harness_pes(10, HARNESS_THREAD, 20, mismatches, NULL);
}

/* All refuse alike: all get their own error, nobody a mismatch, nobody waits. */
static void refused_by_all(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("refused", rank, n);
    shmem_memory_t m = NULL;
    CHECK_STATUS(shmem_memory_create(c, &m, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_memory_create(c, &m, SIZE_MAX), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_memory_create(c, &m, SIZE_MAX / 2), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_coll_broadcast(c, buffer, 8, n), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_coll_broadcast(c, buffer, 8, -1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_coll_allreduce(c, buffer, buffer, 8, (shmem_type_t)4, SHMEM_SUM),
                 SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_coll_allreduce(c, buffer, buffer, 8, SHMEM_TYPE_FLOAT, (shmem_reduce_op_t)3),
                 SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_coll_allgather(c, buffer, NULL, 8), SHMEM_ERR_INVALID);
    if (n > 1)
        CHECK_STATUS(shmem_coll_allgather(c, buffer, buffer, SIZE_MAX - 1), SHMEM_ERR_OVERFLOW);
    CHECK(m == NULL);
    CHECK_OK(shmem_coll_allreduce(c, NULL, NULL, 0, SHMEM_TYPE_FLOAT, SHMEM_SUM));
    CHECK_OK(shmem_coll_broadcast(c, NULL, 0, 0));
    CHECK_OK(shmem_coll_allgather(c, NULL, NULL, 0));
    CHECK_OK(shmem_context_barrier(c));
    CHECK_OK(shmem_context_finalize(c));
    CHECK_STATUS(shmem_context_barrier(NULL), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_context_finalize(NULL));
    CHECK_OK(shmem_memory_destroy(NULL));
}

static void all_refuse(void)
{
    JOB_BOTH(1, 20, refused_by_all, NULL);
    JOB_BOTH(3, 20, refused_by_all, NULL);
}

/* PE 1 has made one call less when it leaves: the others hear of it, nobody hangs. */
static void leaver(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("leaver", rank, n);
    CHECK_OK(shmem_context_barrier(c));
    if (rank == 1) {
        CHECK_STATUS(shmem_context_finalize(c), SHMEM_ERR_MISMATCH);
        CHECK(strstr(shmem_error_detail()->text, "shmem_context_barrier()"));
        return;
    }
    CHECK_STATUS(shmem_context_barrier(c), SHMEM_ERR_MISMATCH);
    CHECK(strstr(shmem_error_detail()->text, "PE 1 shmem_context_finalize()"));
    CHECK_STATUS(sum_5(c, NULL), SHMEM_ERR_MISMATCH);
    CHECK_OK(shmem_context_finalize(c));
}

/* Buffers that overlap in part are refused; the same place for both is not. */
static void overlaps(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("overlaps", rank, n);
    static _Thread_local int32_t own[60000];
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, sizeof own));
    int32_t *places[] = {own, shmem_memory_map(m)};
    static const size_t counts[] = {2, 5, 3000, 20000};
    for (int i = 0; i < 8; i++) {
        int32_t *b = places[i % 2];
        size_t count = counts[i / 2], block = count * sizeof *b;
        for (size_t off = 1; off < count; off = off * 2 + 1) {
            CHECK_STATUS(shmem_coll_allreduce(c, b + off, b, count, SHMEM_TYPE_INT32, SHMEM_SUM),
                         SHMEM_ERR_INVALID);
            CHECK(strstr(shmem_error_detail()->text, "overlap"));
            CHECK_STATUS(shmem_coll_allreduce(c, b, b + off, count, SHMEM_TYPE_INT32, SHMEM_SUM),
                         SHMEM_ERR_INVALID);
            CHECK_STATUS(shmem_coll_allgather(c, b, b + off, block), SHMEM_ERR_INVALID);
            CHECK(strstr(shmem_error_detail()->text, "overlap"));
        }
        CHECK_STATUS(shmem_coll_allgather(c, b, b + (size_t)!rank * count, block),
                     SHMEM_ERR_INVALID); /* another PE's block */
        b[0] = b[count] = rank + 1;
        CHECK_OK(shmem_coll_allreduce(c, b, b, count, SHMEM_TYPE_INT32, SHMEM_SUM));
        CHECK_EQ(b[0], 3);
        CHECK_OK(
            shmem_coll_allreduce(c, b + count, b, count, SHMEM_TYPE_INT32, SHMEM_SUM)); /* apart */
        CHECK_EQ(b[count], 6);
        b[(size_t)rank * count] = rank + 7;
        CHECK_OK(shmem_coll_allgather(c, b, b + (size_t)rank * count, block));
        CHECK(b[0] == 7 && b[count] == 8);
    }
    CHECK_OK(shmem_context_finalize(c));
}

static void overlapping_buffers(void)
{
    JOB_BOTH(2, 20, overlaps, NULL);
}

static void a_skipped_call_shows_at_finalize(void)
{
    JOB_BOTH(3, 20, leaver, NULL);
}

static void destroys(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("destroys", rank, n);
    shmem_memory_t a, b;
    CHECK_OK(shmem_memory_create(c, &a, 100));
    CHECK_OK(shmem_memory_create(c, &b, 100));
    CHECK_STATUS(shmem_memory_destroy(rank == 0 ? a : b), SHMEM_ERR_MISMATCH);
    CHECK(strstr(shmem_error_detail()->text, "object number 1 in order of creation") &&
          strstr(shmem_error_detail()->text, "object number 2 in order"));
    CHECK_STATUS(shmem_memory_destroy(rank == 0 ? a : b), SHMEM_ERR_STATE); /* it is gone */
    CHECK_OK(shmem_context_barrier(c));
    CHECK_OK(shmem_context_finalize(c));
}

static void destroying_different_objects(void)
{
    JOB_BOTH(2, 20, destroys, NULL);
}

JOB_MAIN({
    RUN(mismatches_are_named);
    RUN(all_refuse);
    RUN(overlapping_buffers);
    RUN(a_skipped_call_shows_at_finalize);
    RUN(destroying_different_objects);
})
