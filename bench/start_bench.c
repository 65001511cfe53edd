/* SPDX-License-Identifier: Apache-2.0 */
/* How long do start, init and finalize of 4 PEs take, from the command line to its end? */
#include "jobs.h"

enum { REPEATS = 9, PES = 4 };

static int as_pe(void)
{
    shmem_context_t context;
    BENCH_OK(shmem_context_init(&context));
    BENCH_OK(shmem_context_barrier(context));
    BENCH_OK(shmem_context_finalize(context));
    return 0;
}

static char command[2048];

static double once(void *arg)
{
    (void)arg;
    double begin = bench_now_ns();
    if (system(command) != 0)
        exit(1);
    return (bench_now_ns() - begin) / 1e6;
}

int main(int argc, char **argv)
{
    char self[1024];
    if (argc > 1 && strcmp(argv[1], "--pe") == 0)
        return as_pe();
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return 1;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    snprintf(command, sizeof command, "%.*s/shmem-run -n %d %s --pe", (int)(slash - self), self,
             PES, self);
    bench_report("start", "4 PEs", "shmem", "ms", bench_repeat(REPEATS, once, NULL));
    bench_oshmem("start", "start", PES);
    return 0;
}
