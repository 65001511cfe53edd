/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private server that the library starts: once however many start it, as nobody's child, with
 * nothing inherited, gone when unused. In a network namespace of its own (abstract addresses belong
 * to one), where that is allowed.
 */
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "../unit/node/fixture.h"
#include "base/util.h"

static bool isolated;
static volatile sig_atomic_t child_signals;

static shmem_status_t attach_private(shmemi_client_t **client)
{
    shmemi_settings_t settings;
    CHECK_OK(shmemi_settings_load(&settings));
    settings.server[0] = 0;
    return shmemi_client_attach(&settings, "private", client);
}

/* The process that listens at the client's address. */
static pid_t server_of(shmemi_client_t *client)
{
    fixture_server_t f;
    struct ucred peer;
    socklen_t n = sizeof peer;
    snprintf(f.address, sizeof f.address, "%s", shmemi_client_address(client));
    int fd = fixture_raw(&f);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0);
    close(fd);
    return peer.pid;
}

/* A process is gone, or a zombie of somebody else. */
static bool has_ended(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    const char *state = n > 0 ? strrchr(text, ')') : NULL;
    return !state || state[2] == 'Z' || state[2] == 'X';
}

static void await_end(pid_t pid)
{
    double end = harness_now() + 5;
    while (isolated && !has_ended(pid)) {
        CHECK(harness_now() < end);
        harness_sleep(0.002);
    }
}

static void on_child(int number)
{
    (void)number;
    child_signals++;
}

static void nobodys_child(void)
{
    shmemi_client_t *client;
    struct sigaction action = {.sa_handler = on_child}, old;
    sigaction(SIGCHLD, &action, &old);
    CHECK_OK(attach_private(&client));
    CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
    pid_t pid = server_of(client);
    CHECK(pid > 0 && pid != getpid());
    CHECK_EQ(fixture_counts(client).clients >= 1, 1);
    shmemi_client_detach(client);
    await_end(pid);
    CHECK_EQ(child_signals, 0);
    sigaction(SIGCHLD, &old, NULL);
}

static unsigned long long status_mask(pid_t pid, const char *field)
{
    char path[64], line[256];
    unsigned long long value = ~0ull;
    size_t n = strlen(field);
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, n) == 0)
            value = strtoull(line + n, NULL, 16);
    fclose(file);
    return value;
}

static void check_link(pid_t pid, const char *what, const char *wanted)
{
    char path[64], target[256];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    ssize_t n = readlink(path, target, sizeof target - 1);
    CHECK(n > 0);
    target[n] = 0;
    CHECK_STR(target, wanted);
}

static void inherits_nothing(void)
{
    if (!isolated)
        SKIP("another program's private server may be running: no network namespace of our own");
    shmemi_client_t *client;
    struct stat canary, seen;
    sigset_t blocked, old;
    cpu_set_t all, servers;
    int fd = memfd_create("canary", 0), high = dup2(fd, 200); /* inheritable */
    CHECK(fd >= 0 && high == 200 && fstat(fd, &canary) == 0);
    sigfillset(&blocked);
    sigprocmask(SIG_BLOCK, &blocked, &old);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    harness_use_processors(1);
    CHECK_OK(attach_private(&client));
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigset_t now;
    sigprocmask(SIG_SETMASK, &old, &now);
    CHECK(sigismember(&now, SIGHUP)); /* ours is as it was */
    pid_t pid = server_of(client);
    for (int i = 3; i < 256; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, i);
        CHECK(stat(path, &seen) || seen.st_ino != canary.st_ino || seen.st_dev != canary.st_dev);
    }
    check_link(pid, "fd/0", "/dev/null");
    check_link(pid, "fd/1", "/dev/null");
    check_link(pid, "fd/2", "/dev/null");
    check_link(pid, "cwd", "/");
    CHECK_EQ(status_mask(pid, "SigBlk:"), 0);
    /* the C library keeps 32 and 33 to itself: as our parent left them, so they stay */
    CHECK_EQ(status_mask(pid, "SigIgn:") & ~(3ull << 31),
             1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1));
    CHECK_EQ(getsid(pid), getsid(pid) == pid ? pid : -1);
    CHECK(getsid(pid) != getsid(0));
    CHECK(sched_getaffinity(pid, sizeof servers, &servers) == 0);
    CHECK_EQ(CPU_COUNT(&servers) >= CPU_COUNT(&all), 1);
    close(fd);
    close(high);
    shmemi_client_detach(client);
    await_end(pid);
}

/* The starter's own limits are neither the server's nor anybody else's. */
static void limited(void *arg)
{
    static const int limits[] = {RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_NOFILE};
    struct rlimit limit;
    shmemi_client_t *client;
    (void)arg;
    for (size_t i = 0; i < SHMEMI_COUNT(limits); i++) {
        CHECK(getrlimit(limits[i], &limit) == 0);
        limit.rlim_cur = limits[i] == RLIMIT_FSIZE ? 100000 : 50;
        CHECK(setrlimit(limits[i], &limit) == 0);
    }
    CHECK_OK(attach_private(&client));
    pid_t pid = server_of(client);
    for (size_t i = 0; i < SHMEMI_COUNT(limits); i++) {
        CHECK(prlimit(pid, limits[i], NULL, &limit) == 0);
        CHECK_EQ(limit.rlim_cur, limit.rlim_max);
    }
    if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > 1 << 20)
        fixture_segment(client, "large", 1 << 20);
    shmemi_client_detach(client);
    await_end(pid);
}

static void limits_of_the_starter(void)
{
    if (!isolated)
        SKIP("another program's private server may be running: no network namespace of our own");
    CHECK_EQ(harness_wait(harness_fork(limited, NULL), 20), 0);
}

/* Nor does a limit that cannot be raised end the server. */
static void firmly_limited(void *arg)
{
    struct rlimit limit = {9000000, 9000000}; /* the roster fits */
    shmemi_segment_request_t r = {
        .name = "large", .bytes = 20 << 20, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    shmemi_segment_t s;
    shmemi_client_t *client;
    (void)arg;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_OK(attach_private(&client));
    pid_t pid = server_of(client);
    CHECK_STATUS(shmemi_client_segment_create(client, &r, &s), SHMEM_ERR_LIMIT);
    CHECK(strstr(shmem_error_detail()->text, "RLIMIT_FSIZE"));
    r.reserve = 0; /* then no thread of its own makes it */
    CHECK_STATUS(shmemi_client_segment_create(client, &r, &s), SHMEM_ERR_LIMIT);
    fixture_segment(client, "small", 50000);
    CHECK_EQ(server_of(client), pid);
    shmemi_client_detach(client);
    await_end(pid);
}

static void limits_that_stay(void)
{
    if (!isolated)
        SKIP("another program's private server may be running: no network namespace of our own");
    CHECK_EQ(harness_wait(harness_fork(firmly_limited, NULL), 20), 0);
}

typedef struct race {
    _Atomic int in;
    _Atomic uint64_t id;
} race_t;

static void racer(int rank, int n, void *arg)
{
    race_t *race = arg;
    shmemi_client_t *client;
    shmemi_segment_request_t r = {
        .name = "race", .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1, .open_existing = 1};
    shmemi_segment_t s;
    uint64_t none = 0;
    (void)rank;
    CHECK_OK(attach_private(&client));
    CHECK_OK(shmemi_client_segment_create(client, &r, &s));
    if (!atomic_compare_exchange_strong(&race->id, &none, s.id)) /* all at one server */
        CHECK_EQ(none, s.id);
    atomic_fetch_add(&race->in, 1);
    double end = harness_now() + 20;
    while (atomic_load(&race->in) < n) {
        CHECK(harness_now() < end);
        harness_sleep(0.001);
    }
    shmemi_client_detach(client);
}

static void eight_starters(void)
{
    for (int i = 0; i < 5; i++) {
        race_t *race = harness_shared(sizeof *race);
        harness_pes(8, harness_has_tsan() ? HARNESS_THREAD : HARNESS_PROC, 40, racer, race);
    }
}

static void comes_and_goes(void)
{
    shmemi_client_t *client = NULL;
    pid_t pid = 0;
    for (int i = 0; i < 25; i++) { /* each meets one that is just ending */
        CHECK_OK(attach_private(&client));
        pid = server_of(client);
        shmemi_client_detach(client);
    }
    await_end(pid);
}

static void churner(int rank, int n, void *arg)
{
    shmemi_client_t *client;
    (void)n;
    (void)arg;
    for (int i = 0; i < 12; i++) {
        CHECK_OK(attach_private(&client));
        if ((i + rank) % 3 == 0)
            harness_sleep(0.001 * rank);
        shmemi_client_detach(client);
    }
}

static void churn(void)
{
    harness_pes(4, harness_has_tsan() ? HARNESS_THREAD : HARNESS_PROC, 60, churner, NULL);
}

static void killed_server(void)
{
    if (!isolated)
        SKIP("needs a network namespace of its own: it kills the private server");
    shmemi_client_t *client, *next;
    CHECK_OK(attach_private(&client));
    shmemi_segment_t data = fixture_segment(client, "data", 4096), other;
    void *memory;
    CHECK_OK(shmemi_space_map(data.offset, data.bytes, data.fd, 1, &memory));
    pid_t pid = server_of(client), keeper = fixture_keeper_of(pid);
    kill(pid, SIGKILL);
    await_end(pid);
    CHECK_OK(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_WRITE, &other));
    shmemi_client_segment_close(client, &other);
    CHECK(server_of(client) != pid); /* its successor */
    pid = server_of(client);
    CHECK_EQ(fixture_keeper_of(pid), keeper);
    kill(pid, SIGSTOP); /* so that it makes no other keeper */
    kill(keeper, SIGKILL);
    kill(pid, SIGKILL);
    await_end(pid);
    await_end(keeper);
    CHECK_STATUS(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_WRITE, &other),
                 SHMEM_ERR_SERVER_LOST);
    *(volatile int *)memory = 1;
    CHECK_OK(attach_private(&next)); /* starts another one */
    CHECK(server_of(next) != pid);
    shmemi_segment_t again = fixture_segment(next, "data", 4096);
    *(volatile int *)memory = 2;
    CHECK(again.fd != data.fd);
    shmemi_client_detach(client);
    CHECK_OK(shmemi_space_unmap(memory));
    pid = server_of(next);
    keeper = fixture_keeper_of(pid);
    shmemi_client_detach(next);
    await_end(pid);
    await_end(keeper);
}

static void cannot_start(const char *program, const char *part)
{
    shmemi_settings_t settings;
    shmemi_client_t *client;
    CHECK_OK(shmemi_settings_load(&settings));
    snprintf(settings.shmemd, sizeof settings.shmemd, "%s", program);
    settings.server[0] = 0;
    int before = fixture_count_fds(getpid());
    CHECK_STATUS(shmemi_client_attach(&settings, "x", &client), SHMEM_ERR_NO_SERVER);
    if (!strstr(shmem_error_detail()->text, part) || !strstr(shmem_error_detail()->text, program))
        harness_fail(__FILE__, __LINE__, "'%s' names neither '%s' nor '%s'",
                     shmem_error_detail()->text, part, program);
    CHECK_EQ(fixture_count_fds(getpid()), before);
    CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
}

static void useless_programs(void)
{
    if (!isolated)
        SKIP("another program's private server may be running: no network namespace of our own");
    char script[] = "/tmp/shmem-test-XXXXXX";
    int fd = mkstemp(script);
    CHECK(fd >= 0 && fchmod(fd, 0700) == 0 && write(fd, "nonsense", 8) == 8);
    close(fd);
    cannot_start("/nonexistent/shmemd", "tried");
    cannot_start("/bin/true", "without a word");
    cannot_start(script, "Exec format error");
    unlink(script);
    shmemi_fault_arm("node.spawn.clone", SHMEMI_FAULT_FAIL, 1);
    shmemi_client_t *client;
    CHECK_STATUS(attach_private(&client), SHMEM_ERR_SYSTEM); /* EAGAIN: no process to be had */
    shmemi_fault_disarm();
}

static void squat(void *arg)
{
    fixture_server_t *f = arg;
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    fixture_serve(f);
}

static void squatter(void)
{
    if (!isolated || geteuid() != 0)
        SKIP("needs root and a network namespace to act as another user");
    shmemi_client_t *client;
    fixture_server_t *f = fixture_new();
    char *address = harness_shared(128);
    CHECK_OK(attach_private(&client));
    snprintf(address, 128, "%s", shmemi_client_address(client));
    pid_t pid = server_of(client);
    shmemi_client_detach(client);
    await_end(pid);
    f->listen_at = address;
    f->pid = harness_fork(squat, f);
    while (!atomic_load(&f->ready))
        harness_sleep(0.001);
    CHECK_STATUS(attach_private(&client), SHMEM_ERR_ACCESS);
    CHECK(strstr(shmem_error_detail()->text, "taken by another user"));
    fixture_end(f);
    CHECK_OK(attach_private(&client));
    pid = server_of(client);
    shmemi_client_detach(client);
    await_end(pid);
}

int main(void)
{
    if (!getenv("SHMEM_SHMEMD") || access(getenv("SHMEM_SHMEMD"), X_OK)) {
        fprintf(stderr, "SKIPPED: SHMEM_SHMEMD does not name the shmemd program\n");
        return 77;
    }
    isolated = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    RUN(nobodys_child);
    RUN(inherits_nothing);
    RUN(limits_of_the_starter);
    RUN(limits_that_stay);
    RUN(eight_starters);
    RUN(comes_and_goes);
    RUN(churn);
    RUN(killed_server);
    RUN(useless_programs);
    RUN(squatter);
    return harness_end();
}
