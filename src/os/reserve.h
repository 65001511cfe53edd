/* SPDX-License-Identifier: Apache-2.0 */
/* Filling segments with pages of the size wanted (see os/segment.h for the plain case). */
#ifndef SHMEMI_OS_RESERVE_H
#define SHMEMI_OS_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "shmem/status.h"

#define SHMEMI_HUGE_PAGE 0x200000ull

/* Bytes of 2 MiB hugetlb pages that nobody has claimed. */
uint64_t shmemi_reserve_hugetlb_free(void);

/* May this process make a file of so many bytes? One that exceeds its RLIMIT_FSIZE is killed by
 * SIGXFSZ: better not to try. */
bool shmemi_reserve_size_allowed(uint64_t bytes);

/* Make all pages of a hugetlb file, where the calling thread's policy puts them. */
shmem_status_t shmemi_reserve_hugetlb_fill(int fd, uint64_t bytes);

/* Does this kernel give 2 MiB pages to a plain memfd? Asked by trying with one page. */
bool shmemi_reserve_huge_possible(void);

#endif
