/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel credentials and pidfds of peers.
 *
 * Where the kernel gives no pidfd of a peer (before Linux 6.5) one is opened by number, and is the
 * peer's if a message that the kernel signs with that number was sent after that, and the pidfd
 * says afterwards that its process has not ended: the number was that process's all the time.
 * What it does not do: watching; see node/.
 */
#include "os/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- users and groups ---- */

static bool read_file(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, bytes - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* What the kernel shows for users or groups that have no number in our user namespace. */
static unsigned overflow_number(const char *what)
{
    char path[64], text[32];
    snprintf(path, sizeof path, "/proc/sys/kernel/overflow%s", what);
    return read_file(path, text, sizeof text) ? (unsigned)strtoul(text, NULL, 10) : 65534;
}

/* Does everybody have a number of his own here? */
static bool all_have_numbers(const char *what)
{
    char path[64], text[64];
    unsigned first, parent, count;
    snprintf(path, sizeof path, "/proc/self/%s_map", what);
    return read_file(path, text, sizeof text) &&
           sscanf(text, "%u %u %u", &first, &parent, &count) == 3 && first == 0 &&
           count == UINT32_MAX;
}

static unsigned overflow_uid, overflow_gid;
static pthread_once_t overflow_once = PTHREAD_ONCE_INIT;

static void overflow_begin(void)
{
    overflow_uid = overflow_number("uid");
    overflow_gid = overflow_number("gid");
}

/* May the number stand for any of several users, or groups? */
static bool is_anybody(const char *what, unsigned number)
{
    pthread_once(&overflow_once, overflow_begin);
    return number == (*what == 'u' ? overflow_uid : overflow_gid) && !all_have_numbers(what);
}

shmem_status_t shmemi_identity_peer(int socket, shmemi_credentials_t *credentials)
{
    struct ucred found;
    socklen_t length = sizeof found;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &length) || length != sizeof found)
        return shmemi_fail_errno(LAYER, "cannot ask for the credentials of socket %d's peer",
                                 socket);
    if (is_anybody("uid", found.uid))
        return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                           "the user of process %d has no number in this user namespace: he could "
                           "be anybody",
                           (int)found.pid);
    if (is_anybody("gid", found.gid))
        found.gid = SHMEMI_NO_GROUP;
    *credentials = (shmemi_credentials_t){found.pid, found.uid, found.gid};
    return SHMEM_OK;
}

bool shmemi_identity_in_group(int socket, gid_t group)
{
    gid_t some[64], *groups = some;
    socklen_t length = sizeof some;
    bool found = false;
    if (group == SHMEMI_NO_GROUP || is_anybody("gid", group))
        return false;
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

shmem_status_t shmemi_identity_pidfd(int socket, int *pidfd)
{
    int fd = -1;
    int error = peer_pidfd(socket, &fd);
    if (error == ENOPROTOOPT || error == EOPNOTSUPP)
        return shmemi_quiet(SHMEM_ERR_UNSUPPORTED, LAYER, "this kernel has no SO_PEERPIDFD");
    if (error == ESRCH || error == ENODATA)
        return shmemi_quiet(SHMEM_ERR_PEER_DEAD, LAYER, "the peer of socket %d has ended", socket);
    if (error) {
        errno = error;
        return shmemi_fail_errno(LAYER, "cannot get a pidfd of socket %d's peer", socket);
    }
    *pidfd = fd;
    return SHMEM_OK;
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int saved = errno, n;
    while ((n = poll(&p, 1, 0)) < 0 && errno == EINTR)
        ;
    errno = saved;
    return n == 1 && (p.revents & POLLIN);
}

static shmem_status_t sign(int socket, int yes)
{
    if (setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes))
        return shmemi_fail_errno(LAYER, "cannot ask who sends what comes from socket %d", socket);
    return SHMEM_OK;
}

shmem_status_t shmemi_identity_claim(int socket, int *pidfd)
{
    shmemi_credentials_t peer;
    shmem_status_t status = shmemi_identity_peer(socket, &peer);
    if (status)
        return status;
    if (peer.pid <= 0)
        return shmemi_fail(SHMEM_ERR_UNSUPPORTED, LAYER,
                           "the peer of socket %d is in another PID namespace and this kernel has "
                           "no SO_PEERPIDFD: its death could not be noticed",
                           socket);
    int fd = (int)syscall(SYS_pidfd_open, peer.pid, 0); /* born close-on-exec */
    if (fd < 0 && errno == ESRCH)
        return shmemi_quiet(SHMEM_ERR_PEER_DEAD, LAYER, "the peer of socket %d has ended", socket);
    if (fd < 0)
        return shmemi_fail_errno(LAYER, "pidfd_open of process %d", (int)peer.pid);
    status = sign(socket, 1);
    if (status == SHMEM_OK && is_readable(socket)) /* sent when the pidfd was not there yet */
        status = shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER,
                              "process %d spoke, or left, before it was asked to prove itself",
                              (int)peer.pid);
    if (status)
        close(fd);
    else
        *pidfd = fd;
    return status;
}

shmem_status_t shmemi_identity_prove(int socket, pid_t sender, int pidfd)
{
    shmemi_credentials_t peer;
    shmem_status_t status = sign(socket, 0);
    if (status == SHMEM_OK)
        status = shmemi_identity_peer(socket, &peer);
    if (status)
        return status;
    if (sender == peer.pid && !shmemi_identity_is_dead(pidfd))
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                       "process %d connected, process %d says hello: a connection belongs to the "
                       "process that made it",
                       (int)peer.pid, (int)sender);
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
    return is_readable(pidfd);
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
