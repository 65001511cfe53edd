/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transports: how bytes get to a peer's memory. One table of operations for each way; the caller
 * dispatches at one place. `direct` (xport/direct.h) is the way for memory that is mapped here.
 *
 * An operation returns when it is complete at the target. put and signal keep the order of the
 * calling thread: who sees a signal sees what was put before.
 */
#ifndef SHMEMI_XPORT_XPORT_H
#define SHMEMI_XPORT_XPORT_H

#include <stddef.h>
#include <stdint.h>

#include "shmem/status.h"

/* A place in a peer's memory. The caller has checked that it exists. */
typedef struct shmemi_xport_target {
    int rank;
    uint64_t object, offset;
    char *address; /* in the unified range; NULL where it is not mapped here */
} shmemi_xport_target_t;

typedef struct shmemi_xport_ops {
    const char *name;
    shmem_status_t (*put)(const shmemi_xport_target_t *target, const void *src, size_t n);
    shmem_status_t (*get)(const shmemi_xport_target_t *target, void *dst, size_t n);
    /* On an aligned 64-bit word: the old value goes to *old. */
    shmem_status_t (*fetch_add)(const shmemi_xport_target_t *target, uint64_t value, uint64_t *old);
    /* On an aligned 64-bit word, after all earlier puts of this thread. */
    shmem_status_t (*set)(const shmemi_xport_target_t *target, uint64_t value);
} shmemi_xport_ops_t;

#endif
