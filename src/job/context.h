/* SPDX-License-Identifier: Apache-2.0 */
/* The context object: one client of a node server, one PE of a job. */
#ifndef SHMEMI_JOB_CONTEXT_H
#define SHMEMI_JOB_CONTEXT_H

#include "base/settings.h"
#include "node/client.h"
#include "shmem/context.h"
#include "sync/roster.h"

struct shmem_context {
    shmemi_actor_t *actor; /* first: what the synchronization fast paths load */
    shmemi_client_t *client;
    shmemi_settings_t settings;
    int rank, size;
};

static inline shmemi_actor_t *shmemi_context_actor(shmem_context_t context)
{
    return context->actor;
}

#endif
