/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asymmetric memory barrier. The rare side (a thread about to sleep) runs shmemi_heavy_barrier(),
 * which makes every running thread of every registered process pass a full fence; the frequent side
 * (an unlock, a put) then needs only a compiler barrier between its store and its load of the
 * "somebody sleeps" flag.
 *
 *     frequent: store(data); light; load(sleepers)      rare: store(sleepers); heavy; load(data)
 *     => at least one of the two loads sees the other side's store.
 *
 * It rests on membarrier(2) GLOBAL_EXPEDITED. Where that is refused (old kernel, seccomp),
 * shmemi_barrier_register() says so, and the roster's `fence_needed` flag makes the frequent side
 * run a full fence instead (see sync/roster.h).
 */
#ifndef SHMEMI_OS_BARRIER_H
#define SHMEMI_OS_BARRIER_H

#include <stdbool.h>

/* Register this process as a frequent side. Idempotent. False: refused by the kernel. Test hook:
 * after shmemi_barrier_refuse(true) it always says false, as under seccomp. */
bool shmemi_barrier_register(void);
void shmemi_barrier_refuse(bool refuse);

/* The rare side. Falls back to a plain full fence when membarrier is refused: callers must then
 * rely on fence_needed. */
void shmemi_heavy_barrier(void);

#endif
