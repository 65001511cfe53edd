/* SPDX-License-Identifier: Apache-2.0 */
/* How long does a barrier of 2 PEs on 2 processors take, and of 4 and 8? */
#include "jobs.h"

enum { REPEATS = 15 };

static void barriers(shmem_context_t context, int rank, int n)
{
    double samples[REPEATS];
    int count = n <= 2 ? 50000 : 3000;
    char what[32];
    for (int i = 0; i < 1000; i++)
        BENCH_OK(shmem_context_barrier(context));
    for (int r = 0; r < REPEATS; r++) {
        double begin = bench_now_ns();
        for (int i = 0; i < count; i++)
            shmem_context_barrier(context);
        samples[r] = (bench_now_ns() - begin) / count / 1000;
    }
    snprintf(what, sizeof what, "%d PEs", n);
    if (rank == 0)
        bench_report("barrier", what, "shmem", "us", bench_summary(samples, REPEATS));
}

int main(void)
{
    int failed = 0;
    for (int n = 2; n <= 8; n *= 2) {
        failed |= bench_job(n, barriers);
        if (n <= 4)
            bench_oshmem("barrier", "barrier", n);
    }
    return failed;
}
