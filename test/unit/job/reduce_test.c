/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction kernels against plain loops: every type, operation, count and position. */
#include "job/reduce.h"

#include <math.h>
#include <stdlib.h>

#include "harness.h"

enum { MOST = 5000, SOURCES = 5 };

static uint64_t state = 88172645463325252ull;

static uint64_t random_word(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void store(void *array, size_t i, shmem_type_t type)
{
    uint64_t word = random_word();
    if (type == SHMEM_TYPE_INT32)
        ((int32_t *)array)[i] = (int32_t)word;
    else if (type == SHMEM_TYPE_INT64)
        ((int64_t *)array)[i] = (int64_t)word;
    else if (type == SHMEM_TYPE_FLOAT)
        ((float *)array)[i] = word % 50 ? (float)(int32_t)word / 1000 : NAN;
    else
        ((double *)array)[i] = word % 50 ? (double)(int64_t)word / 1000 : NAN;
}

/* What is promised of NaN, spelled out. */
#define LESS(x, y) (isnan(x) ? (y) : isnan(y) || (x) < (y) ? (x) : (y))
#define MORE(x, y) (isnan(x) ? (y) : isnan(y) || (x) > (y) ? (x) : (y))

#define REFERENCE(T, U, a, b, op, min, max)                                                        \
    do {                                                                                           \
        T x, y, r;                                                                                 \
        memcpy(&x, a, sizeof x);                                                                   \
        memcpy(&y, b, sizeof y);                                                                   \
        r = op == SHMEM_SUM ? (T)((U)x + (U)y) : op == SHMEM_MIN ? min : max;                      \
        memcpy(a, &r, sizeof r);                                                                   \
    } while (0)

static void reference(void *a, const void *b, shmem_type_t type, shmem_reduce_op_t op)
{
    if (type == SHMEM_TYPE_INT32)
        REFERENCE(int32_t, uint32_t, a, b, op, (x < y ? x : y), (x > y ? x : y));
    else if (type == SHMEM_TYPE_INT64)
        REFERENCE(int64_t, uint64_t, a, b, op, (x < y ? x : y), (x > y ? x : y));
    else if (type == SHMEM_TYPE_FLOAT)
        REFERENCE(float, float, a, b, op, LESS(x, y), MORE(x, y));
    else
        REFERENCE(double, double, a, b, op, LESS(x, y), MORE(x, y));
}

static bool same(const void *a, const void *b, shmem_type_t type)
{
    double x, y;
    if (type == SHMEM_TYPE_FLOAT) {
        float p, q;
        memcpy(&p, a, sizeof p);
        memcpy(&q, b, sizeof q);
        return p == q || (isnan(p) && isnan(q));
    }
    if (type == SHMEM_TYPE_DOUBLE) {
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        return x == y || (isnan(x) && isnan(y));
    }
    return memcmp(a, b, shmemi_reduce_element(type)) == 0;
}

/* dst is source `alias`, or an array of its own for alias < 0. */
static void one(shmem_type_t type, shmem_reduce_op_t op, int n, size_t count, int alias)
{
    static _Alignas(64) char memory[SOURCES + 2][MOST * 8 + 64];
    size_t element = shmemi_reduce_element(type), shift = (count % 3) * element;
    const void *src[SOURCES];
    char *want = memory[SOURCES];
    for (int s = 0; s < n; s++) {
        src[s] = memory[s] + shift;
        for (size_t i = 0; i < count; i++)
            store(memory[s] + shift, i, type);
    }
    memcpy(want, src[0], count * element);
    for (int s = 1; s < n; s++)
        for (size_t i = 0; i < count; i++)
            reference(want + i * element, (const char *)src[s] + i * element, type, op);
    char *dst = alias < 0 ? memory[SOURCES + 1] : memory[alias] + shift;
    dst[count * element] = 77;
    shmemi_reduce(dst, src, n, count, type, op);
    CHECK_EQ(dst[count * element], 77);
    for (size_t i = 0; i < count; i++)
        if (!same(dst + i * element, want + i * element, type))
            harness_fail(__FILE__, __LINE__, "type %d op %d n %d count %zu alias %d element %zu",
                         (int)type, (int)op, n, count, alias, i);
}

static void kernels_agree_with_loops(void)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 15, 33, 1023, 1024, 2049, 4999};
    for (int type = 0; type <= SHMEM_TYPE_DOUBLE; type++)
        for (int op = 0; op <= SHMEM_MAX; op++)
            for (int n = 1; n <= SOURCES; n++)
                for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
                    for (int alias = -1; alias < n; alias++)
                        one((shmem_type_t)type, (shmem_reduce_op_t)op, n, counts[c], alias);
}

/* The bits of an element must not depend on where in the array it stands. */
static void bits_do_not_depend_on_position(void)
{
    enum { COUNT = 1000 };
    static float a[COUNT + 16], b[COUNT + 16], c[COUNT + 16], whole[COUNT], part[COUNT];
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)(int32_t)random_word() * 1e-3f;
        b[i] = (float)(int32_t)random_word() * 1e-6f;
        c[i] = (float)(int32_t)random_word();
    }
    const void *all[] = {a, b, c};
    shmemi_reduce(whole, all, 3, COUNT, SHMEM_TYPE_FLOAT, SHMEM_SUM);
    for (size_t cut = 1; cut < COUNT; cut += 37) {
        const void *rest[] = {a + cut, b + cut, c + cut};
        shmemi_reduce(part, all, 3, cut, SHMEM_TYPE_FLOAT, SHMEM_SUM);
        shmemi_reduce(part + cut, rest, 3, COUNT - cut, SHMEM_TYPE_FLOAT, SHMEM_SUM);
        CHECK(memcmp(whole, part, sizeof whole) == 0);
    }
}

static void unknown_types_have_no_size(void)
{
    CHECK_EQ(shmemi_reduce_element((shmem_type_t)4), 0);
    CHECK_EQ(shmemi_reduce_element((shmem_type_t)-1), 0);
    CHECK_EQ(shmemi_reduce_element(SHMEM_TYPE_FLOAT), 4);
    CHECK_EQ(shmemi_reduce_element(SHMEM_TYPE_INT64), 8);
}

int main(void)
{
    RUN(kernels_agree_with_loops);
    RUN(bits_do_not_depend_on_position);
    RUN(unknown_types_have_no_size);
    return harness_end();
}
