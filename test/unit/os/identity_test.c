/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials, pidfds, death, forks. */
#include "os/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "helpers.h"
#include "os/socket.h"

static const char *address(void)
{
    static char text[64];
    snprintf(text, sizeof text, "@shmem-identity-test-%d", (int)getpid());
    return text;
}

/* A child connects, sends a pidfd (its own or the one given) and waits for the end of the stream.
 */
typedef struct visitor {
    const char *address;
    int pidfd; /* -1: its own; -2: none */
} visitor_t;

static void visit(void *arg)
{
    const visitor_t *v = arg;
    int s, fd = v->pidfd, nfds;
    size_t got;
    char c = 'x';
    CHECK_OK(shmemi_socket_connect(v->address, &s));
    if (fd == -1)
        CHECK_OK(shmemi_identity_self(&fd));
    CHECK_OK(shmemi_socket_send(s, &c, 1, &fd, fd >= 0, shmemi_deadline_in(2000000000)));
    shmemi_socket_receive(s, &c, 1, &got, NULL, &nfds, shmemi_deadline_in(10000000000));
}

/* Starts a visitor; returns its pid, the accepted socket and what it sent. */
static pid_t receive_visitor(int pidfd, int *socket, int *offered)
{
    int listener, fds[SHMEMI_SOCKET_FDS], nfds;
    size_t got;
    char c;
    CHECK_OK(shmemi_socket_listen(address(), &listener));
    visitor_t v = {address(), pidfd};
    pid_t pid = harness_fork(visit, &v);
    while (shmemi_socket_accept(listener, socket) == SHMEM_ERR_BUSY)
        harness_sleep(0.0005);
    CHECK_OK(
        shmemi_socket_receive(*socket, &c, 1, &got, fds, &nfds, shmemi_deadline_in(5000000000)));
    *offered = fds[0];
    shmemi_socket_unlisten(address(), listener);
    return pid;
}

/* The pidfd leads to the visitor: it is alive, and dead once killed, even unreaped. */
static void check_follows(pid_t pid, int socket, int offered)
{
    int pidfd;
    CHECK_OK(shmemi_identity_pidfd(socket, offered, &pidfd));
    CHECK(pidfd != offered);
    CHECK(fcntl(pidfd, F_GETFD) & FD_CLOEXEC);
    CHECK(!shmemi_identity_is_dead(pidfd));
    kill(pid, SIGKILL);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    CHECK(shmemi_identity_is_dead(pidfd)); /* a zombie is dead */
    CHECK_EQ(harness_wait(pid, 5), -SIGKILL);
    CHECK(shmemi_identity_is_dead(pidfd));
    close(pidfd);
}

static void credentials_of_the_peer(void)
{
    int socket, offered;
    pid_t pid = receive_visitor(-1, &socket, &offered);
    shmemi_credentials_t c;
    CHECK_OK(shmemi_identity_peer(socket, &c));
    CHECK_EQ(c.pid, pid);
    CHECK_EQ(c.uid, geteuid());
    CHECK_EQ(c.gid, getegid());
    check_follows(pid, socket, offered);
    close(offered);
    close(socket);
}

static void falls_back_to_the_offered(void)
{
    int socket, offered;
    pid_t pid = receive_visitor(-1, &socket, &offered);
    shmemi_fault_arm("os.identity.peerpidfd", SHMEMI_FAULT_FAIL, 1);
    check_follows(pid, socket, offered);
    CHECK_EQ(shmemi_fault_passages(), 1);
    shmemi_fault_disarm();
    close(offered);
    close(socket);
}

/* What a liar may send in place of its pidfd, where the kernel does not name the peer. */
static void refuses(int pidfd, shmem_status_t expected)
{
    int socket, offered, result = -77, before = count_fds();
    pid_t pid = receive_visitor(pidfd, &socket, &offered);
    shmemi_fault_arm("os.identity.peerpidfd", SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmemi_identity_pidfd(socket, offered, &result), expected);
    CHECK_EQ(shmemi_fault_passages(), 1);
    shmemi_fault_disarm();
    CHECK_EQ(result, -77);
    if (offered >= 0)
        close(offered);
    close(socket);
    CHECK_EQ(harness_wait(pid, 5), 0);
    CHECK_EQ(count_fds(), before);
}

static void refuses_forgeries(void)
{
    int ours, file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK_OK(shmemi_identity_self(&ours));
    refuses(ours, SHMEM_ERR_ACCESS); /* a pidfd, but of another process (the receiver) */
    check_detail("another process's");
    refuses(file, SHMEM_ERR_ACCESS); /* a file whose text has a line "Pid:" */
    check_detail("no pidfd");
    refuses(-2, SHMEM_ERR_UNSUPPORTED); /* nothing */
    close(ours);
    close(file);
}

static void sleep_long(void *arg)
{
    (void)arg;
    harness_sleep(30);
}

static void refuses_a_reaped_process(void)
{
    pid_t pid = harness_fork(sleep_long, NULL);
    int dead = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(dead >= 0);
    kill(pid, SIGKILL);
    harness_wait(pid, 5);
    CHECK(shmemi_identity_is_dead(dead));
    refuses(dead, SHMEM_ERR_ACCESS);
    close(dead);
}

static void self_is_alive(void)
{
    int self;
    CHECK_OK(shmemi_identity_self(&self));
    CHECK(fcntl(self, F_GETFD) & FD_CLOEXEC);
    CHECK(!shmemi_identity_is_dead(self));
    close(self);
}

static void no_socket_fails(void)
{
    shmemi_credentials_t c = {1, 2, 3};
    int pidfd = -77;
    CHECK_STATUS(shmemi_identity_peer(-1, &c), SHMEM_ERR_SYSTEM);
    CHECK_STATUS(shmemi_identity_pidfd(-1, -1, &pidfd), SHMEM_ERR_SYSTEM);
    CHECK(c.pid == 1 && pidfd == -77);
}

static void generation_of_child(void *arg)
{
    unsigned parent = *(unsigned *)arg;
    CHECK_EQ(shmemi_fork_generation(), parent + 1);
    CHECK_EQ(shmemi_fork_generation(), parent + 1);
}

static void forks_are_counted(void)
{
    unsigned before = shmemi_fork_generation();
    CHECK_EQ(harness_wait(harness_fork(generation_of_child, &before), 5), 0);
    CHECK_EQ(shmemi_fork_generation(), before);
}

int main(void)
{
    RUN(credentials_of_the_peer);
    RUN(falls_back_to_the_offered);
    RUN(refuses_forgeries);
    RUN(refuses_a_reaped_process);
    RUN(self_is_alive);
    RUN(no_socket_fails);
    RUN(forks_are_counted);
    return harness_end();
}
