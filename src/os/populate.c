/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the pages of a mapped range present in this process, and keeping them in memory.
 *
 * The range is cut at 2 MiB borders into one part for each thread. Everything is done by madvise():
 * what cannot be had is an error code there, where touching the page would be SIGBUS. On kernels
 * without MADV_POPULATE (before 5.14) pages come at first touch instead.
 *
 * Invariant: the contents of the range never change.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/util.h"
#include "os/clock.h"
#include "os/reserve.h"
#include "os/segment.h"

#define LAYER "os"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { THREADS_MAX = 64 };

#define PIECE_BYTES  (16ull << 20) /* of one system call */
#define THREAD_BYTES (32ull << 20) /* less is not worth a thread */
#define QUICK_NS     200000        /* a piece done in this time needs no help */

typedef struct part {
    char *address;
    uint64_t bytes;
    int huge;
    int error; /* errno of what went wrong, or 0 */
} part_t;

static int advise(char *address, uint64_t bytes, int advice)
{
    while (madvise(address, bytes, advice))
        if (errno != EINTR && errno != EAGAIN)
            return errno;
    return 0;
}

/* 2 MiB pages for the aligned inside of a piece: best effort. Asks once per 2 MiB after a refusal
 * of the whole, so that one page in use elsewhere does not spoil the rest. */
static void ask_huge(char *address, uint64_t bytes)
{
    uint64_t start, end = ((uintptr_t)address + bytes) & ~(SHMEMI_HUGE_PAGE - 1);
    if (!shmemi_round_up((uintptr_t)address, SHMEMI_HUGE_PAGE, &start) || start >= end)
        return;
    char *p = (char *)(uintptr_t)start;
    madvise(p, end - start, MADV_HUGEPAGE);
    if (madvise(p, end - start, MADV_COLLAPSE) == 0 || errno != EAGAIN)
        return;
    for (; start < end; start += SHMEMI_HUGE_PAGE, p += SHMEMI_HUGE_PAGE)
        if (madvise(p, SHMEMI_HUGE_PAGE, MADV_COLLAPSE) && errno != EAGAIN)
            return;
}

static int populate_piece(char *address, uint64_t bytes, int huge)
{
    if (SHMEMI_FAULT("os.segment.populate"))
        return ENOMEM;
    if (huge != SHMEMI_HUGE_OFF)
        ask_huge(address, bytes);
    int error = advise(address, bytes, MADV_POPULATE_WRITE);
    if (error == EINVAL || error == EACCES || error == EPERM)
        error = advise(address, bytes, MADV_POPULATE_READ); /* mapped read-only */
    return error == EINVAL ? 0 : error;                     /* EINVAL: a kernel without it */
}

static void *populate_part(void *arg)
{
    part_t *part = arg;
    uint64_t n;
    for (uint64_t at = 0; at < part->bytes && !part->error; at += n) {
        n = part->bytes - at < PIECE_BYTES ? part->bytes - at : PIECE_BYTES;
        part->error = populate_piece(part->address + at, n, part->huge);
    }
    return NULL;
}

/* Populate alone as long as that is quick (2 MiB pages that exist already): a thread costs more.
 * Returns the bytes done. */
static uint64_t populate_quick(part_t *part)
{
    uint64_t at = 0, n;
    for (bool quick = true; quick && at < part->bytes && !part->error; at += n) {
        int64_t begin = shmemi_clock_now();
        n = part->bytes - at < PIECE_BYTES ? part->bytes - at : PIECE_BYTES;
        part->error = populate_piece(part->address + at, n, part->huge);
        quick = shmemi_clock_now() - begin < QUICK_NS;
    }
    return at;
}

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Helper threads never run the program's signal handlers. */
static int start_helper(pthread_t *thread, part_t *part)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigfillset(&all);
    if (pthread_attr_init(&attributes))
        return -1;
    int error = pthread_attr_setsigmask_np(&attributes, &all);
    if (!error)
        error = pthread_create(thread, &attributes, populate_part, part);
    pthread_attr_destroy(&attributes);
    return error;
}

/* Cut the range into n parts on 2 MiB borders, the caller works on the first. */
static int populate_parallel(char *address, uint64_t bytes, int huge, int n)
{
    part_t parts[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    bool started[THREADS_MAX] = {false};
    uint64_t share = (bytes / (uint64_t)n + SHMEMI_HUGE_PAGE - 1) & ~(SHMEMI_HUGE_PAGE - 1), at = 0;
    int error = 0;
    for (int i = 0; i < n; i++) {
        uint64_t length = bytes - at < share ? bytes - at : share;
        parts[i] = (part_t){address + at, length, huge, 0};
        at += length;
    }
    for (int i = 1; i < n; i++)
        started[i] = parts[i].bytes && start_helper(&threads[i], &parts[i]) == 0;
    for (int i = 0; i < n; i++)
        if (!started[i])
            populate_part(&parts[i]);
    for (int i = 0; i < n; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        error = error ? error : parts[i].error;
    }
    return error;
}

/* Bytes of [address, address + bytes) that 2 MiB pages map, from /proc/self/smaps. */
static uint64_t count_huge(uintptr_t address, uint64_t bytes)
{
    static const char *const keys[] = {
        "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"};
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512];
    uint64_t total = 0;
    bool inside = false;
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to, kib;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            inside = from < address + bytes && to > address;
            if (from >= address + bytes)
                break;
        }
        for (size_t i = 0; inside && i < SHMEMI_COUNT(keys); i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0 &&
                sscanf(line + strlen(keys[i]), "%lu", &kib) == 1)
                total += (uint64_t)kib * 1024;
    }
    if (f)
        fclose(f);
    return total < bytes ? total : bytes;
}

shmem_status_t shmemi_segment_populate(void *address, uint64_t bytes, int huge, int threads,
                                       uint64_t *huge_bytes)
{
    if (!address || (uintptr_t)address % SHMEMI_PAGE || threads < 0)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "populate wants a page border and a number of "
                           "threads, not %p and %d",
                           address, threads);
    uint64_t useful = bytes / THREAD_BYTES + 1;
    uint64_t n = threads ? (uint64_t)threads : (uint64_t)processors();
    n = n < useful ? n : useful;
    n = n < THREADS_MAX ? n : THREADS_MAX;
    part_t all = {address, bytes, huge, 0};
    uint64_t done = threads ? 0 : populate_quick(&all);
    int error = all.error;
    if (!error && done < bytes)
        error = populate_parallel((char *)address + done, bytes - done, huge, n ? (int)n : 1);
    if (error == ENOMEM || error == EFAULT || error == EHWPOISON)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER,
                           "cannot make %llu bytes at %p present: no "
                           "memory, or pages that were never reserved",
                           (unsigned long long)bytes, address);
    if (error) {
        errno = error;
        return shmemi_fail_errno(LAYER, "cannot make %llu bytes at %p present",
                                 (unsigned long long)bytes, address);
    }
    if (huge_bytes)
        *huge_bytes = count_huge((uintptr_t)address, bytes);
    return SHMEM_OK;
}

shmem_status_t shmemi_segment_lock(void *address, uint64_t bytes)
{
    if (!SHMEMI_FAULT("os.segment.lock") && mlock(address, bytes) == 0)
        return SHMEM_OK;
    int error = errno;
    struct rlimit limit;
    unsigned long long kib = 0;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        kib = (unsigned long long)limit.rlim_cur / 1024;
    shmemi_log(
        SHMEM_LOG_WARN, LAYER,
        "%llu KiB were to be locked in memory, but RLIMIT_MEMLOCK "
        "allows this process %llu KiB in all (%s): going on without; raise it with ulimit -l",
        (unsigned long long)bytes / 1024, kib, strerrordesc_np(error));
    return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                        "cannot lock %llu KiB in memory: RLIMIT_MEMLOCK is "
                        "%llu KiB",
                        (unsigned long long)bytes / 1024, kib);
}
