/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are there more PEs than processors? Each PE publishes the processors that it may run on; what
 * counts is the union, so that PEs bound to one processor each are not a crowd.
 */
#ifndef SHMEMI_JOB_CROWD_H
#define SHMEMI_JOB_CROWD_H

#include "job/control.h"

void shmemi_crowd_publish(shmemi_control_t *control);

/* Processors that the PEs may use together; the same number for all PEs once all have joined. */
int shmemi_crowd_processors(const shmemi_control_t *control);

#endif
