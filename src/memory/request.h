/* SPDX-License-Identifier: Apache-2.0 */
/* What an allocation asks for, checked: shared by alloc.c and by what changes the size of blocks.
 */
#ifndef SHMEMI_MEMORY_REQUEST_H
#define SHMEMI_MEMORY_REQUEST_H

#include "memory/pool.h"

typedef struct shmemi_request {
    uint64_t bytes, alignment;
    uint32_t pages;
    unsigned class; /* SHMEMI_CLASSES: none, whole pages */
} shmemi_request_t;

/* INVALID, OVERFLOW. */
shmem_status_t shmemi_request_make(const shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                   shmemi_request_t *request);

/* Bytes that a block of this request has, if it is taken from this class. */
uint64_t shmemi_request_size(const shmemi_pool_t *pool, const shmemi_request_t *request,
                             unsigned class);

#endif
