/* SPDX-License-Identifier: Apache-2.0 */
/* Allgather: every PE's bytes travel with a step, or are read where they are, or go through the
 * scratch memories in pieces. */
#include "job/coll.h"

#include <stdint.h>

#include "base/fault.h"
#include "base/status.h"
#include "xport/direct.h"

#define LAYER "job"

/* What PE `rank` contributed, from `from` to its block in dst. */
static void take(char *dst, const void *from, size_t bytes, int rank)
{
    char *to = dst + (size_t)rank * bytes;
    if (to != from && bytes)
        shmemi_direct_copy(to, from, bytes);
}

static shmem_status_t by_steps(shmem_context_t c, shmemi_call_t *call, char *dst, const char *src,
                               size_t bytes)
{
    size_t at = 0;
    do {
        size_t now = bytes - at < SHMEMI_HALF ? bytes - at : SHMEMI_HALF;
        shmemi_coll_send(c, src + at, now);
        shmem_status_t status = shmemi_step_next(c, call);
        if (status)
            return status;
        for (int r = 0; r < c->size && now; r++)
            memcpy(dst + (size_t)r * bytes + at, shmemi_coll_received(c, r, now), now);
        at += now;
    } while (at < bytes);
    return SHMEM_OK;
}

static shmem_status_t large(shmem_context_t c, shmemi_call_t *call, char *dst, const char *src,
                            size_t bytes)
{
    bool direct;
    shmem_status_t status = shmemi_coll_meet(c, call, src, bytes, &direct);
    if (status)
        return status;
    if (!direct)
        return by_steps(c, call, dst, src, bytes);
    take(dst, src, bytes, c->rank);
    for (int i = 1; i < c->size; i++) {
        int r = (c->rank + i) % c->size;
        take(dst, c->sources[r], bytes, r);
        SHMEMI_KILL_POINT("job.allgather.copied");
    }
    return shmemi_step_next(c, call);
}

static shmem_status_t arguments_check(shmem_context_t c, const void *dst, const void *src,
                                      size_t bytes)
{
    size_t total;
    if (bytes && (!dst || !src))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_coll_allgather of %zu bytes: %s is NULL", bytes,
                           src ? "dst" : "src");
    if (__builtin_mul_overflow(bytes, (size_t)c->size, &total) || total > PTRDIFF_MAX)
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "allgather of %zu bytes from each of %d PEs: more bytes than can be "
                           "counted",
                           bytes, c->size);
    if (src != (const char *)dst + (size_t)c->rank * bytes &&
        shmemi_coll_overlap(dst, total, src, bytes))
        return shmemi_fail(
            SHMEM_ERR_INVALID, LAYER,
            "shmem_coll_allgather of %zu bytes from %p to the %zu bytes at %p: src "
            "and dst overlap; give memory outside of dst, or dst + rank * bytes (%p)",
            bytes, src, total, dst, (const void *)((const char *)dst + (size_t)c->rank * bytes));
    return SHMEM_OK;
}

shmem_status_t shmem_coll_allgather(shmem_context_t context, void *dst, const void *src,
                                    size_t bytes)
{
    const shmemi_self_t *self;
    shmem_status_t status = shmemi_call_begin(context, &self);
    if (status)
        return status;
    shmemi_call_t call = {.kind = SHMEMI_CALL_ALLGATHER, .size = bytes};
    status = arguments_check(context, dst, src, bytes);
    if (status)
        status = shmemi_call_refuse(context, &call, status);
    else if (context->alone)
        take(dst, src, bytes, 0);
    else
        status = bytes <= SHMEMI_COLL_SMALL ? by_steps(context, &call, dst, src, bytes)
                                            : large(context, &call, dst, src, bytes);
    return shmemi_coll_end(context, self, bytes, status);
}
