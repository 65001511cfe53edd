/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the collectives share. Data takes one of three ways:
 *
 *   line     up to SHMEMI_PAYLOAD bytes travel with the step itself
 *   half     up to SHMEMI_HALF bytes travel in the scratch memory of the step's number
 *   places   each PE says where its buffers lie in symmetric memory; when all lie in the same
 *            object they are read and written in place, otherwise in pieces through the halves
 *
 * Which way is decided from what all PEs know, so that all decide alike.
 */
#ifndef SHMEMI_JOB_COLL_H
#define SHMEMI_JOB_COLL_H

#include "job/memory.h"
#include "job/step.h"
#include "shmem/comm.h"

/* Up to so many bytes a second copy costs less than the steps that avoid it. */
enum { SHMEMI_COLL_SMALL = 16384 };

/* Do [a, a + a_bytes) and [b, b + b_bytes) share a byte? Nothing of them need be mapped. */
static inline bool shmemi_coll_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes && b_bytes && (x < y ? y - x < a_bytes : x - y < b_bytes);
}

/* Put `bytes` (at most SHMEMI_HALF) at src where they travel with the next step. */
void shmemi_coll_send(shmem_context_t context, const void *src, size_t bytes);

/* Where PE `rank`'s `bytes` of the last step lie. */
const void *shmemi_coll_received(shmem_context_t context, int rank, size_t bytes);

/* The places of a PE's buffers, sent with a step. */
typedef struct shmemi_places {
    shmemi_place_t src, dst;
} shmemi_places_t;
_Static_assert(sizeof(shmemi_places_t) <= SHMEMI_BODY, "places travel in the line");

void shmemi_coll_send_places(shmem_context_t context, const void *src, size_t src_bytes,
                             const void *dst, size_t dst_bytes);

/* After that step: do all sources (all destinations) lie in one symmetric object? Then
 * context->sources[] (targets[]) are their addresses here. CORRUPT: impossible places. */
shmem_status_t shmemi_coll_sources(shmem_context_t context, size_t bytes, bool *direct);
shmem_status_t shmemi_coll_targets(shmem_context_t context, size_t bytes, bool *direct);

/* The first step of a collective that reads one buffer of each PE: tell where `src` lies, meet, and
 * learn the others' sources. Errors: of the step, CORRUPT. */
shmem_status_t shmemi_coll_meet(shmem_context_t context, shmemi_call_t *call, const void *src,
                                size_t bytes, bool *direct);

/* Count a completed collective; passes `status` through and ends the call. */
shmem_status_t shmemi_coll_end(shmem_context_t context, const shmemi_self_t *self, size_t bytes,
                               shmem_status_t status);

#endif
