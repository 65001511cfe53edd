/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast: the root's bytes travel with a step, or are read where they are, or go through the
 * root's scratch memory in pieces, the root filling one half while the others empty the other. */
#include "job/coll.h"

#include "base/fault.h"
#include "base/status.h"
#include "xport/direct.h"

#define LAYER "job"

static shmem_status_t by_steps(shmem_context_t c, shmemi_call_t *call, char *buffer, size_t bytes)
{
    size_t at = 0;
    bool root = (uint32_t)c->rank == call->root;
    do {
        size_t now = bytes - at < SHMEMI_HALF ? bytes - at : SHMEMI_HALF;
        if (root)
            shmemi_coll_send(c, buffer + at, now);
        shmem_status_t status = shmemi_step_next(c, call);
        if (status)
            return status;
        if (!root && now)
            memcpy(buffer + at, shmemi_coll_received(c, (int)call->root, now), now);
        at += now;
    } while (at < bytes);
    return SHMEM_OK;
}

static shmem_status_t large(shmem_context_t c, shmemi_call_t *call, char *buffer, size_t bytes)
{
    bool direct;
    shmem_status_t status = shmemi_coll_meet(c, call, buffer, bytes, &direct);
    if (status)
        return status;
    if (!direct)
        return by_steps(c, call, buffer, bytes);
    if ((uint32_t)c->rank != call->root)
        shmemi_direct_copy(buffer, c->sources[call->root], bytes);
    SHMEMI_KILL_POINT("job.broadcast.copied");
    return shmemi_step_next(c, call);
}

static shmem_status_t arguments_check(shmem_context_t c, const void *buffer, size_t bytes, int root)
{
    if (root < 0 || root >= c->size)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_coll_broadcast from PE %d: the job has PEs 0 to %d", root,
                           c->size - 1);
    if (bytes && !buffer)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_coll_broadcast of %zu bytes: the buffer is NULL", bytes);
    if (bytes > PTRDIFF_MAX)
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "shmem_coll_broadcast of %zu bytes: more than a buffer can have", bytes);
    return SHMEM_OK;
}

shmem_status_t shmem_coll_broadcast(shmem_context_t context, void *buffer, size_t bytes, int root)
{
    const shmemi_self_t *self;
    shmem_status_t status = shmemi_call_begin(context, &self);
    if (status)
        return status;
    shmemi_call_t call = {.kind = SHMEMI_CALL_BROADCAST, .root = (uint32_t)root, .size = bytes};
    status = arguments_check(context, buffer, bytes, root);
    if (status)
        status = shmemi_call_refuse(context, &call, status);
    else if (!context->alone)
        status = bytes <= SHMEMI_COLL_SMALL ? by_steps(context, &call, buffer, bytes)
                                            : large(context, &call, buffer, bytes);
    return shmemi_coll_end(context, self, bytes, status);
}
