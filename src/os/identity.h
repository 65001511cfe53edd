/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end, and is he alive: pidfds and kernel credentials. Pid numbers are only
 * ever used for messages. */
#ifndef SHMEMI_OS_IDENTITY_H
#define SHMEMI_OS_IDENTITY_H

#include <stdbool.h>
#include <sys/types.h>

#include "shmem/status.h"

typedef struct shmemi_credentials {
    pid_t pid; /* in our PID namespace, 0 if invisible; for messages */
    uid_t uid;
    gid_t gid;
} shmemi_credentials_t;

/* Kernel credentials of the process that connected (SO_PEERCRED). */
shmem_status_t shmemi_identity_peer(int socket, shmemi_credentials_t *credentials);

/* Was the process that connected in the (supplementary) group, then? False where the kernel does
 * not tell. */
bool shmemi_identity_in_group(int socket, gid_t group);

/* A pidfd of the peer: SO_PEERPIDFD where the kernel has it; otherwise `offered` (a pidfd that the
 * client sent, or -1) after checking /proc/self/fdinfo against the peer's pid. *pidfd is a new
 * close-on-exec descriptor. ACCESS: the offered one is somebody else's. */
shmem_status_t shmemi_identity_pidfd(int socket, int offered, int *pidfd);

/* A pidfd of the calling process, close-on-exec. */
shmem_status_t shmemi_identity_self(int *pidfd);

/* Has the process ended? (poll on the pidfd) */
bool shmemi_identity_is_dead(int pidfd);

/* Number of forks between this process and the one that first used the library: objects remember
 * it and refuse to work in a child that inherited them. */
unsigned shmemi_fork_generation(void);

#endif
