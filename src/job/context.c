/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining and leaving a job.
 *
 * Leaving has two forms. In step with the others it is a collective step like any other; a PE whose
 * peers still call something else takes part in those steps (they get a mismatch) until all
 * finalize. A broken context waits until every other PE is leaving, gone or dead, by their states.
 *
 * A finalized context is buried (job/graves.h): its actor is one that is closed, so that every call
 * which asks who the caller is gives STATE. That question is part of each call's short way anyway.
 */
#include "job/context.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/params.h"
#include "base/log.h"
#include "base/status.h"
#include "job/arenas.h"
#include "job/crowd.h"
#include "job/graves.h"
#include "job/launcher.h"
#include "job/lifeline.h"
#include "job/memory.h"
#include "job/peers.h"
#include "job/pool_api.h"
#include "job/region_api.h"
#include "job/step.h"

#define LAYER "job"

/* ---- joining ---- */

static shmem_status_t params_copy(const shmem_context_params_t *params,
                                  shmem_context_params_t *copy)
{
    memset(copy, 0, sizeof *copy);
    return params ? shmemi_params_take(copy, sizeof *copy, sizeof *copy, params,
                                       "shmem_context_params_t")
                  : SHMEM_OK;
}

static shmem_status_t ranks_check(shmem_context_t c)
{
    if (c->size > SHMEMI_PES)
        return shmemi_fail(SHMEM_ERR_LIMIT, LAYER, "%d PEs asked for, a job has at most %d",
                           c->size, SHMEMI_PES);
    if (c->size < 1 || c->rank < 0 || c->rank >= c->size)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "rank %d of %d PEs: ranks go from 0 to PEs - 1", c->rank, c->size);
    return SHMEM_OK;
}

/* What to join: from the parameters, else from the environment. */
static shmem_status_t context_setup(shmem_context_t c, const shmem_context_params_t *p,
                                    const char **job)
{
    shmem_status_t status = shmemi_settings_load(&c->settings);
    if (status)
        return status;
    if (p->server && (!*p->server || strlen(p->server) >= sizeof c->settings.server))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "the server address has %zu bytes, 1 to %zu are possible",
                           strlen(p->server), sizeof c->settings.server - 1);
    if (p->server)
        snprintf(c->settings.server, sizeof c->settings.server, "%s", p->server);
    if (!p->pes && !shmemi_settings_is_set("SHMEM_SIZE") && (status = shmemi_launcher_check()))
        return status;
    if (p->timeout)
        c->settings.init_timeout = p->timeout;
    c->size = p->pes ? p->pes : (int)c->settings.size;
    c->rank = p->pes ? p->rank : (int)c->settings.rank;
    c->alone = c->size == 1;
    *job = p->job;
    if (!*job && *c->settings.job && !(p->pes == 1))
        *job = c->settings.job;
    if (!*job && c->size > 1)
        return shmemi_fail(
            SHMEM_ERR_INVALID, LAYER,
            "PE %d of %d has no job name: set SHMEM_JOB to the same name for all PEs "
            "(shmem-run does), or give one",
            c->rank, c->size);
    return ranks_check(c);
}

/* The first step: all are there when it is complete. */
static shmem_status_t join(shmem_context_t c)
{
    const shmemi_self_t *self;
    shmem_status_t status = shmemi_call_begin(c, &self);
    if (status)
        return status;
    shmemi_call_t call = {.kind = SHMEMI_CALL_INIT, .size = (uint64_t)c->size};
    c->counted = true;
    /* the first look at the peers must find those that died before */
    c->deaths = atomic_load_explicit(&c->actor->roster->deaths, memory_order_relaxed) - 1;
    SHMEMI_KILL_POINT("job.init.claimed");
    status = shmemi_step(c, &call, shmemi_deadline_in(c->settings.init_timeout));
    SHMEMI_KILL_POINT("job.init.joined");
    c->actor->crowded = c->size > shmemi_crowd_processors(c->control);
    c->counted = c->actor->crowded || c->size > SHMEMI_COUNTER_FAN;
    return shmemi_call_end(c, status);
}

static shmemi_cemetery_t finalized;
static shmemi_actor_t closed_actor; /* id 0 */

/* All but the handle. In a forked child nothing is said to the others: the membership is the
 * parent's. */
static void context_clear(shmem_context_t c)
{
    bool inherited = shmemi_context_is_inherited(c);
    shmemi_arenas_withdraw_all(c);
    shmemi_region_drop_all(c);
    shmemi_pool_drop_all(c);
    shmemi_memory_drop_all(c);
    if (inherited) {
        shmemi_lifeline_drop(c);
    } else {
        shmemi_control_close(c);
        shmemi_control_release_held(c);
    }
    shmemi_arenas_destroy(c);
    shmemi_client_detach(c->client);
    shmem_topology_destroy(c->topology);
    free(c->sources);
    memset(c, 0, sizeof *c);
    c->actor = &closed_actor;
    c->rank = c->size = -1;
}

static shmem_status_t context_create(shmem_context_t c, const shmem_context_params_t *p)
{
    const char *job = NULL;
    char name[SHMEMI_CLIENT_NAME];
    shmem_status_t status = context_setup(c, p, &job);
    if (!status)
        status = shmemi_arenas_create(c);
    if (status)
        return status;
    c->sources = calloc((size_t)c->size * 3, sizeof *c->sources);
    if (!c->sources)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for the addresses of %d PEs",
                           c->size);
    c->cursors = c->sources + c->size;
    c->targets = (char **)(void *)(c->sources + 2 * c->size);
    if (c->size > 1)
        snprintf(name, sizeof name, "PE %d of %d", c->rank, c->size);
    else /* a service, a tool: its program says more */
        snprintf(name, sizeof name, "%.31s", program_invocation_short_name);
    if ((status = shmemi_client_attach(&c->settings, name, &c->client)))
        return status;
    c->actor = shmemi_client_actor(c->client);
    if ((status = shmemi_control_open(c, job)))
        return status;
    return join(c);
}

/* One attempt to join. *again: the private server went away under it, and a new one may be had. */
static shmem_status_t context_try(shmem_context_t *context, const shmem_context_params_t *p,
                                  bool *again)
{
    *again = false;
    shmem_context_t c = calloc(1, sizeof *c);
    if (!c)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a context of %zu bytes",
                           sizeof *c);
    c->next_memory = 1;
    c->lifeline = -1;
    shmem_status_t status = context_create(c, p);
    if (status) {
        char text[SHMEMI_BROKEN_TEXT * 2];
        snprintf(text, sizeof text, "%s", shmem_error_detail()->text);
        *again = status == SHMEM_ERR_SERVER_LOST && !*c->settings.server;
        context_clear(c);
        free(c);
        return shmemi_quiet(status, LAYER, "%s", text);
    }
    shmemi_control_release_held(c);
    *context = c;
    return SHMEM_OK;
}

shmem_status_t shmem_context_init_params(shmem_context_t *context,
                                         const shmem_context_params_t *params)
{
    shmem_context_params_t p;
    if (!context)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "nowhere to put the context: NULL");
    shmem_status_t status = params_copy(params, &p);
    if (status)
        return status;
    bool again;
    status = context_try(context, &p, &again);
    return again ? context_try(context, &p, &again) : status;
}

shmem_status_t shmem_context_init(shmem_context_t *context)
{
    return shmem_context_init_params(context, NULL);
}

/* ---- leaving ---- */

static bool is_staying(shmem_context_t c, int rank)
{
    return rank != c->rank && shmemi_peers_claim(c, rank) &&
           shmemi_pe_state(&c->pes[rank]) < SHMEMI_PE_LEAVING && !shmemi_peers_dead(c, rank);
}

static bool all_leave(void *arg)
{
    shmem_context_t c = arg;
    for (int r = 0; r < c->size; r++)
        if (is_staying(c, r))
            return false;
    return true;
}

/* Out of step with the others: wait for what their states say. */
static void leave_broken(shmem_context_t c)
{
    shmemi_pe_t *me = &c->pes[c->rank];
    shmemi_pe_state_set(me, SHMEMI_PE_LEAVING);
    SHMEMI_KILL_POINT("job.finalize.leaving");
    shmemi_peers_ring(c);
    shmemi_wait_t wait = {.ready = all_leave, .arg = c, .kind = SHMEMI_WAIT_BELL, .object = me};
    shmemi_wait_until(c->actor, &me->bell, &wait, SHMEMI_FOREVER);
}

static shmem_status_t leave(shmem_context_t c)
{
    const shmemi_self_t *self;
    const shmemi_call_t call = {.kind = SHMEMI_CALL_FINALIZE};
    char text[SHMEMI_BROKEN_TEXT];
    shmem_status_t worst = SHMEM_OK, status = shmemi_call_begin(c, &self);
    if (status && (!c->broken || shmemi_context_is_inherited(c)))
        return status;
    while (!status && (status = shmemi_step(c, &call, SHMEMI_FOREVER)) == SHMEM_ERR_MISMATCH) {
        if (!worst)
            snprintf(text, sizeof text, "%s", shmem_error_detail()->text);
        worst = status;
        status = SHMEM_OK;
    }
    SHMEMI_KILL_POINT("job.finalize.met");
    if (status) {
        snprintf(text, sizeof text, "%s", shmem_error_detail()->text);
        worst = status;
        leave_broken(c);
    }
    shmemi_call_end(c, SHMEM_OK);
    if (!worst)
        return SHMEM_OK;
    char *advice = strstr(text, SHMEMI_ADVICE); /* that is done */
    return shmemi_quiet(worst, LAYER, "%.*s", advice ? (int)(advice - text) : SHMEMI_BROKEN_TEXT,
                        text);
}

static void log_stats(shmem_context_t c)
{
    const shmemi_self_t *self = shmemi_self(c->actor);
    for (unsigned i = 0; self && i < SHMEMI_STAT_COUNT; i++) {
        uint64_t value = atomic_load_explicit(&self->thread->stats.value[i], memory_order_relaxed);
        const shmemi_stat_info_t *info = shmemi_stats_describe(i);
        if (value && info)
            shmemi_log(SHMEM_LOG_INFO, LAYER, "PE %d: %s %llu %s", c->rank, info->name,
                       (unsigned long long)value, info->unit);
    }
}

shmem_status_t shmem_context_finalize(shmem_context_t context)
{
    if (!context)
        return SHMEM_OK;
    if (shmemi_context_is_closed(context))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "this context is finalized already: finalize each context once");
    if (atomic_load_explicit(&context->inside, memory_order_relaxed))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "another thread is inside a collective call of PE %d: the context stays",
                           context->rank);
    shmem_status_t status = shmemi_arenas_quiesce(context);
    if (status)
        return status;
    status = leave(context);
    shmem_error_detail_t detail = *shmem_error_detail();
    char text[SHMEMI_BROKEN_TEXT * 2];
    snprintf(text, sizeof text, "%s", detail.text);
    if (context->settings.stats)
        log_stats(context);
    context_clear(context);
    shmemi_bury(&finalized, context);
    SHMEMI_KILL_POINT("job.finalize.left");
    if (shmem_error_detail()->text != detail.text || strcmp(detail.text, text))
        shmemi_quiet(detail.status, detail.layer, "%s", text); /* what was clean-up's */
    return status;
}

/* ---- what a context says of itself ---- */

shmem_status_t shmemi_context_check(shmem_context_t context, const char *what)
{
    if (shmemi_context_is_closed(context))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "%s: the context is finalized; make a new one with shmem_context_init()",
                           what);
    if (shmemi_context_is_inherited(context))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "%s: this context belongs to the parent of this forked process; make a "
                           "new one",
                           what);
    return SHMEM_OK;
}

int shmem_context_rank(shmem_context_t context)
{
    return context ? context->rank : -1;
}

int shmem_context_size(shmem_context_t context)
{
    return context ? context->size : -1;
}

/* Pools are made by any thread. */
static pthread_mutex_t topology_lock = PTHREAD_MUTEX_INITIALIZER;

/* Another thread of the parent may have held it. */
static void topology_fork_child(void)
{
    pthread_mutex_init(&topology_lock, NULL);
}

__attribute__((constructor)) static void topology_handle_fork(void)
{
    pthread_atfork(NULL, NULL, topology_fork_child);
}

shmem_status_t shmemi_context_topology(shmem_context_t context, shmem_topology_t *topology)
{
    shmem_status_t status = SHMEM_OK;
    pthread_mutex_lock(&topology_lock);
    if (!context->topology)
        status = shmem_topology_create(&context->topology);
    if (!status)
        *topology = context->topology;
    pthread_mutex_unlock(&topology_lock);
    return status;
}

/* ---- the barrier ---- */

shmem_status_t shmem_context_barrier_timed(shmem_context_t context, int64_t timeout)
{
    static const shmemi_call_t call = {.kind = SHMEMI_CALL_BARRIER};
    const shmemi_self_t *self;
    shmem_status_t status = shmemi_call_begin(context, &self);
    if (status)
        return status;
    status =
        shmemi_step(context, &call, timeout < 0 ? SHMEMI_FOREVER : shmemi_deadline_in(timeout));
    if (!status)
        shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_barriers, 1);
    return shmemi_call_end(context, status);
}

shmem_status_t shmem_context_barrier(shmem_context_t context)
{
    return shmem_context_barrier_timed(context, SHMEM_FOREVER);
}
