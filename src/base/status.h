/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording an error: the function that decides it calls shmemi_fail() once, which fills the
 * thread's detail, logs the sentence and returns the code; callers pass the code up unchanged.
 */
#ifndef SHMEMI_BASE_STATUS_H
#define SHMEMI_BASE_STATUS_H

#include "shmem/status.h"

/* Records and logs; returns `status`. errno is preserved. Not for expected outcomes on hot paths
 * (a failed try, a timeout): those use shmemi_quiet(). */
shmem_status_t shmemi_fail(shmem_status_t status, const char *layer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: code chosen from errno (ENOMEM and ENOSPC: NOMEM, EACCES and
 * EPERM: ACCESS, EMFILE and ENFILE: LIMIT, else SYSTEM); the text gets ": <strerror>". */
shmem_status_t shmemi_fail_errno(const char *layer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Records without logging: an outcome that the caller asked about (busy, timeout). */
shmem_status_t shmemi_quiet(shmem_status_t status, const char *layer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
