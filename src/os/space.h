/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unified address range: one reserved range of virtual addresses, the same in every process.
 *
 * The range is a property of the process's address space, hence the one piece of process-wide
 * state below the front ends. It is reserved with PROT_NONE at first use and kept; segments are
 * mapped over it at offsets that the node server hands out, and unmapping puts PROT_NONE back (the
 * range is never open to mmap of others). Several contexts of one process share a mapping of the
 * same segment by reference count, keyed by (offset, identity of the file).
 *
 * Threads: all functions lock internally.
 */
#ifndef SHMEMI_OS_SPACE_H
#define SHMEMI_OS_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/sanitizer.h"
#include "shmem/status.h"

/* Base and length of the range: compile-time constants of the platform (they are part of the
 * layout that client and server must agree on). 32 TiB + 16 TiB on 64-bit builds; lower and smaller
 * under ThreadSanitizer, which forbids most addresses, and on aarch64 (39-bit kernels). */
#if SHMEMI_TSAN || defined(__aarch64__)
#define SHMEMI_SPACE_BASE  0x2000000000ull /* 128 GiB */
#define SHMEMI_SPACE_BYTES 0x2000000000ull /* 128 GiB */
#else
#define SHMEMI_SPACE_BASE  0x200000000000ull /* 32 TiB */
#define SHMEMI_SPACE_BYTES 0x100000000000ull /* 16 TiB */
#endif
#define SHMEMI_SPACE_UNIT 0x200000ull /* segments start on 2 MiB */

/* Reserve the range. Idempotent. ADDRESS_TAKEN: the text names the mapping in the way (from
 * /proc/self/maps); LIMIT: RLIMIT_AS. */
shmem_status_t shmemi_space_reserve(void);

/* Map bytes of fd at range offset `offset` (multiple of SHMEMI_SPACE_UNIT), readable and, if
 * `writable`, writable. A mapping that is there already with the same file and rights gains a
 * reference; a different file at that place is SHMEM_ERR_ADDRESS_TAKEN, other rights are STATE. */
shmem_status_t shmemi_space_map(uint64_t offset, uint64_t bytes, int fd, int writable,
                                void **address);

/* Drop one reference of the mapping that starts at `address`; the last one unmaps. INVALID: no
 * mapping starts there. */
shmem_status_t shmemi_space_unmap(void *address);

/* In a forked child: the mappings stay (they are shared), the table starts anew. Called by a
 * pthread_atfork handler of this file. */
#endif
