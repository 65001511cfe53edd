/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symmetric memory: every PE of a job has a part of the same size; all parts of this machine are
 * mapped in every PE, each at the same address everywhere (the unified address space), so that a
 * pointer to any part is valid in all PEs.
 *
 * Parts start on 2 MiB borders where they are that large, else on page borders. New memory is zero.
 * Put, get, atomics and signals are plain memory operations on mapped parts; an operation to a part
 * of a PE that died still completes (its memory lives as long as the object).
 */
#ifndef SHMEM_MEMORY_H
#define SHMEM_MEMORY_H

#include <shmem/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shmem_memory *shmem_memory_t;

/*
 * Create `bytes` of symmetric memory on every PE. Collective: all PEs must ask for the same size.
 * The pages are reserved before it returns: no SIGBUS later. The object belongs to the context and
 * lives until shmem_memory_destroy() or the end of the context.
 * Errors: INVALID (0 bytes, NULL), MISMATCH (another PE asked for another size; the text names both
 * PEs and sizes; every PE gets it), NOMEM (asked and available; every PE gets it), OVERFLOW,
 * PEER_DEAD, SERVER_LOST, LIMIT.
 */
SHMEM_API shmem_status_t shmem_memory_create(shmem_context_t context, shmem_memory_t *memory,
                                             size_t bytes);

/*
 * Map all parts into the calling process and return the address of the own part; NULL on error
 * (see shmem_error_detail()). Local, not collective. Mapping again counts up and returns the same
 * address; each mapping wants its shmem_memory_unmap().
 */
SHMEM_API void *shmem_memory_map(shmem_memory_t memory);

/*
 * Undo one shmem_memory_map(); `address` is what it returned. Local.
 * Errors: INVALID (no symmetric memory is mapped there).
 */
SHMEM_API shmem_status_t shmem_memory_unmap(void *address);

/*
 * Destroy the object. Collective: returns when all living PEs have called it. A mapping that is
 * still there is removed. NULL is accepted (and is then not collective).
 * Errors: MISMATCH, PEER_DEAD: the object is gone for the caller in every case.
 */
SHMEM_API shmem_status_t shmem_memory_destroy(shmem_memory_t memory);

/* Bytes of one part as asked for. */
SHMEM_API size_t shmem_memory_bytes(shmem_memory_t memory);

/* Address of PE `rank`'s part in this process (as in every other), while the object is mapped here;
 * NULL for a rank that does not exist or an object that is not mapped. */
SHMEM_API void *shmem_memory_address(shmem_memory_t memory, int rank);

#ifdef __cplusplus
}
#endif
#endif
