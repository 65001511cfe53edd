/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Visiting every block that somebody has, and the free objects of spans.
 *
 * Blocks of whole pages cannot come or go while their arena is locked, small ones can: whoever is
 * visited may be free by the time it is looked at, and what was free somebody's.
 */
#ifndef SHMEMI_MEMORY_WALK_H
#define SHMEMI_MEMORY_WALK_H

#include "memory/pool.h"

typedef struct shmemi_walked {
    unsigned char *start;
    uint64_t bytes;
    uint64_t owner; /* as in a page's word: a client, or SHMEMI_OWNER_POOL */
    uint32_t task;  /* whom it is charged to */
    bool free;      /* nobody's */
} shmemi_walked_t;

/* Call visit() for each block, with its arena locked. CORRUPT, errors of the lock. */
shmem_status_t shmemi_walk_blocks(shmemi_pool_t *pool,
                                  void (*visit)(void *arg, const shmemi_walked_t *block),
                                  void *arg);

#endif
