/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory can still be had: the smallest of what the system has available and what the
 * memory cgroups of this process leave, with the numbers for a message.
 */
#ifndef SHMEMI_OS_BUDGET_H
#define SHMEMI_OS_BUDGET_H

#include <stdint.h>

#include "shmem/status.h"

typedef struct shmemi_budget {
    uint64_t available;    /* bytes that can be had; UINT64_MAX: unknown */
    uint64_t system_bytes; /* MemAvailable + SwapFree; UINT64_MAX: unknown */
    uint64_t group_limit;  /* memory.max of the tightest group; UINT64_MAX: none */
    uint64_t group_used;   /* memory.current of that group without its reclaimable file pages */
    char group[192];       /* its path, "" if none */
} shmemi_budget_t;

/* Read it. `root` is put before /proc and /sys ("" for the real ones; tests have trees of their
 * own). What cannot be read counts as unlimited. */
void shmemi_budget_read(const char *root, shmemi_budget_t *budget);

/* NOMEM with the arithmetic if `bytes` more do not fit, else SHMEM_OK. A 32nd part of what is
 * available, at most 256 MiB, is kept back. */
shmem_status_t shmemi_budget_check(const shmemi_budget_t *budget, uint64_t bytes);

#endif
