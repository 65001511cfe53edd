/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of a context: what the end of the context needs to know of pool_open.c. */
#ifndef SHMEMI_JOB_POOL_API_H
#define SHMEMI_JOB_POOL_API_H

#include "shmem/pool.h"

/* Close every pool that the context still has open, whatever the number of opens. In a forked child
 * only the private parts go. */
void shmemi_pool_drop_all(shmem_context_t context);

#endif
