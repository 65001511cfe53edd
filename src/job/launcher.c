/* SPDX-License-Identifier: Apache-2.0 */
#include "job/launcher.h"

#include <stdlib.h>

#include "base/status.h"
#include "base/util.h"

#define LAYER "job"

/* Variables that only a launcher sets, for each process that it starts. (Slurm's are not among
 * them: they are there in a batch script, too.) */
static const char *const counts[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};

shmem_status_t shmemi_launcher_check(void)
{
    for (size_t i = 0; i < SHMEMI_COUNT(counts); i++) {
        const char *text = getenv(counts[i]);
        long n = text ? strtol(text, NULL, 10) : 0;
        if (n > 1)
            return shmemi_fail(SHMEM_ERR_UNSUPPORTED, LAYER,
                               "another launcher started this process as one of %ld (%s), and "
                               "this build does not speak its protocol: each would be a job of "
                               "its own. Start the job with shmem-run -n %ld, or set SHMEM_SIZE=1 "
                               "if each is meant to be alone",
                               n, counts[i], n);
    }
    return SHMEM_OK;
}
