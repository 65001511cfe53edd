/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lifeline: how PEs learn of each other's death when the node server, which normally says it,
 * is gone. Each PE holds a lock of the kernel on byte `rank` of the control segment, through an
 * open file of its own; the kernel lets go of it when the process ends.
 *
 * A forked child that keeps the descriptor open hides its parent's death as long as it lives; that
 * is why this is only the second way. Where the segment cannot be opened a second time (no /proc)
 * there is no lifeline, and everybody counts as alive.
 */
#ifndef SHMEMI_JOB_LIFELINE_H
#define SHMEMI_JOB_LIFELINE_H

#include "job/context.h"

/* Take this PE's lock; before it claims its rank. Never fails: without, -1 is kept. */
void shmemi_lifeline_take(shmem_context_t context);

/* Let go: after the PE's state says that it left. */
void shmemi_lifeline_drop(shmem_context_t context);

/* Has PE `rank` let go of its lock? False when that cannot be known. */
bool shmemi_lifeline_is_cut(shmem_context_t context, int rank);

#endif
