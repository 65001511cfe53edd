/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce.
 *
 * all by all  every PE sends its array with a step and reduces all arrays itself
 * sliced      PE r reduces slice r of all arrays and gives it to all
 *
 * Both reduce in rank order. An element is computed by one PE, or by all with the same code from
 * the same operands: the same bits everywhere.
 */
#include "job/coll.h"

#include <string.h>

#include "base/fault.h"
#include "base/status.h"
#include "job/reduce.h"
#include "xport/direct.h"

#define LAYER "job"

enum {
    ALL_BYTES = 16384, /* of the arrays of all PEs together: so much, each PE reduces itself */
    FEW = 3,           /* up to so many PEs do the same with any amount of staged data */
    BLOCK = 16384      /* bytes reduced, then given to the others while in the first cache */
};

typedef struct job {
    shmem_context_t c;
    char *dst;
    const char *src;
    size_t count, element;
    shmem_type_t type;
    shmem_reduce_op_t op;
    shmemi_call_t call;
} job_t;

/* Pieces of at most SHMEMI_HALF bytes, one step each. */
static shmem_status_t all_by_all(job_t *j)
{
    shmem_context_t c = j->c;
    size_t most = SHMEMI_HALF / j->element, at = 0;
    do {
        size_t now = j->count - at < most ? j->count - at : most;
        shmemi_coll_send(c, j->src + at * j->element, now * j->element);
        shmem_status_t status = shmemi_step_next(c, &j->call);
        if (status)
            return status;
        for (int r = 0; r < c->size; r++)
            c->sources[r] = shmemi_coll_received(c, r, now * j->element);
        if (now)
            shmemi_reduce(j->dst + at * j->element, c->sources, c->size, now, j->type, j->op);
        at += now;
    } while (at < j->count);
    return SHMEM_OK;
}

/* Elements [*first, *end) of `count` are PE `rank`'s slice. No two slices share a cache line. */
static void slice_of(const job_t *j, size_t count, int rank, size_t *first, size_t *end)
{
    size_t line = SHMEMI_CACHE_LINE / j->element, n = (size_t)j->c->size;
    size_t share = (count / n + (count % n != 0) + line - 1) / line * line;
    size_t before = (size_t)rank > count / share ? count : (size_t)rank * share;
    *first = before < count ? before : count;
    *end = count - *first < share ? count : *first + share;
}

/* to[0..count) = all sources, from element `first` on. */
static void reduce_from(job_t *j, void *to, size_t first, size_t count)
{
    shmem_context_t c = j->c;
    for (int r = 0; r < c->size; r++)
        c->cursors[r] = (const char *)c->sources[r] + first * j->element;
    shmemi_reduce(to, c->cursors, c->size, count, j->type, j->op);
}

/* The own slice of `count` elements from sources[], to everybody's destination at element `at`. */
static void slice_to_targets(job_t *j, size_t at, size_t count)
{
    shmem_context_t c = j->c;
    size_t first, end, most = BLOCK / j->element;
    slice_of(j, count, c->rank, &first, &end);
    for (size_t now; first < end; first += now) {
        now = end - first < most ? end - first : most;
        size_t offset = (at + first) * j->element;
        char *mine = c->targets[c->rank] + offset;
        reduce_from(j, mine, first, now);
        for (int i = 1; i < c->size; i++)
            memcpy(c->targets[(c->rank + i) % c->size] + offset, mine, now * j->element);
        SHMEMI_KILL_POINT("job.allreduce.block");
    }
}

/* The same through the scratch memory: each PE fetches the others' slices. */
static shmem_status_t slice_by_scratch(job_t *j, size_t at, size_t count)
{
    shmem_context_t c = j->c;
    size_t first, end;
    slice_of(j, count, c->rank, &first, &end);
    if (first < end)
        reduce_from(j, shmemi_step_half(c), first, end - first);
    SHMEMI_KILL_POINT("job.allreduce.slice");
    shmem_status_t status = shmemi_step_next(c, &j->call);
    for (int r = 0; r < c->size && !status; r++) {
        slice_of(j, count, r, &first, &end);
        if (first < end)
            memcpy(j->dst + (at + first) * j->element, shmemi_step_half_of(c, r),
                   (end - first) * j->element);
    }
    return status;
}

static shmem_status_t sliced(job_t *j, bool src_direct, bool dst_direct)
{
    shmem_context_t c = j->c;
    size_t most = src_direct && dst_direct ? j->count : SHMEMI_HALF / j->element;
    for (size_t at = 0, now; at < j->count; at += now) {
        shmem_status_t status = SHMEM_OK;
        now = j->count - at < most ? j->count - at : most;
        if (!src_direct) {
            shmemi_coll_send(c, j->src + at * j->element, now * j->element);
            status = shmemi_step_next(c, &j->call);
            for (int r = 0; r < c->size; r++)
                c->sources[r] = shmemi_coll_received(c, r, now * j->element);
        } else if (at) {
            for (int r = 0; r < c->size; r++)
                c->sources[r] = (const char *)c->sources[r] + most * j->element;
        }
        if (!status && dst_direct)
            slice_to_targets(j, at, now);
        else if (!status)
            status = slice_by_scratch(j, at, now);
        if (status)
            return status;
    }
    return dst_direct ? shmemi_step_next(c, &j->call) : SHMEM_OK;
}

static shmem_status_t large(job_t *j)
{
    bool src_direct, dst_direct;
    size_t bytes = j->count * j->element;
    shmemi_coll_send_places(j->c, j->src, bytes, j->dst, bytes);
    shmem_status_t status = shmemi_step_next(j->c, &j->call);
    if (!status)
        status = shmemi_coll_sources(j->c, bytes, &src_direct);
    if (!status)
        status = shmemi_coll_targets(j->c, bytes, &dst_direct);
    if (status)
        return status;
    if (!src_direct && !dst_direct && j->c->size <= FEW)
        return all_by_all(j);
    return sliced(j, src_direct, dst_direct);
}

static shmem_status_t arguments_check(job_t *j)
{
    size_t bytes;
    if (!j->element || (unsigned)j->op > SHMEM_MAX)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "allreduce of type %d with operation %d: types are 0 to %d, operations "
                           "0 to %d",
                           (int)j->type, (int)j->op, SHMEM_TYPE_DOUBLE, SHMEM_MAX);
    if (__builtin_mul_overflow(j->count, j->element, &bytes) || bytes > PTRDIFF_MAX)
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "allreduce of %zu elements of %zu bytes: more bytes than can be counted",
                           j->count, j->element);
    if (j->count && (!j->dst || !j->src))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_coll_allreduce of %zu elements: %s is NULL", j->count,
                           j->src ? "dst" : "src");
    if (j->dst != j->src && shmemi_coll_overlap(j->dst, bytes, j->src, bytes))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_coll_allreduce of %zu bytes from %p to %p: src and dst overlap; "
                           "give the same address for both, or %zu bytes apart",
                           bytes, (const void *)j->src, (void *)j->dst, bytes);
    return SHMEM_OK;
}

static shmem_status_t allreduce(job_t *j)
{
    shmem_status_t status = arguments_check(j);
    if (status)
        return shmemi_call_refuse(j->c, &j->call, status);
    size_t bytes = j->count * j->element;
    if (j->c->alone) {
        if (bytes && j->dst != j->src)
            shmemi_direct_copy(j->dst, j->src, bytes);
        return SHMEM_OK;
    }
    if (bytes <= ALL_BYTES / (size_t)j->c->size)
        return all_by_all(j);
    return large(j);
}

shmem_status_t shmem_coll_allreduce(shmem_context_t context, void *dst, const void *src,
                                    size_t count, shmem_type_t type, shmem_reduce_op_t op)
{
    const shmemi_self_t *self;
    shmem_status_t status = shmemi_call_begin(context, &self);
    if (status)
        return status;
    job_t job = {.c = context,
                 .dst = dst,
                 .src = src,
                 .count = count,
                 .element = shmemi_reduce_element(type),
                 .type = type,
                 .op = op,
                 .call = {.kind = SHMEMI_CALL_ALLREDUCE,
                          .type = (uint8_t)type,
                          .op = (uint8_t)op,
                          .size = count}};
    status = allreduce(&job);
    return shmemi_coll_end(context, self, count * job.element, status);
}
