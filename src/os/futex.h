/* SPDX-License-Identifier: Apache-2.0 */
/* Futexes on shared words (never FUTEX_PRIVATE: that wakes nobody in another process). */
#ifndef SHMEMI_OS_FUTEX_H
#define SHMEMI_OS_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

#include "os/clock.h"

/* Sleep while *word == value, until woken or `deadline`. Returns 0 (woken, spuriously or not, or
 * the value differed), ETIMEDOUT. EINTR counts as woken. Never touches errno. */
int shmemi_futex_wait(_Atomic uint32_t *word, uint32_t value, shmemi_deadline_t deadline);

/* Wake up to `count` sleepers (INT_MAX: all). Returns how many were woken. Never touches errno. */
int shmemi_futex_wake(_Atomic uint32_t *word, int count);

#endif
