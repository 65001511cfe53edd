/* SPDX-License-Identifier: Apache-2.0 */
/* The other PEs of the job: who is there, who died, and telling them that something changed. */
#ifndef SHMEMI_JOB_PEERS_H
#define SHMEMI_JOB_PEERS_H

#include "job/control.h"

/* The client that is PE `rank`: slot << 32 | epoch; 0: nobody yet. */
static inline uint64_t shmemi_peers_claim(shmem_context_t context, int rank)
{
    /* SYNC pe-claim: acquire, pairs with release in claim() */
    return atomic_load_explicit(&context->pes[rank].claim, memory_order_acquire);
}

/* How sentences end that say why a context is of no more use; shmem_context_finalize() itself takes
 * it off. */
#define SHMEMI_ADVICE ": finalize the context"

/* Did PE `rank` die? A PE that is not there yet, or left, did not. */
bool shmemi_peers_dead(shmem_context_t context, int rank);

/*
 * Is anybody of this job dead? PEER_DEAD names the first one. `deaths` is the caller's note of the
 * roster's death count, updated when nobody is: start with ~0 to look at all PEs at the first call.
 */
shmem_status_t shmemi_peers_check_deaths(shmem_context_t context, uint32_t *deaths);

/*
 * Can everybody still be waited for? `deaths` as above. PEER_DEAD names the first dead PE, STATE
 * one that left or is out of step.
 */
shmem_status_t shmemi_peers_check(shmem_context_t context, uint32_t *deaths);

/* Wake every PE that sleeps, after a store that any of them may wait for. */
void shmemi_peers_ring(shmem_context_t context);

/* "2, 5, 7 and 12 more": ranks for which pick() holds, into text[bytes]. Returns their number. */
int shmemi_peers_list(shmem_context_t context, bool (*pick)(shmem_context_t, int), char *text,
                      size_t bytes);

#endif
