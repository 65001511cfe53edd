/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's table of mapped symmetric objects, so that an address alone finds its object. It
 * is process-wide as addresses are. The key is the address of the own part, which is another one
 * for each PE of the process. Its lock also guards base and maps of every object.
 */
#ifndef SHMEMI_JOB_MAPPED_H
#define SHMEMI_JOB_MAPPED_H

#include "job/memory.h"

void shmemi_mapped_lock(void);
void shmemi_mapped_unlock(void);

void shmemi_mapped_add_locked(shmem_memory_t memory);
void shmemi_mapped_remove_locked(shmem_memory_t memory);
/* The object whose own part starts at `address`, or NULL. */
shmem_memory_t shmemi_mapped_find_locked(const void *address);

#endif
