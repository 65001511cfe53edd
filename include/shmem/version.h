/* SPDX-License-Identifier: Apache-2.0 */
/* Version of the headers and of the library at run time. */
#ifndef SHMEM_VERSION_H
#define SHMEM_VERSION_H

#include <shmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHMEM_VERSION_MAJOR 0
#define SHMEM_VERSION_MINOR 1
#define SHMEM_VERSION_PATCH 0
#define SHMEM_VERSION_TEXT  "0.1.0"

/* The library's version, "major.minor.patch". Static. */
SHMEM_API const char *shmem_version(void);

#ifdef __cplusplus
}
#endif
#endif
