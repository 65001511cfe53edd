/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AF_UNIX sequenced-packet sockets with descriptors. An address is a path, or "@name" in the
 * abstract namespace, which leaves nothing behind when its owner is killed.
 */
#ifndef SHMEMI_OS_SOCKET_H
#define SHMEMI_OS_SOCKET_H

#include <stddef.h>
#include <sys/types.h>

#include "os/clock.h"
#include "shmem/status.h"

enum { SHMEMI_SOCKET_FDS = 4 }; /* descriptors per message at most */

/*
 * Listen. A path whose socket file is stale (nobody accepts) is taken over; a live one gives
 * SHMEM_ERR_EXISTS. Takeover is decided under a lock on a file PATH.lock, which is there for
 * that moment, so that two starters cannot both win. Path sockets get mode 0600. ACCESS, INVALID
 * (too long, empty, '..' parts). Who connects cannot send descriptors, where the kernel can refuse
 * them (Linux 6.16).
 */
shmem_status_t shmemi_socket_listen(const char *address, int *socket);

/* Let all users connect who reach the path (an abstract name: all do already). ACCESS: others could
 * replace what lies in its directory. */
shmem_status_t shmemi_socket_open_to_all(const char *address);

/* Remove the path of a listening socket (if it is still ours) and close it. */
void shmemi_socket_unlisten(const char *address, int socket);

/* Connect. NO_SERVER (quiet): nobody listens. */
shmem_status_t shmemi_socket_connect(const char *address, int *socket);

/* Accept one connection (non-blocking listener): SHMEM_ERR_BUSY when none waits. */
shmem_status_t shmemi_socket_accept(int listener, int *socket);

/* Send one message whole, with nfds <= SHMEMI_SOCKET_FDS descriptors (they stay the caller's).
 * Never raises SIGPIPE. SERVER_LOST: the other side is gone. TIMEOUT. */
shmem_status_t shmemi_socket_send(int socket, const void *message, size_t bytes, const int *fds,
                                  int nfds, shmemi_deadline_t deadline);

/*
 * Receive one message of at most `bytes`; *got its length. Up to SHMEMI_SOCKET_FDS descriptors in
 * fds (close-on-exec), *nfds their number, the rest of fds set to -1. Truncated data or descriptors
 * (MSG_TRUNC, MSG_CTRUNC) close what came and give PROTOCOL, or LIMIT when it was this process that
 * could hold no more descriptors. fds may be NULL: none may come then, and what comes is never
 * opened here. SERVER_LOST: end of stream, or an empty message. TIMEOUT (a deadline in the past
 * polls).
 */
shmem_status_t shmemi_socket_receive(int socket, void *message, size_t bytes, size_t *got, int *fds,
                                     int *nfds, shmemi_deadline_t deadline);

/* The same without descriptors, on a socket for which shmemi_identity_claim() asked for signatures:
 * *sender is the process that sent it, by the kernel's word; 0: invisible here, or sent before. */
shmem_status_t shmemi_socket_receive_signed(int socket, void *message, size_t bytes, size_t *got,
                                            pid_t *sender, shmemi_deadline_t deadline);

#endif
