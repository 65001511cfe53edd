/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keepers: clients for whose sake a pool's memory must not be returned to the system, because
 * something in their process knows the pages themselves (a network card, a driver).
 *
 *   Invariants  who shrinks asks, under the lock of an arena, shmemi_pool_is_kept() before it takes
 *               pages away; who keeps says so before it looks, under that lock, which pages there
 *               are: either the one sees the keeper, or the other sees that the pages are gone
 *               keepers that died do not count
 */
#ifndef SHMEMI_MEMORY_KEEPERS_H
#define SHMEMI_MEMORY_KEEPERS_H

#include "memory/pool.h"

/* From now on the pool keeps its memory, or (false) not for this view any more. Twice is harmless.
 * Not thread-safe for one view. */
void shmemi_pool_keep(shmemi_pool_t *pool, bool keep);

/* Does some living client want it to? */
bool shmemi_pool_is_kept(const shmemi_pool_t *pool);

#endif
