/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end, and is he alive: pidfds and kernel credentials. Pid numbers are only
 * ever used for messages. */
#ifndef SHMEMI_OS_IDENTITY_H
#define SHMEMI_OS_IDENTITY_H

#include <stdbool.h>
#include <sys/types.h>

#include "shmem/status.h"

#define SHMEMI_NO_GROUP ((gid_t)-1) /* a group without a number in our user namespace */

typedef struct shmemi_credentials {
    pid_t pid; /* in our PID namespace, 0 if invisible; for messages */
    uid_t uid;
    gid_t gid;
} shmemi_credentials_t;

/* Kernel credentials of the process that connected (SO_PEERCRED). ACCESS: its user has no number in
 * our user namespace, where all such users look the same. */
shmem_status_t shmemi_identity_peer(int socket, shmemi_credentials_t *credentials);

/* Was the process that connected in the (supplementary) group, then? False where the kernel does
 * not tell, and for groups that have no number here. */
bool shmemi_identity_in_group(int socket, gid_t group);

/* A pidfd of the peer, close-on-exec. UNSUPPORTED (quiet): not with this kernel; PEER_DEAD. */
shmem_status_t shmemi_identity_pidfd(int socket, int *pidfd);

/* Such a kernel's way: *pidfd is one of the process that has the peer's number now, and whatever
 * the other side sends from the return on is signed with its sender (and to be received by
 * shmemi_socket_receive_signed()). It is the peer's if shmemi_identity_prove() agrees to a message
 * that was sent then. UNSUPPORTED: the peer's number is not visible here; PROTOCOL
 * (quiet): something was sent before; PEER_DEAD. */
shmem_status_t shmemi_identity_claim(int socket, int *pidfd);

/* A message signed by `sender` came: was it the peer, and is the claimed pidfd his? Ends the
 * signing. ACCESS: no. */
shmem_status_t shmemi_identity_prove(int socket, pid_t sender, int pidfd);

/* A pidfd of the calling process, close-on-exec. */
shmem_status_t shmemi_identity_self(int *pidfd);

/* Has the process ended? (poll on the pidfd) */
bool shmemi_identity_is_dead(int pidfd);

/* Number of forks between this process and the one that first used the library: objects remember
 * it and refuse to work in a child that inherited them. */
unsigned shmemi_fork_generation(void);

#endif
