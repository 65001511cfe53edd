/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: creation, seals, rights, hostile descriptors, failures. */
#include "os/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/settings.h"
#include "helpers.h"

static int create(uint64_t bytes, int huge, int reserve)
{
    shmemi_segment_params_t p = {"shmem-test", bytes, huge, reserve};
    int fd;
    uint64_t rounded, page;
    CHECK_OK(shmemi_segment_create(&p, &fd, &rounded, &page));
    CHECK(rounded >= bytes && rounded - bytes < page && rounded % page == 0);
    return fd;
}

static void bad_parameters(void)
{
    char name[202];
    memset(name, 'n', sizeof name);
    name[201] = 0;
    int fd = -77;
    uint64_t bytes = 1, page = 2;
    shmemi_segment_params_t p = {name, 4096, SHMEMI_HUGE_OFF, 1};
    CHECK_STATUS(shmemi_segment_create(&p, &fd, &bytes, &page), SHMEM_ERR_INVALID);
    p.name = "";
    CHECK_STATUS(shmemi_segment_create(&p, &fd, &bytes, &page), SHMEM_ERR_INVALID);
    p.name = NULL;
    CHECK_STATUS(shmemi_segment_create(&p, &fd, &bytes, &page), SHMEM_ERR_INVALID);
    p.name = "x";
    p.bytes = 0;
    CHECK_STATUS(shmemi_segment_create(&p, &fd, &bytes, &page), SHMEM_ERR_INVALID);
    const uint64_t too_large[] = {UINT64_MAX, UINT64_MAX - 4095, 1ull << 63, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        p.bytes = too_large[i];
        CHECK_STATUS(shmemi_segment_create(&p, &fd, &bytes, &page), SHMEM_ERR_OVERFLOW);
    }
    CHECK(fd == -77 && bytes == 1 && page == 2);
    name[200] = 0; /* the longest */
    p.name = name;
    p.bytes = 1;
    CHECK_OK(shmemi_segment_create(&p, &fd, &bytes, &page));
    CHECK_EQ(bytes, 4096);
    close(fd);
}

static void is_sealed_and_private(void)
{
    mode_t old = umask(0);
    int fd = create(10000, SHMEMI_HUGE_AUTO, 1);
    umask(old);
    struct stat info;
    CHECK(fstat(fd, &info) == 0);
    CHECK_EQ(info.st_size, 12288);
    CHECK_EQ(info.st_mode & 07777, 0600);
    CHECK_EQ(info.st_blocks * 512, 12288);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(ftruncate(fd, 4096) == -1 && errno == EPERM);
    CHECK(ftruncate(fd, 16384) == -1 && errno == EPERM);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM);
    CHECK(pwrite(fd, "x", 1, 12288) == -1 && errno == EPERM); /* growing by writing */
    CHECK_OK(shmemi_segment_verify(fd, 12288));
    close(fd);
}

static void not_for_other_users(void *arg)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", *(int *)arg);
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(open(path, O_RDWR | O_CLOEXEC) == -1);
    CHECK(open(path, O_RDONLY | O_CLOEXEC) == -1);
}

static void other_users_cannot_reopen(void)
{
    if (geteuid() != 0)
        SKIP("wants root, to become two users");
    int fd = create(4096, SHMEMI_HUGE_OFF, 1);
    CHECK_EQ(harness_wait(harness_fork(not_for_other_users, &fd), 5), 0);
    close(fd);
}

static void read_only_descriptor(void)
{
    int fd = create(8192, SHMEMI_HUGE_OFF, 1), ro = -1;
    CHECK_OK(shmemi_segment_read_only(fd, &ro));
    CHECK(fcntl(ro, F_GETFD) & FD_CLOEXEC);
    CHECK_OK(shmemi_segment_verify(ro, 8192));
    CHECK(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0) == MAP_FAILED);
    CHECK_EQ(errno, EACCES);
    char *r = mmap(NULL, 8192, PROT_READ, MAP_SHARED, ro, 0);
    CHECK(r != MAP_FAILED);
    CHECK(mprotect(r, 8192, PROT_READ | PROT_WRITE) == -1);
    CHECK(write(ro, "x", 1) == -1);
    CHECK(pwrite(fd, "seen", 4, 4096) == 4);
    CHECK(memcmp(r + 4096, "seen", 4) == 0);
    munmap(r, 8192);
    close(ro);
    close(fd);
    ro = -77;
    CHECK_STATUS(shmemi_segment_read_only(fd, &ro), SHMEM_ERR_SYSTEM);
    CHECK_EQ(ro, -77);
}

static int memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    CHECK(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void hostile_descriptors(void)
{
    int ends[2], before = count_fds();
    CHECK(pipe(ends) == 0);
    char path[] = "/tmp/shmem-segment-test-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0 && ftruncate(file, 4096) == 0);
    int bad[] = {ends[0],
                 open("/dev/zero", O_RDWR),
                 open("/", O_RDONLY),
                 file,
                 memfd(4096, 0),
                 memfd(4096, F_SEAL_GROW),
                 memfd(4096, F_SEAL_WRITE),
                 memfd(8192, F_SEAL_SHRINK),
                 memfd(0, F_SEAL_SHRINK)};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(bad[i] >= 0);
        CHECK_STATUS(shmemi_segment_verify(bad[i], 4096), SHMEM_ERR_PROTOCOL);
        close(bad[i]);
    }
    close(ends[1]);
    CHECK_STATUS(shmemi_segment_verify(-1, 4096), SHMEM_ERR_SYSTEM);
    int good = memfd(4096, F_SEAL_SHRINK);
    CHECK_OK(shmemi_segment_verify(good, 4096));
    close(good);
    CHECK_EQ(count_fds(), before);
}

static void failures_leave_nothing(void)
{
    static const char *const points[] = {"os.segment.create", "os.segment.seal",
                                         "os.segment.reserve"};
    shmemi_segment_params_t p = {"shmem-fault", 4 << 20, SHMEMI_HUGE_AUTO, 1};
    int before = count_fds();
    for (size_t i = 0; i < 3; i++) {
        shmem_status_t status = SHMEM_ERR_INJECTED;
        unsigned n = 0, failures = 0;
        while (status && ++n < 50) {
            int fd = -77;
            uint64_t bytes = 1, page = 2;
            shmemi_fault_arm(points[i], SHMEMI_FAULT_FAIL, n);
            status = shmemi_segment_create(&p, &fd, &bytes, &page);
            failures += status != SHMEM_OK;
            if (status)
                CHECK(fd == -77 && bytes == 1 && page == 2);
            else
                close(fd);
            if (shmemi_fault_passages() >= n && status == SHMEM_OK)
                status = SHMEM_ERR_INJECTED; /* a failure that was survived: go on */
            CHECK_EQ(count_fds(), before);
            CHECK_EQ(count_maps("shmem-fault"), 0);
        }
        CHECK(n < 50 && failures >= 1);
        shmemi_fault_disarm();
    }
}

static void out_of_descriptors(void *arg)
{
    (void)arg;
    int fd = -77;
    struct rlimit limit = {32, 32};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (dup(2) >= 0)
        ;
    shmemi_segment_params_t p = {"shmem-test", 4096, SHMEMI_HUGE_AUTO, 1};
    uint64_t bytes, page;
    CHECK_STATUS(shmemi_segment_create(&p, &fd, &bytes, &page), SHMEM_ERR_LIMIT);
    CHECK_EQ(fd, -77);
    _exit(0); /* a sanitizer's last look around would want descriptors */
}

static void descriptor_limit(void)
{
    CHECK_EQ(harness_wait(harness_fork(out_of_descriptors, NULL), 5), 0);
}

static void more_than_the_machine_has(void)
{
    shmemi_segment_params_t p = {"shmem-test", 1ull << 50, SHMEMI_HUGE_AUTO, 1};
    int fd = -77, before = count_fds();
    uint64_t bytes, page;
    CHECK_STATUS(shmemi_segment_create(&p, &fd, &bytes, &page), SHMEM_ERR_NOMEM);
    check_detail("asked for 1073741824 MiB");
    CHECK(fd == -77 && count_fds() == before);
    p.reserve = 0; /* without pages it is but an address range */
    CHECK_OK(shmemi_segment_create(&p, &fd, &bytes, &page));
    CHECK_STATUS(shmemi_segment_reserve(fd, 1ull << 40, 1ull << 48), SHMEM_ERR_NOMEM);
    CHECK_OK(shmemi_segment_reserve(fd, 1ull << 49, 8192));
    struct stat info;
    CHECK(fstat(fd, &info) == 0 && info.st_blocks * 512 == 8192);
    close(fd);
}

int main(void)
{
    RUN(bad_parameters);
    RUN(is_sealed_and_private);
    RUN(other_users_cannot_reopen);
    RUN(read_only_descriptor);
    RUN(hostile_descriptors);
    RUN(failures_leave_nothing);
    RUN(descriptor_limit);
    RUN(more_than_the_machine_has);
    return harness_end();
}
