/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy plans: the items in some order, each at the lowest place that is free during its life. */
#ifndef SHMEMI_PLAN_GREEDY_H
#define SHMEMI_PLAN_GREEDY_H

#include "plan/problem.h"

/*
 * Plans a part by several orders until one reaches the part's bound or enough work is done, and
 * keeps the best. offsets: out, units, one for each item. *peak: out, bytes.
 * Errors: OVERFLOW (no plan that ends below 2^63 was found), NOMEM (not recorded).
 */
shmem_status_t shmemi_plan_greedy(const shmemi_plan_part_t *part, int64_t unit, int64_t *offsets,
                                  int64_t *peak);

#endif
