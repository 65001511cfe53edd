/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A planning problem in the form that the algorithms use: checked, compressed, cut into parts.
 *
 * Time is compressed to sections: a section is a largest set of buffers that are live together.
 * Two buffers are live together at some time if and only if they have a section in common, and the
 * sections of a buffer are consecutive, so that a buffer is a range [begin, end] of them. Parts are
 * the pieces of the section axis that no buffer crosses: they are planned one by one, and
 *
 *     peak = max over parts of peak(part)
 *
 * Space is in units: every offset of a plan in which no buffer can be moved down is a multiple of
 * `unit`, as sizes are, rounded up; what the rounding added to a buffer is its pad, in bytes. So
 *
 *     size * unit == bytes + pad
 *
 * All values in bytes are below 2^63.
 */
#ifndef SHMEMI_PLAN_PROBLEM_H
#define SHMEMI_PLAN_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shmem/plan.h"

#define SHMEMI_PLAN_ANYWHERE ((int64_t)-1)

typedef struct shmemi_plan_item {
    uint32_t begin, end; /* sections, both inclusive, counted from the part's first */
    uint32_t buffer;     /* index in the caller's array */
    int64_t size;        /* units, > 0 */
    int64_t align;       /* units, > 0; 1: none */
    int64_t fixed;       /* units, or ANYWHERE */
    int64_t pad;         /* bytes */
    double duration;     /* in the caller's time */
} shmemi_plan_item_t;

/* A part: its items, ordered by begin. */
typedef struct shmemi_plan_part {
    const shmemi_plan_item_t *items;
    uint32_t count, sections;
    int64_t bound; /* bytes: no plan of this part needs fewer */
} shmemi_plan_part_t;

typedef struct shmemi_plan_problem {
    shmemi_plan_item_t *items; /* buffers that need a place, ordered by part, then by begin */
    uint32_t count;
    int64_t unit; /* bytes */
    shmemi_plan_part_t *parts;
    uint32_t part_count;
} shmemi_plan_problem_t;

/* Does a buffer take part at all? */
static inline bool shmemi_plan_is_live(const shmem_plan_buffer_t *buffer)
{
    return buffer->bytes > 0 && buffer->first < buffer->last;
}

static inline bool shmemi_plan_live_together(const shmemi_plan_item_t *a,
                                             const shmemi_plan_item_t *b)
{
    return a->begin <= b->end && b->begin <= a->end;
}

/* The lowest multiple of `align` (> 0) that is not below `x`; x + align < 2^63. */
static inline int64_t shmemi_plan_align(int64_t x, int64_t align)
{
    return align == 1 ? x : (x + align - 1) / align * align;
}

/* End of an item at `offset` (units), in bytes. */
static inline int64_t shmemi_plan_end(const shmemi_plan_item_t *item, int64_t offset, int64_t unit)
{
    return (offset + item->size) * unit - item->pad;
}

/* The rules of single buffers; the errors of shmem_plan_solve() except for overlaps. */
shmem_status_t shmemi_plan_check_buffers(const shmem_plan_buffer_t *buffers, size_t count);

/* Fixed buffers that are live together do not overlap. Errors: INVALID (names two), NOMEM. */
shmem_status_t shmemi_plan_check_fixed(const shmem_plan_buffer_t *buffers, size_t count);

/* Builds the problem of checked buffers. Errors: OVERFLOW, NOMEM. */
shmem_status_t shmemi_plan_problem_init(shmemi_plan_problem_t *problem,
                                        const shmem_plan_buffer_t *buffers, size_t count);
void shmemi_plan_problem_fini(shmemi_plan_problem_t *problem);

#endif
