/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: shared memory with a name (or none), rights, and any content.
 *
 * A region is at the same address in every process that maps it (the unified address space), so
 * pointers into it may be stored in it. Its memory is there when it is created or grown: no SIGBUS
 * later. New memory is zero.
 *
 * Rights. The node server checks `access` against the kernel's word on who asks, and hands out a
 * descriptor that can do what was asked for and no more: one opened for reading cannot be mapped
 * for writing. Another user cannot get around that. A process of the same user can (the kernel lets
 * a user reopen his own files): within one user it guards against accidents. A server for several
 * users must run as root (see shmemd).
 *
 * Threads and contexts of a process share its mapping of a region: it has one kind of rights at a
 * time (that of the first shmem_region_map()), what shmem_region_protect() changes holds for all of
 * them, and it goes with the last shmem_region_unmap() of the last of them.
 *
 * Lifetime. A region lives until the last process that has it open closes it or ends; destroying it
 * takes its name away at once. Mappings keep its memory in any case.
 *
 * Threads: all functions may be called from any thread. None waits for other processes, but for the
 * node server's answer (30 s at most). When a process dies, its regions are closed; content is not
 * looked at.
 */
#ifndef SHMEM_REGION_H
#define SHMEM_REGION_H

#include <shmem/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shmem_region *shmem_region_t;

typedef enum shmem_mapping {
    SHMEM_MAP_NONE = 0, /* for shmem_region_protect(): touching it is a fault */
    SHMEM_MAP_READ = 1,
    SHMEM_MAP_READ_WRITE = 3
} shmem_mapping_t;

typedef struct shmem_region_params {
    size_t size;     /* sizeof(shmem_region_params_t) */
    uint64_t bytes;  /* > 0 */
    uint64_t limit;  /* up to which it may grow: address space, not memory; rounded up to pages of
                        4 KiB; 0: it does not (beyond its last page) */
    uint32_t access; /* SHMEM_ACCESS_* */
    int node;        /* of its memory: index as in shmem/topology.h; -1: where the kernel likes */
} shmem_region_params_t;
#define SHMEM_REGION_PARAMS_INIT                                                                   \
    {                                                                                              \
        sizeof(shmem_region_params_t), 0, 0, 0, -1                                                 \
    }

/* Create a region (names as for pools, in a space of their own; NULL: anonymous), open for reading
 * and writing. Its first `bytes` are memory when this returns, on `node`. A process that dies in
 * here leaves nothing. Errors: INVALID (also: the node server cannot use that node), EXISTS, NOMEM
 * (with the arithmetic), OVERFLOW (larger than the address range), LIMIT, UNSUPPORTED (huge pages
 * are required and not to be had), SERVER_LOST, TIMEOUT, STATE. */
SHMEM_API shmem_status_t shmem_region_create(shmem_context_t context, const char *name,
                                             const shmem_region_params_t *params,
                                             shmem_region_t *region);

/* Open a region, for reading (SHMEM_MAP_READ) or also for writing. One that the context has open
 * already in the same way is the same handle, counted, without a system call.
 * Errors: INVALID, NOT_FOUND, ACCESS (whose it is, what its access is, what was asked), LIMIT,
 * NOMEM, CORRUPT (no region, but called like one), SERVER_LOST, TIMEOUT, STATE. */
SHMEM_API shmem_status_t shmem_region_open(shmem_context_t context, const char *name,
                                           shmem_mapping_t rights, shmem_region_t *region);

/* Undo one create or open. The last one unmaps it (other handles of the process keep what they have
 * mapped). No thread may be inside a call on it. NULL and closed ones are accepted; operations on
 * a closed region give STATE for some time (see shmem_context_finalize()). */
SHMEM_API void shmem_region_close(shmem_region_t region);

/* Take the name away; as for pools. Who has it open goes on. Errors: INVALID, NOT_FOUND, ACCESS
 * (not the creator's user), SERVER_LOST, STATE. */
SHMEM_API shmem_status_t shmem_region_destroy(shmem_context_t context, const char *name);

/* Map it for reading or writing and return its address, the same in every process; NULL on error
 * (see shmem_error_detail(): INVALID; ACCESS: opened for reading only; ADDRESS_TAKEN; STATE:
 * closed, or mapped already in this process with other rights; CORRUPT; NOMEM). Mapping again
 * counts up; each wants its unmap. Address space for all of its limit is mapped, of which `bytes`
 * are memory: what lies behind them is not to be touched before it has grown. */
SHMEM_API void *shmem_region_map(shmem_region_t region, shmem_mapping_t rights);
/* Errors: INVALID, STATE (it is not mapped). */
SHMEM_API shmem_status_t shmem_region_unmap(shmem_region_t region);

/* Change what this process may do with [offset, offset + bytes), whole pages of 4 KiB, of a mapped
 * region: not more than it was opened for. Other processes are not affected; it lasts until the
 * process unmaps it. Errors: INVALID, OVERFLOW (beyond its last page), ACCESS, STATE (closed, not
 * mapped through this handle), LIMIT (of mappings of a process), CORRUPT. */
SHMEM_API shmem_status_t shmem_region_protect(shmem_region_t region, uint64_t offset,
                                              uint64_t bytes, shmem_mapping_t rights);

/* Make it at least so large, up to its limit; it does not move, and is larger in all processes at
 * once. The node server reserves the memory, on the region's node: for one at a time of those who
 * want that, and whether or not the one who asked lives to see it. A size smaller than it has:
 * INVALID (others may use the end). Errors: INVALID, OVERFLOW (the limit), NOMEM (with the
 * arithmetic; it is as large as before), ACCESS (opened for reading), SERVER_LOST, TIMEOUT, STATE,
 * CORRUPT. */
SHMEM_API shmem_status_t shmem_region_resize(shmem_region_t region, uint64_t bytes);

typedef struct {
    size_t size;
    uint64_t bytes, limit;
    void *address; /* where it is or would be mapped */
    uint32_t uid, gid;
    uint32_t access;
    shmem_mapping_t rights; /* of this handle */
    shmem_mapping_t mapped; /* of this process's mapping; SHMEM_MAP_NONE: not mapped */
} shmem_region_info_t;
/* Errors: INVALID, STATE, CORRUPT (a process that may write it has overwritten its size). */
SHMEM_API shmem_status_t shmem_region_info(shmem_region_t region, shmem_region_info_t *info);

typedef struct shmem_region_entry {
    char name[64];
    uint64_t bytes, limit;
    uint32_t uid, gid, access;
    uint32_t users; /* clients that have it open */
} shmem_region_entry_t;
/* As shmem_pool_list(). */
SHMEM_API shmem_status_t shmem_region_list(shmem_context_t context, shmem_region_entry_t *entries,
                                           size_t room, size_t *count);

#ifdef __cplusplus
}
#endif
#endif
