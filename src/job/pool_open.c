/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of a context: open, close, and which ones there are.
 *
 * A client's blocks are told apart by client and task alone, so a context has at most one view of a
 * pool for a task: opening it again returns the same handle; while one thread opens or closes it
 * others wait for that one. Views of one pool share its place: each holds the segment and the
 * mapping by a count of its own.
 *
 *   Invariants  views of one context in the list differ in (segment, task)
 *               a view in the list is OPENING (its thread completes it), OPEN (refs of its handle
 *               > 0) or CLOSING (no handle); only OPEN ones are handed out
 *               core of a handle != NULL <=> its view is OPEN; closed handles are buried
 *               (job/graves.h)
 *
 * The lock is held for looking only: never during a request to the server, never while memory is
 * mapped or filled.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "base/status.h"
#include "job/arenas.h"
#include "job/graves.h"
#include "job/pool_api.h"
#include "job/pool_handle.h"
#include "memory/debug.h"
#include "os/clock.h"
#include "os/space.h"

#define LAYER "job"

#define READY_PAUSE_NS 10000000l     /* how often an opener looks whether the creator is done, */
#define BEGIN_NS       2000000000ll  /* for so long when no creator shows, */
#define READY_NS       30000000000ll /* and for so long when one is at it */
#define LEAVE_NS       2000000000ll  /* for so long until the last one has closed it */

static shmemi_cemetery_t closed_pools;
static shmemi_pool_view_t *views;
static shmemi_names_t names;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* the state of a view; private to this process */

static void make_condition(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Another thread of the parent may have held the lock. */
static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
    make_condition();
}

__attribute__((constructor)) static void begin(void)
{
    make_condition();
    pthread_atfork(NULL, NULL, fork_child);
}

/* ---- handles and views ---- */

shmem_pool_t shmemi_pool_handle_make(shmem_context_t context, const char *task)
{
    struct shmem_pool *p = calloc(1, sizeof *p);
    shmemi_pool_view_t *view = calloc(1, sizeof *view);
    if (!p || !view) {
        shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for a pool's handle");
        free(p);
        free(view);
        return NULL;
    }
    view->context = context;
    view->handle = p;
    view->segment.fd = -1;
    strcpy(view->task, task);
    p->view = view;
    p->refs = 1;
    return p;
}

static void unlink_locked(shmemi_pool_view_t *view)
{
    shmemi_pool_view_t **at = &views;
    while (*at && *at != view)
        at = &(*at)->next;
    if (*at)
        *at = view->next;
}

/* Undo what was done for a view. */
static void undo(shmemi_pool_view_t *view)
{
    shmemi_pool_detach(view->core);
    if (view->memory && !shmemi_context_is_inherited(view->context))
        shmemi_space_unmap(view->memory);
    if (view->segment.bytes)
        shmemi_client_segment_close(view->context->client, &view->segment);
}

/* The end of a view that may be in the list. */
static void end(void *arg)
{
    shmemi_pool_view_t *view = arg;
    undo(view);
    pthread_mutex_lock(&lock);
    unlink_locked(view);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(view);
}

void shmemi_pool_handle_drop(shmem_pool_t p)
{
    end(p->view);
    free(p);
}

/* ---- which ones there are ---- */

static struct shmem_pool *find_name_locked(shmem_context_t context, const char *full,
                                           const char *task)
{
    shmemi_name_t *name = shmemi_names_find(&names, context, full);
    for (; name; name = shmemi_names_next(name)) {
        struct shmem_pool *p =
            (struct shmem_pool *)(void *)((char *)name - offsetof(struct shmem_pool, name));
        if (shmemi_name_is_current(name) && strcmp(p->view->task, task) == 0)
            return p;
    }
    return NULL;
}

static shmemi_pool_view_t *find_view_locked(const shmemi_pool_view_t *wanted)
{
    shmemi_pool_view_t *v = views;
    while (v && (v->context != wanted->context || v->segment.id != wanted->segment.id ||
                 strcmp(v->task, wanted->task)))
        v = v->next;
    return v;
}

/* Wait while another thread opens or closes what `wanted` wants. False: it takes too long to close:
 * operations in flight keep the memory. */
static bool await_others_locked(const shmemi_pool_view_t *wanted, shmemi_pool_view_t **same)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += LEAVE_NS / 1000000000;
    while ((*same = find_view_locked(wanted)) && (*same)->state != SHMEMI_POOL_OPEN)
        if ((*same)->state == SHMEMI_POOL_OPENING)
            pthread_cond_wait(&changed, &lock);
        else if (pthread_cond_timedwait(&changed, &lock, &end))
            return false;
    return true;
}

/* *found becomes the handle of the view that is there, or `p`, whose view is in the list now. */
static shmem_status_t find_or_begin(struct shmem_pool *p, uint64_t generation, shmem_pool_t *found)
{
    shmemi_pool_view_t *same;
    shmem_status_t status = SHMEM_OK;
    pthread_mutex_lock(&lock);
    if (!await_others_locked(p->view, &same)) {
        status = SHMEM_ERR_BUSY;
    } else if (same) {
        same->handle->refs++;
        same->handle->name.generation = generation;
        *found = same->handle;
    } else {
        p->view->next = views;
        views = p->view;
        *found = p;
    }
    pthread_mutex_unlock(&lock);
    if (!status)
        return SHMEM_OK;
    return shmemi_fail(status, LAYER,
                       "the pool was closed here, but operations in flight still keep its memory: "
                       "complete them, then open it again");
}

/* ---- open ---- */

/* A creator that is still at work gets some time, as long as it lives. */
static shmem_status_t await_creator(const shmemi_pool_view_t *view, const char *full)
{
    const struct timespec pause = {0, READY_PAUSE_NS};
    shmemi_deadline_t begin = shmemi_deadline_in(BEGIN_NS), ready = shmemi_deadline_in(READY_NS);
    while (!shmemi_pool_is_ready(view->memory)) {
        bool begun = shmemi_pool_is_claimed(view->memory);
        if (begun && shmemi_pool_is_abandoned(view->memory, view->context->actor->roster)) {
            /* others may be looking, too, and the name would stay as long as one of them does */
            if (*full)
                shmemi_client_segment_unlink(view->context->client, full, view->segment.id);
            return shmemi_fail(SHMEM_ERR_NOT_FOUND, LAYER,
                               "the process that was creating the pool died: create it again");
        }
        if (shmemi_deadline_passed(begun ? ready : begin))
            return shmemi_fail(SHMEM_ERR_BUSY, LAYER,
                               "the pool is not ready after %lld s: its creator %s; try again",
                               (begun ? READY_NS : BEGIN_NS) / 1000000000,
                               begun ? "is still filling it" : "was stopped or died at once");
        nanosleep(&pause, NULL);
    }
    return SHMEM_OK;
}

static shmem_status_t attach(shmemi_pool_view_t *view)
{
    shmemi_pool_source_t source = {.memory = view->memory,
                                   .segment_bytes = view->segment.bytes,
                                   .actor = view->context->actor,
                                   .task = view->task,
                                   .fd = view->segment.fd,
                                   .lock_pages = (int)view->context->settings.lock_pages,
                                   .huge = shmemi_pool_huge(view->context, view->segment.bytes)};
    shmem_status_t status = shmemi_context_topology(view->context, &source.topology);
    if (!status)
        status = shmemi_pool_attach(&source, &view->core);
    return status ? status : shmemi_pool_pages_fill(view);
}

shmem_status_t shmemi_pool_enter(shmem_pool_t p, const char *full, uint64_t generation,
                                 shmem_pool_t *pool)
{
    shmem_pool_t found = NULL;
    shmemi_pool_view_t *view = p->view;
    shmem_status_t status = find_or_begin(p, generation, &found);
    if (status || found != p)
        goto drop;
    if (*full)
        strcpy(view->name, full + sizeof SHMEMI_POOL_PREFIX - 1);
    if (!view->memory)
        status = shmemi_pool_pages_map(view);
    if (!status)
        status = await_creator(view, full);
    if (!status)
        status = attach(view);
    if (!status)
        status = shmemi_pool_arenas_add(view);
    if (status)
        goto drop;
    pthread_mutex_lock(&lock);
    p->core = view->core;
    p->plain = shmemi_pool_is_debug(view->core) ? NULL : view->core;
    view->state = SHMEMI_POOL_OPEN;
    if (*full)
        shmemi_names_add(&names, &p->name, view->context, full, generation);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    *pool = p;
    return SHMEM_OK;
drop:
    shmemi_pool_handle_drop(p);
    if (!status)
        *pool = found;
    return status;
}

static shmem_status_t open_asking(shmem_context_t context, const char *full, const char *task,
                                  shmem_pool_t *pool)
{
    uint64_t generation = shmemi_names_generation(context);
    shmem_pool_t p = shmemi_pool_handle_make(context, task);
    if (!p)
        return SHMEM_ERR_NOMEM;
    shmem_status_t status =
        shmemi_client_segment_open(context->client, full, SHMEMI_RIGHTS_WRITE, &p->view->segment);
    if (!status)
        return shmemi_pool_enter(p, full, generation, pool);
    shmemi_pool_handle_drop(p);
    return status;
}

shmem_status_t shmem_pool_open_as(shmem_context_t context, const char *name, const char *task,
                                  shmem_pool_t *pool)
{
    char full[SHMEMI_NAME_MAX + 1], own_task[SHMEM_TASK_NAME];
    if (!context || !name || !pool)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "opening a pool wants a context, a name and a place for the pool");
    shmem_status_t status = shmemi_context_check(context, "shmem_pool_open");
    if (!status)
        status = shmemi_named_make(&shmemi_pool_named, name, full);
    if (!status)
        status = shmemi_pool_task_make(context, task, own_task);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    struct shmem_pool *p = find_name_locked(context, full, own_task);
    if (p)
        p->refs++;
    pthread_mutex_unlock(&lock);
    if (p) {
        *pool = p;
        return SHMEM_OK;
    }
    status = open_asking(context, full, own_task, pool);
    return status ? shmemi_named_translate(&shmemi_pool_named, context, name, status) : SHMEM_OK;
}

shmem_status_t shmem_pool_open(shmem_context_t context, const char *name, shmem_pool_t *pool)
{
    return shmem_pool_open_as(context, name, NULL, pool);
}

/* ---- close ---- */

/* Nobody opens it any more. */
static shmemi_pool_view_t *close_locked(struct shmem_pool *p)
{
    shmemi_pool_view_t *view = p->view;
    shmemi_names_remove(&names, &p->name);
    view->state = SHMEMI_POOL_CLOSING;
    view->handle = NULL;
    p->core = p->plain = NULL;
    p->view = NULL;
    p->refs = 0;
    return view;
}

static void bury(struct shmem_pool *p, shmemi_pool_view_t *view)
{
    shmemi_pool_report_leaks(view->core, view->name);
    shmemi_arenas_remove(view->context, view, end, view);
    shmemi_bury(&closed_pools, p);
}

void shmem_pool_close(shmem_pool_t pool)
{
    shmemi_pool_view_t *view = NULL;
    if (!pool)
        return;
    pthread_mutex_lock(&lock);
    /* one without references was closed already, perhaps with its context */
    if (pool->refs && --pool->refs == 0)
        view = close_locked(pool);
    pthread_mutex_unlock(&lock);
    if (view)
        bury(pool, view);
}

void shmemi_pool_drop_all(shmem_context_t context)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        shmemi_pool_view_t *view = views;
        while (view && (view->context != context || view->state != SHMEMI_POOL_OPEN))
            view = view->next;
        struct shmem_pool *p = view ? view->handle : NULL;
        if (p)
            close_locked(p);
        pthread_mutex_unlock(&lock);
        if (!p)
            return;
        bury(p, view);
    }
}
