/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of the registry: what is mapped, what of it is known, and how it is let go of. */
#include "job/arenas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "job/arena_core.h"
#include "job/context.h"

#define LAYER "job"

/* ---- the lock ---- */

static _Thread_local char thread_mark; /* its address names the thread */

shmem_status_t shmemi_arenas_lock(shmemi_arenas_t *a, const char *what)
{
    if (atomic_load_explicit(&a->holder, memory_order_relaxed) == &thread_mark)
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "%s: an engine's callback must not call functions of the context that "
                           "it is called for",
                           what);
    pthread_mutex_lock(&a->lock);
    atomic_store_explicit(&a->holder, &thread_mark, memory_order_relaxed);
    return SHMEM_OK;
}

void shmemi_arenas_unlock(shmemi_arenas_t *a)
{
    atomic_store_explicit(&a->holder, NULL, memory_order_relaxed);
    pthread_mutex_unlock(&a->lock);
}

/* ---- objects ---- */

shmemi_arena_object_t *shmemi_arenas_object(shmemi_arenas_t *a, uint32_t index)
{
    if (index >= SHMEMI_OBJECT_CHUNK * SHMEMI_OBJECT_CHUNKS)
        return NULL;
    /* SYNC arena-objects: acquire, pairs with release in objects_more_locked() */
    shmemi_arena_object_t *chunk =
        atomic_load_explicit(&a->chunk[index / SHMEMI_OBJECT_CHUNK], memory_order_acquire);
    return chunk ? &chunk[index % SHMEMI_OBJECT_CHUNK] : NULL;
}

static uint32_t epoch_of(shmemi_arena_object_t *o)
{
    return (uint32_t)(atomic_load_explicit(&o->state, memory_order_relaxed) >> 32);
}

void shmemi_arenas_reopen_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o)
{
    uint64_t state = (uint64_t)(epoch_of(o) + 1) << 32;
    if (a->ending)
        state |= SHMEMI_OBJECT_CLOSING;
    /* SYNC arena-state: release, pairs with acquire in pin_object() */
    atomic_store_explicit(&o->state, state, memory_order_release);
}

static shmem_status_t objects_more_locked(shmemi_arenas_t *a)
{
    if (a->chunks == SHMEMI_OBJECT_CHUNKS)
        return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                           "%d pools, regions and symmetric objects are mapped in this context: "
                           "close some",
                           SHMEMI_OBJECT_CHUNK * SHMEMI_OBJECT_CHUNKS);
    shmemi_arena_object_t *chunk = calloc(SHMEMI_OBJECT_CHUNK, sizeof *chunk);
    if (!chunk)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for %d mapped objects",
                           SHMEMI_OBJECT_CHUNK);
    for (uint32_t i = SHMEMI_OBJECT_CHUNK; i-- > 0;) {
        chunk[i].index = a->chunks * SHMEMI_OBJECT_CHUNK + i;
        atomic_init(&chunk[i].state, SHMEMI_OBJECT_CLOSING);
        chunk[i].next = a->unused;
        a->unused = &chunk[i];
    }
    /* SYNC arena-objects: release, pairs with acquire in shmemi_arenas_object() */
    atomic_store_explicit(&a->chunk[a->chunks++], chunk, memory_order_release);
    return SHMEM_OK;
}

shmemi_arena_object_t *shmemi_arenas_at_locked(shmemi_arenas_t *a, const void *pointer)
{
    shmemi_arena_object_t *o = a->open;
    while (o && (uint64_t)((const char *)pointer - o->base) >= o->bytes)
        o = o->next;
    return o;
}

shmemi_arena_object_t *shmemi_arenas_of_locked(shmemi_arenas_t *a, uint64_t segment)
{
    shmemi_arena_object_t *o = a->open;
    while (o && o->segment != segment)
        o = o->next;
    return o;
}

static shmemi_arena_member_t **member_link(shmemi_arena_object_t *o, const void *owner)
{
    shmemi_arena_member_t **link = &o->members;
    while (*link && (*link)->owner != owner)
        link = &(*link)->next;
    return link;
}

static shmemi_arena_object_t *owned_by_locked(shmemi_arenas_t *a, const void *owner)
{
    shmemi_arena_object_t *o = a->open;
    while (o && !*member_link(o, owner))
        o = o->next;
    return o;
}

/* ---- what an object has ---- */

typedef struct gather {
    shmemi_arena_taker_t taker; /* first: take() gets its address */
    shmemi_arena_range_t *range;
    size_t count, room;
    bool failed;
} gather_t;

static void gather_take(shmemi_arena_taker_t *taker, const shmemi_arena_range_t *range)
{
    gather_t *g = (gather_t *)(void *)taker;
    if (g->count == g->room) {
        size_t room = g->room ? 2 * g->room : 8;
        shmemi_arena_range_t *more = realloc(g->range, room * sizeof *more);
        if (!more) {
            g->failed = true;
            return;
        }
        g->range = more;
        g->room = room;
    }
    if (range->bytes)
        g->range[g->count++] = *range;
}

static shmem_status_t no_memory(void)
{
    return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for the list of arenas");
}

static void order_append_locked(shmemi_arenas_t *a, shmemi_known_t *k)
{
    k->earlier = a->last;
    if (a->last)
        a->last->later = k;
    else
        a->first = k;
    a->last = k;
}

static void order_remove_locked(shmemi_arenas_t *a, shmemi_known_t *k)
{
    if (k->earlier)
        k->earlier->later = k->later;
    else
        a->first = k->later;
    if (k->later)
        k->later->earlier = k->earlier;
    else
        a->last = k->earlier;
}

static shmem_status_t arena_add_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o,
                                       const shmemi_arena_range_t *r, uint64_t from, uint64_t to)
{
    shmemi_known_t *k =
        shmemi_arena_table_reserve(&a->table) ? shmemi_arena_table_new(&a->table) : NULL;
    if (!k || SHMEMI_FAULT("job.arenas.known")) {
        if (k)
            shmemi_arena_table_free(&a->table, k);
        return no_memory();
    }
    k->facts.info = (shmem_arena_info_t){
        .size = sizeof k->facts.info,
        .id = ++a->next_id,
        .base = o->base + (from - (uintptr_t)o->base),
        .bytes = to - from,
        .segment = o->segment,
        .offset = from - (uintptr_t)o->base,
        .kind = o->kind,
        .node = r->node,
        .rank = r->rank,
        .writable = o->writable,
        .generation = o->generation,
    };
    memcpy(k->facts.info.name, o->name, sizeof k->facts.info.name);
    k->facts.object = o->index;
    k->facts.object_epoch = epoch_of(o);
    shmemi_engines_announce_locked(a, k);
    order_append_locked(a, k);
    k->next = o->arenas;
    o->arenas = k;
    shmemi_arena_table_insert(&a->table, k);
    return SHMEM_OK;
}

/* Add what is not known of a range. */
static shmem_status_t range_add_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o,
                                       const shmemi_arena_range_t *r)
{
    shmem_status_t status = SHMEM_OK;
    uint64_t at = (uintptr_t)r->base, end = at + r->bytes;
    while (at < end && !status) {
        const shmemi_known_t *k = shmemi_arena_table_behind(&a->table, at);
        uint64_t base = k ? (uintptr_t)k->facts.info.base : end;
        if (base > at)
            status = arena_add_locked(a, o, r, at, base < end ? base : end);
        at = k ? base + k->facts.info.bytes : end;
    }
    return status;
}

shmem_status_t shmemi_arenas_refresh_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o)
{
    gather_t g = {.taker = {gather_take}};
    const shmemi_arena_member_t *m = o->members;
    const shmemi_known_t *newest = o->arenas;
    if (m->keep && !o->kept)
        m->keep(m->owner, true);
    o->kept = true;
    if (m->list)
        m->list(m->owner, &g.taker);
    else
        gather_take(&g.taker, &(shmemi_arena_range_t){o->base, o->bytes, -1, -1});
    shmem_status_t status = g.failed ? no_memory() : SHMEM_OK;
    for (size_t i = 0; i < g.count && !status; i++)
        status = range_add_locked(a, o, &g.range[i]);
    if (o->arenas != newest)
        o->generation++;
    free(g.range);
    return status;
}

void shmemi_arenas_forget_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o)
{
    while (o->arenas) {
        shmemi_known_t *k = o->arenas;
        o->arenas = k->next;
        shmemi_arena_table_remove(&a->table, k);
        shmemi_engines_withdraw_locked(a, k);
        order_remove_locked(a, k);
        shmemi_arena_table_free(&a->table, k);
    }
}

/* ---- coming ---- */

static shmem_status_t object_new_locked(shmemi_arenas_t *a, const shmemi_arena_source_t *s,
                                        shmemi_arena_object_t **object)
{
    struct stat file;
    shmem_status_t status = a->unused ? SHMEM_OK : objects_more_locked(a);
    if (status)
        return status;
    shmemi_arena_object_t *o = a->unused;
    a->unused = o->next;
    o->kept = false;
    o->writable = s->writable;
    o->kind = s->kind;
    memset(o->name, 0, sizeof o->name);
    snprintf(o->name, sizeof o->name, "%s", s->name ? s->name : "");
    o->segment = s->segment->id;
    o->bytes = s->segment->bytes;
    o->base = s->base;
    o->file[0] = o->file[1] = 0;
    if (s->segment->fd >= 0 && !fstat(s->segment->fd, &file)) {
        o->file[0] = file.st_dev;
        o->file[1] = file.st_ino;
    }
    o->generation = 0;
    o->undo = NULL;
    o->next = a->open;
    a->open = o;
    shmemi_arenas_reopen_locked(a, o);
    *object = o;
    return SHMEM_OK;
}

/* Take it out of the list, if it is there. */
static void object_unlink_locked(shmemi_arena_object_t **list, shmemi_arena_object_t *o)
{
    while (*list && *list != o)
        list = &(*list)->next;
    if (*list)
        *list = o->next;
}

/* Nobody can look at it any more. */
static void object_free_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o)
{
    o->base = NULL;
    o->next = a->unused;
    a->unused = o;
}

static void object_close_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o)
{
    object_unlink_locked(&a->open, o);
    for (shmemi_known_t *k = o->arenas; k; k = k->next)
        shmemi_arena_table_remove(&a->table, k);
}

static shmem_status_t add_locked(shmemi_arenas_t *a, const shmemi_arena_source_t *s)
{
    shmemi_arena_object_t *o = shmemi_arenas_of_locked(a, s->segment->id);
    shmemi_arena_member_t *m = calloc(1, sizeof *m);
    if (!m)
        return no_memory();
    *m = (shmemi_arena_member_t){.owner = s->owner, .list = s->list, .keep = s->keep};
    if (o) {
        m->next = o->members->next; /* the first one goes on listing */
        o->members->next = m;
        return SHMEM_OK;
    }
    shmem_status_t status = object_new_locked(a, s, &o);
    if (!status) {
        o->members = m;
        status = a->engines ? shmemi_arenas_refresh_locked(a, o) : SHMEM_OK;
        if (!status)
            return SHMEM_OK;
        atomic_fetch_or_explicit(&o->state, SHMEMI_OBJECT_CLOSING, memory_order_relaxed);
        if (o->kept && m->keep)
            m->keep(m->owner, false);
        object_unlink_locked(&a->open, o);
        shmemi_arenas_forget_locked(a, o);
        object_free_locked(a, o);
    }
    free(m);
    return status;
}

shmem_status_t shmemi_arenas_add(shmem_context_t context, const shmemi_arena_source_t *source)
{
    shmemi_arenas_t *a = context->arenas;
    shmem_status_t status = shmemi_arenas_lock(a, "mapping shared memory");
    if (status)
        return status;
    status = add_locked(a, source);
    shmemi_arenas_unlock(a);
    return status;
}

void shmemi_arenas_grown(shmem_context_t context, const void *owner)
{
    shmemi_arenas_t *a = context->arenas;
    if (shmemi_arenas_lock(a, "growing shared memory"))
        return;
    shmemi_arena_object_t *o = owned_by_locked(a, owner);
    if (o && a->engines)
        shmemi_arenas_refresh_locked(a, o);
    shmemi_arenas_unlock(a);
}

/* ---- going ---- */

static shmemi_arena_object_t *closing_of_locked(shmemi_arenas_t *a, uint64_t segment)
{
    shmemi_arena_object_t *o = a->closing;
    while (o && o->segment != segment)
        o = o->next;
    return o;
}

/* The segments that can be closed now; if memory of theirs is still pinned, that object has them.
 */
static shmemi_arena_segment_t *segments_take_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o)
{
    shmemi_arena_segment_t *list = o->segments;
    shmemi_arena_object_t *other = closing_of_locked(a, o->segment);
    o->segments = NULL;
    if (!other)
        return list;
    shmemi_arena_segment_t **end = &other->segments;
    while (*end)
        end = &(*end)->next;
    *end = list;
    return NULL;
}

static void segments_close(shmem_context_t context, shmemi_arena_segment_t *list)
{
    while (list) {
        shmemi_arena_segment_t *s = list;
        list = s->next;
        shmemi_client_segment_close(context->client, &s->segment);
        free(s);
    }
}

void shmemi_arenas_finish(shmem_context_t context, shmemi_arena_object_t *o, uint32_t epoch)
{
    shmemi_arenas_t *a = context->arenas;
    shmemi_arena_segment_t *segments = NULL;
    if (shmemi_arenas_lock(a, "taking the last pin away"))
        return;
    void (*undo)(void *) = o->undo;
    void *arg = o->undo_arg;
    bool mine = undo && epoch_of(o) == epoch;
    if (mine) {
        o->undo = NULL;
        object_unlink_locked(&a->closing, o);
        shmemi_arenas_forget_locked(a, o);
        segments = segments_take_locked(a, o);
        object_free_locked(a, o);
        a->finishing++;
    }
    shmemi_arenas_unlock(a);
    if (!mine)
        return;
    undo(arg);
    segments_close(context, segments);
    pthread_mutex_lock(&a->lock);
    a->finishing--;
    pthread_mutex_unlock(&a->lock);
}

void shmemi_arenas_segment_close(shmem_context_t context, shmemi_segment_t *segment)
{
    shmemi_arenas_t *a = context->arenas;
    shmemi_arena_segment_t *s = NULL;
    if (a && !shmemi_context_is_inherited(context) &&
        !shmemi_arenas_lock(a, "closing shared memory")) {
        shmemi_arena_object_t *o = closing_of_locked(a, segment->id);
        s = o ? malloc(sizeof *s) : NULL;
        if (s) {
            *s = (shmemi_arena_segment_t){*segment, o->segments};
            o->segments = s;
        }
        shmemi_arenas_unlock(a);
    }
    if (!s)
        shmemi_client_segment_close(context->client, segment);
}

/* Take the member off; true: the object has no other, and is closed. */
static bool leave_locked(shmemi_arenas_t *a, shmemi_arena_object_t *o, const void *owner)
{
    shmemi_arena_member_t **link = member_link(o, owner), *m = *link;
    bool first = link == &o->members;
    *link = m->next;
    free(m);
    if (o->members) {
        if (first && o->kept && o->members->keep)
            o->members->keep(o->members->owner, true);
        return false;
    }
    object_close_locked(a, o);
    return true;
}

void shmemi_arenas_remove(shmem_context_t context, const void *owner, void (*undo)(void *),
                          void *arg)
{
    shmemi_arenas_t *a = context->arenas;
    if (!a || shmemi_context_is_inherited(context) ||
        shmemi_arenas_lock(a, "closing shared memory")) {
        undo(arg);
        return;
    }
    shmemi_arena_object_t *o = owned_by_locked(a, owner);
    bool last = o && leave_locked(a, o, owner);
    uint64_t before = 0;
    void *base = o ? o->base : NULL;
    if (last) {
        o->undo = undo;
        o->undo_arg = arg;
        /* SYNC arena-state: acq_rel, pairs with acquire in pin_object() */
        before = atomic_fetch_or_explicit(&o->state, SHMEMI_OBJECT_CLOSING, memory_order_acq_rel);
        if (before & SHMEMI_OBJECT_PINS) {
            o->next = a->closing;
            a->closing = o;
        }
    }
    shmemi_arenas_unlock(a);
    if (!last)
        undo(arg);
    else if (!(before & SHMEMI_OBJECT_PINS))
        shmemi_arenas_finish(context, o, (uint32_t)(before >> 32));
    else
        shmemi_log(SHMEM_LOG_INFO, LAYER,
                   "memory at %p was closed while operations have it pinned (%llu): it is unmapped "
                   "after them",
                   base, (unsigned long long)(before & SHMEMI_OBJECT_PINS));
}

/* ---- of the context ---- */

shmem_status_t shmemi_arenas_create(shmem_context_t context)
{
    shmemi_arenas_t *a = calloc(1, sizeof *a);
    if (!a)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for the arenas of a context");
    pthread_mutex_init(&a->lock, NULL);
    context->arenas = a;
    return SHMEM_OK;
}

/* Close all objects for pins; returns how many there are. */
static uint64_t close_pins_locked(shmemi_arenas_t *a)
{
    uint64_t pins = a->finishing;
    for (uint32_t i = 0; i < a->chunks * SHMEMI_OBJECT_CHUNK; i++) {
        shmemi_arena_object_t *o = shmemi_arenas_object(a, i);
        /* SYNC arena-state: acq_rel, pairs with acquire in pin_object() */
        pins += atomic_fetch_or_explicit(&o->state, SHMEMI_OBJECT_CLOSING, memory_order_acq_rel) &
                SHMEMI_OBJECT_PINS;
    }
    return pins;
}

static void reopen_pins_locked(shmemi_arenas_t *a)
{
    for (shmemi_arena_object_t *o = a->open; o; o = o->next)
        atomic_fetch_and_explicit(&o->state, ~SHMEMI_OBJECT_CLOSING, memory_order_relaxed);
}

shmem_status_t shmemi_arenas_quiesce(shmem_context_t context)
{
    char text[256];
    shmemi_arenas_t *a = context->arenas;
    if (shmemi_context_is_inherited(context))
        return SHMEM_OK;
    shmem_status_t status = shmemi_arenas_lock(a, "shmem_context_finalize");
    if (status)
        return status;
    uint64_t pins = close_pins_locked(a);
    a->ending = !pins;
    if (pins) {
        reopen_pins_locked(a);
        shmemi_engines_describe_pins(a, pins, text, sizeof text);
        status =
            shmemi_fail(SHMEM_ERR_BUSY, LAYER,
                        "shmem_context_finalize: operations in flight have memory pinned "
                        "(%s): wait for them and unpin, then finalize again; the context stays",
                        text);
    }
    shmemi_arenas_unlock(a);
    return status;
}

void shmemi_arenas_withdraw_all(shmem_context_t context)
{
    shmemi_arenas_t *a = context->arenas;
    if (!a || shmemi_context_is_inherited(context) || shmemi_arenas_lock(a, "the end of a context"))
        return;
    shmemi_engines_drop_all_locked(a);
    shmemi_arenas_unlock(a);
}

/* All objects are gone, or inherited. */
void shmemi_arenas_destroy(shmem_context_t context)
{
    shmemi_arenas_t *a = context->arenas;
    if (!a)
        return;
    for (uint32_t i = 0; i < SHMEMI_ENGINES; i++)
        free(a->engine[i]);
    for (uint32_t i = 0; i < a->chunks * SHMEMI_OBJECT_CHUNK; i++) {
        shmemi_arena_object_t *o = shmemi_arenas_object(a, i);
        while (o->members) {
            shmemi_arena_member_t *m = o->members;
            o->members = m->next;
            free(m);
        }
    }
    while (a->first) {
        shmemi_known_t *k = a->first;
        a->first = k->later;
        free(k);
    }
    for (uint32_t i = 0; i < a->chunks; i++)
        free(atomic_load_explicit(&a->chunk[i], memory_order_relaxed));
    shmemi_arena_table_fini(&a->table);
    free(a);
    context->arenas = NULL;
}
