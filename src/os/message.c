/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages with descriptors on a connected sequenced-packet socket.
 *
 * Invariant: descriptors that arrive are either handed to the caller or closed, whatever else is
 * wrong with the message. Where none is wanted none is ever taken: the kernel drops them, and
 * nobody's file has a say in how long that takes (closing a descriptor waits for its file system).
 * An empty message and the end of the stream look the same to the kernel's interface; nobody may
 * send an empty one.
 */
#include "os/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"

#define LAYER "os"

typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(SHMEMI_SOCKET_FDS * sizeof(int))];
} control_t;

/* Room for one set of credentials and nothing behind it. */
typedef union signature {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(struct ucred))];
} signature_t;

/* Wait for `events`. TIMEOUT when the deadline passes first; SHMEM_OK also on errors and hang-up,
 * which the next call reports. */
static shmem_status_t wait_for(int socket, short events, shmemi_deadline_t deadline)
{
    for (;;) {
        struct timespec left, *limit = NULL;
        if (deadline != SHMEMI_FOREVER) {
            int64_t ns = deadline - shmemi_clock_now();
            if (ns <= 0)
                return shmemi_quiet(SHMEM_ERR_TIMEOUT, LAYER,
                                    "the other side of socket %d did not "
                                    "%s in time",
                                    socket, events & POLLIN ? "send" : "read");
            left = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
            limit = &left;
        }
        struct pollfd p = {.fd = socket, .events = events};
        int n = ppoll(&p, 1, limit, NULL);
        if (n > 0)
            return SHMEM_OK;
        if (n < 0 && errno != EINTR)
            return shmemi_fail_errno(LAYER, "cannot wait for socket %d", socket);
    }
}

static bool peer_is_gone(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

static shmem_status_t peer_gone(int socket)
{
    return shmemi_quiet(SHMEM_ERR_SERVER_LOST, LAYER, "the other side closed socket %d", socket);
}

static shmem_status_t send_failed(int socket, size_t bytes)
{
    if (peer_is_gone(errno))
        return peer_gone(socket);
    if (errno == EMSGSIZE)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "a message of %zu bytes does not fit into the "
                           "buffer of socket %d",
                           bytes, socket);
    if (errno == ETOOMANYREFS)
        return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                           "too many descriptors are in flight (limit: "
                           "ulimit -n): the other side does not read");
    if (errno == ENOBUFS)
        errno = ENOMEM;
    return shmemi_fail_errno(LAYER, "cannot send %zu bytes", bytes);
}

shmem_status_t shmemi_socket_send(int socket, const void *message, size_t bytes, const int *fds,
                                  int nfds, shmemi_deadline_t deadline)
{
    if (bytes == 0 || nfds < 0 || nfds > SHMEMI_SOCKET_FDS || (nfds && !fds))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "a message has at least one byte and at most "
                           "%d descriptors, not %zu and %d",
                           SHMEMI_SOCKET_FDS, bytes, nfds);
    if (SHMEMI_FAULT("os.socket.send"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "injected at os.socket.send");
    control_t control;
    struct iovec part = {(void *)(uintptr_t)message, bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (nfds) {
        memset(&control, 0, sizeof control);
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
    }
    for (;;) {
        bool crowded = nfds && SHMEMI_FAULT("os.socket.send.crowded");
        if (!crowded && sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return SHMEM_OK;
        if (crowded)
            errno = ETOOMANYREFS;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return send_failed(socket, bytes);
        shmem_status_t status = wait_for(socket, POLLOUT, deadline);
        if (status)
            return status;
    }
}

static void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

/* Collects the descriptors of a received message; returns their number. Anything that the control
 * buffer can hold fits into fds. */
static int take_fds(struct msghdr *header, int *fds)
{
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (n < SHMEMI_SOCKET_FDS)
                fds[n++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

/* A message came: hand it over, or close what it brought. */
static shmem_status_t check_message(int socket, const struct msghdr *header, size_t bytes,
                                    const int *came, int n, const int *fds)
{
    if (header->msg_flags & MSG_TRUNC) {
        close_all(came, n);
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER,
                           "socket %d brought a message longer than the "
                           "%zu bytes that it may have",
                           socket, bytes);
    }
    if (header->msg_flags & MSG_CTRUNC && !fds)
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER,
                           "socket %d brought descriptors where none belong", socket);
    if (header->msg_flags & MSG_CTRUNC) {
        close_all(came, n);
        if (n < SHMEMI_SOCKET_FDS)
            return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                               "a message's descriptors could not be taken: "
                               "this process has reached its limit (ulimit -n)");
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER, "socket %d brought more than %d descriptors",
                           socket, SHMEMI_SOCKET_FDS);
    }
    return SHMEM_OK;
}

/* recvmsg() until something comes. *length: bytes, 0 at the end of the stream. */
static shmem_status_t receive_raw(int socket, struct msghdr *header, size_t *length,
                                  shmemi_deadline_t deadline)
{
    size_t space = header->msg_controllen;
    for (;;) {
        header->msg_controllen = space;
        ssize_t n = recvmsg(socket, header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n >= 0) {
            *length = (size_t)n;
            return SHMEM_OK;
        }
        if (errno == EINTR)
            continue;
        if (peer_is_gone(errno))
            return peer_gone(socket);
        if (errno != EAGAIN)
            return shmemi_fail_errno(LAYER, "cannot receive from socket %d", socket);
        shmem_status_t status = wait_for(socket, POLLIN, deadline);
        if (status)
            return status;
    }
}

shmem_status_t shmemi_socket_receive(int socket, void *message, size_t bytes, size_t *got, int *fds,
                                     int *nfds, shmemi_deadline_t deadline)
{
    control_t control;
    struct iovec part = {message, bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds) {
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
    }
    size_t length = 0;
    shmem_status_t status = receive_raw(socket, &header, &length, deadline);
    if (status)
        return status;
    int came[SHMEMI_SOCKET_FDS], n = take_fds(&header, came);
    status = check_message(socket, &header, bytes, came, n, fds);
    if (status)
        return status;
    if (length == 0) {
        close_all(came, n);
        return peer_gone(socket);
    }
    *got = length;
    for (int i = 0; fds && i < SHMEMI_SOCKET_FDS; i++)
        fds[i] = i < n ? came[i] : -1;
    if (nfds)
        *nfds = n;
    return SHMEM_OK;
}

shmem_status_t shmemi_socket_receive_signed(int socket, void *message, size_t bytes, size_t *got,
                                            pid_t *sender, shmemi_deadline_t deadline)
{
    signature_t control;
    struct iovec part = {message, bytes};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    struct ucred who = {0};
    size_t length = 0;
    shmem_status_t status = receive_raw(socket, &header, &length, deadline);
    if (status == SHMEM_OK)
        status = check_message(socket, &header, bytes, NULL, 0, NULL);
    if (status)
        return status;
    if (length == 0)
        return peer_gone(socket);
    struct cmsghdr *c = CMSG_FIRSTHDR(&header);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
        c->cmsg_len == CMSG_LEN(sizeof who))
        memcpy(&who, CMSG_DATA(c), sizeof who);
    *got = length;
    *sender = who.pid;
    return SHMEM_OK;
}
