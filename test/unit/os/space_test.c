/* SPDX-License-Identifier: Apache-2.0 */
/* The unified range: reservation, mapping, references, obstacles, forks, limits. */
#include "os/space.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/settings.h"
#include "helpers.h"
#include "os/segment.h"

#define MIB  (1ull << 20)
#define UNIT SHMEMI_SPACE_UNIT

static int segment(uint64_t bytes)
{
    shmemi_segment_params_t p = {"shmem-space-test", bytes, SHMEMI_HUGE_OFF, 1};
    int fd;
    uint64_t rounded, page;
    CHECK_OK(shmemi_segment_create(&p, &fd, &rounded, &page));
    return fd;
}

/* Mappings of segments, as the kernel counts them. */
static int mapped(void)
{
    return count_maps("shmem-space-test");
}

static bool is_reserved(uint64_t offset)
{
    /* an address in use is refused; PROT_NONE is in use */
    void *want = (void *)(uintptr_t)(SHMEMI_SPACE_BASE + offset);
    void *got = mmap(want, 4096, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED)
        munmap(got, 4096);
    return got == MAP_FAILED && errno == EEXIST;
}

static void in_the_way(void *arg)
{
    (void)arg;
    void *want = (void *)(uintptr_t)(SHMEMI_SPACE_BASE + 64 * UNIT);
    int fd = segment(4096);
    void *got = mmap(want, 4096, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    CHECK(got == want);
    CHECK_STATUS(shmemi_space_reserve(), SHMEM_ERR_ADDRESS_TAKEN);
    check_detail("shmem-space-test"); /* names the file in the way */
    void *address = (void *)1;
    CHECK_STATUS(shmemi_space_map(0, 4096, fd, 1, &address), SHMEM_ERR_ADDRESS_TAKEN);
    CHECK(address == (void *)1);
    munmap(got, 4096);
    CHECK_OK(shmemi_space_reserve()); /* the way is free now */
}

static void limited(void *arg)
{
    (void)arg;
    struct rlimit limit = {SHMEMI_SPACE_BYTES / 2, SHMEMI_SPACE_BYTES / 2};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK_STATUS(shmemi_space_reserve(), SHMEM_ERR_LIMIT);
    check_detail("ulimit -v");
}

/* In children, because here the range is reserved once for all. */
static void obstacles_are_named(void)
{
    CHECK_EQ(harness_wait(harness_fork(in_the_way, NULL), 10), 0);
    if (harness_has_tsan() || harness_has_asan())
        return; /* a sanitizer's shadow is beyond any RLIMIT_AS */
    CHECK_EQ(harness_wait(harness_fork(limited, NULL), 10), 0);
}

static void bad_parameters(void)
{
    int fd = segment(MIB);
    void *address = (void *)1;
    const uint64_t bad[][2] = {{4096, 4096},
                               {0, 0},
                               {0, 4097},
                               {SHMEMI_SPACE_BYTES, 4096},
                               {SHMEMI_SPACE_BYTES - UNIT, UNIT + 4096},
                               {UINT64_MAX & ~(UNIT - 1), 4096},
                               {0, UINT64_MAX & ~4095ull},
                               {0, MIB + 4096}}; /* longer than the file */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_STATUS(shmemi_space_map(bad[i][0], bad[i][1], fd, 1, &address), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_space_map(0, 4096, -1, 1, &address), SHMEM_ERR_SYSTEM);
    CHECK(address == (void *)1);
    CHECK_STATUS(shmemi_space_unmap(NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_space_unmap(&fd), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_space_unmap((void *)(uintptr_t)SHMEMI_SPACE_BASE), SHMEM_ERR_INVALID);
    CHECK_EQ(mapped(), 0);
    close(fd);
}

static void maps_at_its_place(void)
{
    CHECK_OK(shmemi_space_reserve());
    CHECK_OK(shmemi_space_reserve());
    int fd = segment(MIB);
    char *first, *last;
    CHECK_OK(shmemi_space_map(4 * UNIT, MIB, fd, 1, (void **)&first));
    CHECK_OK(shmemi_space_map(SHMEMI_SPACE_BYTES - UNIT, MIB, fd, 1, (void **)&last));
    CHECK_EQ((uintptr_t)first, SHMEMI_SPACE_BASE + 4 * UNIT);
    CHECK_EQ((uintptr_t)last, SHMEMI_SPACE_BASE + SHMEMI_SPACE_BYTES - UNIT);
    strcpy(first, "the same memory");
    CHECK_STR(last, "the same memory");
    CHECK_OK(shmemi_space_unmap(first));
    CHECK_STR(last, "the same memory");
    CHECK_OK(shmemi_space_unmap(last));
    CHECK_EQ(mapped(), 0);
    CHECK(is_reserved(4 * UNIT) && is_reserved(SHMEMI_SPACE_BYTES - UNIT));
    close(fd);
}

static void references_count(void)
{
    int fd = segment(MIB), copy = dup(fd);
    void *a, *b;
    CHECK_OK(shmemi_space_map(0, MIB, fd, 1, &a));
    CHECK_OK(shmemi_space_map(0, MIB, copy, 1, &b)); /* another descriptor of the same file */
    CHECK(a == b);
    CHECK_EQ(mapped(), 1);
    CHECK_OK(shmemi_space_unmap(a));
    CHECK_EQ(mapped(), 1);
    *(char *)a = 1;
    CHECK_OK(shmemi_space_unmap(a));
    CHECK_EQ(mapped(), 0);
    CHECK_STATUS(shmemi_space_unmap(a), SHMEM_ERR_INVALID);
    CHECK(is_reserved(0));
    close(fd);
    close(copy);
}

static void others_in_the_place(void)
{
    int one = segment(4 * MIB), two = segment(4 * MIB), ro;
    void *a, *x = (void *)1;
    CHECK_OK(shmemi_segment_read_only(one, &ro));
    CHECK_OK(shmemi_space_map(2 * UNIT, 4 * MIB, one, 1, &a));
    CHECK_STATUS(shmemi_space_map(2 * UNIT, 4 * MIB, two, 1, &x), SHMEM_ERR_ADDRESS_TAKEN);
    CHECK_STATUS(shmemi_space_map(UNIT, 4 * MIB, two, 1, &x), SHMEM_ERR_ADDRESS_TAKEN);
    CHECK_STATUS(shmemi_space_map(3 * UNIT, 4096, two, 1, &x), SHMEM_ERR_ADDRESS_TAKEN);
    CHECK_STATUS(shmemi_space_map(2 * UNIT, 2 * MIB, one, 1, &x), SHMEM_ERR_ADDRESS_TAKEN);
    CHECK_STATUS(shmemi_space_map(2 * UNIT, 4 * MIB, ro, 0, &x), SHMEM_ERR_STATE);
    CHECK(x == (void *)1);
    CHECK_EQ(mapped(), 1);
    CHECK_OK(shmemi_space_map(UNIT, UNIT, two, 1, &x)); /* beside it */
    CHECK_OK(shmemi_space_unmap(x));
    CHECK_OK(shmemi_space_unmap(a));
    close(one);
    close(two);
    close(ro);
}

static sigjmp_buf caught;

static void on_fault(int number)
{
    (void)number;
    siglongjmp(caught, 1);
}

/* Does writing (or reading) there raise SIGSEGV? */
static bool faults(volatile char *p, bool writing)
{
    struct sigaction action = {.sa_handler = on_fault}, old;
    sigaction(SIGSEGV, &action, &old);
    volatile bool hit = true;
    if (sigsetjmp(caught, 1) == 0) {
        if (writing)
            *p = 1;
        else
            (void)*p;
        hit = false;
    }
    sigaction(SIGSEGV, &old, NULL);
    return hit;
}

static void rights_hold(void)
{
    int fd = segment(MIB), ro;
    char *p;
    void *x = (void *)1;
    CHECK_OK(shmemi_segment_read_only(fd, &ro));
    CHECK_STATUS(shmemi_space_map(0, MIB, ro, 1, &x), SHMEM_ERR_ACCESS);
    CHECK(x == (void *)1 && is_reserved(0)); /* the failed mapping left PROT_NONE in place */
    CHECK_OK(shmemi_space_map(0, MIB, ro, 0, (void **)&p));
    CHECK(!faults(p, false) && faults(p, true));
    CHECK_OK(shmemi_space_unmap(p));
    CHECK(faults(p, false));
    CHECK_OK(shmemi_space_map(0, MIB, fd, 1, (void **)&p));
    CHECK(!faults(p, true));
    CHECK_OK(shmemi_space_unmap(p));
    close(fd);
    close(ro);
}

typedef struct family {
    char *memory;
    int fd, other;
} family_t;

static void child_side(void *arg)
{
    family_t *f = arg;
    char *again;
    CHECK_STR(f->memory, "from the parent"); /* the inherited mapping is there */
    CHECK_STATUS(shmemi_space_unmap(f->memory), SHMEM_ERR_INVALID); /* but it is not ours */
    CHECK_OK(shmemi_space_map(0, MIB, f->fd, 1, (void **)&again));
    strcpy(again, "from the child");
    CHECK_OK(shmemi_space_unmap(again));
    CHECK(faults(again, false));
    CHECK_OK(shmemi_space_map(0, MIB, f->other, 1, (void **)&again)); /* something else there */
    CHECK_OK(shmemi_space_unmap(again));
}

static void forked_child_starts_anew(void)
{
    family_t f = {NULL, segment(MIB), segment(MIB)};
    CHECK_OK(shmemi_space_map(0, MIB, f.fd, 1, (void **)&f.memory));
    strcpy(f.memory, "from the parent");
    CHECK_EQ(harness_wait(harness_fork(child_side, &f), 10), 0);
    CHECK_STR(f.memory, "from the child");
    CHECK_OK(shmemi_space_unmap(f.memory));
    close(f.fd);
    close(f.other);
}

/* Threads map and unmap while another forks: the child's table is never locked. */
static _Atomic int stop;

static void map_in_child(void *arg)
{
    void *p;
    CHECK_OK(shmemi_space_map(8 * UNIT, MIB, *(int *)arg, 1, &p));
    CHECK_OK(shmemi_space_unmap(p));
    _exit(0); /* what the parent's threads hold is no leak of this child */
}

static void fork_or_map(int rank, int n, void *arg)
{
    void *p;
    (void)n;
    if (rank == 0) {
        for (int i = 0; i < 20; i++)
            CHECK_EQ(harness_wait(harness_fork(map_in_child, arg), 10), 0);
        atomic_store(&stop, 1);
        return;
    }
    while (!atomic_load(&stop)) {
        CHECK_OK(shmemi_space_map((uint64_t)(rank % 2) * UNIT, MIB, *(int *)arg, 1, &p));
        atomic_store((_Atomic int *)p, 1);
        CHECK_OK(shmemi_space_unmap(p));
    }
}

static void threads_and_forks(void)
{
    int fd = segment(MIB);
    harness_pes(4, HARNESS_THREAD, 30, fork_or_map, &fd);
    CHECK_EQ(mapped(), 0);
    close(fd);
}

static void map_and_unmap(int rank, int n, void *arg)
{
    void *p;
    (void)n;
    for (int i = 0; i < 300; i++) {
        CHECK_OK(shmemi_space_map((uint64_t)((rank + i) % 3) * UNIT, MIB, *(int *)arg, 1, &p));
        atomic_fetch_add((_Atomic int *)p, 1);
        CHECK_OK(shmemi_space_unmap(p));
    }
}

static void threads_share(void)
{
    int fd = segment(MIB), total = 0;
    harness_pes(4, HARNESS_THREAD, 30, map_and_unmap, &fd);
    CHECK(pread(fd, &total, sizeof total, 0) == sizeof total);
    CHECK_EQ(total, 4 * 300);
    CHECK_EQ(mapped(), 0);
    close(fd);
}

static void many_mappings(void)
{
    enum { N = 200 };
    int fd = segment(MIB);
    void *p[N];
    for (uint64_t i = 0; i < N; i++)
        CHECK_OK(shmemi_space_map(i * UNIT, MIB, fd, 1, &p[i]));
    CHECK_EQ(mapped(), N);
    for (int i = 0; i < N; i++)
        CHECK_OK(shmemi_space_unmap(p[(i * 7) % N]));
    CHECK_EQ(mapped(), 0);
    close(fd);
}

static void injected(void)
{
    int fd = segment(MIB);
    void *p = (void *)1;
    shmemi_fault_arm("os.space.map", SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmemi_space_map(0, MIB, fd, 1, &p), SHMEM_ERR_NOMEM);
    CHECK(p == (void *)1 && mapped() == 0);
    CHECK_OK(shmemi_space_map(0, MIB, fd, 1, &p));
    shmemi_fault_disarm();
    CHECK_OK(shmemi_space_unmap(p));
    close(fd);
}

int main(void)
{
    RUN(obstacles_are_named);
    RUN(bad_parameters);
    RUN(maps_at_its_place);
    RUN(references_count);
    RUN(others_in_the_place);
    RUN(rights_hold);
    RUN(forked_child_starts_anew);
    RUN(threads_and_forks);
    RUN(threads_share);
    RUN(many_mappings);
    RUN(injected);
    return harness_end();
}
