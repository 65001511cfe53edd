/* SPDX-License-Identifier: Apache-2.0 */
/* Filling segments: every page there, whatever signals come; 2 MiB pages; giving pages back. */
#include "os/reserve.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/settings.h"
#include "helpers.h"
#include "os/segment.h"

#define MIB (1ull << 20)

static int new_segment(uint64_t bytes)
{
    shmemi_segment_params_t p = {"shmem-reserve-test", bytes, SHMEMI_HUGE_AUTO, 0};
    int fd;
    uint64_t rounded, page;
    CHECK_OK(shmemi_segment_create(&p, &fd, &rounded, &page));
    return fd;
}

static uint64_t filled(int fd)
{
    struct stat info;
    CHECK(fstat(fd, &info) == 0);
    return (uint64_t)info.st_blocks * 512;
}

/* Bytes of the file that 2 MiB pages back, seen through a fresh mapping. */
static uint64_t huge_bytes(int fd, uint64_t bytes)
{
    char *area =
        mmap(NULL, bytes + SHMEMI_HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    char *start = (char *)(((uintptr_t)area + SHMEMI_HUGE_PAGE - 1) & ~(SHMEMI_HUGE_PAGE - 1));
    CHECK(mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == start);
    uint64_t huge = 0; /* OFF: look, do not make */
    CHECK_OK(shmemi_segment_populate(start, bytes, SHMEMI_HUGE_OFF, 1, &huge));
    munmap(area, bytes + SHMEMI_HUGE_PAGE);
    return huge;
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void storm(int microseconds)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void fills_exactly(void)
{
    int fd = new_segment(64 * MIB);
    CHECK_EQ(filled(fd), 0);
    CHECK_OK(shmemi_segment_reserve(fd, 4096, 8192));
    CHECK_EQ(filled(fd), 8192);
    CHECK_OK(shmemi_segment_reserve(fd, 0, 0));
    CHECK_OK(shmemi_segment_reserve(fd, 0, 16 * MIB));
    CHECK_EQ(filled(fd), 16 * MIB);
    CHECK_OK(shmemi_segment_reserve(fd, 0, 64 * MIB));
    CHECK_EQ(filled(fd), 64 * MIB);
    close(fd);
}

static void outside_is_refused(void)
{
    int fd = new_segment(MIB);
    const uint64_t bad[][2] = {{0, MIB + 1},    {MIB, 1},           {MIB + 1, 0},
                               {UINT64_MAX, 2}, {4096, UINT64_MAX}, {4096, UINT64_MAX - 4095}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_STATUS(shmemi_segment_reserve(fd, bad[i][0], bad[i][1]), SHMEM_ERR_INVALID);
        CHECK_STATUS(shmemi_segment_release(fd, bad[i][0], bad[i][1]), SHMEM_ERR_INVALID);
    }
    CHECK_EQ(filled(fd), 0);
    close(fd);
    CHECK_STATUS(shmemi_segment_reserve(fd, 0, 1), SHMEM_ERR_SYSTEM);
}

/* Signals come faster than a piece of 256 MiB, or of 2 MiB, can be filled. */
static void survives_a_storm_of_signals(void)
{
    for (int huge = SHMEMI_HUGE_AUTO; huge <= SHMEMI_HUGE_OFF; huge += 2) {
        int fd = new_segment(96 * MIB);
        alarms = 0;
        storm(150);
        CHECK_OK(shmemi_segment_reserve_huge(fd, 0, 96 * MIB, huge));
        storm(0);
        CHECK_EQ(filled(fd), 96 * MIB);
        CHECK(alarms > 0); /* newer kernels heed only fatal ones in fallocate */
        close(fd);
    }
}

/* A kernel that a signal interrupts in every call for more than 64 KiB. */
static void interrupt_large_calls(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 65536, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINTR),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void fill_interrupted(void *arg)
{
    (void)arg;
    int fd = new_segment(300 * MIB);
    interrupt_large_calls();
    CHECK(fallocate(fd, 0, 0, 65537) == -1 && errno == EINTR);
    CHECK_OK(shmemi_segment_reserve(fd, 0, 20 * MIB + 4096));
    CHECK_EQ(filled(fd), 20 * MIB + 4096);
}

static void pieces_shrink_when_interrupted(void)
{
    CHECK_EQ(harness_wait(harness_fork(fill_interrupted, NULL), 10), 0);
}

static void gives_back(void)
{
    int fd = new_segment(8 * MIB);
    CHECK_OK(shmemi_segment_reserve_huge(fd, 0, 8 * MIB, SHMEMI_HUGE_AUTO));
    CHECK(pwrite(fd, "old", 3, 5 * MIB) == 3);
    CHECK_OK(shmemi_segment_release(fd, 4 * MIB, 2 * MIB));
    CHECK_EQ(filled(fd), 6 * MIB);
    CHECK_OK(shmemi_segment_release(fd, 0, 0));
    CHECK_OK(shmemi_segment_reserve(fd, 4 * MIB, 2 * MIB));
    CHECK_EQ(filled(fd), 8 * MIB);
    char text[3] = "???";
    CHECK(pread(fd, text, 3, 5 * MIB) == 3 && memcmp(text, "\0\0\0", 3) == 0);
    close(fd);
}

static void huge_where_it_fits(void)
{
    if (!shmemi_reserve_huge_possible())
        SKIP("this kernel gives no 2 MiB pages to shared memory");
    int fd = new_segment(64 * MIB);
    CHECK_OK(shmemi_segment_reserve_huge(fd, 0, 64 * MIB, SHMEMI_HUGE_REQUIRED));
    CHECK_EQ(huge_bytes(fd, 64 * MIB), 64 * MIB);
    close(fd);
    fd = new_segment(16 * MIB); /* only the aligned inside: [2, 8) of [1 MiB, 9 MiB) */
    CHECK_OK(shmemi_segment_reserve_huge(fd, MIB, 8 * MIB, SHMEMI_HUGE_AUTO));
    CHECK_EQ(filled(fd), 8 * MIB);
    CHECK_OK(shmemi_segment_reserve(fd, 0, 16 * MIB));
    CHECK_EQ(huge_bytes(fd, 16 * MIB), 6 * MIB);
    close(fd);
}

static void huge_keeps_contents(void)
{
    int fd = new_segment(4 * MIB);
    CHECK(pwrite(fd, "start", 5, 0) == 5 && pwrite(fd, "inside", 6, 3 * MIB + 77) == 6);
    CHECK_OK(shmemi_segment_reserve_huge(fd, 0, 4 * MIB, SHMEMI_HUGE_AUTO));
    CHECK_EQ(filled(fd), 4 * MIB);
    char text[6];
    CHECK(pread(fd, text, 5, 0) == 5 && memcmp(text, "start", 5) == 0);
    CHECK(pread(fd, text, 6, 3 * MIB + 77) == 6 && memcmp(text, "inside", 6) == 0);
    CHECK(pread(fd, text, 1, MIB) == 1 && text[0] == 0);
    close(fd);
}

/* The kernel gives small pages: auto goes on with them, required says so. */
static void small_pages_only(void)
{
    int fd = new_segment(8 * MIB);
    shmemi_fault_arm("os.segment.collapse", SHMEMI_FAULT_FAIL, 1);
    CHECK_OK(shmemi_segment_reserve_huge(fd, 0, 8 * MIB, SHMEMI_HUGE_AUTO));
    CHECK_EQ(shmemi_fault_passages(), 1);
    CHECK_EQ(filled(fd), 8 * MIB);
    CHECK_EQ(huge_bytes(fd, 8 * MIB), 0);
    shmemi_fault_arm("os.segment.collapse", SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmemi_segment_reserve_huge(fd, 0, 8 * MIB, SHMEMI_HUGE_REQUIRED),
                 SHMEM_ERR_UNSUPPORTED);
    check_detail("SHMEM_HUGE_PAGES");
    shmemi_fault_disarm();
    close(fd);
}

static void required_at_creation(void)
{
    bool reserve = true;
    do {
        shmemi_segment_params_t p = {"shmem-required", 4 * MIB, SHMEMI_HUGE_REQUIRED, reserve};
        int fd = -77, before = count_fds();
        uint64_t bytes, page;
        shmem_status_t status;
        shmemi_fault_arm("os.segment.collapse", SHMEMI_FAULT_FAIL, 1);
        status = shmemi_segment_create(&p, &fd, &bytes, &page);
        if (shmemi_fault_passages()) { /* no hugetlb pages here */
            CHECK_EQ(status, SHMEM_ERR_UNSUPPORTED);
            CHECK(fd == -77 && count_fds() == before);
        } else {
            CHECK(status == SHMEM_OK && page == SHMEMI_HUGE_PAGE);
            close(fd);
        }
        shmemi_fault_disarm();
        reserve = !reserve;
    } while (!reserve);
}

/* A failure in the middle leaves earlier pieces; asking again completes. */
static void failure_in_the_middle(void)
{
    int fd = new_segment(12 * MIB);
    for (unsigned n = 1; n < 20; n++) {
        shmemi_fault_arm("os.segment.reserve", SHMEMI_FAULT_FAIL, n);
        shmem_status_t status = shmemi_segment_reserve_huge(fd, 0, 12 * MIB, SHMEMI_HUGE_AUTO);
        CHECK(status == SHMEM_OK || status == SHMEM_ERR_NOMEM);
        if (status == SHMEM_OK)
            CHECK_EQ(filled(fd), 12 * MIB);
        shmemi_fault_disarm();
        CHECK_OK(shmemi_segment_release(fd, 0, 12 * MIB));
    }
    close(fd);
}

static void fill_one(int rank, int n, void *arg)
{
    (void)n;
    CHECK_OK(shmemi_segment_reserve_huge(*(int *)arg, (uint64_t)(rank % 2) * 8 * MIB, 16 * MIB,
                                         SHMEMI_HUGE_AUTO));
}

static void several_fill_at_once(void)
{
    for (int mode = HARNESS_PROC; mode <= HARNESS_THREAD; mode++) {
        int fd = new_segment(24 * MIB);
        harness_pes(4, (harness_mode_t)mode, 20, fill_one, &fd);
        CHECK_EQ(filled(fd), 24 * MIB);
        close(fd);
    }
}

int main(void)
{
    RUN(fills_exactly);
    RUN(outside_is_refused);
    RUN(survives_a_storm_of_signals);
    RUN(pieces_shrink_when_interrupted);
    RUN(gives_back);
    RUN(huge_where_it_fits);
    RUN(huge_keeps_contents);
    RUN(small_pages_only);
    RUN(required_at_creation);
    RUN(failure_in_the_middle);
    RUN(several_fill_at_once);
    return harness_end();
}
