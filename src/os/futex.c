/* SPDX-License-Identifier: Apache-2.0 */
/* The futex system call with absolute monotonic deadlines (FUTEX_WAIT_BITSET takes them as they
 * are, so that a sleep resumed after a spurious wake does not get longer). */
#include "os/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

int shmemi_futex_wait(_Atomic uint32_t *word, uint32_t value, shmemi_deadline_t deadline)
{
    struct timespec until = {0, 0}, *limit = NULL;
    if (deadline != SHMEMI_FOREVER) {
        if (deadline > 0) {
            until.tv_sec = (time_t)(deadline / 1000000000);
            until.tv_nsec = (long)(deadline % 1000000000);
        }
        limit = &until;
    }
    int saved = errno, result = 0;
    if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, limit, NULL, FUTEX_BITSET_MATCH_ANY) &&
        errno == ETIMEDOUT)
        result = ETIMEDOUT;
    errno = saved;
    return result;
}

int shmemi_futex_wake(_Atomic uint32_t *word, int count)
{
    int saved = errno;
    long woken = syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
    errno = saved;
    return woken > 0 ? (int)woken : 0;
}
