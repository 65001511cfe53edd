/* SPDX-License-Identifier: Apache-2.0 */
/* How long does an allreduce of floats take: 8 bytes to 16 MiB, in symmetric and in private memory?
 * "new data": every PE writes its whole source before each one, which is part of the time. */
#include "jobs.h"

enum { REPEATS = 15 };

static const size_t sizes[] = {8, 1024, 16384, 65536, 262144, 1048576, 16777216};

static void measure(shmem_context_t context, int rank, int n, const char *kind, float *dst,
                    float *src, size_t bytes, int fill)
{
    double samples[REPEATS];
    char what[64];
    int count = bytes >= 16777216 ? 3 : bytes >= 65536 ? 40 : 500;
    for (int r = -2; r < REPEATS; r++) {
        double begin = bench_now_ns();
        for (int i = 0; i < count; i++) {
            for (size_t k = 0; fill && k < bytes / sizeof(float); k++)
                src[k] = (float)(i + rank);
            BENCH_OK(shmem_coll_allreduce(context, dst, src, bytes / sizeof(float),
                                          SHMEM_TYPE_FLOAT, SHMEM_SUM));
        }
        if (r >= 0)
            samples[r] = (bench_now_ns() - begin) / count / 1000;
    }
    snprintf(what, sizeof what, "%d PEs %zu bytes, %s", n, bytes, kind);
    if (rank == 0)
        bench_report("allreduce", what, "shmem", "us", bench_summary(samples, REPEATS));
}

static void allreduces(shmem_context_t context, int rank, int n)
{
    size_t most = sizes[sizeof sizes / sizeof sizes[0] - 1];
    shmem_memory_t memory;
    BENCH_OK(shmem_memory_create(context, &memory, 2 * most));
    char *mine = shmem_memory_map(memory);
    if (!mine)
        BENCH_OK(SHMEM_ERR_NOMEM);
    char *other = aligned_alloc(4096, 2 * most);
    memset(other, 0, 2 * most);
    memset(mine, 0, 2 * most);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        float *src = (float *)(void *)mine, *dst = (float *)(void *)(mine + most);
        float *far = (float *)(void *)other;
        measure(context, rank, n, "symmetric", dst, src, sizes[i], 0);
        measure(context, rank, n, "symmetric, new data", dst, src, sizes[i], 1);
        measure(context, rank, n, "in place", src, src, sizes[i], 0);
        measure(context, rank, n, "private", far + most / sizeof(float), far, sizes[i], 0);
    }
    free(other);
}

int main(void)
{
    int failed = 0;
    for (int n = 2; n <= 4; n *= 2) {
        failed |= bench_job(n, allreduces);
        bench_oshmem("allreduce", "allreduce", n);
    }
    return failed;
}
