/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: descriptors, truncation, deadlines, peers that go away. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fault.h"
#include "helpers.h"
#include "os/socket.h"

static int a, b; /* the two ends */

static void open_pair(void)
{
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s) == 0);
    a = s[0];
    b = s[1];
}

static void close_pair(void)
{
    close(a);
    close(b);
}

static shmemi_deadline_t soon(void)
{
    return shmemi_deadline_in(2000000000);
}

static void carries_data_and_descriptors(void)
{
    open_pair();
    int before = count_fds(), fds[SHMEMI_SOCKET_FDS], got_fds[SHMEMI_SOCKET_FDS], n;
    char text[16];
    size_t got;
    for (int i = 0; i < SHMEMI_SOCKET_FDS; i++)
        fds[i] = memfd_create("test", MFD_CLOEXEC);
    CHECK(write(fds[2], "two", 3) == 3);
    for (int count = 0; count <= SHMEMI_SOCKET_FDS; count++) {
        CHECK_OK(shmemi_socket_send(a, "hello", 6, fds, count, soon()));
        CHECK_OK(shmemi_socket_receive(b, text, sizeof text, &got, got_fds, &n, soon()));
        CHECK_EQ(got, 6);
        CHECK_STR(text, "hello");
        CHECK_EQ(n, count);
        for (int i = 0; i < SHMEMI_SOCKET_FDS; i++) {
            CHECK((got_fds[i] >= 0) == (i < count));
            CHECK(i >= count || (fcntl(got_fds[i], F_GETFD) & FD_CLOEXEC));
        }
        CHECK(count < 3 || (pread(got_fds[2], text, 3, 0) == 3 && !memcmp(text, "two", 3)));
        for (int i = 0; i < n; i++)
            close(got_fds[i]);
    }
    for (int i = 0; i < SHMEMI_SOCKET_FDS; i++)
        close(fds[i]);
    CHECK_EQ(count_fds(), before);
    close_pair();
}

static void refuses_what_cannot_be_sent(void)
{
    open_pair();
    static char huge[8 << 20];
    int fd = 0;
    CHECK_STATUS(shmemi_socket_send(a, huge, 0, NULL, 0, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_socket_send(a, huge, 1, &fd, -1, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_socket_send(a, huge, 1, &fd, SHMEMI_SOCKET_FDS + 1, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_socket_send(a, huge, 1, NULL, 1, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_socket_send(a, huge, sizeof huge, NULL, 0, 0), SHMEM_ERR_INVALID);
    check_detail("does not fit");
    close_pair();
}

/* Sends a message with the bare system call, so as to break the rules. */
static void send_raw(const char *text, size_t bytes, const int *fds, int n)
{
    char control[CMSG_SPACE(64 * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)text, bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (n) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
    }
    CHECK(sendmsg(a, &header, MSG_NOSIGNAL) == (ssize_t)bytes);
}

/* Receives a message that must be refused with this code: nothing stays open, nothing is output. */
static void receive_refused(size_t room, bool want_fds, shmem_status_t expected)
{
    char text[64];
    size_t got = 4711;
    int before = count_fds(), fds[SHMEMI_SOCKET_FDS] = {-5, -5, -5, -5}, n = 4711;
    CHECK_STATUS(shmemi_socket_receive(b, text, room, &got, want_fds ? fds : NULL, &n, soon()),
                 expected);
    CHECK(got == 4711 && n == 4711 && fds[0] == -5 && fds[3] == -5);
    CHECK_EQ(count_fds(), before);
}

static void refuses_what_breaks_the_rules(void)
{
    open_pair();
    int fds[64];
    for (int i = 0; i < 64; i++)
        fds[i] = 2;
    send_raw("0123456789", 10, fds, 2);
    receive_refused(9, true, SHMEM_ERR_PROTOCOL); /* longer than allowed: its descriptors go too */
    send_raw("x", 1, fds, SHMEMI_SOCKET_FDS + 1);
    receive_refused(9, true, SHMEM_ERR_PROTOCOL);
    send_raw("x", 1, fds, 64);
    receive_refused(9, true, SHMEM_ERR_PROTOCOL);
    send_raw("x", 1, fds, 1);
    receive_refused(9, false, SHMEM_ERR_PROTOCOL); /* none belong here */
    send_raw("x", 1, fds, 64);
    receive_refused(9, false, SHMEM_ERR_PROTOCOL);
    send_raw("", 0, fds, 2);
    receive_refused(9, true, SHMEM_ERR_SERVER_LOST); /* empty: the same as the end */
    send_raw("fine", 4, NULL, 0);
    char text[9];
    size_t got;
    CHECK_OK(shmemi_socket_receive(b, text, sizeof text, &got, NULL, NULL, soon()));
    CHECK_EQ(got, 4);
    close_pair();
}

static void own_descriptor_limit(void *arg)
{
    struct rlimit limit = {16, 16};
    int fds[2] = {2, 2};
    (void)arg;
    open_pair();
    send_raw("x", 1, fds, 2);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int held[16], n = 0;
    for (int fd; (fd = dup(2)) >= 0;)
        held[n++] = fd;
    char text[8];
    size_t got;
    int in[SHMEMI_SOCKET_FDS], nfds;
    CHECK_STATUS(shmemi_socket_receive(b, text, sizeof text, &got, in, &nfds, soon()),
                 SHMEM_ERR_LIMIT);
    check_detail("ulimit -n");
    close(held[0]);
}

static void names_the_descriptor_limit(void)
{
    CHECK_EQ(harness_wait(harness_fork(own_descriptor_limit, NULL), 5), 0);
}

static void end_of_stream(void)
{
    open_pair();
    char text[8];
    size_t got;
    int n;
    CHECK_OK(shmemi_socket_send(a, "last", 4, NULL, 0, soon()));
    close(a);
    CHECK_OK(shmemi_socket_receive(b, text, sizeof text, &got, NULL, &n, soon()));
    CHECK_STATUS(shmemi_socket_receive(b, text, sizeof text, &got, NULL, &n, soon()),
                 SHMEM_ERR_SERVER_LOST);
    /* SIGPIPE's default would end us here */
    CHECK_STATUS(shmemi_socket_send(b, "x", 1, NULL, 0, soon()), SHMEM_ERR_SERVER_LOST);
    close(b);
}

static void on_alarm(int number)
{
    (void)number;
}

static void deadlines(void)
{
    open_pair();
    char text[8], block[4096] = {0};
    size_t got;
    int n;
    CHECK_STATUS(shmemi_socket_receive(b, text, sizeof text, &got, NULL, &n, 0), SHMEM_ERR_TIMEOUT);
    struct sigaction action = {.sa_handler = on_alarm}, old; /* signals do not shorten the wait */
    struct itimerval timer = {{0, 3000}, {0, 3000}}, off = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, &old);
    setitimer(ITIMER_REAL, &timer, NULL);
    int64_t begin = shmemi_clock_now();
    CHECK_STATUS(
        shmemi_socket_receive(b, text, sizeof text, &got, NULL, &n, shmemi_deadline_in(50000000)),
        SHMEM_ERR_TIMEOUT);
    CHECK(shmemi_clock_now() - begin >= 50000000);
    shmem_status_t status = SHMEM_OK; /* a reader that does not read */
    for (int i = 0; i < 100000 && !status; i++)
        status = shmemi_socket_send(a, block, sizeof block, NULL, 0, shmemi_deadline_in(20000000));
    CHECK_EQ(status, SHMEM_ERR_TIMEOUT);
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &old, NULL);
    close_pair();
}

static void sends_late(int rank, int count, void *arg)
{
    char text[8];
    size_t got;
    int n;
    (void)count, (void)arg;
    if (rank) {
        harness_sleep(0.03);
        CHECK_OK(shmemi_socket_send(a, "late", 5, NULL, 0, soon()));
    } else {
        CHECK_OK(shmemi_socket_receive(b, text, sizeof text, &got, NULL, &n, SHMEMI_FOREVER));
        CHECK_STR(text, "late");
    }
}

static void waits_for_a_message(void)
{
    open_pair();
    harness_pes(2, HARNESS_PROC, 5, sends_late, NULL);
    close_pair();
}

static void injected(void)
{
    open_pair();
    shmemi_fault_arm("os.socket.send", SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmemi_socket_send(a, "x", 1, NULL, 0, 0), SHMEM_ERR_INJECTED);
    CHECK_OK(shmemi_socket_send(a, "x", 1, NULL, 0, 0));
    shmemi_fault_disarm();
    close_pair();
}

int main(void)
{
    RUN(carries_data_and_descriptors);
    RUN(refuses_what_cannot_be_sent);
    RUN(refuses_what_breaks_the_rules);
    RUN(names_the_descriptor_limit);
    RUN(end_of_stream);
    RUN(deadlines);
    RUN(waits_for_a_message);
    RUN(injected);
    return harness_end();
}
