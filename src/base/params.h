/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that cross the public interface and may grow: parameters, and what functions fill in.
 *
 * Their first member is `size_t size`, set by the caller to the size that his program was compiled
 * with. New members are added at the end; zero means default.
 *
 *   Invariant  nothing beyond the caller's size is read or written; a size that no version could
 *              have is an error, as one that was never set often is
 */
#ifndef SHMEMI_BASE_PARAMS_H
#define SHMEMI_BASE_PARAMS_H

#include <stddef.h>

#include "shmem/status.h"

enum { SHMEMI_PARAMS_MOST = 4096 }; /* bytes that no struct of any version exceeds */

/*
 * Copy the caller's parameters into own[bytes]; members that his struct lacks become zero. INVALID,
 * recorded with the name of the struct: NULL, smaller than `least` (the first version of the
 * struct), or larger than ours with something else than zeros there (a newer program that wants
 * what this library does not have).
 */
shmem_status_t shmemi_params_take(void *own, size_t bytes, size_t least, const void *given,
                                  const char *name);

/* Is given->size that of a struct that can be filled? INVALID, recorded with its name. */
shmem_status_t shmemi_params_check(const void *given, size_t least, const char *name);

/* Copy own[bytes] into the caller's checked struct as far as his size goes; zeros where it has more
 * than ours. Its size stays. */
void shmemi_params_give(void *given, const void *own, size_t bytes);

#endif
