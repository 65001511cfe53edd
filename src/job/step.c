/* SPDX-License-Identifier: Apache-2.0 */
/* Entering a step, waiting for the others, comparing the calls. */
#include "job/step.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/status.h"
#include "job/peers.h"

#define LAYER "job"

enum {
    POLLS = 50,           /* looks before the general way of waiting, about 2 us */
    CROWDED_POLLS = 4,    /* looks between two offers of the processor */
    ELSEWHERE_POLLS = 60, /* the same while all that are missing run on other processors */
    CROWDED_YIELDS = 16   /* offers before the general way of waiting, which then sleeps */
};

typedef struct step {
    shmem_context_t context;
    uint64_t sequence;
    int next; /* PEs below this one have arrived (watched steps) */
    uint32_t deaths;
} step_t;

static uint64_t line_sequence(shmem_context_t c, int rank, uint64_t sequence)
{
    /* SYNC step-line: acquire, pairs with release in publish() */
    return atomic_load_explicit(&c->pes[rank].line[sequence & 1].sequence, memory_order_acquire);
}

static bool watched_ready(void *arg)
{
    step_t *step = arg;
    shmem_context_t c = step->context;
    while (step->next < c->size && line_sequence(c, step->next, step->sequence) >= step->sequence)
        step->next++;
    return step->next == c->size;
}

static bool counted_ready(void *arg)
{
    step_t *step = arg;
    /* SYNC step-released: acquire, pairs with release in count() */
    return atomic_load_explicit(&step->context->control->released, memory_order_acquire) >=
           step->sequence;
}

static shmem_status_t step_alive(void *arg)
{
    step_t *step = arg;
    return shmemi_peers_check(step->context, &step->deaths);
}

static void publish(shmem_context_t c, const shmemi_call_t *call, uint64_t sequence)
{
    shmemi_line_t *line = &c->pes[c->rank].line[sequence & 1];
    line->call = *call;
    SHMEMI_KILL_POINT("job.step.written");
    /* SYNC step-line: release, pairs with acquire in line_sequence() */
    atomic_store_explicit(&line->sequence, sequence, memory_order_release);
    SHMEMI_KILL_POINT("job.step.published");
}

/* Count this PE in, from its own counter upwards as long as it is the last. True: all are there. */
static bool count(shmem_context_t c, uint64_t sequence)
{
    unsigned index = (unsigned)c->rank, level = (unsigned)c->size, base = 0;
    for (;;) {
        unsigned group = index / SHMEMI_COUNTER_FAN;
        unsigned groups = (level + SHMEMI_COUNTER_FAN - 1) / SHMEMI_COUNTER_FAN;
        unsigned members = level - group * SHMEMI_COUNTER_FAN;
        if (members > SHMEMI_COUNTER_FAN)
            members = SHMEMI_COUNTER_FAN;
        /* SYNC step-count: acquire-release, pairs with itself in the PEs that count later */
        uint64_t before = atomic_fetch_add_explicit(&c->control->counters[base + group].arrived, 1,
                                                    memory_order_acq_rel);
        SHMEMI_KILL_POINT("job.step.counted");
        if (before + 1 != members * sequence)
            return false;
        if (groups == 1)
            break;
        base += groups;
        index = group;
        level = groups;
    }
    /* SYNC step-released: release, pairs with acquire in counted_ready() */
    atomic_store_explicit(&c->control->released, sequence, memory_order_release);
    SHMEMI_KILL_POINT("job.step.released");
    return true;
}

static void ring(shmem_context_t c, const shmemi_self_t *self)
{
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            shmemi_bell_ring(c->actor->roster, &c->pes[r].bell, &self->thread->stats);
}

/* Where this PE runs; written when it changes only, so that the others read their own copies. */
static uint32_t processor_note(shmem_context_t c)
{
    uint32_t here = (uint32_t)sched_getcpu();
    _Atomic uint32_t *noted = &c->pes[c->rank].processor;
    if (atomic_load_explicit(noted, memory_order_relaxed) != here)
        atomic_store_explicit(noted, here, memory_order_relaxed);
    return here;
}

/* Would somebody who is missing run if this PE gave its processor away? A guess: PEs move. */
static bool somebody_waits_for(const step_t *step, uint32_t processor)
{
    shmem_context_t c = step->context;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank &&
            atomic_load_explicit(&c->pes[r].processor, memory_order_relaxed) == processor &&
            line_sequence(c, r, step->sequence) < step->sequence)
            return true;
    return false;
}

/* The short way: most steps end here. */
static bool poll(step_t *step, bool (*ready)(void *))
{
    if (!step->context->actor->crowded) {
        for (int i = 0; i < POLLS; i++) {
            if (ready(step))
                return true;
            shmemi_cpu_relax(); /* looking without a pause delays the writer of the line */
        }
        return false;
    }
    uint32_t here = processor_note(step->context);
    for (int y = 0; y < CROWDED_YIELDS; y++) {
        int polls = somebody_waits_for(step, here) ? CROWDED_POLLS : ELSEWHERE_POLLS;
        for (int i = 0; i < polls; i++) {
            if (ready(step))
                return true;
            if (polls == ELSEWHERE_POLLS)
                shmemi_cpu_relax();
        }
        sched_yield();
    }
    return false;
}

static shmem_status_t wait_for_all(shmem_context_t c, uint64_t sequence, bool counted,
                                   shmemi_deadline_t deadline)
{
    step_t step = {c, sequence, 0, c->deaths};
    bool (*ready)(void *) = counted ? counted_ready : watched_ready;
    if (poll(&step, ready))
        return SHMEM_OK;
    shmemi_wait_t wait = {.ready = ready,
                          .alive = step_alive,
                          .arg = &step,
                          .kind = SHMEMI_WAIT_BELL,
                          .object = &c->pes[c->rank]};
    shmem_status_t status = shmemi_wait_until(c->actor, &c->pes[c->rank].bell, &wait, deadline);
    c->deaths = step.deaths;
    return status;
}

static bool is_missing(shmem_context_t c, int rank)
{
    return line_sequence(c, rank, c->steps + 1) < c->steps + 1;
}

static shmem_status_t gave_up(shmem_context_t c, const shmemi_call_t *call)
{
    char missing[96], what[128];
    shmemi_peers_list(c, is_missing, missing, sizeof missing);
    shmemi_call_describe(call, what, sizeof what);
    shmem_status_t status;
    if (call->kind == SHMEMI_CALL_INIT)
        status =
            shmemi_fail(SHMEM_ERR_TIMEOUT, LAYER,
                        "job '%s': of %d PEs these have not joined in time: %s; start them, or "
                        "raise SHMEM_INIT_TIMEOUT",
                        c->name, c->size, missing);
    else
        status = shmemi_quiet(SHMEM_ERR_TIMEOUT, LAYER,
                              "PE %d waits in %s; not there yet: PE %s. The context is out of step "
                              "with the others now" SHMEMI_ADVICE,
                              c->rank, what, missing);
    shmemi_context_break(c, SHMEM_ERR_STATE);
    shmemi_pe_state_set(&c->pes[c->rank], SHMEMI_PE_OUT_OF_STEP);
    shmemi_peers_ring(c);
    return status;
}

/* Who finalizes because of a death calls something else than the others do: name the dead then. */
static shmem_status_t other_call(shmem_context_t c, const shmemi_call_t *call, int rank,
                                 const shmemi_call_t *other)
{
    char mine[128], theirs[128];
    shmem_status_t status = shmemi_peers_check_deaths(c, &c->deaths);
    if (status) {
        shmemi_context_break(c, status);
        return status;
    }
    shmemi_call_describe(call, mine, sizeof mine);
    shmemi_call_describe(other, theirs, sizeof theirs);
    return shmemi_fail(SHMEM_ERR_MISMATCH, LAYER, "PE %d called %s, PE %d %s", c->rank, mine, rank,
                       theirs);
}

static shmem_status_t compare(shmem_context_t c, const shmemi_call_t *call, uint64_t sequence)
{
    for (int r = 0; r < c->size; r++) {
        const shmemi_line_t *line = &c->pes[r].line[sequence & 1];
        shmemi_call_t other = line->call;
        if (line_sequence(c, r, sequence) != sequence) {
            shmem_status_t status = shmemi_fail(
                SHMEM_ERR_CORRUPT, LAYER,
                "PE %d stands at step %llu, PE %d at %llu: the control segment of job '%s' was "
                "overwritten",
                r, (unsigned long long)line_sequence(c, r, sequence), c->rank,
                (unsigned long long)sequence, c->name);
            shmemi_context_break(c, status);
            return status;
        }
        if (__builtin_expect(memcmp(&other, call, sizeof other) != 0, 0))
            return other_call(c, call, r, &other);
    }
    return SHMEM_OK;
}

shmem_status_t shmemi_step(shmem_context_t c, const shmemi_call_t *call, shmemi_deadline_t deadline)
{
    uint64_t sequence = c->steps + 1;
    publish(c, call, sequence);
    if (!c->alone) {
        const shmemi_self_t *self = shmemi_self(c->actor);
        if (!self)
            return shmem_error_detail()->status;
        bool counted = c->counted, last = counted && count(c, sequence);
        if (!counted || last)
            ring(c, self);
        shmem_status_t status = last ? SHMEM_OK : wait_for_all(c, sequence, counted, deadline);
        bool joining = call->kind == SHMEMI_CALL_INIT;
        if (status == SHMEM_ERR_TIMEOUT || (joining && status == SHMEM_ERR_STATE))
            return gave_up(c, call); /* joining: others gave up before us */
        if (status) {
            shmemi_context_break(c, status);
            return status;
        }
    }
    c->steps = sequence;
    return compare(c, call, sequence);
}
