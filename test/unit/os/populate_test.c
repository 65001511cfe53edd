/* SPDX-License-Identifier: Apache-2.0 */
/* Making pages present, and what a new process pays for them; locking. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/settings.h"
#include "helpers.h"
#include "os/reserve.h"
#include "os/segment.h"
#include "os/space.h"

#define MIB (1ull << 20)

static int segment(uint64_t bytes, int huge)
{
    shmemi_segment_params_t p = {"shmem-populate-test", bytes, huge, 1};
    int fd;
    uint64_t rounded, page;
    CHECK_OK(shmemi_segment_create(&p, &fd, &rounded, &page));
    return fd;
}

/* Every page a number of its own, so that a page lost or exchanged shows. */
static void write_pattern(char *p, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 4096)
        *(uint64_t *)(void *)(p + at) = at * 2654435761u + 1;
}

static bool has_pattern(const char *p, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 4096)
        if (*(const uint64_t *)(const void *)(p + at) != at * 2654435761u + 1)
            return false;
    return true;
}

static uint64_t present(void *address, uint64_t bytes)
{
    static unsigned char map[64 * MIB / 4096];
    uint64_t n = 0;
    CHECK(mincore(address, bytes, map) == 0);
    for (uint64_t i = 0; i < bytes / 4096; i++)
        n += map[i] & 1;
    return n * 4096;
}

static void bad_parameters(void)
{
    int fd = segment(MIB, SHMEMI_HUGE_OFF);
    char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint64_t huge = 4711;
    CHECK_STATUS(shmemi_segment_populate(NULL, MIB, 0, 1, &huge), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_segment_populate(p + 1, MIB, 0, 1, &huge), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_segment_populate(p, MIB, 0, -1, &huge), SHMEM_ERR_INVALID);
    CHECK_OK(shmemi_segment_populate(p, 0, 0, 4, NULL));
    munmap(p, MIB);
    CHECK_STATUS(shmemi_segment_populate(p, MIB, 0, 1, &huge), SHMEM_ERR_NOMEM);
    CHECK_EQ(huge, 4711);
    close(fd);
}

/* Any size, any number of threads, any kind of pages: all present, contents kept. */
static void all_ways(void)
{
    static const uint64_t sizes[] = {4096, MIB, 6 * MIB + 8192, 40 * MIB};
    for (size_t s = 0; s < 4; s++)
        for (int threads = 0; threads <= 5; threads++)
            for (int huge = SHMEMI_HUGE_AUTO; huge <= SHMEMI_HUGE_OFF; huge += 2) {
                int fd = segment(sizes[s], SHMEMI_HUGE_OFF);
                char *p = mmap(NULL, sizes[s], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                CHECK(p != MAP_FAILED);
                write_pattern(p, sizes[s]);
                CHECK_OK(shmemi_segment_populate(p, sizes[s], huge, threads, NULL));
                CHECK_EQ(present(p, sizes[s]), sizes[s]);
                CHECK(has_pattern(p, sizes[s]));
                munmap(p, sizes[s]);
                close(fd);
            }
}

static void read_only_mapping(void)
{
    int fd = segment(4 * MIB, SHMEMI_HUGE_OFF), ro;
    CHECK_OK(shmemi_segment_read_only(fd, &ro));
    char *p = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, ro, 0);
    CHECK(p != MAP_FAILED);
    CHECK_OK(shmemi_segment_populate(p, 4 * MIB, SHMEMI_HUGE_AUTO, 2, NULL));
    munmap(p, 4 * MIB);
    close(ro);
    close(fd);
}

static void on_alarm(int number)
{
    (void)number;
}

static void survives_a_storm_of_signals(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval timer = {{0, 150}, {0, 150}}, off = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    for (int huge = SHMEMI_HUGE_AUTO; huge <= SHMEMI_HUGE_OFF; huge += 2) {
        int fd = segment(48 * MIB, SHMEMI_HUGE_OFF);
        char *p = mmap(NULL, 48 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        write_pattern(p, 48 * MIB);
        setitimer(ITIMER_REAL, &timer, NULL);
        CHECK_OK(shmemi_segment_populate(p, 48 * MIB, huge, 2, NULL));
        setitimer(ITIMER_REAL, &off, NULL);
        CHECK(has_pattern(p, 48 * MIB));
        munmap(p, 48 * MIB);
        close(fd);
    }
}

/* Another process writes all the time while small pages are exchanged for large ones. */
typedef struct busy {
    char *memory;
    _Atomic int stop;
    _Atomic int running;
} busy_t;

static void write_all_the_time(void *arg)
{
    busy_t *b = arg;
    for (uint64_t n = 1; !atomic_load(&b->stop); n++) {
        for (uint64_t at = 0; at < 16 * MIB; at += 4096)
            *(volatile uint64_t *)(void *)(b->memory + at) = n;
        for (uint64_t at = 0; at < 16 * MIB; at += 4096)
            CHECK(*(volatile uint64_t *)(void *)(b->memory + at) == n);
        atomic_store(&b->running, 1);
    }
}

static void while_another_writes(void)
{
    busy_t *b = harness_shared(sizeof *b);
    for (int round = 0; round < 5; round++) {
        int fd = segment(16 * MIB, SHMEMI_HUGE_OFF);
        b->memory = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        b->stop = b->running = 0;
        pid_t pid = harness_fork(write_all_the_time, b);
        while (!atomic_load(&b->running))
            harness_sleep(0.001);
        CHECK_OK(shmemi_segment_populate(b->memory, 16 * MIB, SHMEMI_HUGE_AUTO, 2, NULL));
        harness_sleep(0.01);
        atomic_store(&b->stop, 1);
        CHECK_EQ(harness_wait(pid, 10), 0);
        munmap(b->memory, 16 * MIB);
        close(fd);
    }
}

/* What a process pays that maps 64 MiB which another one filled. */
typedef struct attach {
    int fd;
    double populate, pass; /* seconds */
    uint64_t huge;
} attach_t;

static void attach_and_pass(void *arg)
{
    attach_t *a = arg;
    void *p;
    double t0 = harness_now();
    CHECK_OK(shmemi_space_map(0, 64 * MIB, a->fd, 1, &p));
    CHECK_OK(shmemi_segment_populate(p, 64 * MIB, SHMEMI_HUGE_AUTO, 0, NULL));
    double t1 = harness_now();
    bool right = has_pattern(p, 64 * MIB);
    double t2 = harness_now();
    CHECK(right);
    CHECK_OK(shmemi_segment_populate(p, 64 * MIB, SHMEMI_HUGE_OFF, 0, &a->huge));
    if (t1 - t0 < a->populate)
        a->populate = t1 - t0;
    if (t2 - t1 < a->pass)
        a->pass = t2 - t1;
}

static void first_pass_of_a_new_process(void)
{
    if (!shmemi_reserve_huge_possible())
        SKIP("this kernel gives no 2 MiB pages to shared memory");
    attach_t *a = harness_shared(sizeof *a);
    *a = (attach_t){segment(64 * MIB, SHMEMI_HUGE_AUTO), 1e9, 1e9, 0};
    char *p = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    CHECK(p != MAP_FAILED);
    write_pattern(p, 64 * MIB);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(harness_wait(harness_fork(attach_and_pass, a), 10), 0);
    fprintf(stderr, "  attach and populate %.3f ms, first pass %.3f ms\n", a->populate * 1e3,
            a->pass * 1e3);
    CHECK_EQ(a->huge, 64 * MIB);
    if (!harness_has_tsan() && !harness_has_asan())
        CHECK(a->pass < 0.001);
    munmap(p, 64 * MIB);
    close(a->fd);
}

static void failures_are_reported(void)
{
    int fd = segment(40 * MIB, SHMEMI_HUGE_OFF);
    char *p = mmap(NULL, 40 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int threads = 0; threads <= 2; threads++)
        for (unsigned n = 1; n <= 3; n++) {
            uint64_t huge = 4711;
            shmemi_fault_arm("os.segment.populate", SHMEMI_FAULT_FAIL, n);
            CHECK_STATUS(shmemi_segment_populate(p, 40 * MIB, SHMEMI_HUGE_OFF, threads, &huge),
                         SHMEM_ERR_NOMEM);
            CHECK_EQ(huge, 4711);
        }
    shmemi_fault_disarm();
    munmap(p, 40 * MIB);
    close(fd);
}

static int lines;
static char line_text[640];

static void sink(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    (void)user, (void)level, (void)layer;
    lines++;
    snprintf(line_text, sizeof line_text, "%s", text);
}

static void lock_too_much(void *arg)
{
    struct rlimit limit = {64 << 10, 64 << 10};
    (void)arg;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() == 0)
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    int fd = segment(MIB, SHMEMI_HUGE_OFF);
    char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    CHECK_OK(shmemi_segment_lock(p, 16 << 10));
    CHECK_EQ(lines, 0);
    CHECK_STATUS(shmemi_segment_lock(p, MIB), SHMEM_ERR_LIMIT);
    CHECK_EQ(lines, 1);
    CHECK(strstr(line_text, "1024 KiB") && strstr(line_text, "64 KiB"));
    memset(p, 1, MIB);
}

static void locking_falls_back(void)
{
    if (harness_has_tsan() || harness_has_asan())
        return; /* sanitizers make mlock() do nothing */
    CHECK_EQ(harness_wait(harness_fork(lock_too_much, NULL), 10), 0);
}

int main(void)
{
    RUN(bad_parameters);
    RUN(all_ways);
    RUN(read_only_mapping);
    RUN(survives_a_storm_of_signals);
    RUN(while_another_writes);
    RUN(first_pass_of_a_new_process);
    RUN(failures_are_reported);
    RUN(locking_falls_back);
    return harness_end();
}
