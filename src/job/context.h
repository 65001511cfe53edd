/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context object: one client of a node server, one PE of a job.
 *
 *   Invariants  steps: number of collective steps that this PE has completed (job/step.h).
 *               broken == 0, or the code that every further collective call gets; it never goes
 * back. memories: live symmetric objects, newest first; id grows, the same on all PEs.
 *
 * Members below `memories` belong to the thread that makes collective calls.
 */
#ifndef SHMEMI_JOB_CONTEXT_H
#define SHMEMI_JOB_CONTEXT_H

#include <sys/types.h>

#include "base/settings.h"
#include "node/client.h"
#include "os/identity.h"
#include "shmem/context.h"
#include "shmem/memory.h"
#include "shmem/topology.h"
#include "sync/roster.h"

enum {
    SHMEMI_BROKEN_TEXT = 256,
    SHMEMI_GENERATIONS = 16 /* jobs of one name that may be ending at once */
};

typedef struct shmemi_control shmemi_control_t; /* job/control.h */
typedef struct shmemi_pe shmemi_pe_t;

struct shmem_context {
    shmemi_actor_t *actor; /* first: what the synchronization fast paths load */
    shmemi_client_t *client;
    shmemi_settings_t settings;
    int rank, size;

    shmemi_control_t *control;                 /* header of the control segment */
    shmemi_pe_t *pes;                          /* pes[0..size-1] */
    unsigned char *scratch;                    /* SHMEMI_SCRATCH bytes of each PE */
    shmemi_segment_t segment;                  /* the control segment */
    char name[64];                             /* of the job; "" when anonymous */
    shmemi_segment_t held[SHMEMI_GENERATIONS]; /* ended jobs of that name, while joining */
    unsigned held_count;
    int lifeline; /* job/lifeline.h; -1: none */
    dev_t lifeline_device;
    ino_t lifeline_inode;
    bool counted; /* steps are counted rather than watched one by one (job/step.h) */
    bool alone;   /* size == 1: nobody to wait for */

    shmem_topology_t topology; /* made at the first need; may be NULL */
    struct shmemi_arenas *arenas; /* job/arenas.h */
    struct shmem_memory *memories;
    uint64_t next_memory;
    uint64_t steps;
    uint32_t deaths;      /* of the roster, at the last look that found nobody dead */
    const void **sources; /* room for one address of each PE, three times */
    const void **cursors;
    char **targets;
    _Atomic bool inside; /* a collective call is running */
    shmem_status_t broken;
    char broken_text[SHMEMI_BROKEN_TEXT];
};

static inline shmemi_actor_t *shmemi_context_actor(shmem_context_t context)
{
    return context->actor;
}

/* Was it finalized? Its handle is readable for some time afterwards. */
static inline bool shmemi_context_is_closed(shmem_context_t context)
{
    return !context->actor->id;
}

/* Is this process a forked child and the context its parent's? Then the mappings are, too. */
static inline bool shmemi_context_is_inherited(shmem_context_t context)
{
    return context->actor && context->actor->fork_generation != shmemi_fork_generation();
}

/* STATE: the context is finalized, or a forked parent's. `what`: the function that was called. */
shmem_status_t shmemi_context_check(shmem_context_t context, const char *what);

/* The context's view of the machine, made at the first call. */
shmem_status_t shmemi_context_topology(shmem_context_t context, shmem_topology_t *topology);

#endif
