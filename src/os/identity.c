/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel credentials and pidfds of peers.
 *
 * A pidfd that a client sends is believed only if the kernel says that it is a pidfd (its link) of
 * the process that connected (its fdinfo). What it does not do: watching; see node/.
 */
#include "os/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"

#define LAYER "os"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

shmem_status_t shmemi_identity_peer(int socket, shmemi_credentials_t *credentials)
{
    struct ucred found;
    socklen_t length = sizeof found;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &length) || length != sizeof found)
        return shmemi_fail_errno(LAYER, "cannot ask for the credentials of socket %d's peer",
                                 socket);
    *credentials = (shmemi_credentials_t){found.pid, found.uid, found.gid};
    return SHMEM_OK;
}

bool shmemi_identity_in_group(int socket, gid_t group)
{
    gid_t some[64], *groups = some;
    socklen_t length = sizeof some;
    bool found = false;
    int failed = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, some, &length);
    if (failed && errno == ERANGE) { /* length: the room that they take */
        groups = malloc(length);
        failed = !groups || getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &length);
    }
    for (size_t i = 0; !failed && i < length / sizeof *groups; i++)
        found |= groups[i] == group;
    if (groups != some)
        free(groups);
    return found;
}

/* The process number that the kernel shows for a pidfd: -1 for one that has ended and been reaped,
 * 0 for a process outside our PID namespace or a descriptor that is no pidfd. */
static long pidfd_process(int fd)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    if (strcmp(text, "anon_inode:[pidfd]") && strncmp(text, "pidfd:[", 7))
        return 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0)
        return 0;
    n = read(info, text, sizeof text - 1);
    close(info);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *line = strstr(text, "\nPid:");
    return line ? strtol(line + 5, NULL, 10) : 0;
}

/* SO_PEERPIDFD: 0 and *pidfd, or an errno. */
static int peer_pidfd(int socket, int *pidfd)
{
    int fd = -1;
    socklen_t length = sizeof fd;
    if (SHMEMI_FAULT("os.identity.peerpidfd"))
        return ENOPROTOOPT;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length))
        return errno;
    *pidfd = fd;
    return 0;
}

static shmem_status_t offered_pidfd(int socket, int offered, int *pidfd)
{
    shmemi_credentials_t peer;
    shmem_status_t status = shmemi_identity_peer(socket, &peer);
    if (status)
        return status;
    if (offered < 0)
        return shmemi_fail(SHMEM_ERR_UNSUPPORTED, LAYER,
                           "process %d sent no pidfd and this kernel has no SO_PEERPIDFD: its "
                           "death could not be noticed",
                           (int)peer.pid);
    long pid = pidfd_process(offered);
    if (pid <= 0 || pid != (long)peer.pid)
        return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                           "descriptor %d was offered as pidfd of process %d, but it is %s",
                           offered, (int)peer.pid,
                           pid == 0 ? "no pidfd of a process visible here" : "another process's");
    int fd = fcntl(offered, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return shmemi_fail_errno(LAYER, "cannot duplicate the pidfd of process %d", (int)peer.pid);
    *pidfd = fd;
    return SHMEM_OK;
}

shmem_status_t shmemi_identity_pidfd(int socket, int offered, int *pidfd)
{
    int fd = -1;
    int error = peer_pidfd(socket, &fd);
    if (error == ENOPROTOOPT || error == EOPNOTSUPP)
        return offered_pidfd(socket, offered, pidfd);
    if (error == ESRCH || error == ENODATA)
        return shmemi_quiet(SHMEM_ERR_PEER_DEAD, LAYER, "the peer of socket %d has ended", socket);
    if (error) {
        errno = error;
        return shmemi_fail_errno(LAYER, "cannot get a pidfd of socket %d's peer", socket);
    }
    *pidfd = fd;
    return SHMEM_OK;
}

shmem_status_t shmemi_identity_self(int *pidfd)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0); /* born close-on-exec */
    if (fd < 0)
        return shmemi_fail_errno(LAYER, "pidfd_open of the calling process (Linux 5.3 is needed)");
    *pidfd = fd;
    return SHMEM_OK;
}

bool shmemi_identity_is_dead(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int saved = errno, n;
    while ((n = poll(&p, 1, 0)) < 0 && errno == EINTR)
        ;
    errno = saved;
    return n == 1 && (p.revents & POLLIN);
}

/* ---- forks ---- */

static atomic_uint generation;
static pthread_once_t generation_once = PTHREAD_ONCE_INIT;

static void generation_child(void)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void generation_begin(void)
{
    pthread_atfork(NULL, NULL, generation_child);
}

unsigned shmemi_fork_generation(void)
{
    pthread_once(&generation_once, generation_begin);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}
