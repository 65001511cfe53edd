/* SPDX-License-Identifier: Apache-2.0 */
/* A ring: the newest handle takes the place of the oldest, which is freed. */
#include "job/graves.h"

#include <stdlib.h>

void shmemi_bury(shmemi_cemetery_t *cemetery, void *handle)
{
    unsigned place = atomic_fetch_add_explicit(&cemetery->next, 1, memory_order_relaxed);
    free(atomic_exchange_explicit(&cemetery->graves[place % SHMEMI_GRAVES], handle,
                                  memory_order_acq_rel));
}
