/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-sided operations on symmetric memory: check, dispatch to the transport, wake who may sleep
 * on the target. The direct transport is inlined.
 */
#include "shmem/comm.h"

#include "base/fault.h"
#include "base/status.h"
#include "job/control.h"
#include "job/memory.h"
#include "job/peers.h"
#include "xport/direct.h"

#define LAYER "job"

static shmem_status_t target_failed(shmem_memory_t memory, int rank, uint64_t offset, uint64_t n)
{
    char words[SHMEMI_MEMORY_WORDS];
    shmem_status_t status = shmemi_memory_check(memory);
    if (status)
        return status;
    if (rank < 0 || rank >= memory->context->size)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "PE %d does not exist, the job has PEs 0 to %d", rank,
                           memory->context->size - 1);
    if (!shmemi_memory_is_mapped(memory))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "symmetric memory %s is not mapped here: call shmem_memory_map()",
                           shmemi_memory_words(memory->id, words, sizeof words));
    return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                       "bytes %llu to %llu + %llu lie outside of a part of %zu bytes",
                       (unsigned long long)offset, (unsigned long long)offset,
                       (unsigned long long)n, memory->bytes);
}

/* Checks everything about a place; on success *self is the caller and *target the place. */
static inline shmem_status_t target_find(shmem_memory_t memory, int rank, uint64_t offset,
                                         uint64_t n, const shmemi_self_t **self,
                                         shmemi_xport_target_t *target)
{
    if (__builtin_expect(!memory || memory->magic != SHMEMI_MEMORY_LIVE || rank < 0 ||
                             rank >= memory->context->size || !shmemi_memory_is_mapped(memory) ||
                             !shmemi_range_inside(offset, n, memory->bytes),
                         0))
        return target_failed(memory, rank, offset, n);
    *self = shmemi_self(memory->context->actor);
    if (!*self)
        return shmem_error_detail()->status;
    target->rank = rank;
    target->object = memory->id;
    target->offset = offset;
    target->address = shmemi_memory_part(memory, rank) + offset;
    return SHMEM_OK;
}

static shmem_status_t word_check(uint64_t offset)
{
    if (offset % sizeof(uint64_t) == 0)
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                       "offset %llu of a 64-bit word is not a multiple of 8",
                       (unsigned long long)offset);
}

static shmem_status_t buffer_check(const void *buffer, size_t n, const char *call)
{
    if (buffer || !n)
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%s of %zu bytes: the buffer is NULL", call, n);
}

/* How PE `rank` is reached. */
static inline const shmemi_xport_ops_t *xport_of(shmem_context_t context, int rank)
{
    (void)context;
    (void)rank;
    return &shmemi_xport_direct;
}

static inline shmem_status_t transfer(shmem_context_t c, const shmemi_xport_target_t *target,
                                      const void *src, size_t n)
{
    const shmemi_xport_ops_t *xport = xport_of(c, target->rank);
    if (xport != &shmemi_xport_direct)
        return xport->put(target, src, n);
    shmemi_direct_copy(target->address, src, n);
    return SHMEM_OK;
}

static inline void wake(shmem_context_t c, const shmemi_self_t *self, int rank)
{
    shmemi_bell_ring(c->actor->roster, &c->pes[rank].bell, &self->thread->stats);
}

shmem_status_t shmem_copy(void *dst, const void *src, size_t n)
{
    if (!n)
        return SHMEM_OK;
    uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;
    if (!dst || !src || (d < s ? s - d < n : d - s < n))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "copy of %zu bytes from %p to %p: NULL or overlapping", n, src, dst);
    shmemi_direct_copy(dst, src, n);
    return SHMEM_OK;
}

shmem_status_t shmem_memory_put(shmem_memory_t memory, int rank, size_t offset, const void *src,
                                size_t n)
{
    const shmemi_self_t *self = NULL;
    shmemi_xport_target_t target = {0};
    shmem_status_t status = target_find(memory, rank, offset, n, &self, &target);
    if (status || (status = buffer_check(src, n, __func__)))
        return status;
    status = transfer(memory->context, &target, src, n);
    SHMEMI_KILL_POINT("job.put.copied");
    wake(memory->context, self, rank);
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_puts, 1);
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_put_bytes, n);
    return status;
}

shmem_status_t shmem_memory_get(shmem_memory_t memory, int rank, size_t offset, void *dst, size_t n)
{
    const shmemi_self_t *self = NULL;
    shmemi_xport_target_t target = {0};
    shmem_status_t status = target_find(memory, rank, offset, n, &self, &target);
    if (status || (status = buffer_check(dst, n, __func__)))
        return status;
    const shmemi_xport_ops_t *xport = xport_of(memory->context, rank);
    if (xport != &shmemi_xport_direct)
        status = xport->get(&target, dst, n);
    else
        shmemi_direct_copy(dst, target.address, n);
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_gets, 1);
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_get_bytes, n);
    return status;
}

static shmem_status_t fetch_add(shmem_context_t c, const shmemi_self_t *self,
                                const shmemi_xport_target_t *target, uint64_t value, uint64_t *old)
{
    const shmemi_xport_ops_t *xport = xport_of(c, target->rank);
    shmem_status_t status = SHMEM_OK;
    if (xport != &shmemi_xport_direct)
        status = xport->fetch_add(target, value, old);
    else
        *old = shmemi_direct_fetch_add(target->address, value);
    wake(c, self, target->rank);
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_atomics, 1);
    return status;
}

shmem_status_t shmem_memory_fetch_add(shmem_memory_t memory, int rank, size_t offset,
                                      uint64_t value, uint64_t *old)
{
    const shmemi_self_t *self = NULL;
    shmemi_xport_target_t target = {0};
    uint64_t before = 0;
    shmem_status_t status = target_find(memory, rank, offset, sizeof value, &self, &target);
    if (status || (status = word_check(offset)))
        return status;
    status = fetch_add(memory->context, self, &target, value, &before);
    if (!status && old)
        *old = before;
    return status;
}

static shmem_status_t signal_check(uint64_t offset, shmem_signal_op_t op)
{
    if (op != SHMEM_SIGNAL_OP_SET && op != SHMEM_SIGNAL_OP_ADD)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "signal operation %d does not exist", (int)op);
    return word_check(offset);
}

/* A signal word that the data covers would be set by the data. */
static shmem_status_t apart_check(uint64_t offset, uint64_t n, uint64_t signal_offset)
{
    if (!n || signal_offset + sizeof(uint64_t) <= offset || signal_offset >= offset + n)
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                       "shmem_memory_put_signal: the signal word at offset %llu lies inside the "
                       "%llu bytes of data at offset %llu: place it before or after them",
                       (unsigned long long)signal_offset, (unsigned long long)n,
                       (unsigned long long)offset);
}

static shmem_status_t signal_send(shmem_context_t c, const shmemi_self_t *self,
                                  const shmemi_xport_target_t *target, uint64_t value,
                                  shmem_signal_op_t op)
{
    uint64_t old;
    if (op == SHMEM_SIGNAL_OP_ADD)
        return fetch_add(c, self, target, value, &old);
    const shmemi_xport_ops_t *xport = xport_of(c, target->rank);
    shmem_status_t status = SHMEM_OK;
    if (xport != &shmemi_xport_direct)
        status = xport->set(target, value);
    else
        shmemi_direct_set(target->address, value);
    SHMEMI_KILL_POINT("job.signal.set");
    wake(c, self, target->rank);
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_atomics, 1);
    return status;
}

shmem_status_t shmem_memory_signal(shmem_memory_t memory, int rank, size_t offset, uint64_t value,
                                   shmem_signal_op_t op)
{
    const shmemi_self_t *self = NULL;
    shmemi_xport_target_t target = {0};
    shmem_status_t status = target_find(memory, rank, offset, sizeof value, &self, &target);
    if (status || (status = signal_check(offset, op)))
        return status;
    return signal_send(memory->context, self, &target, value, op);
}

shmem_status_t shmem_memory_put_signal(shmem_memory_t memory, int rank, size_t offset,
                                       const void *src, size_t n, size_t signal_offset,
                                       uint64_t value, shmem_signal_op_t op)
{
    const shmemi_self_t *self = NULL;
    shmemi_xport_target_t target = {0}, word = {0};
    shmem_status_t status = target_find(memory, rank, offset, n, &self, &target);
    if (status || (status = target_find(memory, rank, signal_offset, sizeof value, &self, &word)) ||
        (status = signal_check(signal_offset, op)) || (status = buffer_check(src, n, __func__)) ||
        (status = apart_check(offset, n, signal_offset)))
        return status;
    status = transfer(memory->context, &target, src, n);
    SHMEMI_KILL_POINT("job.put_signal.copied");
    if (status)
        return status;
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_puts, 1);
    shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_put_bytes, n);
    return signal_send(memory->context, self, &word, value, op);
}
