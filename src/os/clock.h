/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds. Deadlines are absolute; SHMEMI_FOREVER never comes. */
#ifndef SHMEMI_OS_CLOCK_H
#define SHMEMI_OS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef int64_t shmemi_deadline_t;
#define SHMEMI_FOREVER INT64_MAX

static inline int64_t shmemi_clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Deadline `timeout` ns from now; negative means for ever; saturates. timeout 0 is the past. */
static inline shmemi_deadline_t shmemi_deadline_in(int64_t timeout)
{
    int64_t deadline;
    if (timeout < 0 || __builtin_add_overflow(shmemi_clock_now(), timeout, &deadline))
        return SHMEMI_FOREVER;
    return deadline;
}

static inline bool shmemi_deadline_passed(shmemi_deadline_t deadline)
{
    return deadline != SHMEMI_FOREVER && shmemi_clock_now() >= deadline;
}

#endif
