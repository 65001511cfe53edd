/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials, pidfds, death, forks. */
#include "os/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
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

/* A child connects, sends a message when told so and waits for the end of the stream. */
typedef struct visitor {
    const char *address;
    _Atomic int speaks; /* 1: itself; 2: its child does */
    _Atomic int spoke;
} visitor_t;

static void speak(void *arg)
{
    CHECK_OK(shmemi_socket_send(*(int *)arg, "x", 1, NULL, 0, shmemi_deadline_in(2000000000)));
}

static void visit(void *arg)
{
    visitor_t *v = arg;
    int s, nfds;
    size_t got;
    char c;
    CHECK_OK(shmemi_socket_connect(v->address, &s));
    while (!atomic_load(&v->speaks))
        harness_sleep(0.0005);
    if (atomic_load(&v->speaks) == 1)
        speak(&s);
    else
        CHECK_EQ(harness_wait(harness_fork(speak, &s), 10), 0);
    atomic_store(&v->spoke, 1);
    shmemi_socket_receive(s, &c, 1, &got, NULL, &nfds, shmemi_deadline_in(10000000000));
}

static visitor_t *visitor;

/* Starts a visitor; returns its pid and the accepted socket. */
static pid_t receive_visitor(int *socket)
{
    int listener;
    CHECK_OK(shmemi_socket_listen(address(), &listener));
    visitor = harness_shared(sizeof *visitor);
    visitor->address = address();
    pid_t pid = harness_fork(visit, visitor);
    while (shmemi_socket_accept(listener, socket) == SHMEM_ERR_BUSY)
        harness_sleep(0.0005);
    shmemi_socket_unlisten(address(), listener);
    return pid;
}

/* Who sent the message that the visitor or its child sends? */
static pid_t sender_of(int socket, int speaks)
{
    size_t got;
    char c;
    pid_t sender = -77;
    atomic_store(&visitor->speaks, speaks);
    CHECK_OK(shmemi_socket_receive_signed(socket, &c, 1, &got, &sender,
                                          shmemi_deadline_in(10000000000)));
    CHECK_EQ(got, 1);
    return sender;
}

/* The pidfd leads to the visitor: it is alive, and dead once killed, even unreaped. */
static void check_follows(pid_t pid, int pidfd)
{
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
    int socket, pidfd;
    pid_t pid = receive_visitor(&socket);
    shmemi_credentials_t c;
    CHECK_OK(shmemi_identity_peer(socket, &c));
    CHECK_EQ(c.pid, pid);
    CHECK_EQ(c.uid, geteuid());
    CHECK_EQ(c.gid, getegid());
    shmem_status_t status = shmemi_identity_pidfd(socket, &pidfd);
    if (status == SHMEM_ERR_UNSUPPORTED)
        CHECK_OK(shmemi_identity_claim(socket, &pidfd));
    else
        CHECK_OK(status);
    check_follows(pid, pidfd);
    close(socket);
}

/* ---- user namespaces ---- */

typedef struct strangers {
    _Atomic int separate, mapped, listens, connected[2], end;
} strangers_t;

static shmem_status_t accept_one(int listener, shmemi_credentials_t *c, int *socket)
{
    while (shmemi_socket_accept(listener, socket) == SHMEM_ERR_BUSY)
        harness_sleep(0.0005);
    return shmemi_identity_peer(*socket, c);
}

static void serve_in_a_namespace(void *arg)
{
    strangers_t *s = arg;
    shmemi_credentials_t c;
    int listener, own, socket;
    if (unshare(CLONE_NEWUSER))
        exit(77);
    CHECK_OK(shmemi_socket_listen("@shmem-identity-test-userns", &listener));
    CHECK_OK(shmemi_socket_connect("@shmem-identity-test-userns", &own));
    CHECK_STATUS(accept_one(listener, &c, &socket), SHMEM_ERR_ACCESS); /* nobody is mapped yet */
    atomic_store(&s->separate, 1);
    while (!atomic_load(&s->mapped))
        harness_sleep(0.0005);
    CHECK(setgid(0) == 0 && setuid(0) == 0);
    CHECK_OK(shmemi_socket_connect("@shmem-identity-test-userns", &own));
    CHECK_OK(accept_one(listener, &c, &socket));
    CHECK(c.uid == 0 && c.gid == 0);
    atomic_store(&s->listens, 1); /* a user without a number */
    CHECK_STATUS(accept_one(listener, &c, &socket), SHMEM_ERR_ACCESS);
    check_detail("user namespace");
    atomic_store(&s->listens, 2); /* one with a number, in a group without one */
    CHECK_OK(accept_one(listener, &c, &socket));
    CHECK_EQ(c.uid, 5);
    CHECK_EQ(c.gid, SHMEMI_NO_GROUP);
    CHECK(!shmemi_identity_in_group(socket, SHMEMI_NO_GROUP));
    CHECK(!shmemi_identity_in_group(socket, 65534));
    atomic_store(&s->end, 1);
}

static void write_map(pid_t pid, const char *what)
{
    static const char map[] = "0 100000 65000";
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s_map", (int)pid, what);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(write(fd, map, sizeof map - 1) == (ssize_t)sizeof map - 1);
    close(fd);
}

static void connect_as(strangers_t *s, uid_t user, int when)
{
    int socket;
    while (atomic_load(&s->listens) < when)
        harness_sleep(0.0005);
    CHECK(setgid(4711) == 0 && setuid(user) == 0);
    CHECK_OK(shmemi_socket_connect("@shmem-identity-test-userns", &socket));
    while (!atomic_load(&s->end))
        harness_sleep(0.0005);
}

static void unmapped(void *s)
{
    connect_as(s, 4711, 1);
}

static void mapped(void *s)
{
    connect_as(s, 100005, 2);
}

static void those_without_a_number_are_nobody(void)
{
    if (geteuid() != 0)
        SKIP("wants root, to map users");
    strangers_t *s = harness_shared(sizeof *s);
    pid_t pids[3] = {harness_fork(serve_in_a_namespace, s)};
    while (!atomic_load(&s->separate)) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pids[0], &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
            CHECK_EQ(harness_wait(pids[0], 5), 77);
            SKIP("user namespaces are not allowed here");
        }
        harness_sleep(0.0005);
    }
    write_map(pids[0], "uid");
    write_map(pids[0], "gid");
    atomic_store(&s->mapped, 1);
    pids[1] = harness_fork(unmapped, s);
    pids[2] = harness_fork(mapped, s);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(harness_wait(pids[i], 20), 0);
}

static void old_kernel_is_told(void)
{
    int socket, pidfd = -77;
    pid_t pid = receive_visitor(&socket);
    shmemi_fault_arm("os.identity.peerpidfd", SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmemi_identity_pidfd(socket, &pidfd), SHMEM_ERR_UNSUPPORTED);
    CHECK_EQ(shmemi_fault_passages(), 1);
    shmemi_fault_disarm();
    CHECK_EQ(pidfd, -77);
    CHECK_OK(shmemi_identity_claim(socket, &pidfd));
    pid_t sender = sender_of(socket, 1);
    CHECK_EQ(sender, pid);
    CHECK_OK(shmemi_identity_prove(socket, sender, pidfd));
    check_follows(pid, pidfd);
    close(socket);
}

static void a_childs_message_proves_nothing(void)
{
    int socket, pidfd, before = count_fds();
    pid_t pid = receive_visitor(&socket);
    CHECK_OK(shmemi_identity_claim(socket, &pidfd));
    pid_t sender = sender_of(socket, 2);
    CHECK(sender > 0 && sender != pid);
    CHECK_STATUS(shmemi_identity_prove(socket, sender, pidfd), SHMEM_ERR_ACCESS);
    check_detail("says hello");
    close(pidfd);
    close(socket);
    CHECK_EQ(harness_wait(pid, 5), 0);
    CHECK_EQ(count_fds(), before);
}

static void an_older_message_proves_nothing(void)
{
    int socket, pidfd = -77;
    pid_t pid = receive_visitor(&socket);
    atomic_store(&visitor->speaks, 1);
    while (!atomic_load(&visitor->spoke))
        harness_sleep(0.0005);
    CHECK_STATUS(shmemi_identity_claim(socket, &pidfd), SHMEM_ERR_PROTOCOL);
    CHECK_EQ(pidfd, -77);
    close(socket);
    CHECK_EQ(harness_wait(pid, 5), 0);
}

static void the_dead_prove_nothing(void)
{
    int socket, pidfd = -77;
    pid_t pid = receive_visitor(&socket);
    CHECK_OK(shmemi_identity_claim(socket, &pidfd));
    pid_t sender = sender_of(socket, 1);
    kill(pid, SIGKILL);
    CHECK_EQ(harness_wait(pid, 5), -SIGKILL);
    CHECK_STATUS(shmemi_identity_prove(socket, sender, pidfd), SHMEM_ERR_ACCESS);
    close(pidfd);
    pidfd = -77;
    CHECK_STATUS(shmemi_identity_claim(socket, &pidfd), SHMEM_ERR_PEER_DEAD);
    CHECK_EQ(pidfd, -77);
    close(socket);
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
    CHECK_STATUS(shmemi_identity_pidfd(-1, &pidfd), SHMEM_ERR_SYSTEM);
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
    RUN(those_without_a_number_are_nobody);
    RUN(old_kernel_is_told);
    RUN(a_childs_message_proves_nothing);
    RUN(an_older_message_proves_nothing);
    RUN(the_dead_prove_nothing);
    RUN(self_is_alive);
    RUN(no_socket_fails);
    RUN(forks_are_counted);
    return harness_end();
}
