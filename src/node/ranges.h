/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places in the unified address range: which parts of [0, SHMEMI_SPACE_BYTES) are taken.
 *
 *   Invariants  taken[i].offset + taken[i].bytes <= taken[i + 1].offset (sorted, disjoint)
 *               offsets and lengths are multiples of SHMEMI_SPACE_UNIT
 *               a taken length = the segment, rounded up, and one unit more that stays unmapped
 *
 * First fit from a start that each server chooses at random (so that the segments of two servers
 * rarely meet in a process that is a client of both), then from the beginning. One thread.
 */
#ifndef SHMEMI_NODE_RANGES_H
#define SHMEMI_NODE_RANGES_H

#include <stddef.h>
#include <stdint.h>

#include "shmem/status.h"

typedef struct shmemi_range {
    uint64_t offset, bytes;
} shmemi_range_t;

typedef struct shmemi_ranges {
    shmemi_range_t *taken;
    size_t count, room;
    uint64_t start, limit;
} shmemi_ranges_t;

/* limit: length of the whole range; start < limit: where to look first. */
void shmemi_ranges_init(shmemi_ranges_t *ranges, uint64_t start, uint64_t limit);
void shmemi_ranges_fini(shmemi_ranges_t *ranges);

/* Take a place for a segment of `bytes` > 0. LIMIT: no hole is large enough. NOMEM. */
shmem_status_t shmemi_ranges_take(shmemi_ranges_t *ranges, uint64_t bytes, uint64_t *offset);

/* Take the place at `offset` that a segment of `bytes` had. LIMIT: it is not free. NOMEM. */
shmem_status_t shmemi_ranges_put(shmemi_ranges_t *ranges, uint64_t offset, uint64_t bytes);

/* Give back the place that begins at `offset`; one that was not taken is ignored. */
void shmemi_ranges_give(shmemi_ranges_t *ranges, uint64_t offset);

#endif
