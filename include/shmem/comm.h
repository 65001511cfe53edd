/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-sided and collective communication over symmetric memory.
 *
 * One-sided calls name a place as (object, PE, byte offset). The object must be mapped by the
 * caller. They return when the transfer is complete at the target (this machine: loads and stores);
 * ordering: what a PE wrote before shmem_memory_signal() is visible to who saw the signal. Sleepers
 * in shmem_memory_wait() on the target are woken. Of them only shmem_memory_wait() blocks. Errors
 * of all: INVALID (rank, operation, misaligned, NULL), OVERFLOW (outside the part), STATE (not
 * mapped, destroyed, finalized context, forked child).
 *
 * Collective calls are made by all PEs in the same order with the same arguments, by one thread of
 * each at a time. They block; errors of all: INVALID, OVERFLOW, PEER_DEAD (names the PE, within a
 * second, at every survivor and at every later collective), MISMATCH (kind, count, type, operation
 * or root differ; the text names the PEs and both values; every PE gets it; all may go on), STATE.
 * Buffers may be anywhere in the caller's memory; those in symmetric memory save a copy. dst and
 * src may be the same (in place) and must not overlap otherwise (INVALID). Count 0 is allowed.
 */
#ifndef SHMEM_COMM_H
#define SHMEM_COMM_H

#include <shmem/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one-sided ---- */

/* Copy n bytes between any two mapped places of the unified address space or private memory; the
 * two must not overlap. dst, src: valid for n bytes. */
SHMEM_API shmem_status_t shmem_copy(void *dst, const void *src, size_t n);

/* Put copies n bytes from src to byte `offset` of PE `rank`'s part, get copies from there to dst.
 * src and dst are the caller's memory, private or shared, and must not overlap the place. When a
 * put returns, the data is there; the target learns of it by a signal (put_signal), a barrier or
 * any other synchronization. A get has its data when it returns. n may be 0. */
SHMEM_API shmem_status_t shmem_memory_put(shmem_memory_t memory, int rank, size_t offset,
                                          const void *src, size_t n);
SHMEM_API shmem_status_t shmem_memory_get(shmem_memory_t memory, int rank, size_t offset, void *dst,
                                          size_t n);

/* Atomic on the 64-bit word at `offset` (multiple of 8) of PE `rank`: adds `value`; the old value
 * goes to *old (may be NULL). Sequentially consistent with all fetch_adds and adding signals. */
SHMEM_API shmem_status_t shmem_memory_fetch_add(shmem_memory_t memory, int rank, size_t offset,
                                                uint64_t value, uint64_t *old);

typedef enum shmem_signal_op { SHMEM_SIGNAL_OP_SET = 0, SHMEM_SIGNAL_OP_ADD = 1 } shmem_signal_op_t;

/* Set or add to the 64-bit signal word at `offset` of PE `rank` after all earlier writes of the
 * calling thread. */
SHMEM_API shmem_status_t shmem_memory_signal(shmem_memory_t memory, int rank, size_t offset,
                                             uint64_t value, shmem_signal_op_t op);

/* Put, then signal: who sees the signal sees the data. The signal word lies in the same object, not
 * inside the data (INVALID). */
SHMEM_API shmem_status_t shmem_memory_put_signal(shmem_memory_t memory, int rank, size_t offset,
                                                 const void *src, size_t n, size_t signal_offset,
                                                 uint64_t value, shmem_signal_op_t op);

typedef enum shmem_compare {
    SHMEM_COMPARE_EQ = 0,
    SHMEM_COMPARE_NE,
    SHMEM_COMPARE_GT,
    SHMEM_COMPARE_GE,
    SHMEM_COMPARE_LT,
    SHMEM_COMPARE_LE
} shmem_compare_t;

/* Wait until the 64-bit word at `offset` of the calling PE's own part compares true with `value`
 * (unsigned). *seen (may be NULL) gets the word. `timeout` is in nanoseconds, negative
 * (SHMEM_FOREVER) for no limit, 0 for one look. Further errors: TIMEOUT, PEER_DEAD (some PE of the
 * job died while waiting and the condition does not hold). */
SHMEM_API shmem_status_t shmem_memory_wait(shmem_memory_t memory, size_t offset,
                                           shmem_compare_t compare, uint64_t value, int64_t timeout,
                                           uint64_t *seen);

/* ---- collective ---- */

typedef enum shmem_type {
    SHMEM_TYPE_INT32 = 0,
    SHMEM_TYPE_INT64,
    SHMEM_TYPE_FLOAT,
    SHMEM_TYPE_DOUBLE
} shmem_type_t;

typedef enum shmem_reduce_op { SHMEM_SUM = 0, SHMEM_MIN, SHMEM_MAX } shmem_reduce_op_t;

/* dst[i] = op over all PEs of src[i], for `count` elements: the same bits on all PEs;
 * floating-point sums are taken in rank order whatever the count. Integer sums wrap around. min and
 * max of floating-point values ignore NaN unless all are NaN. */
SHMEM_API shmem_status_t shmem_coll_allreduce(shmem_context_t context, void *dst, const void *src,
                                              size_t count, shmem_type_t type,
                                              shmem_reduce_op_t op);

/* `bytes` of the root's buffer to the same buffer argument of every other PE. */
SHMEM_API shmem_status_t shmem_coll_broadcast(shmem_context_t context, void *buffer, size_t bytes,
                                              int root);

/* Every PE's `bytes` at src to dst + rank * bytes on every PE; dst holds bytes * size. In place:
 * src == dst + own rank * bytes. */
SHMEM_API shmem_status_t shmem_coll_allgather(shmem_context_t context, void *dst, const void *src,
                                              size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
