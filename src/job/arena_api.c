/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups, pins and places: what users of the registry call. */
#include "base/fault.h"
#include "base/params.h"
#include "base/status.h"
#include "job/arena_core.h"
#include "job/context.h"
#include "os/space.h"

#define LAYER "job"

/*
 * A pin in a number: epoch of the object << 32 | engine + 1 << 28 | object.
 */
enum { OBJECT_BITS = 28 };
_Static_assert(SHMEMI_OBJECT_CHUNK *SHMEMI_OBJECT_CHUNKS <= 1 << OBJECT_BITS && SHMEMI_ENGINES < 16,
               "a pin fits into its number");

static __attribute__((cold, noinline)) shmem_status_t unusable(shmem_context_t context,
                                                               const char *what)
{
    if (!context)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%s: the context is NULL", what);
    if (shmemi_self(context->actor))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER, "%s: the context is ending", what);
    return shmem_error_detail()->status;
}

static inline bool is_usable(shmem_context_t context)
{
    return context && context->actor->id &&
           context->actor->fork_generation == shmemi_fork_generation();
}

static shmem_status_t arguments_check(shmem_context_t context, shmem_engine_t engine,
                                      const shmem_arena_info_t *info, const char *what)
{
    if (!is_usable(context))
        return unusable(context, what);
    shmem_status_t status =
        info ? shmemi_params_check(info, sizeof *info, "shmem_arena_info_t") : SHMEM_OK;
    if (status)
        return status;
    if (engine && !engine->context)
        return shmemi_fail(SHMEM_ERR_STATE, LAYER, "%s: engine '%s' is unregistered", what,
                           engine->name);
    if (engine && engine->context != context)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "%s: engine '%s' is registered with another context", what,
                           engine->name);
    return SHMEM_OK;
}

/* ---- lookup ---- */

static shmem_status_t not_found(const void *pointer)
{
    return shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER,
                        "%p is in no pool that this context has open, nor in a region or symmetric "
                        "memory that it has mapped",
                        pointer);
}

/* What is in the table, else what its object has by now. */
static shmem_status_t find(shmemi_arenas_t *a, int engine, const void *pointer,
                           shmemi_arena_found_t *found)
{
    if ((uint64_t)((uintptr_t)pointer - SHMEMI_SPACE_BASE) >= SHMEMI_SPACE_BYTES)
        return not_found(pointer);
    if (shmemi_arena_table_find(&a->table, pointer, engine, found))
        return SHMEM_OK;
    shmem_status_t status = shmemi_arenas_lock(a, "looking up an arena");
    if (status)
        return status;
    shmemi_arena_object_t *o = shmemi_arenas_at_locked(a, pointer);
    status = o ? shmemi_arenas_refresh_locked(a, o) : SHMEM_OK;
    bool is = !status && shmemi_arena_table_find(&a->table, pointer, engine, found);
    shmemi_arenas_unlock(a);
    if (status)
        return status;
    return is ? SHMEM_OK : not_found(pointer);
}

static shmem_status_t refused(const shmemi_arena_found_t *found, shmem_engine_t engine)
{
    return shmemi_quiet((shmem_status_t)found->said, LAYER,
                        "engine '%s' refused %llu bytes at %p when they were announced: it has no "
                        "key for them",
                        engine->name, (unsigned long long)found->info.bytes, found->info.base);
}

static void answer(const shmemi_arena_found_t *found, shmem_arena_info_t *info, void **key)
{
    if (info)
        shmemi_params_give(info, &found->info, sizeof found->info);
    if (key)
        *key = found->key;
}

shmem_status_t shmem_arena_lookup(shmem_context_t context, shmem_engine_t engine,
                                  const void *pointer, shmem_arena_info_t *info, void **key)
{
    shmemi_arena_found_t found;
    shmem_status_t status = arguments_check(context, engine, info, "shmem_arena_lookup");
    if (!status)
        status = find(context->arenas, engine ? engine->index : -1, pointer, &found);
    if (!status && found.said)
        status = refused(&found, engine);
    if (!status)
        answer(&found, info, key);
    return status;
}

/* ---- pins ---- */

static bool pin_engine(shmemi_arenas_t *a, shmem_engine_t engine)
{
    if (!engine)
        return true;
    _Atomic uint64_t *pins = &a->engine_pins[engine->index];
    /* SYNC engine-pins: acq_rel, pairs with acq_rel in unregister_locked() */
    if (!(atomic_fetch_add_explicit(pins, 1, memory_order_acq_rel) & SHMEMI_ENGINE_CLOSING))
        return true;
    atomic_fetch_sub_explicit(pins, 1, memory_order_relaxed);
    return false;
}

static void unpin_engine(shmemi_arenas_t *a, int engine)
{
    if (engine >= 0)
        /* SYNC engine-pins: release, pairs with acq_rel in unregister_locked() */
        atomic_fetch_sub_explicit(&a->engine_pins[engine], 1, memory_order_release);
}

/* One more pin, if the object is what was found and stays. */
static bool pin_object(shmemi_arena_object_t *o, uint32_t epoch)
{
    /* SYNC arena-state: acquire, pairs with release in object_new_locked() */
    uint64_t state = atomic_load_explicit(&o->state, memory_order_acquire);
    do
        if (state >> 32 != epoch || state & SHMEMI_OBJECT_CLOSING ||
            (state & SHMEMI_OBJECT_PINS) == SHMEMI_OBJECT_PINS)
            return false;
    /* SYNC arena-state: acq_rel, pairs with acq_rel in shmemi_arenas_remove() */
    while (!atomic_compare_exchange_weak_explicit(&o->state, &state, state + 1,
                                                  memory_order_acq_rel, memory_order_acquire));
    return true;
}

static bool is_full(shmemi_arenas_t *a, const shmemi_arena_found_t *found)
{
    shmemi_arena_object_t *o = shmemi_arenas_object(a, found->object);
    uint64_t state = atomic_load_explicit(&o->state, memory_order_relaxed);
    return state >> 32 == found->object_epoch && (state & SHMEMI_OBJECT_PINS) == SHMEMI_OBJECT_PINS;
}

static shmem_status_t pin_found(shmem_context_t context, shmem_engine_t engine, const void *pointer,
                                shmemi_arena_found_t *found)
{
    shmemi_arenas_t *a = context->arenas;
    for (;;) {
        shmem_status_t status = find(a, engine ? engine->index : -1, pointer, found);
        if (!status && found->said)
            status = refused(found, engine);
        if (status)
            return status;
        if (pin_object(shmemi_arenas_object(a, found->object), found->object_epoch))
            return SHMEM_OK;
        /* whoever closes it holds the lock; afterwards the table says what is */
        status = shmemi_arenas_lock(a, "shmem_arena_pin");
        if (status)
            return status;
        bool ending = a->ending, full = is_full(a, found);
        shmemi_arenas_unlock(a);
        if (ending)
            return unusable(context, "shmem_arena_pin");
        if (full)
            return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                               "shmem_arena_pin: the object at %p has %llu pins, the most that it "
                               "can have: are pins forgotten?",
                               found->info.base, (unsigned long long)SHMEMI_OBJECT_PINS);
    }
}

shmem_status_t shmem_arena_pin(shmem_context_t context, shmem_engine_t engine, const void *pointer,
                               shmem_arena_info_t *info, void **key, uint64_t *pin)
{
    shmemi_arena_found_t found;
    shmem_status_t status = arguments_check(context, engine, info, "shmem_arena_pin");
    if (!status && !pin)
        status = shmemi_fail(SHMEM_ERR_INVALID, LAYER, "shmem_arena_pin: no place for the pin");
    if (status)
        return status;
    if (!pin_engine(context->arenas, engine))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER, "shmem_arena_pin: engine '%s' is unregistered",
                           engine->name);
    status = pin_found(context, engine, pointer, &found);
    if (status) {
        unpin_engine(context->arenas, engine ? engine->index : -1);
        return status;
    }
    answer(&found, info, key);
    *pin = (uint64_t)found.object_epoch << 32 |
           (uint64_t)(engine ? engine->index + 1 : 0) << OBJECT_BITS | found.object;
    return SHMEM_OK;
}

static shmem_status_t no_pin(uint64_t pin)
{
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                       "shmem_arena_unpin: 0x%llx is no pin, or was unpinned already",
                       (unsigned long long)pin);
}

shmem_status_t shmem_arena_unpin(shmem_context_t context, uint64_t pin)
{
    if (!is_usable(context))
        return unusable(context, "shmem_arena_unpin");
    shmemi_arenas_t *a = context->arenas;
    uint32_t epoch = (uint32_t)(pin >> 32);
    int engine = (int)(pin >> OBJECT_BITS & 15) - 1;
    shmemi_arena_object_t *o = shmemi_arenas_object(a, (uint32_t)pin & ((1u << OBJECT_BITS) - 1));
    if (!o || engine >= SHMEMI_ENGINES)
        return no_pin(pin);
    uint64_t state = atomic_load_explicit(&o->state, memory_order_relaxed);
    do
        if (state >> 32 != epoch || !(state & SHMEMI_OBJECT_PINS))
            return no_pin(pin);
    /* SYNC arena-state: acq_rel, pairs with acq_rel in shmemi_arenas_remove() */
    while (!atomic_compare_exchange_weak_explicit(&o->state, &state, state - 1,
                                                  memory_order_acq_rel, memory_order_relaxed));
    if (state & SHMEMI_OBJECT_CLOSING && (state & SHMEMI_OBJECT_PINS) == 1)
        shmemi_arenas_finish(context, o, epoch);
    unpin_engine(a, engine);
    return SHMEM_OK;
}

/* ---- places ---- */

shmem_status_t shmem_arena_export(shmem_context_t context, const void *pointer,
                                  shmem_arena_place_t *place)
{
    shmemi_arena_found_t found;
    shmem_status_t status = arguments_check(context, NULL, NULL, "shmem_arena_export");
    if (!status && !place)
        status = shmemi_fail(SHMEM_ERR_INVALID, LAYER, "shmem_arena_export: no place for it");
    if (!status)
        status = find(context->arenas, -1, pointer, &found);
    if (!status)
        status = shmemi_arenas_lock(context->arenas, "shmem_arena_export");
    if (status)
        return status;
    shmemi_arena_object_t *o = shmemi_arenas_at_locked(context->arenas, pointer);
    if (o)
        *place = (shmem_arena_place_t){
            {o->file[0], o->file[1]}, o->segment, (uint64_t)((const char *)pointer - o->base)};
    shmemi_arenas_unlock(context->arenas);
    return o ? SHMEM_OK : not_found(pointer);
}

shmem_status_t shmem_arena_import(shmem_context_t context, const shmem_arena_place_t *place,
                                  void **pointer)
{
    shmemi_arena_found_t found;
    shmem_status_t status = arguments_check(context, NULL, NULL, "shmem_arena_import");
    if (!status && (!place || !pointer))
        status = shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                             "shmem_arena_import wants a place and where to put the pointer");
    if (!status)
        status = shmemi_arenas_lock(context->arenas, "shmem_arena_import");
    if (status)
        return status;
    shmemi_arena_object_t *o = shmemi_arenas_of_locked(context->arenas, place->segment);
    char *at = NULL;
    if (o && o->file[0] == place->file[0] && o->file[1] == place->file[1] &&
        place->offset < o->bytes)
        at = o->base + place->offset;
    shmemi_arenas_unlock(context->arenas);
    if (!at)
        return shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER,
                            "this context does not have segment %llu of that file, or not %llu "
                            "bytes of it: open the pool, or map the region or symmetric memory, "
                            "that the place is in",
                            (unsigned long long)place->segment, (unsigned long long)place->offset);
    status = find(context->arenas, -1, at, &found);
    if (!status)
        *pointer = at;
    return status;
}
