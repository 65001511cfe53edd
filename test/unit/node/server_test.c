/* SPDX-License-Identifier: Apache-2.0 */
/* The server object: addresses, live and stale sockets, run and stop, ending when unused, faults.
 */
#include <pthread.h>
#include <sys/stat.h>

#include "fixture.h"

static char directory[] = "/tmp/shmem-test-XXXXXX";
static char path[64];

static shmem_server_t create_at(const char *address)
{
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    shmem_server_t server = NULL;
    params.address = address;
    CHECK_OK(shmem_server_create(&server, &params));
    return server;
}

static void bad_parameters(void)
{
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    shmem_server_t server = (shmem_server_t)&params;
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    CHECK_STATUS(shmem_server_create(NULL, &params), SHMEM_ERR_INVALID);
    params.size = 3;
    CHECK_STATUS(shmem_server_create(&server, &params), SHMEM_ERR_INVALID);
    params.size = sizeof params;
    params.first_client_ns = -1;
    CHECK_STATUS(shmem_server_create(&server, &params), SHMEM_ERR_INVALID);
    params.first_client_ns = 0;
    const char *const bad[] = {"", "@", longest, "/nonexistent/dir/sock", "/tmp/../tmp/sock"};
    int before = fixture_count_fds(getpid());
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        params.address = bad[i];
        CHECK(shmem_server_create(&server, &params) != SHMEM_OK);
        CHECK(server == (shmem_server_t)&params);
    }
    CHECK_EQ(fixture_count_fds(getpid()), before);
    setenv("SHMEM_SPIN", "fast", 1);
    params.address = NULL;
    CHECK_STATUS(shmem_server_create(&server, &params), SHMEM_ERR_SETTING);
    unsetenv("SHMEM_SPIN");
    shmem_server_destroy(NULL);
    shmem_server_stop(NULL);
    CHECK(shmem_server_address(NULL) == NULL);
    CHECK_STATUS(shmem_server_run(NULL), SHMEM_ERR_INVALID);
}

static void own_names_differ(void)
{
    shmem_server_t a = create_at(NULL), b = NULL;
    CHECK_OK(shmem_server_create(&b, NULL));
    CHECK(shmem_server_address(a)[0] == '@');
    CHECK(strcmp(shmem_server_address(a), shmem_server_address(b)) != 0);
    shmem_server_destroy(a);
    shmem_server_destroy(b);
}

static void live_respected(void)
{
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    shmem_server_t server = create_at(path), other = NULL;
    struct stat info;
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    params.address = path;
    CHECK_STATUS(shmem_server_create(&other, &params), SHMEM_ERR_EXISTS);
    params.address = shmem_server_address(server);
    CHECK_STATUS(shmem_server_create(&other, &params), SHMEM_ERR_EXISTS);
    CHECK(other == NULL);
    shmem_server_destroy(server);
    CHECK(stat(path, &info) == -1 && errno == ENOENT); /* nothing left */
    server = create_at("@shmem-test-abstract");
    params.address = "@shmem-test-abstract";
    CHECK_STATUS(shmem_server_create(&other, &params), SHMEM_ERR_EXISTS);
    shmem_server_destroy(server);
}

static void stale_taken_over(void)
{
    fixture_server_t *f = fixture_new();
    struct stat info;
    f->listen_at = path;
    fixture_start(f);
    shmemi_client_t *client = fixture_attach(f);
    kill(f->pid, SIGKILL);
    CHECK_EQ(harness_wait(f->pid, 5), -SIGKILL);
    CHECK(stat(path, &info) == 0); /* left behind by the killed one */
    CHECK(shmemi_client_server_lost(client));
    fixture_start(f);
    CHECK_EQ(atomic_load(&f->ready), 1);
    shmemi_client_t *next = fixture_attach(f);
    CHECK_EQ(fixture_counts(next).clients, 1);
    shmemi_client_detach(client);
    shmemi_client_detach(next);
    fixture_end(f);
    CHECK(stat(path, &info) == -1 && errno == ENOENT);
}

static void not_a_socket(void)
{
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    shmem_server_t server = NULL;
    struct stat info;
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    params.address = path;
    CHECK_STATUS(shmem_server_create(&server, &params), SHMEM_ERR_EXISTS);
    CHECK(stat(path, &info) == 0 && S_ISREG(info.st_mode)); /* not removed */
    close(fd);
    unlink(path);
}

/* ---- run and stop ---- */

static void *run_it(void *server)
{
    CHECK_OK(shmem_server_run(server));
    return NULL;
}

static void runs_and_stops(void)
{
    shmem_server_t server = create_at(NULL);
    fixture_server_t f = {.pid = 0};
    pthread_t thread;
    snprintf(f.address, sizeof f.address, "%s", shmem_server_address(server));
    for (int round = 0; round < 3; round++) { /* stopping is no end */
        CHECK(pthread_create(&thread, NULL, run_it, server) == 0);
        shmemi_client_t *client = fixture_attach(&f);
        CHECK_EQ(fixture_counts(client).clients, 1);
        CHECK_STATUS(shmem_server_run(server), SHMEM_ERR_STATE);
        shmemi_client_detach(client);
        shmem_server_stop(server);
        pthread_join(thread, NULL);
    }
    shmem_server_stop(server); /* before run: it returns at once */
    shmem_server_stop(server);
    CHECK_OK(shmem_server_run(server));
    CHECK(pthread_create(&thread, NULL, run_it, server) == 0);
    shmemi_client_t *client = fixture_attach(&f);
    shmemi_segment_t s = fixture_segment(client, "data", 4096), other;
    void *memory;
    CHECK_OK(shmemi_space_map(s.offset, s.bytes, s.fd, 1, &memory));
    shmem_server_stop(server);
    pthread_join(thread, NULL);
    shmem_server_destroy(server); /* with a client; in its own process */
    *(volatile int *)memory = 1;
    CHECK(shmemi_client_server_lost(client));
    CHECK_STATUS(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_WRITE, &other),
                 SHMEM_ERR_SERVER_LOST);
    CHECK_OK(shmemi_space_unmap(memory));
    shmemi_client_detach(client);
}

static void forked_copy(void *arg)
{
    CHECK_STATUS(shmem_server_run(arg), SHMEM_ERR_STATE);
    shmem_server_destroy(arg); /* closes the copies */
}

static void in_a_forked_child(void)
{
    shmem_server_t server = create_at(path);
    fixture_server_t f = {.pid = 0};
    struct stat info;
    snprintf(f.address, sizeof f.address, "%s", path);
    CHECK_EQ(harness_wait(harness_fork(forked_copy, server), 10), 0);
    CHECK(stat(path, &info) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_it, server) == 0);
    shmemi_client_t *client = fixture_attach(&f);
    CHECK_EQ(fixture_counts(client).clients, 1);
    shmemi_client_detach(client);
    shmem_server_stop(server);
    pthread_join(thread, NULL);
    shmem_server_destroy(server);
}

/* ---- ending when unused ---- */

static void ends_unused(void)
{
    fixture_server_t *f = fixture_new();
    f->exit_when_unused = 1;
    f->first_client_ns = 50000000;
    fixture_start(f);
    double since = harness_now();
    CHECK_EQ(harness_wait(f->pid, 5), 0); /* nobody came */
    CHECK(harness_now() - since >= 0.04);
    f->first_client_ns = 10000000000;
    fixture_start(f);
    shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(f);
    shmemi_client_detach(a);
    fixture_counts(b);
    shmemi_client_detach(b);
    CHECK_EQ(harness_wait(f->pid, 5), 0);
}

static void attach_and_kill(void *arg)
{
    fixture_attach(arg);
    raise(SIGKILL);
}

static void ends_after_a_death(void)
{
    fixture_server_t *f = fixture_new();
    f->exit_when_unused = 1;
    fixture_start(f);
    CHECK_EQ(harness_wait(harness_fork(attach_and_kill, f), 5), -SIGKILL);
    CHECK_EQ(harness_wait(f->pid, 5), 0);
}

/* ---- faults ---- */

static void failing_creation(void)
{
    static const char *const points[] = {"node.state.map",    "node.server.watch",
                                         "os.segment.create", "os.segment.reserve",
                                         "os.space.map",      "os.socket.listen"};
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    params.address = path;
    shmem_server_destroy(create_at(path));
    int before = fixture_count_fds(getpid());
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
        for (unsigned nth = 1; nth < 8; nth++) {
            shmem_server_t server = NULL;
            shmemi_fault_arm(points[i], SHMEMI_FAULT_FAIL, nth);
            shmem_status_t status = shmem_server_create(&server, &params);
            CHECK((status == SHMEM_OK) == (server != NULL));
            shmemi_fault_disarm();
            shmem_server_destroy(server);
            CHECK_EQ(fixture_count_fds(getpid()), before);
            if (status == SHMEM_OK)
                break;
        }
    shmem_server_destroy(create_at(path));
}

/* Some of this fails, at one place or another. */
static void try_some(void *arg)
{
    shmemi_client_t *client;
    shmemi_server_counts_t counts;
    for (int i = 0; i < 8; i++) {
        if (fixture_try_attach(arg, &client))
            continue;
        shmemi_client_counts(client, &counts);
        shmemi_client_detach(client);
    }
}

static void failing_client(const char *point, unsigned nth)
{
    fixture_server_t *f = fixture_new();
    f->fault_armed = 1;
    snprintf(f->fault, sizeof f->fault, "%s", point);
    f->action = SHMEMI_FAULT_FAIL;
    f->nth = nth;
    fixture_start(f);
    if (atomic_load(&f->ready) != 1) {
        CHECK_EQ(harness_wait(f->pid, 5), 1);
        return;
    }
    int servers = fixture_count_fds(f->pid);
    CHECK_EQ(harness_wait(harness_fork(try_some, f), 10), 0);
    shmemi_client_t *client = fixture_attach(f); /* the server has got over it */
    FIXTURE_AWAIT(client, clients, 1);
    shmemi_client_detach(client);
    double end = harness_now() + 3;
    while (fixture_count_fds(f->pid) != servers && harness_now() < end)
        harness_sleep(0.001);
    CHECK_EQ(fixture_count_fds(f->pid), servers);
    fixture_end(f);
}

static void failing_clients(void)
{
    static const char *const points[] = {"node.accept.peer", "node.server.watch", "os.socket.send"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
        for (unsigned nth = 1; nth < 9; nth++)
            failing_client(points[i], nth);
}

int main(void)
{
    CHECK(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/server", directory);
    RUN(bad_parameters);
    RUN(own_names_differ);
    RUN(live_respected);
    RUN(stale_taken_over);
    RUN(not_a_socket);
    RUN(runs_and_stops);
    RUN(in_a_forked_child);
    RUN(ends_unused);
    RUN(ends_after_a_death);
    RUN(failing_creation);
    RUN(failing_clients);
    CHECK(rmdir(directory) == 0);
    return harness_end();
}
