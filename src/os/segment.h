/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment: a sealed memfd whose pages are reserved before anybody maps it.
 *
 * Invariants: its size never changes (sealed against shrinking and growing); every reserved byte
 * has its page, so touching it never raises SIGBUS; mode is 0600, not memfd's 0777. What it does
 * not do: addresses (os/space.h), names and rights (node/), placement policy (topo/).
 */
#ifndef SHMEMI_OS_SEGMENT_H
#define SHMEMI_OS_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "shmem/status.h"

typedef struct shmemi_segment_params {
    const char *name; /* for /proc/PID/maps; at most 200 bytes */
    uint64_t bytes;   /* > 0; rounded up to the page size used */
    int huge;         /* SHMEMI_HUGE_AUTO, _REQUIRED, _OFF (base/settings.h) */
    int reserve;      /* 1: reserve all pages now; 0: caller reserves parts (..._reserve) */
} shmemi_segment_params_t;

/*
 * Create a segment. *fd is close-on-exec; *bytes the rounded size; *page_bytes the page size that
 * was asked of the kernel: 2 MiB for hugetlb pages, which only `required` takes and only where the
 * administrator set enough aside, else 4096. Reserving with 2 MiB pages (below) keeps 4096 here:
 * what a process really got is told by shmemi_segment_populate(). Errors: INVALID (0 bytes, name),
 * OVERFLOW, NOMEM (with the arithmetic: asked, memory.max of the cgroup, free memory), LIMIT
 * (descriptors), UNSUPPORTED (huge pages required, none to be had). Nothing is left behind on
 * failure.
 */
shmem_status_t shmemi_segment_create(const shmemi_segment_params_t *params, int *fd,
                                     uint64_t *bytes, uint64_t *page_bytes);

/* Reserve [offset, offset + bytes) in pieces of at most 256 MiB, restarting after signals.
 * Placement follows what was bound through any mapping of the file, else the calling thread's
 * policy; hugetlb pages are claimed only and come, where they were bound, when the bound mapping is
 * populated. INVALID (outside), NOMEM (with the arithmetic). */
shmem_status_t shmemi_segment_reserve(int fd, uint64_t offset, uint64_t bytes);

/* The same with 2 MiB pages for every aligned 2 MiB of the range as `huge` says (SHMEMI_HUGE_*);
 * about as fast. UNSUPPORTED: required, and the kernel gave small ones (which stay reserved). */
shmem_status_t shmemi_segment_reserve_huge(int fd, uint64_t offset, uint64_t bytes, int huge);

/* Can `bytes` more of memory be had, as far as the system's and the cgroups' numbers tell? For who
 * lets several processes reserve parts of one segment: each of them would see the same free memory.
 * NOMEM with the arithmetic. */
shmem_status_t shmemi_segment_afford(uint64_t bytes);

/* Give pages of [offset, offset + bytes) back to the system (hole punch). Touching them later
 * without reserving first may raise SIGBUS: reserve again before reuse. */
shmem_status_t shmemi_segment_release(int fd, uint64_t offset, uint64_t bytes);

/* Check a descriptor that came from elsewhere: a memfd of exactly `bytes`, sealed against
 * shrinking. Errors: PROTOCOL with what was found. */
shmem_status_t shmemi_segment_verify(int fd, uint64_t bytes);

/* A second descriptor of the same segment that cannot be mapped for writing. */
shmem_status_t shmemi_segment_read_only(int fd, int *read_only_fd);

/*
 * Make the pages of a mapped range present in this process, with `threads` threads (0: one for each
 * processor of the caller). Asks for 2 MiB pages first when `huge` allows (madvise, then
 * MADV_COLLAPSE on ranges that are already filled); *huge_bytes (may be NULL) tells how much of the
 * range is mapped by 2 MiB pages afterwards. Survives signal storms; never SIGBUS: NOMEM instead.
 */
shmem_status_t shmemi_segment_populate(void *address, uint64_t bytes, int huge, int threads,
                                       uint64_t *huge_bytes);

/* mlock the range; when RLIMIT_MEMLOCK is too small: one log line with asked and allowed, returns
 * SHMEM_ERR_LIMIT quietly, everything still works. */
shmem_status_t shmemi_segment_lock(void *address, uint64_t bytes);

#endif
