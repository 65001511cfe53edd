/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce_bench for OpenSHMEM. */
#include <shmem.h>

#include "bench.h"

enum { REPEATS = 15 };

static const size_t sizes[] = {8, 1024, 16384, 65536, 262144, 1048576};

static long sync_words[SHMEM_REDUCE_SYNC_SIZE];

static void measure(float *dst, float *src, float *work, size_t bytes, int fill)
{
    double samples[REPEATS];
    char what[64];
    int n = shmem_n_pes(), count = bytes >= 65536 ? 40 : 500;
    for (int r = -2; r < REPEATS; r++) {
        double begin = bench_now_ns();
        for (int i = 0; i < count; i++) {
            for (size_t k = 0; fill && k < bytes / sizeof(float); k++)
                src[k] = (float)(i + shmem_my_pe());
            shmem_float_sum_to_all(dst, src, (int)(bytes / sizeof(float)), 0, 0, n, work,
                                   sync_words);
            shmem_barrier_all(); /* the same work array may not be used before */
        }
        if (r >= 0)
            samples[r] = (bench_now_ns() - begin) / count / 1000;
    }
    snprintf(what, sizeof what, "%d PEs %zu bytes, symmetric%s", n, bytes,
             fill ? ", new data" : "");
    if (shmem_my_pe() == 0)
        bench_report("allreduce", what, "oshmem", "us", bench_summary(samples, REPEATS));
}

int main(void)
{
    shmem_init();
    size_t most = sizes[sizeof sizes / sizeof sizes[0] - 1];
    bench_pin(shmem_my_pe());
    float *src = shmem_malloc(most), *dst = shmem_malloc(most), *work = shmem_malloc(most);
    for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
        sync_words[i] = SHMEM_SYNC_VALUE;
    for (size_t i = 0; i < most / sizeof(float); i++)
        src[i] = dst[i] = 0;
    shmem_barrier_all();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int fill = 0; fill < 2; fill++)
            measure(dst, src, work, sizes[i], fill);
    shmem_barrier_all();
    _Exit(0); /* its finalize may crash */
}
