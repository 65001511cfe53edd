/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives against results computed by hand: sizes around every change of method, buffers in
 * symmetric and private memory and mixtures, in place, with PEs that come late. */
#include "job.h"

#include <time.h>

typedef enum where { SYMMETRIC, PRIVATE, MIXED, WHERES } where_t;

enum { MOST = 150000 }; /* elements */

typedef struct setup {
    shmem_context_t c;
    shmem_memory_t m;
    char *symmetric, *other;
    int rank, n;
} setup_t;

static setup_t setup_make(const char *job, int rank, int n)
{
    setup_t s = {.rank = rank, .n = n};
    size_t bytes = (size_t)MOST * 8 * 2 + 4096;
    s.c = job_init(job, rank, n);
    CHECK_OK(shmem_memory_create(s.c, &s.m, bytes));
    s.symmetric = shmem_memory_map(s.m);
    s.other = malloc(bytes);
    CHECK(s.symmetric && s.other);
    return s;
}

static void setup_end(setup_t *s)
{
    free(s->other);
    CHECK_OK(shmem_memory_destroy(s->m));
    CHECK_OK(shmem_context_finalize(s->c));
}

/* dst and src of this PE; in a mixture every PE has them elsewhere. */
static void buffers(setup_t *s, where_t where, int turn, char **dst, char **src)
{
    bool d = where == SYMMETRIC || (where == MIXED && (s->rank + turn) % 2);
    bool r = where == SYMMETRIC || (where == MIXED && turn % 3 == 0);
    *src = r ? s->symmetric : s->other;
    *dst = (d ? s->symmetric : s->other) + (size_t)MOST * 8;
    if (where == MIXED && turn % 2) /* odd places, other ones on each PE */
        *src += 8 * (size_t)s->rank;
}

static double value(int rank, size_t i)
{
    return (double)((long)((i * 7 + (size_t)rank * 13) % 1001) - 500);
}

static void put_value(char *buffer, size_t i, shmem_type_t type, double v)
{
    if (type == SHMEM_TYPE_INT32)
        ((int32_t *)(void *)buffer)[i] = (int32_t)v;
    else if (type == SHMEM_TYPE_INT64)
        ((int64_t *)(void *)buffer)[i] = (int64_t)v;
    else if (type == SHMEM_TYPE_FLOAT)
        ((float *)(void *)buffer)[i] = (float)v;
    else
        ((double *)(void *)buffer)[i] = v;
}

static double get_value(const char *buffer, size_t i, shmem_type_t type)
{
    if (type == SHMEM_TYPE_INT32)
        return (double)((const int32_t *)(const void *)buffer)[i];
    if (type == SHMEM_TYPE_INT64)
        return (double)((const int64_t *)(const void *)buffer)[i];
    if (type == SHMEM_TYPE_FLOAT)
        return (double)((const float *)(const void *)buffer)[i];
    return ((const double *)(const void *)buffer)[i];
}

static double expected(int n, size_t i, shmem_reduce_op_t op)
{
    double r = value(0, i);
    for (int p = 1; p < n; p++) {
        double v = value(p, i);
        r = op == SHMEM_SUM ? r + v : op == SHMEM_MIN ? (v < r ? v : r) : (v > r ? v : r);
    }
    return r;
}

static void allreduce_one(setup_t *s, where_t where, size_t count, int turn)
{
    char *dst, *src;
    shmem_type_t type = (shmem_type_t)(turn % 4);
    shmem_reduce_op_t op = (shmem_reduce_op_t)(turn / 4 % 3);
    buffers(s, where, turn, &dst, &src);
    if (turn % 5 == 4)
        dst = src; /* in place */
    for (size_t i = 0; i < count; i++)
        put_value(src, i, type, value(s->rank, i));
    CHECK_OK(shmem_coll_allreduce(s->c, dst, src, count, type, op));
    for (size_t i = 0; i < count; i++)
        if (get_value(dst, i, type) != expected(s->n, i, op))
            harness_fail(__FILE__, __LINE__,
                         "PE %d of %d, %zu elements, type %d op %d, where %d: [%zu] = %g, %g "
                         "expected",
                         s->rank, s->n, count, (int)type, (int)op, (int)where, i,
                         get_value(dst, i, type), expected(s->n, i, op));
}

static void allreduces(int rank, int n, void *arg)
{
    static const size_t counts[] = {0,     1,     3,     11,     12,   24,   25,
                                    127,   128,   129,   1000,   4096, 4097, 10001,
                                    16384, 32769, 65537, 100000, 7,    MOST};
    (void)arg;
    setup_t s = setup_make("allreduces", rank, n);
    int turn = 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int where = 0; where < WHERES; where++, turn++)
            allreduce_one(&s, (where_t)where, counts[i], turn);
    setup_end(&s);
}

static void allreduce_is_right(void)
{
    for (int n = 1; n <= 5; n++)
        harness_pes(n, HARNESS_PROC, 60, allreduces, NULL);
    harness_pes(3, HARNESS_THREAD, 60, allreduces, NULL);
    harness_pes(9, HARNESS_THREAD, 60, allreduces, NULL);
}

/* Sums of floats in rank order, to the bit, wherever the method changes. */
static void float_sums(int rank, int n, void *arg)
{
    static const size_t counts[] = {5, 100, 5000, 20000, 70000};
    (void)arg;
    setup_t s = setup_make("floats", rank, n);
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
        for (int where = 0; where < 2; where++) {
            char *dst, *src;
            buffers(&s, (where_t)where, 0, &dst, &src);
            float *in = (float *)(void *)src, *out = (float *)(void *)dst;
            for (size_t i = 0; i < counts[k]; i++)
                in[i] = 1.0f / (float)(i + 3 + 17 * (size_t)rank);
            CHECK_OK(shmem_coll_allreduce(s.c, out, in, counts[k], SHMEM_TYPE_FLOAT, SHMEM_SUM));
            for (size_t i = 0; i < counts[k]; i++) {
                float want = 1.0f / (float)(i + 3);
                for (int p = 1; p < n; p++)
                    want += 1.0f / (float)(i + 3 + 17 * (size_t)p);
                CHECK(memcmp(&want, &out[i], sizeof want) == 0);
            }
        }
    setup_end(&s);
}

static void float_sums_are_in_rank_order(void)
{
    JOB_BOTH(4, 30, float_sums, NULL);
    harness_pes(2, HARNESS_PROC, 30, float_sums, NULL);
}

/* Are all n bytes `value`? */
static bool all_are(const char *p, int value, size_t n)
{
    return n == 0 || (p[0] == (char)value && memcmp(p, p + 1, n - 1) == 0);
}

static void broadcast_and_gather(int rank, int n, void *arg)
{
    static const size_t sizes[] = {0,    1,     95,     96,     97,     1024,
                                   1025, 65536, 131072, 131073, 262144, 400001};
    (void)arg;
    setup_t s = setup_make("broadcasts", rank, n);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int where = 0; where < WHERES; where++) {
            char *dst, *src;
            size_t bytes = sizes[k], block = bytes < (size_t)MOST * 8 / (size_t)n ? bytes : 1000;
            int root = (int)k % n;
            buffers(&s, (where_t)where, (int)k, &dst, &src);
            memset(src, rank == root ? 100 + (int)k : 1, bytes);
            if (bytes && rank == root)
                src[bytes - 1] = 99;
            CHECK_OK(shmem_coll_broadcast(s.c, src, bytes, root));
            CHECK(bytes < 2 || all_are(src, 100 + (int)k, bytes - 1));
            CHECK(!bytes || src[bytes - 1] == 99);
            bool in_place = k % 2;
            char *mine = in_place ? dst + (size_t)rank * block : src;
            memset(dst, 0, block * (size_t)n);
            memset(mine, rank + 1, block);
            CHECK_OK(shmem_coll_allgather(s.c, dst, mine, block));
            for (int p = 0; p < n; p++)
                CHECK(all_are(dst + (size_t)p * block, p + 1, block));
        }
    setup_end(&s);
}

static void broadcast_and_allgather_are_right(void)
{
    for (int n = 1; n <= 4; n++)
        harness_pes(n, HARNESS_PROC, 30, broadcast_and_gather, NULL);
    harness_pes(3, HARNESS_THREAD, 30, broadcast_and_gather, NULL);
    harness_pes(16, HARNESS_THREAD, 30, broadcast_and_gather, NULL);
}

static unsigned next_random(unsigned *state)
{
    return *state = *state * 1664525u + 1013904223u;
}

/* Back to back, in an order that all PEs draw alike, with delays that they draw each for himself.
 */
static void mixture(int rank, int n, void *arg)
{
    (void)arg;
    setup_t s = setup_make("mixture", rank, n);
    unsigned common = 12345, own = 777u * (unsigned)(rank + 1);
    for (int k = 0; k < 400; k++) {
        unsigned what = next_random(&common) >> 28, size = next_random(&common) >> 8;
        if (next_random(&own) >> 29 == 0)
            harness_sleep((double)(next_random(&own) >> 16) / 65536 * 0.002);
        if (what < 4) {
            CHECK_OK(shmem_context_barrier(s.c));
        } else if (what < 12) {
            allreduce_one(&s, (where_t)(size % WHERES), 1 + (size >> 4) % (what < 10 ? 300 : 40000),
                          k);
        } else {
            char buffer[3000];
            size_t bytes = 1 + size % sizeof buffer;
            int root = (int)(size % (unsigned)n);
            memset(buffer, rank == root ? k : -1, bytes);
            CHECK_OK(shmem_coll_broadcast(s.c, buffer, bytes, root));
            CHECK(buffer[0] == (char)k && buffer[bytes - 1] == (char)k);
        }
    }
    setup_end(&s);
}

static void back_to_back_with_delays(void)
{
    JOB_BOTH(2, 60, mixture, NULL);
    JOB_BOTH(4, 60, mixture, NULL);
    harness_pes(11, HARNESS_THREAD, 60, mixture, NULL);
}

static void reductions_per_second_when_crowded(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("crowd", rank, n);
    double begin = harness_now(), in = rank, out;
    for (int i = 0; i < 300; i++)
        CHECK_OK(shmem_coll_allreduce(c, &out, &in, 1, SHMEM_TYPE_DOUBLE, SHMEM_SUM));
    CHECK(out == n * (n - 1) / 2.0);
    /* 16 PEs on 2 processors take some 20 us each; sleeping through a slice would take 50 ms */
    CHECK(harness_now() - begin < 10);
    CHECK_OK(shmem_context_finalize(c));
}

static void a_crowd_does_not_collapse(void)
{
    JOB_BOTH(16, 30, reductions_per_second_when_crowded, NULL);
}

JOB_MAIN({
    RUN(allreduce_is_right);
    RUN(float_sums_are_in_rank_order);
    RUN(broadcast_and_allgather_are_right);
    RUN(back_to_back_with_delays);
    RUN(a_crowd_does_not_collapse);
})
