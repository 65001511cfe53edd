/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction of arrays, in the order in which the sources are given: same input, same bits. */
#ifndef SHMEMI_JOB_REDUCE_H
#define SHMEMI_JOB_REDUCE_H

#include <stddef.h>

#include "shmem/comm.h"

/* Bytes of one element; 0: no such type. */
size_t shmemi_reduce_element(shmem_type_t type);

/*
 * dst[i] = ((src[0][i] op src[1][i]) op src[2][i]) ... for `count` elements, n >= 1 sources. dst
 * may be the same array as one of the sources and overlaps none otherwise. Type and operation are
 * valid.
 */
void shmemi_reduce(void *dst, const void *const *src, int n, size_t count, shmem_type_t type,
                   shmem_reduce_op_t op);

#endif
