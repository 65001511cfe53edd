/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step: all PEs meet and compare what they are calling. Every collective is a sequence of steps,
 * and all of a job's steps have one numbering.
 *
 *   PE r, step s:  line[s & 1] = {call, body}; sequence = s (release); wait for all; compare calls
 *
 *   Invariants  nobody is two steps ahead: a PE enters s + 1 after all entered s. So what a PE
 *               wrote for step s (line, payload) may be read until the reader enters s + 1, and
 *               the writer may write for s + 1 as soon as it has completed s.
 *               after a completed step all PEs have the same count, whether or not the calls
 *               differed: a mismatch costs the call, not the job.
 *
 * Few PEs on processors of their own watch each other's lines; otherwise arrivals are counted in a
 * tree of counters and the last one releases all (`counted`), so that a sleeper is woken once.
 */
#ifndef SHMEMI_JOB_STEP_H
#define SHMEMI_JOB_STEP_H

#include "job/control.h"
#include "os/clock.h"

typedef enum shmemi_call_kind {
    SHMEMI_CALL_NONE = 0,
    SHMEMI_CALL_INIT,
    SHMEMI_CALL_FINALIZE,
    SHMEMI_CALL_BARRIER,
    SHMEMI_CALL_CREATE,
    SHMEMI_CALL_DESTROY,
    SHMEMI_CALL_ALLREDUCE,
    SHMEMI_CALL_BROADCAST,
    SHMEMI_CALL_ALLGATHER,
    SHMEMI_CALL_KINDS
} shmemi_call_kind_t;

/* "shmem_coll_broadcast(64 bytes, root 1)" into text[bytes]. Accepts any content. */
void shmemi_call_describe(const shmemi_call_t *call, char *text, size_t bytes);

/* May this thread make a collective call now? Marks the context as inside one. Errors: INVALID
 * (NULL), STATE (forked child, another thread inside), what broke the context. */
shmem_status_t shmemi_call_begin(shmem_context_t context, const shmemi_self_t **self);

/* The end of what shmemi_call_begin() allowed; passes `status` through. */
static inline shmem_status_t shmemi_call_end(shmem_context_t context, shmem_status_t status)
{
    atomic_store_explicit(&context->inside, false, memory_order_relaxed);
    return status;
}

/* The call's arguments were refused with `status` (detail recorded): tell the others in the step
 * that they wait in. Returns `status` with its detail, whatever the others call. */
shmem_status_t shmemi_call_refuse(shmem_context_t context, const shmemi_call_t *call,
                                  shmem_status_t status);

/* Where this PE puts data for the next step, and where any PE's data of the last one lies. */
static inline unsigned char *shmemi_step_body(shmem_context_t context)
{
    return context->pes[context->rank].line[(context->steps + 1) & 1].body;
}

static inline unsigned char *shmemi_step_payload(shmem_context_t context)
{
    return context->pes[context->rank].payload[(context->steps + 1) & 1];
}

static inline const unsigned char *shmemi_step_body_of(shmem_context_t context, int rank)
{
    return context->pes[rank].line[context->steps & 1].body;
}

static inline const unsigned char *shmemi_step_payload_of(shmem_context_t context, int rank)
{
    return context->pes[rank].payload[context->steps & 1];
}

/* The same for larger data: one half of the PE's scratch memory. */
enum { SHMEMI_HALF = SHMEMI_SCRATCH / 2 };

static inline unsigned char *shmemi_step_half(shmem_context_t context)
{
    return shmemi_control_scratch(context, context->rank) +
           ((context->steps + 1) & 1) * SHMEMI_HALF;
}

static inline const unsigned char *shmemi_step_half_of(shmem_context_t context, int rank)
{
    return shmemi_control_scratch(context, rank) + (context->steps & 1) * SHMEMI_HALF;
}

/*
 * Enter the next step with `call` and wait for all PEs. Errors: MISMATCH (the step is complete),
 * PEER_DEAD, STATE, CORRUPT, TIMEOUT (the context is broken from then on).
 */
shmem_status_t shmemi_step(shmem_context_t context, const shmemi_call_t *call,
                           shmemi_deadline_t deadline);

/* One step after the other of a call: the phase counts up from 0, there is no time limit. */
static inline shmem_status_t shmemi_step_next(shmem_context_t context, shmemi_call_t *call)
{
    shmem_status_t status = shmemi_step(context, call, SHMEMI_FOREVER);
    call->phase++;
    return status;
}

/* From now on every collective call of this context gets `status`, with the thread's detail. */
void shmemi_context_break(shmem_context_t context, shmem_status_t status);

#endif
