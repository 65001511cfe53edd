/* SPDX-License-Identifier: Apache-2.0 */
/* Exact search: does a part fit below a given roof? */
#ifndef SHMEMI_PLAN_SEARCH_H
#define SHMEMI_PLAN_SEARCH_H

#include "os/clock.h"
#include "plan/problem.h"

typedef struct shmemi_plan_search shmemi_plan_search_t;

typedef enum shmemi_plan_outcome {
    SHMEMI_PLAN_FOUND,  /* it fits */
    SHMEMI_PLAN_NONE,   /* proved: it does not */
    SHMEMI_PLAN_STOPPED /* not known: out of steps or time */
} shmemi_plan_outcome_t;

/* Errors: NOMEM, LIMIT (too many pairs of items that are live together); not recorded. */
shmem_status_t shmemi_plan_search_create(shmemi_plan_search_t **search,
                                         const shmemi_plan_part_t *part, int64_t unit);
void shmemi_plan_search_destroy(shmemi_plan_search_t *search);

/*
 * Searches for a plan that ends at `roof` (bytes) or below, for at most about `steps` placements.
 * FOUND: offsets (units, one for each item) are set. What was learned about which items are hard is
 * kept for the next run.
 */
shmemi_plan_outcome_t shmemi_plan_search_run(shmemi_plan_search_t *search, int64_t roof,
                                             uint64_t steps, shmemi_deadline_t deadline,
                                             int64_t *offsets);

#endif
