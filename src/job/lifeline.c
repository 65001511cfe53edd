/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of open file descriptions on the control segment: one byte for each PE. */
#include "job/lifeline.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct flock byte_of(int rank)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

/* The program may have closed our descriptor (closefrom) and got its number for a file of its own.
 */
static bool is_ours(const struct shmem_context *c)
{
    struct stat file;
    return c->lifeline >= 0 && fstat(c->lifeline, &file) == 0 &&
           file.st_dev == c->lifeline_device && file.st_ino == c->lifeline_inode;
}

void shmemi_lifeline_take(shmem_context_t c)
{
    struct stat file;
    char path[40];
    struct flock lock = byte_of(c->rank);
    /* the descriptor from the server shares its open file with all PEs: open one of our own */
    snprintf(path, sizeof path, "/proc/self/fd/%d", c->segment.fd);
    c->lifeline = open(path, O_RDWR | O_CLOEXEC);
    if (c->lifeline < 0 || fstat(c->lifeline, &file))
        return;
    c->lifeline_device = file.st_dev;
    c->lifeline_inode = file.st_ino;
    if (fcntl(c->lifeline, F_OFD_SETLK, &lock))
        shmemi_lifeline_drop(c); /* somebody has this rank: the claim will say so */
}

void shmemi_lifeline_drop(shmem_context_t c)
{
    if (is_ours(c))
        close(c->lifeline);
    c->lifeline = -1;
}

bool shmemi_lifeline_is_cut(shmem_context_t c, int rank)
{
    struct flock lock = byte_of(rank);
    if (!is_ours(c) || rank == c->rank || fcntl(c->lifeline, F_OFD_GETLK, &lock))
        return false;
    return lock.l_type == F_UNLCK;
}
