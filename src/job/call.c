/* SPDX-License-Identifier: Apache-2.0 */
/* What a collective call is: its description in words, and the rules of entering one. */
#include "job/step.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define LAYER "job"

static const char *const kind_names[SHMEMI_CALL_KINDS] = {
    "no call",
    "shmem_context_init",
    "shmem_context_finalize",
    "shmem_context_barrier",
    "shmem_memory_create",
    "shmem_memory_destroy",
    "shmem_coll_allreduce",
    "shmem_coll_broadcast",
    "shmem_coll_allgather",
};

static void describe_arguments(const shmemi_call_t *call, char *text, size_t bytes)
{
    static const char *const types[] = {"int32", "int64", "float", "double"};
    static const char *const ops[] = {"sum", "min", "max"};
    unsigned long long size = call->size;
    text[0] = 0;
    switch (call->kind) {
    case SHMEMI_CALL_INIT:
        snprintf(text, bytes, "%llu PEs", size);
        break;
    case SHMEMI_CALL_CREATE:
    case SHMEMI_CALL_ALLGATHER:
        snprintf(text, bytes, "%llu bytes", size);
        break;
    case SHMEMI_CALL_DESTROY:
        snprintf(text, bytes, "object number %llu in order of creation", size);
        break;
    case SHMEMI_CALL_BROADCAST:
        snprintf(text, bytes, "%llu bytes, root %u", size, call->root);
        break;
    case SHMEMI_CALL_ALLREDUCE:
        snprintf(text, bytes, "%llu elements, %s, %s", size,
                 call->type < SHMEMI_COUNT(types) ? types[call->type] : "type?",
                 call->op < SHMEMI_COUNT(ops) ? ops[call->op] : "operation?");
        break;
    default:
        break;
    }
}

void shmemi_call_describe(const shmemi_call_t *call, char *text, size_t bytes)
{
    char arguments[96];
    describe_arguments(call, arguments, sizeof arguments);
    snprintf(text, bytes, "%s(%s)%s%s",
             call->kind < SHMEMI_CALL_KINDS ? kind_names[call->kind] : "an unknown call", arguments,
             call->refused ? ", refused there: " : "",
             call->refused ? shmem_strerror((shmem_status_t)call->refused) : "");
}

shmem_status_t shmemi_call_begin(shmem_context_t c, const shmemi_self_t **self)
{
    if (!c)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "the context is NULL");
    *self = shmemi_self(c->actor);
    if (!*self)
        return shmem_error_detail()->status;
    if (c->broken)
        return shmemi_fail(c->broken, LAYER, "%s", c->broken_text);
    if (atomic_load_explicit(&c->inside, memory_order_relaxed))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "another thread is inside a collective call of PE %d: one at a time",
                           c->rank);
    atomic_store_explicit(&c->inside, true, memory_order_relaxed);
    return SHMEM_OK;
}

void shmemi_context_break(shmem_context_t c, shmem_status_t status)
{
    if (c->broken)
        return;
    c->broken = status;
    snprintf(c->broken_text, sizeof c->broken_text, "%s", shmem_error_detail()->text);
}

shmem_status_t shmemi_call_refuse(shmem_context_t c, const shmemi_call_t *call,
                                  shmem_status_t status)
{
    char text[SHMEMI_BROKEN_TEXT];
    shmemi_call_t refused = *call;
    refused.refused = status;
    snprintf(text, sizeof text, "%s", shmem_error_detail()->text);
    shmemi_step(c, &refused, SHMEMI_FOREVER);
    return shmemi_quiet(status, LAYER, "%s", text);
}
