/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handle of a pool: a context's view of it for one task. What the files of pools share.
 *
 *     pool_create.c  making one               pool_names.c  names, errors in words of pools
 *     pool_open.c    open, close              pool_list.c   destroy, list
 *     pool_pages.c   the memory under it      pool_info.c   quotas, what there is
 *     pool_ops.c     blocks
 */
#ifndef SHMEMI_JOB_POOL_HANDLE_H
#define SHMEMI_JOB_POOL_HANDLE_H

#include <stdbool.h>

#include "job/context.h"
#include "job/named.h"
#include "job/names.h"
#include "memory/pool_core.h"
#include "shmem/pool.h"

#define SHMEMI_POOL_PREFIX "pool/" /* of the names of their segments */

typedef enum shmemi_pool_state {
    SHMEMI_POOL_OPENING,
    SHMEMI_POOL_OPEN,
    SHMEMI_POOL_CLOSING
} shmemi_pool_state_t;

/* What a context has of a pool for one task. It outlives its handle while operations of engines in
 * flight need the memory. */
typedef struct shmemi_pool_view {
    struct shmemi_pool_view *next;
    shmemi_pool_state_t state;
    struct shmem_pool *handle; /* NULL: CLOSING */
    shmem_context_t context;
    shmemi_pool_t *core;
    shmemi_segment_t segment;
    void *memory;
    char task[SHMEM_TASK_NAME];
    char name[SHMEM_POOL_NAME]; /* "" for none */
} shmemi_pool_view_t;

struct shmem_pool {
    shmemi_pool_t *plain; /* first: what the fast paths load; NULL: a debug pool, or closed */
    shmemi_pool_t *core;  /* NULL: closed */
    shmemi_pool_view_t *view;
    unsigned refs;
    shmemi_name_t name; /* of the segment */
};

/* ---- for operations ---- */

/* Open, and no debug pool. Costs one test of what the operation loads anyway. */
static inline bool shmemi_pool_is_plain(shmem_pool_t pool)
{
    return __builtin_expect(pool && pool->plain, 1);
}

static inline bool shmemi_pool_is_open(shmem_pool_t pool)
{
    return __builtin_expect(pool && pool->core, 1);
}

/* The handle of an operation is bad: INVALID (NULL), STATE (not open any more). */
shmem_status_t shmemi_pool_unusable(shmem_pool_t pool, const char *what);

/* ---- pool_names.c ---- */

extern const shmemi_named_t shmemi_pool_named;
/* Name of a task (NULL: the one of the process) into task[SHMEM_TASK_NAME]. INVALID. */
shmem_status_t shmemi_pool_task_make(shmem_context_t context, const char *name, char *task);

/* ---- pool_pages.c ---- */

/* Which pages the segment of a pool of so many bytes should have (SHMEMI_HUGE_*). */
int shmemi_pool_huge(shmem_context_t context, uint64_t bytes);
/* Map the segment of the view. Its first page is there afterwards, whoever made it. */
shmem_status_t shmemi_pool_pages_map(shmemi_pool_view_t *view);
/* Give a new pool its first memory, each arena on its node. */
shmem_status_t shmemi_pool_pages_make(const shmemi_pool_view_t *view,
                                      const shmem_pool_params_t *params, shmem_topology_t topology);
/* Make what is there present in this process: a fault in the middle of an allocation is dear. */
shmem_status_t shmemi_pool_pages_fill(const shmemi_pool_view_t *view);

/* ---- pool_arenas.c ---- */

/* Engines get to know a view that is attached: job/arenas.h. */
shmem_status_t shmemi_pool_arenas_add(shmemi_pool_view_t *view);

/* ---- pool_open.c ---- */

/* A handle and its view, in no list yet. NULL: NOMEM. */
shmem_pool_t shmemi_pool_handle_make(shmem_context_t context, const char *task);
/* Undo it and everything that was done for its view. */
void shmemi_pool_handle_drop(shmem_pool_t pool);

/*
 * `p`, whose view has its segment, perhaps mapped, enters the list: wait until the pool is ready,
 * attach. *pool becomes `p`, or, where the context has the pool open for that task already, that
 * handle once more; `p` is gone then, as on failure. `full`: name of the segment, "" for none;
 * `generation`: of the names, before the server was asked.
 */
shmem_status_t shmemi_pool_enter(shmem_pool_t p, const char *full, uint64_t generation,
                                 shmem_pool_t *pool);

#endif
