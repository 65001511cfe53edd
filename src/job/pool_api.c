/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public face of pools: a segment of the node server, mapped at its place, with a pool in it.
 *
 * A client's blocks are told apart by client alone, so a context has at most one view of a pool:
 * opening it again returns the same handle.
 *
 *   Invariants  a handle is in the process's list <=> it is open; refs >= 1 then
 *               core != NULL <=> it is open; closed handles are buried (job/graves.h)
 *               handles of one context have different segments
 */
#include "job/pool_api.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "base/status.h"
#include "job/context.h"
#include "job/graves.h"
#include "memory/pool_core.h"
#include "node/wire.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER  "job"
#define PREFIX "pool/"

enum {
    NAME_MAX_BYTES = 63,
    READY_TRIES = 200, /* how often an opener looks whether the creator is done, */
    READY_PAUSE_MS = 10
};

struct shmem_pool {
    shmemi_pool_t *core; /* first: what the fast paths load */
    shmem_context_t context;
    shmemi_segment_t segment;
    void *memory;
    unsigned refs;
    struct shmem_pool *next;
};

static shmemi_cemetery_t closed_pools;
static struct shmem_pool *open_pools;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER; /* held during requests, too */

/* Another thread of the parent may have held it. */
static void fork_child(void)
{
    pthread_mutex_init(&open_lock, NULL);
}

__attribute__((constructor)) static void handle_fork(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}

static __attribute__((noinline, cold)) shmem_status_t missing(const char *what)
{
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%s: the pool is NULL", what);
}

/* The handle of an operation is bad: NULL, or not open any more. */
static __attribute__((noinline, cold)) shmem_status_t unusable(shmem_pool_t pool, const char *what)
{
    if (!pool)
        return missing(what);
    return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                       "%s: the pool was closed, by shmem_pool_close() or with its context: open "
                       "it again",
                       what);
}

/* Costs one test of what the operation loads anyway. */
static inline bool is_open(shmem_pool_t pool)
{
    return __builtin_expect(pool && pool->core, 1);
}

static shmem_status_t open_check(shmem_context_t context, const char *what)
{
    if (!shmemi_context_is_closed(context))
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                       "%s: the context is finalized; make a new one with shmem_context_init()",
                       what);
}

/* ---- names ---- */

static bool name_is_good(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    size_t n = strnlen(name, NAME_MAX_BYTES + 1);
    return n && n <= NAME_MAX_BYTES && strspn(name, allowed) == n &&
           shmemi_wire_name_is_valid(name);
}

static shmem_status_t name_make(const char *name, char *full)
{
    if (!name_is_good(name))
        return shmemi_fail(
            SHMEM_ERR_INVALID, LAYER,
            "pool name '%.80s': want 1 to %d letters, digits, '.', '_', '-' or '/', and no '..' "
            "between slashes",
            name, NAME_MAX_BYTES);
    memcpy(full, PREFIX, sizeof PREFIX - 1);
    strcpy(full + sizeof PREFIX - 1, name);
    return SHMEM_OK;
}

/* What the server says of segments, in words of pools. Passes `status` on. */
static shmem_status_t translate(shmem_context_t context, const char *name, shmem_status_t status)
{
    const char *text = shmem_error_detail()->text, *belongs = strstr(text, "belongs to user");
    if (status == SHMEM_ERR_NOT_FOUND)
        return shmemi_quiet(status, LAYER,
                            "there is no pool '%s' at the node server %s: is its creator running, "
                            "with the same SHMEM_SERVER?",
                            name, shmemi_client_address(context->client));
    if (status == SHMEM_ERR_EXISTS)
        return shmemi_quiet(status, LAYER,
                            "a pool '%s' exists already: open it with shmem_pool_open() or choose "
                            "another name",
                            name);
    if (status == SHMEM_ERR_ACCESS && belongs)
        return shmemi_quiet(status, LAYER, "pool '%s' %s", name, belongs);
    return status;
}

/* ---- the pages ---- */

/* With several nodes every arena is bound before its pages exist; what lies around the arenas comes
 * from anywhere. */
static shmem_status_t place_arenas(struct shmem_pool *p, shmem_topology_t topology, uint64_t bytes)
{
    int nodes = shmem_topology_nodes(topology);
    uint64_t done = 0, offset, length;
    for (int i = 0; i < nodes; i++) {
        shmem_topology_node_t node;
        shmem_status_t status = shmemi_pool_arena_range(bytes, nodes, i, &offset, &length);
        if (!status)
            status = shmem_topology_node(topology, i, &node);
        if (!status)
            status = shmemi_topo_bind(topology, (char *)p->memory + offset, length, i,
                                      node.total_bytes != 0);
        if (!status && offset > done)
            status = shmemi_segment_reserve(p->segment.fd, done, offset - done);
        if (!status)
            status = shmemi_segment_reserve(p->segment.fd, offset, length);
        if (status)
            return status;
        done = offset + length;
    }
    if (done < p->segment.bytes)
        return shmemi_segment_reserve(p->segment.fd, done, p->segment.bytes - done);
    return SHMEM_OK;
}

static int huge_for(shmem_context_t context, uint64_t bytes)
{
    return bytes < SHMEMI_SPACE_UNIT ? SHMEMI_HUGE_OFF : (int)context->settings.huge_pages;
}

/* Make the pages present in this process: a fault in the middle of an allocation is dear. */
static shmem_status_t fill(struct shmem_pool *p)
{
    const shmemi_settings_t *settings = &p->context->settings;
    shmem_status_t status =
        shmemi_segment_populate(p->memory, p->segment.bytes, huge_for(p->context, p->segment.bytes),
                                (int)settings->fill_threads, NULL);
    if (!status && settings->lock_pages)
        shmemi_segment_lock(p->memory, p->segment.bytes); /* a refusal is logged there */
    return status;
}

/* ---- the list of handles ---- */

static bool is_listed_locked(const struct shmem_pool *pool)
{
    const struct shmem_pool *p = open_pools;
    while (p && p != pool)
        p = p->next;
    return p != NULL;
}

static struct shmem_pool *find_locked(shmem_context_t context, uint64_t segment_id)
{
    struct shmem_pool *p = open_pools;
    while (p && (p->context != context || p->segment.id != segment_id))
        p = p->next;
    return p;
}

static void unlink_locked(struct shmem_pool *pool)
{
    struct shmem_pool **link = &open_pools;
    while (*link && *link != pool)
        link = &(*link)->next;
    if (*link)
        *link = pool->next;
}

/* Undo everything that has been done for a handle that is in no list. */
static void undo(struct shmem_pool *p)
{
    shmemi_pool_detach(p->core);
    if (p->memory && !shmemi_context_is_inherited(p->context))
        shmemi_space_unmap(p->memory);
    if (p->segment.bytes)
        shmemi_client_segment_close(p->context->client, &p->segment);
    memset(p, 0, sizeof *p);
}

/* The same for one that nobody was given, and for one that somebody may still use. */
static void discard(struct shmem_pool *p)
{
    undo(p);
    free(p);
}

static void bury(struct shmem_pool *p)
{
    undo(p);
    shmemi_bury(&closed_pools, p);
}

static shmem_status_t attach(struct shmem_pool *p, shmem_topology_t topology)
{
    shmemi_pool_source_t source = {.memory = p->memory,
                                   .segment_bytes = p->segment.bytes,
                                   .actor = p->context->actor,
                                   .topology = topology,
                                   .fd = p->segment.fd,
                                   .huge = huge_for(p->context, p->segment.bytes)};
    return shmemi_pool_attach(&source, &p->core);
}

/* ---- create ---- */

static shmem_status_t create_segment(struct shmem_pool *p, const char *name,
                                     const shmem_pool_params_t *params, shmem_topology_t topology)
{
    uint64_t bytes;
    int nodes = shmem_topology_nodes(topology);
    shmem_status_t status = shmemi_pool_segment_bytes(params->bytes, nodes, &bytes);
    if (status)
        return status;
    shmemi_segment_request_t request = {.name = name,
                                        .bytes = bytes,
                                        .kind = SHMEMI_SEGMENT_POOL,
                                        .huge = huge_for(p->context, bytes),
                                        .reserve = nodes == 1};
    return shmemi_client_segment_create(p->context->client, &request, &p->segment);
}

static shmem_status_t create(struct shmem_pool *p, const char *name,
                             const shmem_pool_params_t *params)
{
    shmem_topology_t topology;
    shmem_status_t status = shmemi_context_topology(p->context, &topology);
    if (!status)
        status = create_segment(p, name, params, topology);
    SHMEMI_KILL_POINT("job.pool.created");
    if (!status)
        status =
            shmemi_space_map(p->segment.offset, p->segment.bytes, p->segment.fd, 1, &p->memory);
    if (!status && shmem_topology_nodes(topology) > 1)
        status = place_arenas(p, topology, params->bytes);
    if (!status)
        shmemi_pool_claim(p->memory, p->context->actor);
    SHMEMI_KILL_POINT("job.pool.claimed");
    if (!status)
        status = shmemi_pool_format(p->memory, p->segment.bytes, params, topology);
    if (!status)
        status = fill(p);
    if (!status)
        status = attach(p, topology);
    return status;
}

static struct shmem_pool *handle_make(shmem_context_t context)
{
    struct shmem_pool *p = calloc(1, sizeof *p);
    if (!p) {
        shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for a pool's handle");
        return NULL;
    }
    p->context = context;
    p->refs = 1;
    return p;
}

shmem_status_t shmem_pool_create(shmem_context_t context, const char *name,
                                 const shmem_pool_params_t *params, shmem_pool_t *pool)
{
    char full[SHMEMI_NAME_MAX + 1];
    if (!context || !params || !pool || params->size < sizeof *params || !params->bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_pool_create wants a context, parameters (begin with "
                           "SHMEM_POOL_PARAMS_INIT, bytes > 0) and a place for the pool");
    shmem_status_t status = open_check(context, "shmem_pool_create");
    if (!status && name)
        status = name_make(name, full);
    if (status)
        return status;
    struct shmem_pool *p = handle_make(context);
    if (!p)
        return SHMEM_ERR_NOMEM;
    status = create(p, name ? full : NULL, params);
    if (status) {
        discard(p);
        return translate(context, name ? name : "", status);
    }
    pthread_mutex_lock(&open_lock);
    p->next = open_pools;
    open_pools = p;
    pthread_mutex_unlock(&open_lock);
    *pool = p;
    return SHMEM_OK;
}

/* ---- open ---- */

/* A creator that is still at work gets some time, as long as it lives. */
static shmem_status_t attach_when_ready(struct shmem_pool *p, shmem_topology_t topology)
{
    const struct timespec pause = {0, READY_PAUSE_MS * 1000000l};
    for (int i = 0; !shmemi_pool_is_ready(p->memory); i++) {
        if (shmemi_pool_is_abandoned(p->memory, p->context->actor->roster))
            return shmemi_fail(SHMEM_ERR_NOT_FOUND, LAYER,
                               "the process that was creating the pool died: create it again");
        if (i == READY_TRIES)
            return shmemi_fail(SHMEM_ERR_BUSY, LAYER,
                               "the pool is not ready after %d ms: its creator is still filling "
                               "it, or died before it began; try again",
                               READY_TRIES * READY_PAUSE_MS);
        nanosleep(&pause, NULL);
    }
    return attach(p, topology);
}

static shmem_status_t open_view(struct shmem_pool *p)
{
    shmem_topology_t topology;
    shmem_status_t status = shmemi_context_topology(p->context, &topology);
    if (!status)
        status =
            shmemi_space_map(p->segment.offset, p->segment.bytes, p->segment.fd, 1, &p->memory);
    if (!status)
        status = attach_when_ready(p, topology);
    if (!status)
        status = fill(p);
    return status;
}

/* The lock is held, so that two threads that open one pool get one view. */
static shmem_status_t open_locked(struct shmem_pool *p, const char *full, shmem_pool_t *pool)
{
    shmem_status_t status =
        shmemi_client_segment_open(p->context->client, full, SHMEMI_RIGHTS_WRITE, &p->segment);
    if (status)
        return status;
    struct shmem_pool *same = find_locked(p->context, p->segment.id);
    if (same) {
        same->refs++;
        *pool = same;
        return SHMEM_OK;
    }
    status = open_view(p);
    if (status)
        return status;
    p->next = open_pools;
    open_pools = p;
    *pool = p;
    return SHMEM_OK;
}

shmem_status_t shmem_pool_open(shmem_context_t context, const char *name, shmem_pool_t *pool)
{
    char full[SHMEMI_NAME_MAX + 1];
    if (!context || !name || !pool)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_pool_open wants a context, a name and a place for the pool");
    shmem_status_t status = open_check(context, "shmem_pool_open");
    if (!status)
        status = name_make(name, full);
    if (status)
        return status;
    struct shmem_pool *p = handle_make(context);
    if (!p)
        return SHMEM_ERR_NOMEM;
    shmem_pool_t found = NULL;
    pthread_mutex_lock(&open_lock);
    status = open_locked(p, full, &found);
    pthread_mutex_unlock(&open_lock);
    if (found != p)
        discard(p);
    if (status)
        return translate(context, name, status);
    *pool = found;
    return SHMEM_OK;
}

/* ---- close ---- */

void shmem_pool_close(shmem_pool_t pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&open_lock);
    /* one that is not in the list was closed already, perhaps with its context */
    bool last = is_listed_locked(pool) && --pool->refs == 0;
    if (last)
        unlink_locked(pool);
    pthread_mutex_unlock(&open_lock);
    if (last)
        bury(pool);
}

static struct shmem_pool *take_one(shmem_context_t context)
{
    pthread_mutex_lock(&open_lock);
    struct shmem_pool *p = open_pools;
    while (p && p->context != context)
        p = p->next;
    if (p)
        unlink_locked(p);
    pthread_mutex_unlock(&open_lock);
    return p;
}

void shmemi_pool_drop_all(shmem_context_t context)
{
    struct shmem_pool *p;
    while ((p = take_one(context)))
        bury(p);
}

/* ---- operations ---- */

shmem_status_t shmem_pool_alloc(shmem_pool_t pool, size_t bytes, void **block)
{
    if (!is_open(pool))
        return unusable(pool, "shmem_pool_alloc");
    return shmemi_pool_alloc_default(pool->core, bytes, block);
}

shmem_status_t shmem_pool_alloc_aligned(shmem_pool_t pool, size_t bytes, size_t alignment,
                                        void **block)
{
    if (!is_open(pool))
        return unusable(pool, "shmem_pool_alloc_aligned");
    return shmemi_pool_alloc_aligned(pool->core, bytes, alignment, block);
}

shmem_status_t shmem_pool_alloc_on(shmem_pool_t pool, size_t bytes, size_t alignment,
                                   shmem_pool_policy_t policy, int node, void **block)
{
    if (!is_open(pool))
        return unusable(pool, "shmem_pool_alloc_on");
    return shmemi_pool_alloc(pool->core, bytes, alignment, policy, node, block);
}

shmem_status_t shmem_pool_resize(shmem_pool_t pool, void **block, size_t bytes)
{
    return is_open(pool) ? shmemi_pool_resize(pool->core, block, bytes)
                         : unusable(pool, "shmem_pool_resize");
}

shmem_status_t shmem_pool_free(shmem_pool_t pool, void *block)
{
    if (!is_open(pool))
        return unusable(pool, "shmem_pool_free");
    return shmemi_pool_free(pool->core, block);
}

shmem_status_t shmem_pool_block_bytes(shmem_pool_t pool, const void *block, size_t *bytes)
{
    return is_open(pool) ? shmemi_pool_block_bytes(pool->core, block, bytes)
                         : unusable(pool, "shmem_pool_block_bytes");
}

shmem_status_t shmem_pool_info(shmem_pool_t pool, shmem_pool_info_t *info)
{
    return is_open(pool) ? shmemi_pool_describe(pool->core, info)
                         : unusable(pool, "shmem_pool_info");
}

shmem_status_t shmem_pool_check(shmem_pool_t pool)
{
    return is_open(pool) ? shmemi_pool_check(pool->core) : unusable(pool, "shmem_pool_check");
}

shmem_status_t shmem_pool_trim(shmem_pool_t pool)
{
    return is_open(pool) ? shmemi_pool_trim(pool->core) : unusable(pool, "shmem_pool_trim");
}
