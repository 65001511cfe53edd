/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as a drawing: time to the right, addresses upwards. */
#ifndef PLAN_DRAWING_H
#define PLAN_DRAWING_H

#include "table.h"

/* Writes SVG. capacity 0: none. */
void drawing_write(const table_t *table, const uint64_t *offsets, const shmem_plan_result_t *result,
                   uint64_t capacity, FILE *file);

#endif
