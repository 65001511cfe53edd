/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating, checking and handing out segments. Filling them with pages is in os/reserve.c, mapping
 * pages into a process in os/populate.c.
 *
 * Invariant: a descriptor leaves create() only when size, mode and seals are final; F_SEAL_SEAL
 * keeps peers from adding F_SEAL_WRITE, which would keep later clients from mapping it.
 */
#include "os/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/util.h"
#include "os/budget.h"
#include "os/reserve.h"

#define LAYER "os"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

enum { NAME_MAX_BYTES = 200, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static shmem_status_t check_params(const shmemi_segment_params_t *params)
{
    if (!params->name || !params->name[0] || strlen(params->name) > NAME_MAX_BYTES)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "a segment wants a name of 1 to %d bytes",
                           NAME_MAX_BYTES);
    if (params->bytes == 0)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "segment '%s' was asked for with 0 bytes",
                           params->name);
    if (params->bytes > (uint64_t)INT64_MAX - SHMEMI_HUGE_PAGE)
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "segment '%s' was asked for with %llu bytes, "
                           "more than a file can have",
                           params->name, (unsigned long long)params->bytes);
    return SHMEM_OK;
}

/* memfd_create(): never executable where the kernel can promise that. -1 and errno. */
static int new_memfd(const char *name, unsigned flags)
{
    flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    return fd >= 0 || errno != EINVAL ? fd : memfd_create(name, flags);
}

/* A sized and sealed file without pages. */
static shmem_status_t make_file(const char *name, uint64_t bytes, unsigned flags, int *out)
{
    if (SHMEMI_FAULT("os.segment.create"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "injected at os.segment.create");
    if (!shmemi_reserve_size_allowed(bytes))
        return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                           "segment '%s' of %llu bytes exceeds the size of file that the process "
                           "which makes it (the node server) is allowed; raise RLIMIT_FSIZE "
                           "(ulimit -f) where that process was started",
                           name, (unsigned long long)bytes);
    int fd = new_memfd(name, flags);
    if (fd < 0)
        return shmemi_fail_errno(LAYER, "cannot create segment '%s'", name);
    SHMEMI_KILL_POINT("os.segment.sealing");
    if (SHMEMI_FAULT("os.segment.seal") || fchmod(fd, 0600) || ftruncate(fd, (off_t)bytes) ||
        fcntl(fd, F_ADD_SEALS, SEALS)) {
        shmem_status_t status = shmemi_fail_errno(
            LAYER, "cannot give segment '%s' its size of %llu bytes and its seals", name,
            (unsigned long long)bytes);
        close(fd);
        return status;
    }
    *out = fd;
    return SHMEM_OK;
}

/* Huge pages from the administrator's reserve. They are claimed at once, whatever the caller wants
 * to reserve himself: a hugetlb page that is not there kills at first touch. */
static shmem_status_t create_hugetlb(const shmemi_segment_params_t *params, uint64_t bytes,
                                     int *out)
{
    int fd;
    shmem_status_t status = make_file(params->name, bytes, MFD_HUGETLB | MFD_HUGE_2MB, &fd);
    if (status)
        return status;
    status = shmemi_segment_reserve(fd, 0, bytes);
    if (!status && params->reserve)
        status = shmemi_reserve_hugetlb_fill(fd, bytes);
    if (status)
        close(fd);
    else
        *out = fd;
    return status;
}

static shmem_status_t create_plain(const shmemi_segment_params_t *params, uint64_t bytes, int *out)
{
    int fd;
    shmem_status_t status = make_file(params->name, bytes, 0, &fd);
    if (status)
        return status;
    if (params->reserve)
        status = shmemi_segment_reserve_huge(fd, 0, bytes, params->huge);
    else if (params->huge == SHMEMI_HUGE_REQUIRED && !shmemi_reserve_huge_possible())
        status = shmemi_fail(SHMEM_ERR_UNSUPPORTED, LAYER,
                             "segment '%s' requires huge pages, but "
                             "this kernel gives none to shared memory; reserve some "
                             "(vm.nr_hugepages) or set SHMEM_HUGE_PAGES=auto",
                             params->name);
    if (status)
        close(fd);
    else
        *out = fd;
    return status;
}

shmem_status_t shmemi_segment_create(const shmemi_segment_params_t *params, int *fd,
                                     uint64_t *bytes, uint64_t *page_bytes)
{
    shmem_status_t status = check_params(params);
    if (status)
        return status;
    bool required = params->huge == SHMEMI_HUGE_REQUIRED;
    uint64_t page = required ? SHMEMI_HUGE_PAGE : SHMEMI_PAGE;
    uint64_t rounded = (params->bytes + page - 1) & ~(page - 1); /* checked: no overflow */
    if (!required || shmemi_reserve_hugetlb_free() < rounded ||
        create_hugetlb(params, rounded, fd)) {
        page = SHMEMI_PAGE;
        status = create_plain(params, rounded, fd);
        if (status)
            return status;
    }
    *bytes = rounded;
    *page_bytes = page;
    return SHMEM_OK;
}

shmem_status_t shmemi_segment_verify(int fd, uint64_t bytes)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info))
        return shmemi_fail_errno(LAYER, "cannot look at segment descriptor %d", fd);
    if (!S_ISREG(info.st_mode) || seals < 0)
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER, "descriptor %d is no shared memory file", fd);
    if (info.st_size < 0 || (uint64_t)info.st_size != bytes)
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER,
                           "a segment of %llu bytes was announced, but "
                           "the file has %lld",
                           (unsigned long long)bytes, (long long)info.st_size);
    if (!(seals & F_SEAL_SHRINK))
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER,
                           "the segment is not sealed against "
                           "shrinking (seals 0x%x): its owner could take the memory away",
                           seals);
    return SHMEM_OK;
}

shmem_status_t shmemi_segment_read_only(int fd, int *read_only_fd)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int copy = open(path, O_RDONLY | O_CLOEXEC);
    if (copy < 0)
        return shmemi_fail_errno(LAYER,
                                 "cannot open segment descriptor %d again for reading "
                                 "(through %s)",
                                 fd, path);
    *read_only_fd = copy;
    return SHMEM_OK;
}
