/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a new process pay to read 64 MiB that another one filled? Mapping and first pass (one
 * load from each 4 KiB page) are timed apart. Beside it: a plain memfd, mapped as it is and with
 * MAP_POPULATE.
 */
#include <sys/mman.h>

#include "jobs.h"

enum { BYTES = 64 << 20, PAGE = 4096, REPEATS = 11 };

static int plain; /* a memfd that both PEs inherit */

static double pass(const volatile char *memory)
{
    double begin = bench_now_ns();
    for (size_t i = 0; i < BYTES; i += PAGE)
        (void)memory[i];
    return (bench_now_ns() - begin) / 1e3;
}

static void report(const char *who, double *map, double *first)
{
    bench_report("first_pass", "map 64 MiB", who, "us", bench_summary(map, REPEATS));
    bench_report("first_pass", "first pass over it", who, "us", bench_summary(first, REPEATS));
}

static void measure_plain(const char *who, int flags)
{
    double map[REPEATS], first[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        double begin = bench_now_ns();
        char *memory = mmap(NULL, BYTES, PROT_READ, MAP_SHARED | flags, plain, 0);
        map[i] = (bench_now_ns() - begin) / 1e3;
        if (memory == MAP_FAILED)
            _exit(1);
        first[i] = pass(memory);
        munmap(memory, BYTES);
    }
    report(who, map, first);
}

static void measure_shmem(shmem_memory_t memory)
{
    double map[REPEATS], first[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        double begin = bench_now_ns();
        void *mine = shmem_memory_map(memory);
        map[i] = (bench_now_ns() - begin) / 1e3;
        if (!mine)
            _exit(1);
        first[i] = pass(shmem_memory_address(memory, 0));
        BENCH_OK(shmem_memory_unmap(mine));
    }
    report("shmem", map, first);
}

static void fill(char *memory)
{
    for (size_t i = 0; i < BYTES; i += 64)
        memory[i] = 1;
}

static void pe(shmem_context_t context, int rank, int n)
{
    shmem_memory_t memory;
    (void)n;
    BENCH_OK(shmem_memory_create(context, &memory, BYTES));
    char *mine = shmem_memory_map(memory);
    if (rank == 0) {
        char *other = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, plain, 0);
        fill(mine);
        fill(other);
        munmap(other, BYTES);
    }
    BENCH_OK(shmem_barrier(context));
    BENCH_OK(shmem_memory_unmap(mine));
    if (rank == 1) {
        measure_plain("memfd, mmap", 0);
        measure_plain("memfd, MAP_POPULATE", MAP_POPULATE);
        measure_shmem(memory);
    }
    BENCH_OK(shmem_barrier(context));
    BENCH_OK(shmem_memory_destroy(memory));
}

int main(void)
{
    plain = memfd_create("bench", MFD_CLOEXEC);
    if (plain < 0 || ftruncate(plain, BYTES))
        return 1;
    return bench_job(2, pe);
}
