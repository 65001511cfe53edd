/* SPDX-License-Identifier: Apache-2.0 */
#include "shmem/version.h"

const char *shmem_version(void)
{
    return SHMEM_VERSION_TEXT;
}
