/* SPDX-License-Identifier: Apache-2.0 */
/* barrier_bench for OpenSHMEM. */
#include <shmem.h>

#include "bench.h"

enum { REPEATS = 15 };

int main(void)
{
    shmem_init();
    double samples[REPEATS];
    int n = shmem_n_pes(), count = n <= 2 ? 50000 : 3000;
    char what[32];
    bench_pin(shmem_my_pe());
    for (int i = 0; i < 1000; i++)
        shmem_barrier_all();
    for (int r = 0; r < REPEATS; r++) {
        double begin = bench_now_ns();
        for (int i = 0; i < count; i++)
            shmem_barrier_all();
        samples[r] = (bench_now_ns() - begin) / count / 1000;
    }
    snprintf(what, sizeof what, "%d PEs", n);
    if (shmem_my_pe() == 0)
        bench_report("barrier", what, "oshmem", "us", bench_summary(samples, REPEATS));
    shmem_barrier_all();
    _Exit(0); /* its finalize may crash */
}
