/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of open file descriptions on the control segment: one byte for each PE. */
#include "job/lifeline.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct flock byte_of(int rank)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

void shmemi_lifeline_take(shmem_context_t c)
{
    char path[40];
    struct flock lock = byte_of(c->rank);
    /* the descriptor from the server shares its open file with all PEs: open one of our own */
    snprintf(path, sizeof path, "/proc/self/fd/%d", c->segment.fd);
    c->lifeline = open(path, O_RDWR | O_CLOEXEC);
    if (c->lifeline >= 0 && fcntl(c->lifeline, F_OFD_SETLK, &lock))
        shmemi_lifeline_drop(c); /* somebody has this rank: the claim will say so */
}

void shmemi_lifeline_drop(shmem_context_t c)
{
    if (c->lifeline >= 0)
        close(c->lifeline);
    c->lifeline = -1;
}

bool shmemi_lifeline_is_cut(shmem_context_t c, int rank)
{
    struct flock lock = byte_of(rank);
    if (c->lifeline < 0 || rank == c->rank || fcntl(c->lifeline, F_OFD_GETLK, &lock))
        return false;
    return lock.l_type == F_UNLCK;
}
