/* SPDX-License-Identifier: Apache-2.0 */
/* Engines: coming, going, and being told of arenas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/params.h"
#include "base/status.h"
#include "job/arena_core.h"
#include "job/context.h"
#include "job/graves.h"

#define LAYER "job"

static shmemi_cemetery_t unregistered;

/* ---- being told ---- */

/* What an engine said, as one of the library's codes. */
static shmem_status_t sane(shmem_status_t said)
{
    return said > 0 || strcmp(shmem_status_name(said), "unknown") == 0 ? SHMEM_ERR_SYSTEM : said;
}

static void announce(shmem_engine_t e, shmemi_known_t *k)
{
    const shmem_arena_info_t *info = &k->facts.info;
    void *key = NULL;
    shmem_status_t said = sane(e->ops.announce(e->user, info, &key));
    k->facts.key[e->index] = said ? NULL : key;
    k->facts.said[e->index] = said;
    if (said)
        shmemi_log(SHMEM_LOG_WARN, LAYER,
                   "engine '%s' refuses %llu bytes at %p (arena %llu of '%s'): %s; it has no key "
                   "for them",
                   e->name, (unsigned long long)info->bytes, info->base,
                   (unsigned long long)info->id, info->name, shmem_strerror(said));
}

static void withdraw(shmem_engine_t e, shmemi_known_t *k)
{
    if (!k->facts.said[e->index])
        e->ops.withdraw(e->user, &k->facts.info, k->facts.key[e->index]);
    k->facts.key[e->index] = NULL;
    k->facts.said[e->index] = SHMEM_OK;
}

void shmemi_engines_announce_locked(shmemi_arenas_t *a, shmemi_known_t *k)
{
    for (int i = 0; i < SHMEMI_ENGINES; i++)
        if (a->engine[i])
            announce(a->engine[i], k);
}

void shmemi_engines_withdraw_locked(shmemi_arenas_t *a, shmemi_known_t *k)
{
    for (int i = SHMEMI_ENGINES; i-- > 0;)
        if (a->engine[i])
            withdraw(a->engine[i], k);
}

/* ---- coming ---- */

static shmem_status_t usable(shmem_context_t context, const char *what)
{
    if (!context)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%s: the context is NULL", what);
    return shmemi_self(context->actor) ? SHMEM_OK : shmem_error_detail()->status;
}

static shmem_engine_t engine_new(shmem_context_t context, const shmem_engine_ops_t *ops, void *user)
{
    shmem_engine_t e = calloc(1, sizeof *e);
    if (!e) {
        shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for an engine");
        return NULL;
    }
    e->context = context;
    e->ops = *ops;
    e->user = user;
    snprintf(e->name, sizeof e->name, "%s", ops->name ? ops->name : "");
    e->ops.name = e->name;
    return e;
}

/* Nobody registers memory any more: what has no pin need not stay. `lately`: of what nobody had
 * asked about before a registration that failed. */
static void relax_locked(shmemi_arenas_t *a, bool lately)
{
    for (shmemi_arena_object_t *o = a->open; o; o = o->next) {
        if (lately && !o->kept_lately)
            continue;
        /* SYNC arena-state: acq_rel, pairs with acquire in pin_object() */
        uint64_t state =
            atomic_fetch_or_explicit(&o->state, SHMEMI_OBJECT_CLOSING, memory_order_acq_rel);
        if (state & SHMEMI_OBJECT_PINS) {
            atomic_fetch_and_explicit(&o->state, ~SHMEMI_OBJECT_CLOSING, memory_order_relaxed);
            continue;
        }
        shmemi_arenas_forget_locked(a, o);
        if (o->kept && o->members->keep)
            o->members->keep(o->members->owner, false);
        o->kept = false;
        o->generation = 0;
        shmemi_arenas_reopen_locked(a, o);
    }
}

/* The arenas of objects that nobody asked about yet become known, then all are announced. */
static shmem_status_t register_locked(shmemi_arenas_t *a, shmem_engine_t e)
{
    shmem_status_t status = SHMEM_OK;
    int i = 0;
    while (i < SHMEMI_ENGINES && a->engine[i])
        i++;
    if (i == SHMEMI_ENGINES)
        return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                           "engine '%s': the context has %d engines already, the most it can have",
                           e->name, SHMEMI_ENGINES);
    for (shmemi_arena_object_t *o = a->open; o; o = o->next) {
        o->kept_lately = !o->kept && !status;
        if (!status)
            status = shmemi_arenas_refresh_locked(a, o);
    }
    if (status) {
        relax_locked(a, true);
        return status;
    }
    e->index = i;
    for (shmemi_known_t *k = a->first; k; k = k->later) {
        announce(e, k);
        shmemi_arena_table_update(&a->table, k);
    }
    a->engine[i] = e;
    a->engines++;
    /* who just finds that the engine before it is gone takes back what he added: it must stay */
    atomic_fetch_and_explicit(&a->engine_pins[i], ~SHMEMI_ENGINE_CLOSING, memory_order_relaxed);
    return SHMEM_OK;
}

shmem_status_t shmem_engine_register(shmem_context_t context, const shmem_engine_ops_t *given,
                                     void *user, shmem_engine_t *engine)
{
    shmem_engine_ops_t ops;
    shmem_status_t status =
        shmemi_params_take(&ops, sizeof ops, sizeof ops, given, "shmem_engine_ops_t");
    if (!status && (!engine || !ops.announce || !ops.withdraw))
        status = shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                             "shmem_engine_register wants both callbacks and a place for the "
                             "engine");
    if (!status)
        status = usable(context, "shmem_engine_register");
    if (status)
        return status;
    shmem_engine_t e = engine_new(context, &ops, user);
    if (!e)
        return SHMEM_ERR_NOMEM;
    status = shmemi_arenas_lock(context->arenas, "shmem_engine_register");
    if (!status) {
        status = register_locked(context->arenas, e);
        shmemi_arenas_unlock(context->arenas);
    }
    if (status)
        free(e);
    else
        *engine = e;
    return status;
}

/* ---- going ---- */

static void remove_locked(shmemi_arenas_t *a, shmem_engine_t e)
{
    for (shmemi_known_t *k = a->last; k; k = k->earlier) {
        withdraw(e, k);
        shmemi_arena_table_update(&a->table, k);
    }
    a->engine[e->index] = NULL;
    a->engines--;
    e->context = NULL;
}

static shmem_status_t unregister_locked(shmemi_arenas_t *a, shmem_engine_t e)
{
    _Atomic uint64_t *pins = &a->engine_pins[e->index];
    uint64_t none = 0;
    /* SYNC engine-pins: acq_rel, pairs with acq_rel in pin_engine() */
    if (!atomic_compare_exchange_strong_explicit(pins, &none, SHMEMI_ENGINE_CLOSING,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return shmemi_fail(SHMEM_ERR_BUSY, LAYER,
                           "engine '%s' still has %llu pins: wait for its operations and unpin "
                           "first",
                           e->name, (unsigned long long)none);
    remove_locked(a, e);
    if (!a->engines)
        relax_locked(a, false);
    return SHMEM_OK;
}

shmem_status_t shmem_engine_unregister(shmem_engine_t engine)
{
    if (!engine)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "shmem_engine_unregister: NULL");
    shmem_context_t context = engine->context;
    if (!context)
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "engine '%s' is unregistered already, by shmem_engine_unregister() or "
                           "with its context",
                           engine->name);
    shmem_status_t status = usable(context, "shmem_engine_unregister");
    if (!status)
        status = shmemi_arenas_lock(context->arenas, "shmem_engine_unregister");
    if (status)
        return status;
    status = unregister_locked(context->arenas, engine);
    shmemi_arenas_unlock(context->arenas);
    if (!status)
        shmemi_bury(&unregistered, engine);
    return status;
}

void shmemi_engines_drop_all_locked(shmemi_arenas_t *a)
{
    for (shmemi_known_t *k = a->last; k; k = k->earlier)
        shmemi_engines_withdraw_locked(a, k);
    for (int i = 0; i < SHMEMI_ENGINES; i++) {
        if (!a->engine[i])
            continue;
        a->engine[i]->context = NULL;
        shmemi_bury(&unregistered, a->engine[i]);
        a->engine[i] = NULL;
    }
    a->engines = 0;
}

void shmemi_engines_describe_pins(shmemi_arenas_t *a, uint64_t pins, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "%llu pins", (unsigned long long)pins);
    for (int i = 0; i < SHMEMI_ENGINES && at < bytes; i++) {
        uint64_t n = atomic_load_explicit(&a->engine_pins[i], memory_order_relaxed);
        if (a->engine[i] && n)
            at += (size_t)snprintf(text + at, bytes - at, ", %llu of engine '%s'",
                                   (unsigned long long)n, a->engine[i]->name);
    }
}
