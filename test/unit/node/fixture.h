/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the node tests share: a server in a forked process, settings that lead to it, clients, raw
 * connections that may say anything, and looks into /proc.
 */
#ifndef SHMEM_TEST_NODE_FIXTURE_H
#define SHMEM_TEST_NODE_FIXTURE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "harness.h"
#include "node/client.h"
#include "node/server_core.h"
#include "node/wire.h"
#include "os/space.h"
#include "shmem/server.h"

typedef struct fixture_server {
    char address[108];
    _Atomic int ready; /* 1: listening, -1: create failed */
    int fault_armed;
    char fault[96];
    shmemi_fault_action_t action;
    unsigned nth;
    int64_t hello_ns;
    int exit_when_unused, all_users;
    int64_t first_client_ns;
    const char *listen_at;
    pid_t pid;
    int takeover;       /* with a keeper; the fault is armed for one server only: */
    int fault_later;    /* the first successor, not the first server */
    _Atomic int serves; /* the process that is the server now */
    _Atomic unsigned takeovers;
    unsigned crashes; /* successors that end at once */
    int fault_always; /* every successor, too */
} fixture_server_t;

static shmem_server_t fixture_running;

static inline void fixture_stop(int number)
{
    (void)number;
    shmem_server_stop(fixture_running);
}

static inline void fixture_taken_over(void *arg, shmem_server_event_t event, uint32_t client,
                                      int pid)
{
    fixture_server_t *f = arg;
    (void)client;
    if (event != SHMEM_SERVER_TAKEN_OVER)
        return;
    shmemi_fault_disarm();
    unsigned before = atomic_fetch_add(&f->takeovers, 1);
    if (before < f->crashes)
        raise(SIGKILL);
    if ((f->fault_later && before == 0) || f->fault_always)
        shmemi_fault_arm(f->fault, f->action, f->nth);
    atomic_store(&f->serves, pid);
}

static inline void fixture_serve(void *arg)
{
    fixture_server_t *f = arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no server behind */
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    params.address = f->listen_at;
    params.exit_when_unused = f->exit_when_unused;
    params.first_client_ns = f->first_client_ns;
    params.all_users = f->all_users;
    params.takeover = f->takeover;
    if (f->takeover) {
        params.observer = fixture_taken_over;
        params.observer_user = f;
    }
    if (f->fault_armed && !f->takeover)
        shmemi_fault_arm(f->fault, f->action, f->nth);
    shmem_status_t status = shmem_server_create(&fixture_running, &params);
    if (status) {
        fprintf(stderr, "server: %s\n", shmem_error_detail()->text);
        atomic_store(&f->ready, -1);
        exit(status == SHMEM_ERR_EXISTS ? 3 : 1);
    }
    if (f->hello_ns)
        shmemi_server_set_hello_time(fixture_running, f->hello_ns);
    signal(SIGTERM, fixture_stop);
    snprintf(f->address, sizeof f->address, "%s", shmem_server_address(fixture_running));
    if (f->fault_armed && f->takeover && !f->fault_later)
        shmemi_fault_arm(f->fault, f->action, f->nth);
    atomic_store(&f->serves, getpid());
    atomic_store(&f->ready, 1);
    CHECK_OK(shmem_server_run(fixture_running));
    shmem_server_destroy(fixture_running);
}

static inline fixture_server_t *fixture_new(void)
{
    return harness_shared(sizeof(fixture_server_t));
}

/* Starts f's server and waits until it listens (or has ended, when a fault kills it before). */
static inline void fixture_start(fixture_server_t *f)
{
    atomic_store(&f->ready, 0);
    f->pid = harness_fork(fixture_serve, f);
    double end = harness_now() + 10;
    while (!atomic_load(&f->ready)) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)f->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            return;
        CHECK(harness_now() < end);
        harness_sleep(0.0002);
    }
}

static inline fixture_server_t *fixture_server(void)
{
    fixture_server_t *f = fixture_new();
    fixture_start(f);
    CHECK_EQ(atomic_load(&f->ready), 1);
    return f;
}

static inline void fixture_end(fixture_server_t *f)
{
    kill(f->pid, SIGTERM);
    CHECK_EQ(harness_wait(f->pid, 10), 0);
}

static inline void fixture_settings(const fixture_server_t *f, shmemi_settings_t *settings)
{
    CHECK_OK(shmemi_settings_load(settings));
    snprintf(settings->server, sizeof settings->server, "%s", f->address);
}

static inline shmem_status_t fixture_try_attach(const fixture_server_t *f, shmemi_client_t **client)
{
    shmemi_settings_t settings;
    fixture_settings(f, &settings);
    return shmemi_client_attach(&settings, "test", client);
}

static inline shmemi_client_t *fixture_attach(const fixture_server_t *f)
{
    shmemi_client_t *client = NULL;
    CHECK_OK(fixture_try_attach(f, &client));
    return client;
}

static inline shmemi_segment_t fixture_segment(shmemi_client_t *client, const char *name,
                                               uint64_t bytes)
{
    shmemi_segment_request_t request = {
        .name = name, .bytes = bytes, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    shmemi_segment_t segment;
    CHECK_OK(shmemi_client_segment_create(client, &request, &segment));
    return segment;
}

static inline shmemi_server_counts_t fixture_counts(shmemi_client_t *client)
{
    shmemi_server_counts_t counts;
    CHECK_OK(shmemi_client_counts(client, &counts));
    return counts;
}

/* Waits until `field` of the server's counts has the value. */
#define FIXTURE_AWAIT(client, field, value)                                                        \
    do {                                                                                           \
        double end_ = harness_now() + 5;                                                           \
        while (fixture_counts(client).field != (value)) {                                          \
            if (harness_now() > end_)                                                              \
                CHECK_EQ(fixture_counts(client).field, value);                                     \
            harness_sleep(0.001);                                                                  \
        }                                                                                          \
    } while (0)

static inline int fixture_count_fds(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    int n = 0;
    CHECK(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* ---- keepers ---- */

static inline pid_t fixture_parent_of(pid_t pid)
{
    char path[64], line[256];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "PPid: %d", &parent);
    if (file)
        fclose(file);
    return parent;
}

static inline bool fixture_is_keeper(pid_t pid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "r");
    bool is = file && fgets(name, sizeof name, file) && strcmp(name, "shmem-keeper\n") == 0;
    if (file)
        fclose(file);
    return is;
}

/* The keeper of the server that runs: its parent or its child. */
static inline pid_t fixture_keeper_of(pid_t server)
{
    pid_t found = 0;
    double end = harness_now() + 5;
    while (!found) {
        DIR *dir = opendir("/proc");
        struct dirent *entry;
        CHECK(dir && harness_now() < end);
        while ((entry = readdir(dir)) != NULL) {
            pid_t pid = (pid_t)atoi(entry->d_name);
            if (pid > 0 && fixture_is_keeper(pid) &&
                (fixture_parent_of(pid) == server || fixture_parent_of(server) == pid))
                found = pid;
        }
        closedir(dir);
    }
    return found;
}

/* ---- raw connections ---- */

static inline int fixture_raw(const fixture_server_t *f)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t n = strlen(f->address);
    memcpy(name.sun_path, f->address, n);
    if (name.sun_path[0] == '@')
        name.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    CHECK(connect(fd, (struct sockaddr *)&name, length) == 0);
    return fd;
}

/* Numbers of requests count up; a hello has 1. */
static inline uint32_t fixture_next(void)
{
    static uint32_t sequence = 1;
    return ++sequence;
}

static inline void fixture_hello(shmemi_wire_message_t *m)
{
    shmemi_wire_begin(m, SHMEMI_WIRE_HELLO, 1);
    m->hello.layout = shmemi_wire_layout();
    m->hello.flags = SHMEMI_HELLO_MEMBARRIER;
    m->hello.space_base = SHMEMI_SPACE_BASE;
    m->hello.space_bytes = SHMEMI_SPACE_BYTES;
    strcpy(m->hello.name, "raw");
}

/* Send n bytes with descriptors; false: the server has closed. */
static inline bool fixture_send(int fd, const void *data, size_t n, const int *fds, int nfds)
{
    char control[CMSG_SPACE(sizeof(int) * 64)] = {0};
    struct iovec part = {(void *)(uintptr_t)data, n};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (nfds) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
    }
    return sendmsg(fd, &header, MSG_NOSIGNAL) >= 0;
}

/* Receive one message, dropping descriptors: its length; 0: closed; -1: nothing within `ms`. */
static inline int fixture_receive_within(int fd, shmemi_wire_message_t *m, int ms)
{
    struct pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, ms) != 1)
        return -1;
    ssize_t n = recv(fd, m, sizeof *m, 0);
    if (n < 0 && errno == ECONNRESET)
        n = recv(fd, m, sizeof *m, 0);
    return n < 0 ? 0 : (int)n;
}

/* The same for an answer that is sure to come, however busy the machine is. */
static inline int fixture_receive(int fd, shmemi_wire_message_t *m)
{
    return fixture_receive_within(fd, m, 20000);
}

/* The server answers with an error of this status; what it says. */
static inline void fixture_expect_error(int fd, int status, const char *part)
{
    shmemi_wire_message_t m;
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_error_t));
    CHECK_EQ(m.header.type, SHMEMI_WIRE_ERROR);
    if (m.error.status != status || !strstr(m.error.text, part))
        harness_fail(__FILE__, __LINE__, "status %d, expected %d; text '%s', expected '%s'",
                     (int)m.error.status, status, m.error.text, part);
}

/* ... and closes the connection. */
static inline void fixture_expect_closed(int fd)
{
    shmemi_wire_message_t m;
    CHECK_EQ(fixture_receive(fd, &m), 0);
}

#endif
