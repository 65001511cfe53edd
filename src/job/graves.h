/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graves: handles whose objects are gone, kept for a while so that late uses are errors instead of
 * accesses to freed memory.
 *
 *   Invariant  the last SHMEMI_GRAVES handles buried in a cemetery are readable; older ones are
 *              freed. What is buried says by its content that it is dead.
 *
 * Any thread may bury at any time.
 */
#ifndef SHMEMI_JOB_GRAVES_H
#define SHMEMI_JOB_GRAVES_H

#include <stdatomic.h>

enum { SHMEMI_GRAVES = 64 };

typedef struct shmemi_cemetery {
    _Atomic unsigned next;
    void *_Atomic graves[SHMEMI_GRAVES];
} shmemi_cemetery_t;

/* `handle` came from malloc and belongs to the cemetery from now on. */
void shmemi_bury(shmemi_cemetery_t *cemetery, void *handle);

#endif
