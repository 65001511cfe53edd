/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses, listening, connecting. Messages are in os/message.c.
 *
 * Invariant: while a path is bound but not yet listening, the file PATH.lock is locked; so whoever
 * holds the lock and is refused by a socket file knows that the file is stale.
 * What it does not do: deciding whom to serve (os/identity.h).
 */
#include "os/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"

#define LAYER "os"

#define PATIENCE_NS 5000000000 /* for the lock, and for a full queue of connections */
#define PAUSE_NS    500000

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum { BACKLOG = 512, LOCK_PATH = sizeof((struct sockaddr_un *)0)->sun_path + sizeof ".lock" };

static void pause_briefly(void)
{
    struct timespec t = {0, PAUSE_NS};
    nanosleep(&t, NULL);
}

static bool has_parent_part(const char *path)
{
    for (const char *p = path; (p = strstr(p, "..")) != NULL; p += 2)
        if ((p == path || p[-1] == '/') && (p[2] == '/' || p[2] == 0))
            return true;
    return false;
}

static shmem_status_t parse_address(const char *address, struct sockaddr_un *name,
                                    socklen_t *length)
{
    size_t n = address ? strlen(address) : 0;
    if (n == 0 || (n == 1 && address[0] == '@'))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "a socket address is a path or @name, not "
                           "empty");
    if (n >= sizeof name->sun_path)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "socket address '%.40s...' has %zu bytes, at "
                           "most %zu are possible",
                           address, n, sizeof name->sun_path - 1);
    if (address[0] != '@' && (has_parent_part(address) || address[n - 1] == '/'))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "socket address '%s' may neither contain '..' "
                           "nor end with '/'",
                           address);
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path, address, n);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
    if (address[0] == '@') {
        name->sun_path[0] = 0;
        *length -= 1; /* abstract names are counted, not terminated */
    }
    return SHMEM_OK;
}

static int new_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Who connects sends no descriptors. Where the kernel cannot see to it the receiver does. */
static void refuse_descriptors(int fd)
{
    int no = 0;
    if (!SHMEMI_FAULT("os.socket.passrights"))
        setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
}

/* ---- connecting ---- */

/* A socket for an address that was checked. */
static shmem_status_t prepare(const char *address, struct sockaddr_un *name, socklen_t *length,
                              int *fd)
{
    shmem_status_t status = parse_address(address, name, length);
    if (status)
        return status;
    *fd = new_socket();
    return *fd < 0 ? shmemi_fail_errno(LAYER, "cannot create a socket") : SHMEM_OK;
}

/* connect() that waits while the listener's queue is full. 0 or errno. */
static int connect_patiently(int fd, const struct sockaddr_un *name, socklen_t length)
{
    shmemi_deadline_t deadline = shmemi_deadline_in(PATIENCE_NS);
    while (connect(fd, (const struct sockaddr *)name, length)) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN || shmemi_deadline_passed(deadline))
            return errno;
        pause_briefly();
    }
    return 0;
}

shmem_status_t shmemi_socket_connect(const char *address, int *out)
{
    struct sockaddr_un name;
    socklen_t length;
    int fd;
    shmem_status_t status = prepare(address, &name, &length, &fd);
    if (status)
        return status;
    int error = connect_patiently(fd, &name, length);
    if (!error) {
        *out = fd;
        return SHMEM_OK;
    }
    close(fd);
    if (error == ECONNREFUSED || error == ENOENT)
        return shmemi_quiet(SHMEM_ERR_NO_SERVER, LAYER, "nobody listens at %s", address);
    if (error == EAGAIN)
        return shmemi_fail(SHMEM_ERR_TIMEOUT, LAYER,
                           "the server at %s has not accepted a "
                           "connection for 5 s: it hangs or is overloaded",
                           address);
    errno = error;
    return shmemi_fail_errno(LAYER, "cannot connect to %s", address);
}

/* ---- listening ---- */

/* The file beside the socket that starters lock. Others cannot open it, so they cannot lock it. */
static void lock_path(const char *address, char *path)
{
    snprintf(path, LOCK_PATH, "%s.lock", address);
}

static shmem_status_t open_lock(const char *path, int *out)
{
    struct stat info;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return shmemi_fail_errno(LAYER, "cannot make %s, to place a socket beside it", path);
    if (fstat(fd, &info) || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        info.st_nlink > 1) {
        close(fd);
        return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                           "%s, which whoever places a socket locks, is another user's or no plain "
                           "file: remove it or choose another address",
                           path);
    }
    *out = fd;
    return SHMEM_OK;
}

/* Is the file still there, or has the holder before removed it? */
static bool is_at(int fd, const char *path)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

static shmem_status_t lock_address(const char *address, int *lock)
{
    char path[LOCK_PATH];
    shmemi_deadline_t deadline = shmemi_deadline_in(PATIENCE_NS);
    lock_path(address, path);
    for (;;) {
        shmem_status_t status = open_lock(path, lock);
        if (status)
            return status;
        bool locked = flock(*lock, LOCK_EX | LOCK_NB) == 0;
        bool again = locked || errno == EWOULDBLOCK || errno == EINTR;
        if (locked && is_at(*lock, path))
            return SHMEM_OK;
        if (!again || shmemi_deadline_passed(deadline))
            status = shmemi_fail_errno(LAYER, "cannot lock %s to place a socket beside it", path);
        close(*lock);
        if (status)
            return status;
        if (!locked)
            pause_briefly();
    }
}

/* Removed while it is locked: whoever waits for it makes another. */
static void unlock_address(const char *address, int lock)
{
    char path[LOCK_PATH];
    lock_path(address, path);
    unlink(path);
    close(lock);
}

/* chmod() of the socket itself: never of what a link leads to that somebody has put there. */
static shmem_status_t set_mode(const char *address, mode_t mode)
{
    char path[48];
    struct stat info;
    int fd = open(address, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return shmemi_fail_errno(LAYER, "cannot find the socket %s again", address);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    shmem_status_t status = SHMEM_OK;
    if (fstat(fd, &info) || !S_ISSOCK(info.st_mode) || info.st_uid != geteuid())
        status = shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                             "somebody has put another file at %s, where a socket was just placed",
                             address);
    else if ((info.st_mode & 07777) != mode && chmod(path, mode))
        status = shmemi_fail_errno(LAYER, "cannot set the mode of socket %s", address);
    close(fd);
    return status;
}

/* Could others replace what lies in the directory? */
static shmem_status_t check_directory(const char *address)
{
    char directory[LOCK_PATH];
    const char *slash = strrchr(address, '/');
    struct stat info;
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - address) : 1,
             slash ? address : ".");
    if (stat(*directory ? directory : "/", &info))
        return shmemi_fail_errno(LAYER, "cannot look at the directory of %s", address);
    if ((info.st_uid == 0 || info.st_uid == geteuid()) &&
        (!(info.st_mode & 022) || info.st_mode & S_ISVTX))
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                       "others than this user could replace a socket at %s: take a directory that "
                       "is root's or this user's, and that only its owner may write (or sticky)",
                       address);
}

shmem_status_t shmemi_socket_open_to_all(const char *address)
{
    if (address[0] == '@')
        return SHMEM_OK;
    shmem_status_t status = check_directory(address);
    return status ? status : set_mode(address, 0666);
}

/* A file is in the way. Removed if it is a dead socket of ours; an error otherwise. */
static shmem_status_t remove_stale(const char *path, const struct sockaddr_un *name,
                                   socklen_t length)
{
    struct stat info;
    if (lstat(path, &info))
        return errno == ENOENT ? SHMEM_OK : shmemi_fail_errno(LAYER, "cannot look at %s", path);
    if (!S_ISSOCK(info.st_mode))
        return shmemi_fail(SHMEM_ERR_EXISTS, LAYER,
                           "%s exists and is not a socket: remove it or "
                           "choose another address",
                           path);
    if (info.st_uid != geteuid() && geteuid() != 0)
        return shmemi_fail(SHMEM_ERR_ACCESS, LAYER, "socket %s belongs to user %u", path,
                           (unsigned)info.st_uid);
    int fd = new_socket();
    if (fd < 0)
        return shmemi_fail_errno(LAYER, "cannot create a socket");
    int refused = connect(fd, (const struct sockaddr *)name, length) && errno == ECONNREFUSED;
    close(fd);
    if (!refused)
        return shmemi_quiet(SHMEM_ERR_EXISTS, LAYER, "a server listens at %s already", path);
    SHMEMI_KILL_POINT("os.socket.stale");
    if (unlink(path) && errno != ENOENT)
        return shmemi_fail_errno(LAYER, "cannot remove the stale socket %s", path);
    return SHMEM_OK;
}

static shmem_status_t bind_failed(const char *address)
{
    if (errno == EADDRINUSE)
        return shmemi_quiet(SHMEM_ERR_EXISTS, LAYER, "a server listens at %s already", address);
    return shmemi_fail_errno(LAYER, "cannot bind a socket to %s", address);
}

static shmem_status_t listen_at_path(const char *address, int fd, const struct sockaddr_un *name,
                                     socklen_t length)
{
    int lock;
    shmem_status_t status = lock_address(address, &lock);
    if (status)
        return status;
    SHMEMI_KILL_POINT("os.socket.locked");
    status = remove_stale(address, name, length);
    if (status)
        goto unlock;
    /* The socket file is born with the mode of the unbound socket: no moment with a wider one. */
    if (fchmod(fd, 0600) || bind(fd, (const struct sockaddr *)name, length)) {
        status = bind_failed(address);
        goto unlock;
    }
    SHMEMI_KILL_POINT("os.socket.bound");
    status = set_mode(address, 0600);
    if (status == SHMEM_OK && (SHMEMI_FAULT("os.socket.listen") || listen(fd, BACKLOG)))
        status = shmemi_fail_errno(LAYER, "cannot listen at %s", address);
    if (status)
        unlink(address);
unlock:
    unlock_address(address, lock);
    return status;
}

static shmem_status_t listen_abstract(const char *address, int fd, const struct sockaddr_un *name,
                                      socklen_t length)
{
    if (bind(fd, (const struct sockaddr *)name, length))
        return bind_failed(address);
    if (listen(fd, BACKLOG))
        return shmemi_fail_errno(LAYER, "cannot listen at %s", address);
    return SHMEM_OK;
}

shmem_status_t shmemi_socket_listen(const char *address, int *out)
{
    struct sockaddr_un name;
    socklen_t length;
    int fd;
    shmem_status_t status = prepare(address, &name, &length, &fd);
    if (status)
        return status;
    refuse_descriptors(fd);
    status = address[0] == '@' ? listen_abstract(address, fd, &name, length)
                               : listen_at_path(address, fd, &name, length);
    if (status) {
        close(fd);
        return status;
    }
    *out = fd;
    return SHMEM_OK;
}

/* Accept and drop what waits at the listener. Is the connection from `self` among it? */
static bool drain(int listener, const struct sockaddr_un *self, socklen_t length)
{
    bool found = false;
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct sockaddr_un peer;
        socklen_t n = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &n) == 0 && n == length &&
            memcmp(&peer, self, n) == 0)
            found = true;
        close(fd);
    }
    return found;
}

/* Does the path lead to this very listener, or to that of a later server? Inode numbers cannot tell
 * (the file is not the socket), so we connect under a name of our own and see whether it arrives.
 */
static bool path_is_ours(const struct sockaddr_un *name, socklen_t length, int listener)
{
    struct sockaddr_un self = {.sun_family = AF_UNIX};
    socklen_t n = sizeof self;
    bool ours = false;
    int fd = new_socket();
    if (fd < 0)
        return false;
    if (bind(fd, (const struct sockaddr *)&self, sizeof self.sun_family) == 0 &&
        getsockname(fd, (struct sockaddr *)&self, &n) == 0) {
        drain(listener, &self, 0); /* a full queue would refuse us */
        ours = connect(fd, (const struct sockaddr *)name, length) == 0 && drain(listener, &self, n);
    }
    close(fd);
    return ours;
}

void shmemi_socket_unlisten(const char *address, int socket)
{
    struct sockaddr_un name;
    socklen_t length;
    int lock = -1;
    if (socket < 0)
        return;
    if (address && address[0] != '@' && parse_address(address, &name, &length) == SHMEM_OK &&
        lock_address(address, &lock) == SHMEM_OK) {
        if (path_is_ours(&name, length, socket))
            unlink(address);
        unlock_address(address, lock);
    }
    close(socket);
}

shmem_status_t shmemi_socket_accept(int listener, int *out)
{
    int fd;
    do
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return shmemi_quiet(SHMEM_ERR_BUSY, LAYER, "no connection waits");
    if (fd < 0)
        return shmemi_fail_errno(LAYER, "cannot accept a connection");
    *out = fd;
    return SHMEM_OK;
}
