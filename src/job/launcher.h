/* SPDX-License-Identifier: Apache-2.0 */
/* Was this process started by a launcher whose protocol we do not speak? Then N processes would
 * silently be N jobs of one PE each, and all of them would "succeed". */
#ifndef SHMEMI_JOB_LAUNCHER_H
#define SHMEMI_JOB_LAUNCHER_H

#include "shmem/status.h"

/* UNSUPPORTED if another launcher says that this is one of several processes. To be asked only when
 * neither the program nor SHMEM_SIZE says how many PEs there are. */
shmem_status_t shmemi_launcher_check(void);

#endif
