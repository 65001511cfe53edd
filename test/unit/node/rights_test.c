/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights between users: a server for all of them, run by root, and clients of three others. What
 * the server refuses, the kernel refuses, too, to who tries to get round it.
 */
#include <grp.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fixture.h"
#include "shmem/context.h"

enum { OWNER = 65534, FRIEND = 64001, STRANGER = 64002 };

typedef struct rights_world {
    fixture_server_t *f;
    _Atomic int made, seen; /* what the owner has done; how many have looked */
} rights_world_t;

static const struct {
    const char *name;
    uint32_t access;
} objects[] = {
    {"private", 0},
    {"group", SHMEM_ACCESS_GROUP_READ},
    {"team", SHMEM_ACCESS_GROUP_READ | SHMEM_ACCESS_GROUP_WRITE},
    {"other", SHMEM_ACCESS_OTHER_READ},
    {"open", SHMEM_ACCESS_GROUP_READ | SHMEM_ACCESS_GROUP_WRITE | SHMEM_ACCESS_OTHER_READ |
                 SHMEM_ACCESS_OTHER_WRITE},
};
enum { OBJECTS = sizeof objects / sizeof objects[0] };

static void become(unsigned user, unsigned group, unsigned other)
{
    gid_t groups[1] = {other};
    CHECK(setgroups(other ? 1 : 0, groups) == 0);
    CHECK(setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); /* its own /proc/self/fd is its own */
}

static void await(_Atomic int *word, int value)
{
    double end = harness_now() + 20;
    while (atomic_load(word) != value) {
        CHECK(harness_now() < end);
        harness_sleep(0.001);
    }
}

static void owner(void *arg)
{
    rights_world_t *w = arg;
    shmemi_segment_t s;
    struct stat info;
    become(OWNER, OWNER, 0);
    shmemi_client_t *client = fixture_attach(w->f);
    for (int i = 0; i < OBJECTS; i++) {
        shmemi_segment_request_t r = {.name = objects[i].name,
                                      .bytes = 8192,
                                      .limit = 1 << 20,
                                      .kind = SHMEMI_SEGMENT_REGION,
                                      .huge = SHMEMI_HUGE_OFF,
                                      .reserve = 1,
                                      .access = objects[i].access};
        CHECK_OK(shmemi_client_segment_create(client, &r, &s));
        CHECK(s.uid == OWNER && s.gid == OWNER && s.access == objects[i].access);
        CHECK(fstat(s.fd, &info) == 0);
        CHECK(info.st_uid == OWNER && info.st_gid == OWNER);
        CHECK_EQ(info.st_mode & 07777, 0600 | objects[i].access);
        CHECK(pwrite(s.fd, "secret", 6, 0) == 6);
    }
    atomic_store(&w->made, 1);
    await(&w->seen, 3);
    CHECK_OK(shmemi_client_segment_unlink(client, "private", 0));
    shmemi_client_detach(client);
}

/* The kernel's view of a descriptor that was opened with `rights`. */
static void try_to_get_round(const shmemi_segment_t *s, bool may_write, unsigned user)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0); /* so a refusal below is one of writing */
    close(fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK_EQ(fd >= 0, may_write);
    if (fd >= 0)
        close(fd);
    CHECK_EQ(fchmod(s->fd, 0666) == 0, user == 0);
    bool writable = s->rights == SHMEMI_RIGHTS_WRITE;
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    CHECK_EQ(p != MAP_FAILED, writable);
    void *q = mmap(NULL, 4096, PROT_READ, MAP_SHARED, s->fd, 0);
    CHECK(q != MAP_FAILED && memcmp(q, "secret", 6) == 0);
    CHECK_EQ(mprotect(q, 4096, PROT_READ | PROT_WRITE) == 0, writable);
    CHECK_EQ(pwrite(s->fd, "s", 1, 0) == 1, writable);
    if (p != MAP_FAILED)
        munmap(p, 4096);
    munmap(q, 4096);
}

/* Each letter of `wanted`: - (nothing), r, w. */
static void look(rights_world_t *w, unsigned user, const char *wanted)
{
    shmemi_client_t *client = fixture_attach(w->f);
    shmemi_segment_t s;
    size_t count;
    for (int i = 0; i < OBJECTS; i++) {
        const char *name = objects[i].name;
        shmem_status_t status = shmemi_client_segment_open(client, name, SHMEMI_RIGHTS_READ, &s);
        if (status != (wanted[i] == '-' ? SHMEM_ERR_ACCESS : SHMEM_OK))
            harness_fail(__FILE__, __LINE__, "user %u reading %s: %s", user, name,
                         shmem_status_name(status));
        if (status)
            CHECK(strstr(shmem_error_detail()->text, "belongs to user 65534"));
        else
            try_to_get_round(&s, wanted[i] == 'w', user);
        if (status == SHMEM_OK) {
            status = shmemi_client_segment_grow(client, &s, 8193);
            CHECK_EQ(status == SHMEM_ERR_ACCESS, wanted[i] == 'r');
            shmemi_client_segment_close(client, &s);
        }
        status = shmemi_client_segment_open(client, name, SHMEMI_RIGHTS_WRITE, &s);
        if (status != (wanted[i] == 'w' ? SHMEM_OK : SHMEM_ERR_ACCESS))
            harness_fail(__FILE__, __LINE__, "user %u writing %s: %s", user, name,
                         shmem_status_name(status));
        if (status == SHMEM_OK)
            try_to_get_round(&s, true, user);
        shmemi_segment_request_t r = {
            .name = name, .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
        CHECK_STATUS(shmemi_client_segment_create(client, &r, &s), SHMEM_ERR_EXISTS);
        if (user)
            CHECK_STATUS(shmemi_client_segment_unlink(client, name, 0), SHMEM_ERR_ACCESS);
    }
    CHECK_OK(shmemi_client_segment_list(client, "", NULL, 0, &count));
    CHECK_EQ(count, OBJECTS); /* names are no secret */
    shmemi_client_detach(client);
}

static void friend(void *arg)
{
    become(FRIEND, FRIEND, OWNER); /* in the owner's group, by the way */
    look(arg, FRIEND, "-rw-w");
}

static void stranger(void *arg)
{
    become(STRANGER, STRANGER, 0);
    look(arg, STRANGER, "---rw");
}

static fixture_server_t *server_for_all(void)
{
    fixture_server_t *f = fixture_new();
    f->all_users = 1;
    fixture_start(f);
    CHECK_EQ(atomic_load(&f->ready), 1);
    return f;
}

static void between_users(void)
{
    if (geteuid() != 0)
        SKIP("only root can become several users");
    rights_world_t *w = harness_shared(sizeof *w);
    w->f = server_for_all();
    pid_t first = harness_fork(owner, w);
    await(&w->made, 1);
    void (*const others[])(void *) = {friend, stranger};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(harness_wait(harness_fork(others[i], w), 20), 0);
        atomic_fetch_add(&w->seen, 1);
    }
    look(w, 0, "wwwww");
    atomic_fetch_add(&w->seen, 1);
    CHECK_EQ(harness_wait(first, 20), 0);
    shmemi_client_t *client = fixture_attach(w->f);
    CHECK_EQ(fixture_counts(client).segments, 0);
    shmemi_client_detach(client);
    fixture_end(w->f);
}

static void stranger_is_refused(void *arg)
{
    shmemi_client_t *client;
    become(STRANGER, STRANGER, 0);
    CHECK_STATUS(fixture_try_attach(arg, &client), SHMEM_ERR_ACCESS);
    CHECK(strstr(shmem_error_detail()->text, "user 0"));
}

static void one_users_server(void)
{
    if (geteuid() != 0)
        SKIP("only root can become several users");
    fixture_server_t *f = fixture_server();
    CHECK_EQ(harness_wait(harness_fork(stranger_is_refused, f), 20), 0);
    fixture_end(f);
}

static void server_of_a_stranger(void *arg)
{
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    shmem_server_t server = NULL;
    (void)arg;
    if (geteuid() == 0)
        become(STRANGER, STRANGER, 0);
    params.all_users = 1;
    CHECK_STATUS(shmem_server_create(&server, &params), SHMEM_ERR_ACCESS);
    CHECK(!server && strstr(shmem_error_detail()->text, "must run as root"));
}

static void all_users_want_root(void)
{
    CHECK_EQ(harness_wait(harness_fork(server_of_a_stranger, NULL), 20), 0);
}

static void attach_as_stranger(void *arg)
{
    become(STRANGER, STRANGER, 0);
    shmemi_client_detach(fixture_attach(arg));
}

/* A socket in the file system lets everybody in who can reach it. */
static void at_a_path(void)
{
    char directory[] = "/tmp/shmem-rights-XXXXXX", path[80];
    struct stat info;
    if (geteuid() != 0)
        SKIP("only root can become several users");
    CHECK(mkdtemp(directory) && chmod(directory, 0755) == 0);
    snprintf(path, sizeof path, "%s/server", directory);
    for (int all = 1; all >= 0; all--) {
        fixture_server_t *f = fixture_new();
        f->all_users = all;
        f->listen_at = path;
        fixture_start(f);
        CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == (all ? 0666 : 0600));
        if (all)
            CHECK_EQ(harness_wait(harness_fork(attach_as_stranger, f), 20), 0);
        fixture_end(f);
    }
    CHECK(rmdir(directory) == 0);
}

/* A server that cannot give a file away. */
static void cannot_be_given(void)
{
    fixture_server_t *f = fixture_new();
    f->fault_armed = 1;
    strcpy(f->fault, "node.making.rights");
    f->action = SHMEMI_FAULT_FAIL;
    f->nth = 1;
    fixture_start(f);
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t s;
    shmemi_segment_request_t r = {
        .name = "x", .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    CHECK(shmemi_client_segment_create(client, &r, &s) != SHMEM_OK);
    CHECK_EQ(fixture_counts(client).segments, 0);
    CHECK_OK(shmemi_client_segment_create(client, &r, &s));
    shmemi_client_detach(client);
    fixture_end(f);
}

int main(void)
{
    RUN(between_users);
    RUN(one_users_server);
    RUN(all_users_want_root);
    RUN(at_a_path);
    RUN(cannot_be_given);
    return harness_end();
}
