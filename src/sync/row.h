/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the roster: claiming and freeing. Used by roster.c and actor.c only. */
#ifndef SHMEMI_SYNC_ROW_H
#define SHMEMI_SYNC_ROW_H

#include "sync/roster.h"

/* Set in owner while the row is being freed; see roster.c. */
#define SHMEMI_ROW_FREEING (1ull << 63)

static inline uint64_t shmemi_row_owner(uint32_t slot, uint32_t client_epoch)
{
    return (uint64_t)slot << 32 | client_epoch;
}

/* Rows below this may be touched. */
static inline uint32_t shmemi_row_limit(const shmemi_roster_t *roster)
{
    uint32_t limit = atomic_load_explicit(&roster->thread_limit, memory_order_relaxed);
    return limit < SHMEMI_THREADS ? limit : (uint32_t)SHMEMI_THREADS;
}

/* Take `row` for `owner` if it is free. */
bool shmemi_row_claim(shmemi_roster_t *roster, uint32_t row, uint64_t owner, uint32_t *epoch);

/* Free `row` if it is `owner`'s. */
void shmemi_row_free(shmemi_roster_t *roster, uint32_t row, uint64_t owner);

/* Server side: free `row` if it belongs to a client of `slot`, whatever its epoch. A half-freed row
 * is finished only when the client died. */
void shmemi_row_free_slot(shmemi_roster_t *roster, uint32_t row, uint32_t slot, bool died);

#endif
