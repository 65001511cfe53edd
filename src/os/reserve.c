/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling segments with pages.
 *
 * Plain: fallocate() in pieces. A signal makes the kernel undo the piece at work and return EINTR,
 * so pieces shrink while signals come and grow again afterwards: any signal rate makes progress.
 *
 * Huge: for every 2 MiB the first small page is made and the 2 MiB around it collapsed into one
 * page (MADV_COLLAPSE), which works whatever the system-wide switch for shared memory says, costs
 * no copy of the rest (it is a hole), and lands on the node of the first page, thus follows the
 * file's policy. What cannot be collapsed is filled with small pages.
 *
 * hugetlb files: fallocate() there ignores the policy of bound mappings. So their pages are only
 * claimed (a shared mapping does that, and the claim stays with the file); they come when the bound
 * mapping is populated.
 *
 * Invariant: success => every byte of the range has its page or claim. On failure pages made so far
 * stay.
 */
#include "os/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/util.h"
#include "os/budget.h"
#include "os/segment.h"

#define LAYER "os"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PIECE_MAX    (256ull << 20)
#define WORTH_ASKING (4ull << 20) /* less cannot start the OOM killer all by itself */

bool shmemi_reserve_size_allowed(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

uint64_t shmemi_reserve_hugetlb_free(void)
{
    static const char *const files[] = {"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                                        "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages"};
    uint64_t pages[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(files[i], "re");
        unsigned long long n = 0;
        if (f && fscanf(f, "%llu", &n) == 1)
            pages[i] = n;
        if (f)
            fclose(f);
    }
    return pages[0] > pages[1] ? (pages[0] - pages[1]) * SHMEMI_HUGE_PAGE : 0;
}

/* The range must lie inside the file; *page becomes the file's page size, *missing an upper bound
 * of the bytes that have no page yet. */
static shmem_status_t check_range(int fd, uint64_t offset, uint64_t bytes, uint64_t *page,
                                  uint64_t *missing)
{
    struct stat info;
    struct statfs fs;
    if (fstat(fd, &info) || fstatfs(fd, &fs))
        return shmemi_fail_errno(LAYER, "cannot look at segment descriptor %d", fd);
    if (!shmemi_range_inside(offset, bytes, (uint64_t)info.st_size))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "bytes %llu to %llu + %llu lie outside of the "
                           "segment of %lld bytes",
                           (unsigned long long)offset, (unsigned long long)offset,
                           (unsigned long long)bytes, (long long)info.st_size);
    bool hugetlb = (unsigned long)fs.f_type == HUGETLBFS_MAGIC;
    *page = hugetlb ? (uint64_t)fs.f_bsize : SHMEMI_PAGE;
    uint64_t size = (uint64_t)info.st_size, filled = (uint64_t)info.st_blocks * 512;
    uint64_t holes = filled < size ? size - filled : 0;
    *missing = hugetlb ? 0 : (holes < bytes ? holes : bytes);
    return SHMEM_OK;
}

static int fallocate_piece(int fd, uint64_t offset, uint64_t bytes)
{
    if (SHMEMI_FAULT("os.segment.reserve")) {
        errno = ENOSPC;
        return -1;
    }
    return fallocate(fd, 0, (off_t)offset, (off_t)bytes);
}

static shmem_status_t reserve_pieces(int fd, uint64_t offset, uint64_t bytes, uint64_t page)
{
    uint64_t piece = PIECE_MAX;
    while (bytes) {
        uint64_t now = bytes < piece ? bytes : piece;
        if (fallocate_piece(fd, offset, now) == 0) {
            offset += now;
            bytes -= now;
            piece = piece < PIECE_MAX ? piece * 2 : PIECE_MAX;
            SHMEMI_KILL_POINT("os.segment.piece");
        } else if (errno == EINTR) {
            piece = now / 2 > page ? (now / 2) & ~(page - 1) : page;
        } else {
            return shmemi_fail_errno(LAYER,
                                     "cannot reserve %llu more bytes of memory for a "
                                     "segment",
                                     (unsigned long long)bytes);
        }
    }
    return SHMEM_OK;
}

/* ---- hugetlb ---- */

static shmem_status_t claim_hugetlb(int fd, uint64_t offset, uint64_t bytes, uint64_t page)
{
    uint64_t start = offset & ~(page - 1), end = (offset + bytes + page - 1) & ~(page - 1);
    void *p = SHMEMI_FAULT("os.segment.claim")
                  ? MAP_FAILED
                  : mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)start);
    if (p == MAP_FAILED)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER,
                           "cannot claim %llu huge pages of %llu KiB: %llu "
                           "MiB of them are free (vm.nr_hugepages)",
                           (unsigned long long)((end - start) / page),
                           (unsigned long long)page / 1024,
                           (unsigned long long)shmemi_reserve_hugetlb_free() >> 20);
    munmap(p, end - start);
    return SHMEM_OK;
}

shmem_status_t shmemi_reserve_hugetlb_fill(int fd, uint64_t bytes)
{
    return reserve_pieces(fd, 0, bytes, SHMEMI_HUGE_PAGE);
}

shmem_status_t shmemi_segment_reserve(int fd, uint64_t offset, uint64_t bytes)
{
    return shmemi_segment_reserve_huge(fd, offset, bytes, SHMEMI_HUGE_OFF);
}

/* ---- huge pages ---- */

/* Make one 2 MiB page of the file, mapped at `at`. 0, EAGAIN (try others), or a lasting errno. The
 * first small page is brought in as by a touch: older kernels collapse nothing around a page that
 * was merely allocated. */
static int collapse_one(char *at)
{
    while (madvise(at, SHMEMI_PAGE, MADV_POPULATE_WRITE))
        if (errno != EINTR && errno != EAGAIN)
            return errno;
    for (int tries = 0; madvise(at, SHMEMI_HUGE_PAGE, MADV_COLLAPSE); tries++)
        if (errno != EAGAIN || tries == 3) /* EAGAIN: a page was locked or in a processor's batch */
            return errno;
    return 0;
}

/* Collapse [offset, offset + bytes), 2 MiB-aligned, at most PIECE_MAX, through a mapping of our
 * own. Returns whether all of it has 2 MiB pages now. */
static bool collapse_piece(int fd, uint64_t offset, uint64_t bytes)
{
    int error = ENOMEM, result = 0;
    size_t room = bytes + SHMEMI_HUGE_PAGE;
    char *area = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return false;
    char *start = (char *)(((uintptr_t)area + SHMEMI_HUGE_PAGE - 1) & ~(SHMEMI_HUGE_PAGE - 1));
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) ==
        MAP_FAILED)
        goto unmap;
    madvise(start, bytes, MADV_HUGEPAGE); /* a refusal changes nothing: MADV_COLLAPSE insists */
    error = 0;
    for (uint64_t at = 0; at < bytes && (result == 0 || result == EAGAIN); at += SHMEMI_HUGE_PAGE) {
        result = collapse_one(start + at);
        error = result ? result : error;
    }
unmap:
    munmap(area, room);
    return error == 0;
}

/* Asks for 2 MiB pages where they fit. Returns whether every aligned 2 MiB of the range has one. */
static bool collapse_range(int fd, uint64_t offset, uint64_t bytes)
{
    uint64_t end = (offset + bytes) & ~(SHMEMI_HUGE_PAGE - 1), at;
    if (SHMEMI_FAULT("os.segment.collapse"))
        return false;
    if (!shmemi_round_up(offset, SHMEMI_HUGE_PAGE, &at))
        return false;
    for (uint64_t n; at < end; at += n) {
        n = end - at < PIECE_MAX ? end - at : PIECE_MAX;
        if (!collapse_piece(fd, at, n))
            return false;
    }
    return true;
}

shmem_status_t shmemi_segment_afford(uint64_t bytes)
{
    shmemi_budget_t budget;
    if (bytes < WORTH_ASKING)
        return SHMEM_OK;
    shmemi_budget_read("", &budget);
    return shmemi_budget_check(&budget, bytes);
}

shmem_status_t shmemi_segment_reserve_huge(int fd, uint64_t offset, uint64_t bytes, int huge)
{
    uint64_t page, missing;
    shmem_status_t status = check_range(fd, offset, bytes, &page, &missing);
    if (status || bytes == 0)
        return status;
    status = shmemi_segment_afford(missing);
    if (status)
        return status;
    if (page > SHMEMI_PAGE)
        return claim_hugetlb(fd, offset, bytes, page);
    bool all_huge = huge != SHMEMI_HUGE_OFF && collapse_range(fd, offset, bytes);
    status = reserve_pieces(fd, offset, bytes, page);
    if (!status && huge == SHMEMI_HUGE_REQUIRED && !all_huge)
        return shmemi_fail(SHMEM_ERR_UNSUPPORTED, LAYER,
                           "huge pages are required for a segment of "
                           "%llu bytes, but the kernel gave small ones; reserve some "
                           "(vm.nr_hugepages) or set SHMEM_HUGE_PAGES=auto",
                           (unsigned long long)bytes);
    return status;
}

bool shmemi_reserve_huge_possible(void)
{
    int fd = memfd_create("shmem-probe", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    bool possible = shmemi_reserve_size_allowed(SHMEMI_HUGE_PAGE) &&
                    ftruncate(fd, (off_t)SHMEMI_HUGE_PAGE) == 0 &&
                    collapse_range(fd, 0, SHMEMI_HUGE_PAGE);
    close(fd);
    return possible;
}

shmem_status_t shmemi_segment_release(int fd, uint64_t offset, uint64_t bytes)
{
    uint64_t page, missing;
    shmem_status_t status = check_range(fd, offset, bytes, &page, &missing);
    if (status || bytes == 0)
        return status;
    int result;
    while ((result = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                               (off_t)bytes)) != 0 &&
           errno == EINTR)
        ;
    if (result)
        return shmemi_fail_errno(LAYER, "cannot give %llu bytes of a segment back",
                                 (unsigned long long)bytes);
    return SHMEM_OK;
}
