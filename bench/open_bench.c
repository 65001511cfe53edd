/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does it cost a connected program to open a pool or a region by name?
 *
 *   again   it has it open already: nobody is asked
 *   first   it has not: the server is asked, the memory is mapped and brought in
 *
 * Peer: shm_open() and mmap() of an object of that size, with its pages brought in or not.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <shmem/shmem.h>

#include "bench.h"

enum { TIMES = 20000, FIRST_TIMES = 50, REPEATS = 15 };
#define BYTES ((size_t)16 << 20)

static shmem_context_t owner, user;
static char name[64], posix_name[65];

static void must(shmem_status_t status, const char *what)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", what, shmem_error_detail()->text);
        exit(1);
    }
}

static void pool_once(shmem_context_t context)
{
    shmem_pool_t pool = NULL;
    must(shmem_pool_open(context, name, &pool), "open");
    shmem_pool_close(pool);
}

static void region_once(shmem_context_t context)
{
    shmem_region_t region = NULL;
    must(shmem_region_open(context, name, SHMEM_MAP_READ_WRITE, &region), "open");
    if (!shmem_region_map(region, SHMEM_MAP_READ_WRITE))
        must(shmem_error_detail()->status, "map");
    shmem_region_close(region);
}

static void posix_once(int flags)
{
    int fd = shm_open(posix_name, O_RDWR, 0);
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
    if (fd < 0 || p == MAP_FAILED)
        exit(1);
    munmap(p, BYTES);
    close(fd);
}

static double pool_again(void *arg)
{
    (void)arg;
    double begin = bench_now_ns();
    for (int i = 0; i < TIMES; i++)
        pool_once(owner);
    return (bench_now_ns() - begin) / TIMES;
}

static double region_again(void *arg)
{
    shmem_region_t region = NULL;
    (void)arg;
    double begin = bench_now_ns();
    for (int i = 0; i < TIMES; i++) {
        must(shmem_region_open(owner, name, SHMEM_MAP_READ_WRITE, &region), "open");
        shmem_region_close(region);
    }
    return (bench_now_ns() - begin) / TIMES;
}

static double pool_first(void *arg)
{
    (void)arg;
    double begin = bench_now_ns();
    for (int i = 0; i < FIRST_TIMES; i++)
        pool_once(user);
    return (bench_now_ns() - begin) / FIRST_TIMES;
}

static double region_first(void *arg)
{
    (void)arg;
    double begin = bench_now_ns();
    for (int i = 0; i < FIRST_TIMES; i++)
        region_once(user);
    return (bench_now_ns() - begin) / FIRST_TIMES;
}

static double posix_first(void *arg)
{
    double begin = bench_now_ns();
    for (int i = 0; i < FIRST_TIMES; i++)
        posix_once(*(int *)arg);
    return (bench_now_ns() - begin) / FIRST_TIMES;
}

static void report(const char *what, const char *who, double (*function)(void *), void *arg)
{
    bench_report("open by name", what, who, "ns", bench_repeat(REPEATS, function, arg));
}

static void measure_posix(void)
{
    int bare = 0, populated = MAP_POPULATE;
    int fd = shm_open(posix_name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, BYTES)) {
        bench_missing("open by name", "first, 16 MiB", "shm_open + mmap", "no room in /dev/shm");
    } else {
        report("first, 16 MiB", "shm_open + mmap", posix_first, &bare);
        report("first, 16 MiB, pages brought in", "shm_open + mmap", posix_first, &populated);
    }
    close(fd);
    shm_unlink(posix_name);
}

int main(void)
{
    shmem_pool_t pool = NULL;
    shmem_region_t region = NULL;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_region_params_t region_params = SHMEM_REGION_PARAMS_INIT;
    snprintf(name, sizeof name, "bench-open-%d", (int)getpid());
    snprintf(posix_name, sizeof posix_name, "/%s", name);
    params.bytes = region_params.bytes = BYTES;
    must(shmem_context_init(&owner), "context");
    must(shmem_context_init(&user), "context");
    must(shmem_pool_create(owner, name, &params, &pool), "pool");
    must(shmem_region_create(owner, name, &region_params, &region), "region");
    bench_pin(0);
    report("again, pool", "shmem", pool_again, NULL);
    report("again, region", "shmem", region_again, NULL);
    report("first, 16 MiB, pages brought in, pool", "shmem", pool_first, NULL);
    report("first, 16 MiB, region", "shmem", region_first, NULL);
    measure_posix();
    shmem_region_close(region);
    shmem_pool_close(pool);
    must(shmem_context_finalize(user), "finalize");
    must(shmem_context_finalize(owner), "finalize");
    return 0;
}
