/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: listening, takeover of stale paths, rights, removal. */
#include "os/socket.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fault.h"
#include "helpers.h"

static char directory[64], path[96];

static void make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/shmem-socket-test-XXXXXX");
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/socket", directory);
}

static char *lock_file(void)
{
    static char text[112];
    snprintf(text, sizeof text, "%s.lock", path);
    return text;
}

static void remove_directory(void)
{
    unlink(path);
    CHECK(rmdir(directory) == 0);
}

static bool exists(void)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static void bad_addresses(void)
{
    char longest[200];
    memset(longest, 'x', sizeof longest);
    longest[0] = '@';
    int s = -77;
    static const char *const bad[] = {"", "@", "../x", "/tmp/../x", "/tmp/..", "a/..", "/tmp/"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_STATUS(shmemi_socket_listen(bad[i], &s), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_socket_listen(NULL, &s), SHMEM_ERR_INVALID);
    longest[108] = 0; /* one more than fits */
    CHECK_STATUS(shmemi_socket_listen(longest, &s), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_socket_connect(longest, &s), SHMEM_ERR_INVALID);
    CHECK_EQ(s, -77);
    longest[107] = 0; /* just fits */
    CHECK_OK(shmemi_socket_listen(longest, &s));
    shmemi_socket_unlisten(longest, s);
    CHECK_STATUS(shmemi_socket_listen("/nowhere/at/all/socket", &s), SHMEM_ERR_SYSTEM);
    CHECK_OK(shmemi_socket_listen("@shmem..test", &s)); /* dots are no parent part here */
    shmemi_socket_unlisten("@shmem..test", s);
}

static void path_is_private_and_removed(void)
{
    make_directory();
    mode_t old = umask(0); /* the mode must not hang on it */
    int s, before = count_fds();
    CHECK_OK(shmemi_socket_listen(path, &s));
    umask(old);
    struct stat info;
    CHECK(lstat(path, &info) == 0 && S_ISSOCK(info.st_mode));
    CHECK_EQ(info.st_mode & 07777, 0600);
    CHECK(fcntl(s, F_GETFD) & FD_CLOEXEC);
    shmemi_socket_unlisten(path, s);
    CHECK(!exists());
    CHECK_EQ(count_fds(), before);
    remove_directory();
}

static void nobody_listens(void)
{
    int s = -77;
    CHECK_STATUS(shmemi_socket_connect("@shmem-nobody-is-here", &s), SHMEM_ERR_NO_SERVER);
    CHECK_STATUS(shmemi_socket_connect("/tmp/shmem-nobody-is-here", &s), SHMEM_ERR_NO_SERVER);
    CHECK_EQ(s, -77);
}

static void live_one_is_respected(void)
{
    make_directory();
    const char *addresses[] = {path, "@shmem-socket-test-live"};
    for (int i = 0; i < 2; i++) {
        int a, b = -77, client, served;
        CHECK_OK(shmemi_socket_listen(addresses[i], &a));
        CHECK_STATUS(shmemi_socket_accept(a, &b), SHMEM_ERR_BUSY);
        CHECK_STATUS(shmemi_socket_listen(addresses[i], &b), SHMEM_ERR_EXISTS);
        CHECK_EQ(b, -77);
        CHECK_OK(shmemi_socket_connect(addresses[i], &client));
        CHECK_OK(shmemi_socket_accept(a, &served));
        close(client);
        close(served);
        shmemi_socket_unlisten(addresses[i], a);
        CHECK_STATUS(shmemi_socket_connect(addresses[i], &client), SHMEM_ERR_NO_SERVER);
    }
    remove_directory();
}

/* What a killed server leaves behind. */
static void leave_stale(void *arg)
{
    int s;
    (void)arg;
    CHECK_OK(shmemi_socket_listen(path, &s));
    raise(SIGKILL);
}

static void stale_one_is_taken_over(void)
{
    make_directory();
    CHECK_EQ(harness_wait(harness_fork(leave_stale, NULL), 5), -SIGKILL);
    CHECK(exists());
    int s, client;
    CHECK_STATUS(shmemi_socket_connect(path, &client), SHMEM_ERR_NO_SERVER);
    CHECK_OK(shmemi_socket_listen(path, &s));
    CHECK_OK(shmemi_socket_connect(path, &client));
    close(client);
    shmemi_socket_unlisten(path, s);
    CHECK(!exists());
    remove_directory();
}

/* Killed at every step of the takeover: the next one still gets it. */
static void listen_armed(void *arg)
{
    int s;
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    CHECK_OK(shmemi_socket_listen(path, &s));
}

static void killed_during_takeover(void)
{
    static const char *const points[] = {"os.socket.locked", "os.socket.stale", "os.socket.bound"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        make_directory();
        CHECK_EQ(harness_wait(harness_fork(leave_stale, NULL), 5), -SIGKILL);
        CHECK_EQ(harness_wait(harness_fork(listen_armed, (void *)points[i]), 5), -SIGKILL);
        int s;
        CHECK_OK(shmemi_socket_listen(path, &s));
        shmemi_socket_unlisten(path, s);
        remove_directory();
    }
}

typedef struct race {
    _Atomic int ready, winners, losers;
} race_t;

static void start_server(int rank, int n, void *arg)
{
    race_t *r = arg;
    int s;
    (void)rank;
    atomic_fetch_add(&r->ready, 1);
    while (atomic_load(&r->ready) < n)
        ;
    shmem_status_t status = shmemi_socket_listen(path, &s);
    if (status == SHMEM_OK) {
        atomic_fetch_add(&r->winners, 1);
        while (atomic_load(&r->winners) + atomic_load(&r->losers) < n)
            harness_sleep(0.001);
        shmemi_socket_unlisten(path, s);
        return;
    }
    CHECK_EQ(status, SHMEM_ERR_EXISTS);
    atomic_fetch_add(&r->losers, 1);
}

static void starters_race_for_a_stale_path(void)
{
    for (int round = 0; round < 20; round++) {
        make_directory();
        CHECK_EQ(harness_wait(harness_fork(leave_stale, NULL), 5), -SIGKILL);
        race_t *r = harness_shared(sizeof *r);
        harness_pes(3, HARNESS_PROC, 10, start_server, r);
        CHECK_EQ(r->winners, 1);
        CHECK(!exists());
        remove_directory();
    }
}

static void other_files_are_respected(void)
{
    make_directory();
    int s = -77, fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
    CHECK_STATUS(shmemi_socket_listen(path, &s), SHMEM_ERR_EXISTS);
    CHECK(exists());
    unlink(path);
    CHECK(symlink("/tmp/shmem-socket-test-target", path) == 0);
    CHECK_STATUS(shmemi_socket_listen(path, &s), SHMEM_ERR_EXISTS);
    CHECK(exists());
    CHECK_EQ(s, -77);
    remove_directory();
}

static void strangers_socket(void *arg)
{
    int s = -77;
    (void)arg;
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK_STATUS(shmemi_socket_listen(path, &s), SHMEM_ERR_ACCESS);
    CHECK_STATUS(shmemi_socket_connect(path, &s), SHMEM_ERR_ACCESS);
}

static void another_users_socket_is_respected(void)
{
    if (geteuid() != 0)
        SKIP("wants root, to become two users");
    make_directory();
    CHECK(chmod(directory, 0777) == 0);
    CHECK_EQ(harness_wait(harness_fork(leave_stale, NULL), 5), -SIGKILL);
    CHECK_EQ(harness_wait(harness_fork(strangers_socket, NULL), 5), 0);
    CHECK(exists());
    remove_directory();
}

static void lock_directory_as_stranger(void *arg)
{
    _Atomic int *locked = arg;
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    int fd = open(directory, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    CHECK(open(lock_file(), O_RDONLY | O_CLOEXEC) < 0);
    atomic_store(locked, 1);
    harness_sleep(30);
}

/* Who can only read the directory cannot hold up a server. */
static void strangers_cannot_lock(void)
{
    if (geteuid() != 0)
        SKIP("wants root, to become two users");
    make_directory();
    CHECK(chmod(directory, 0755) == 0);
    _Atomic int *locked = harness_shared(sizeof *locked);
    pid_t pid = harness_fork(lock_directory_as_stranger, (void *)locked);
    while (!atomic_load(locked))
        harness_sleep(0.0005);
    int s;
    double start = harness_now();
    CHECK_OK(shmemi_socket_listen(path, &s));
    CHECK(access(lock_file(), F_OK) != 0);
    shmemi_socket_unlisten(path, s);
    CHECK(harness_now() - start < 4);
    kill(pid, SIGKILL);
    harness_wait(pid, 5);
    remove_directory();
}

/* What lies at the lock's place, and is not ours alone, is neither used nor removed. */
static void foreign_locks_are_respected(void)
{
    int s = -77;
    make_directory();
    CHECK(symlink("/tmp/shmem-socket-test-target", lock_file()) == 0);
    CHECK(shmemi_socket_listen(path, &s) != SHMEM_OK);
    CHECK(unlink(lock_file()) == 0 && mkfifo(lock_file(), 0600) == 0);
    CHECK_STATUS(shmemi_socket_listen(path, &s), SHMEM_ERR_ACCESS);
    CHECK(unlink(lock_file()) == 0);
    int fd = open(lock_file(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    CHECK(fd >= 0);
    close(fd);
    if (geteuid() == 0) {
        CHECK(chown(lock_file(), 65534, 65534) == 0);
        CHECK_STATUS(shmemi_socket_listen(path, &s), SHMEM_ERR_ACCESS);
        check_detail("another user's");
        CHECK(chown(lock_file(), 0, 0) == 0);
    }
    CHECK_EQ(s, -77);
    CHECK_OK(shmemi_socket_listen(path, &s)); /* left by a killed one */
    CHECK(access(lock_file(), F_OK) != 0);
    shmemi_socket_unlisten(path, s);
    CHECK(access(lock_file(), F_OK) != 0);
    remove_directory();
}

static mode_t mode_of(const char *file)
{
    struct stat info;
    CHECK(lstat(file, &info) == 0);
    return info.st_mode & 07777;
}

static void open_to_all(void)
{
    int s;
    char aside[112], target[112];
    make_directory();
    snprintf(aside, sizeof aside, "%s/aside", directory);
    snprintf(target, sizeof target, "%s/target", directory);
    CHECK_OK(shmemi_socket_listen(path, &s));
    CHECK(chmod(directory, 0777) == 0);
    CHECK_STATUS(shmemi_socket_open_to_all(path), SHMEM_ERR_ACCESS);
    check_detail("replace");
    CHECK_EQ(mode_of(path), 0600);
    CHECK(chmod(directory, 01777) == 0);
    CHECK_OK(shmemi_socket_open_to_all(path));
    CHECK_EQ(mode_of(path), 0666);
    int fd = open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && rename(path, aside) == 0 && symlink(target, path) == 0);
    CHECK_STATUS(shmemi_socket_open_to_all(path), SHMEM_ERR_ACCESS);
    CHECK_EQ(mode_of(target), 0600);
    close(fd);
    CHECK(unlink(path) == 0 && unlink(target) == 0 && rename(aside, path) == 0);
    shmemi_socket_unlisten(path, s);
    remove_directory();
}

static void failed_listen_leaves_nothing(void)
{
    make_directory();
    int s = -77, before = count_fds();
    shmemi_fault_arm("os.socket.listen", SHMEMI_FAULT_FAIL, 1);
    CHECK(shmemi_socket_listen(path, &s) != SHMEM_OK);
    CHECK_EQ(shmemi_fault_passages(), 1);
    shmemi_fault_disarm();
    CHECK(s == -77 && !exists());
    CHECK_EQ(count_fds(), before);
    remove_directory();
}

/* Somebody removed our socket file and a new server listens there: its file stays. */
static void unlisten_spares_the_successor(void)
{
    make_directory();
    int old, new, client;
    CHECK_OK(shmemi_socket_listen(path, &old));
    CHECK(unlink(path) == 0);
    CHECK_OK(shmemi_socket_listen(path, &new));
    shmemi_socket_unlisten(path, old);
    CHECK(exists());
    CHECK_OK(shmemi_socket_connect(path, &client));
    close(client);
    shmemi_socket_unlisten(path, new);
    CHECK(!exists());
    remove_directory();
}

/* With connections waiting that nobody accepted, the path still goes. */
static void unlisten_with_a_full_queue(void)
{
    make_directory();
    int s, clients[600], n = 0;
    CHECK_OK(shmemi_socket_listen(path, &s));
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    for (; n < 600; n++) {
        clients[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(clients[n], (struct sockaddr *)&name, sizeof name))
            break;
    }
    CHECK(n < 600 && errno == EAGAIN);
    shmemi_socket_unlisten(path, s);
    CHECK(!exists());
    for (int i = 0; i <= n; i++)
        close(clients[i]);
    remove_directory();
}

int main(void)
{
    RUN(bad_addresses);
    RUN(path_is_private_and_removed);
    RUN(nobody_listens);
    RUN(live_one_is_respected);
    RUN(stale_one_is_taken_over);
    RUN(killed_during_takeover);
    RUN(starters_race_for_a_stale_path);
    RUN(other_files_are_respected);
    RUN(another_users_socket_is_respected);
    RUN(strangers_cannot_lock);
    RUN(foreign_locks_are_respected);
    RUN(open_to_all);
    RUN(failed_listen_leaves_nothing);
    RUN(unlisten_spares_the_successor);
    RUN(unlisten_with_a_full_queue);
    return harness_end();
}
