/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of a context: what the end of the context needs to know of region.c. */
#ifndef SHMEMI_JOB_REGION_API_H
#define SHMEMI_JOB_REGION_API_H

#include "shmem/region.h"

/* Close every region that the context still has open, whatever the number of opens. In a forked
 * child only the private parts go. */
void shmemi_region_drop_all(shmem_context_t context);

#endif
