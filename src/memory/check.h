/* SPDX-License-Identifier: Apache-2.0 */
/* The invariant walker for one arena; see check.c. */
#ifndef SHMEMI_MEMORY_CHECK_H
#define SHMEMI_MEMORY_CHECK_H

#include "memory/span.h"

/* The caller holds the lock, or nobody else uses the arena. `roster` NULL: owners are not looked
 * at. CORRUPT: the first violation is in the detail. */
shmem_status_t shmemi_check_arena_locked(shmemi_arena_t *arena, const shmemi_classes_t *classes,
                                         const shmemi_roster_t *roster);

#endif
