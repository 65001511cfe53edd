/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels: dst[i] = a[i] op b[i], vectorized by the compiler, for several instruction sets.
 *
 * Invariant: an element's result does not depend on its place in the array, on alignment or on
 * the instruction set: each lane does what the scalar loop does.
 */
#include "job/reduce.h"

#include <stdint.h>
#include <string.h>

#include "base/sanitizer.h"

/* NO_CARRY: no iteration reads what another one writes, also where dst is a or b. */
#if defined(__clang__)
#define OPTIMIZED
#define NO_CARRY _Pragma("clang loop vectorize(assume_safety)")
#else
#define OPTIMIZED __attribute__((optimize("O3")))
#define NO_CARRY  _Pragma("GCC ivdep")
#endif
#if defined(__x86_64__) && defined(__gnu_linux__) && !SHMEMI_TSAN && !SHMEMI_ASAN
#define CLONED __attribute__((target_clones("avx2", "default")))
#else
#define CLONED
#endif

/* Integer sums wrap around; min and max of floating-point values ignore NaN unless both are. */
#define SUM_INT32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define SUM_INT64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define SUM_FLOAT(a, b) ((a) + (b))
#define MIN_INT(a, b)   ((a) < (b) ? (a) : (b))
#define MAX_INT(a, b)   ((a) > (b) ? (a) : (b))
#define MIN_FLOAT(a, b) ((a) < (b) || (b) != (b) ? (a) : (b))
#define MAX_FLOAT(a, b) ((a) > (b) || (b) != (b) ? (a) : (b))

/* dst may be a or b: each element is read before it is written, by the same iteration. */
#define KERNEL(name, type, OP)                                                                     \
    CLONED OPTIMIZED static void name(void *dst, const void *first, const void *second,            \
                                      size_t count)                                                \
    {                                                                                              \
        type *d = dst;                                                                             \
        const type *a = first, *b = second;                                                        \
        NO_CARRY for (size_t i = 0; i < count; i++) d[i] = OP(a[i], b[i]);                         \
    }

KERNEL(sum_int32, int32_t, SUM_INT32)
KERNEL(sum_int64, int64_t, SUM_INT64)
KERNEL(sum_float, float, SUM_FLOAT)
KERNEL(sum_double, double, SUM_FLOAT)
KERNEL(min_int32, int32_t, MIN_INT)
KERNEL(min_int64, int64_t, MIN_INT)
KERNEL(min_float, float, MIN_FLOAT)
KERNEL(min_double, double, MIN_FLOAT)
KERNEL(max_int32, int32_t, MAX_INT)
KERNEL(max_int64, int64_t, MAX_INT)
KERNEL(max_float, float, MAX_FLOAT)
KERNEL(max_double, double, MAX_FLOAT)

typedef void (*kernel_t)(void *, const void *, const void *, size_t);

static const kernel_t kernels[4][3] = {
    [SHMEM_TYPE_INT32] = {sum_int32, min_int32, max_int32},
    [SHMEM_TYPE_INT64] = {sum_int64, min_int64, max_int64},
    [SHMEM_TYPE_FLOAT] = {sum_float, min_float, max_float},
    [SHMEM_TYPE_DOUBLE] = {sum_double, min_double, max_double},
};

enum { BLOCK = 8192 }; /* bytes reduced at a time: stays in the first cache */

size_t shmemi_reduce_element(shmem_type_t type)
{
    static const size_t bytes[] = {[SHMEM_TYPE_INT32] = 4,
                                   [SHMEM_TYPE_INT64] = 8,
                                   [SHMEM_TYPE_FLOAT] = 4,
                                   [SHMEM_TYPE_DOUBLE] = 8};
    return (unsigned)type < sizeof bytes / sizeof bytes[0] ? bytes[type] : 0;
}

/* Three and more sources: intermediate results go to a block of our own, because dst may be one of
 * the sources that are still to come. */
static void reduce_many(char *dst, const void *const *src, int n, size_t count, size_t element,
                        kernel_t kernel)
{
    _Alignas(64) char block[BLOCK];
    size_t step = BLOCK / element;
    for (size_t at = 0; at < count; at += step) {
        size_t now = count - at < step ? count - at : step, offset = at * element;
        const void *so_far = (const char *)src[0] + offset;
        for (int i = 1; i < n; i++) {
            void *to = i == n - 1 ? (void *)(dst + offset) : (void *)block;
            kernel(to, so_far, (const char *)src[i] + offset, now);
            so_far = block;
        }
    }
}

void shmemi_reduce(void *dst, const void *const *src, int n, size_t count, shmem_type_t type,
                   shmem_reduce_op_t op)
{
    size_t element = shmemi_reduce_element(type);
    kernel_t kernel = kernels[type][op];
    if (n == 1) {
        if (count && dst != src[0])
            memcpy(dst, src[0], count * element);
    } else if (n == 2) {
        kernel(dst, src[0], src[1], count);
    } else {
        reduce_many(dst, src, n, count, element, kernel);
    }
}
