/* SPDX-License-Identifier: Apache-2.0 */
/* Names: taken away, listed in several answers, counted when they go; answers that lose their
 * descriptor. */
#include <sys/resource.h>

#include "fixture.h"
#include "shmem/context.h"

static void unlinked(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(f);
    shmemi_segment_t first = fixture_segment(a, "x", 4096), opened, second;
    CHECK_OK(shmemi_client_segment_open(b, "x", SHMEMI_RIGHTS_WRITE, &opened));
    uint64_t gone = shmemi_client_names_gone(b);
    CHECK_OK(shmemi_client_segment_unlink(b, "x", 0));
    CHECK(shmemi_client_names_gone(b) != gone && shmemi_client_names_gone(a) != gone);
    CHECK_STATUS(shmemi_client_segment_unlink(a, "x", 0), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmemi_client_segment_open(b, "x", SHMEMI_RIGHTS_READ, &second),
                 SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmemi_client_segment_unlink(a, "a b", 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_client_segment_unlink(a, NULL, 0), SHMEM_ERR_INVALID);
    second = fixture_segment(b, "x", 8192);
    CHECK(second.id != first.id && second.offset != first.offset);
    gone = shmemi_client_names_gone(a);
    CHECK_STATUS(shmemi_client_segment_unlink(a, "x", first.id), SHMEM_ERR_NOT_FOUND);
    CHECK(strstr(shmem_error_detail()->text, "another one"));
    CHECK_EQ(shmemi_client_names_gone(a), gone);
    CHECK_EQ(fixture_counts(a).segments, 2);
    shmemi_client_segment_close(a, &first);
    shmemi_client_segment_close(b, &opened);
    CHECK_EQ(fixture_counts(a).segments, 1);
    CHECK_OK(shmemi_client_segment_open(a, "x", SHMEMI_RIGHTS_READ, &opened));
    CHECK(opened.id == second.id && opened.rights == SHMEMI_RIGHTS_READ);
    CHECK_EQ(fcntl(opened.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    gone = shmemi_client_names_gone(a);
    shmemi_client_segment_close(a, &opened);
    CHECK_EQ(shmemi_client_names_gone(a), gone);
    shmemi_client_segment_close(b, &second); /* a name goes with its segment, too */
    CHECK(shmemi_client_names_gone(a) != gone);
    CHECK_EQ(fixture_counts(a).segments, 0);
    shmemi_client_detach(a);
    shmemi_client_detach(b);
    fixture_end(f);
}

/* A name is free while its segment is still being made, and the creator gets his all the same. */
static void unlinked_while_pending(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_wire_message_t m;
    int fd = fixture_raw(f);
    fixture_hello(&m);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_welcome_t));
    shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_CREATE, 2);
    m.create.bytes = 64 << 20;
    m.create.flags = SHMEMI_CREATE_RESERVE;
    m.create.huge = SHMEMI_HUGE_OFF;
    m.create.node = -1;
    m.create.name_bytes = 3;
    memcpy(m.create.name, "big", 3);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    FIXTURE_AWAIT(client, segments, 1);
    CHECK_OK(shmemi_client_segment_unlink(client, "big", 0));
    shmemi_segment_t other = fixture_segment(client, "big", 4096);
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_segment_t));
    CHECK(m.segment.created == 1 && m.segment.id != other.id);
    CHECK_EQ(fixture_counts(client).segments, 2);
    close(fd); /* this process lives: a suspect */
    shmemi_client_detach(client);
    fixture_end(f);
}

static size_t list(shmemi_client_t *client, const char *prefix, shmemi_segment_entry_t *entries,
                   size_t room)
{
    size_t count = 4711;
    CHECK_OK(shmemi_client_segment_list(client, prefix, entries, room, &count));
    return count;
}

static void listed(void)
{
    enum { MANY = 23 };
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(f);
    shmemi_segment_entry_t entries[64];
    shmemi_segment_t opened;
    char name[32];
    CHECK_EQ(list(a, "", entries, 64), 0);
    fixture_segment(a, NULL, 4096); /* anonymous ones have nothing to list */
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%s/%d", i % 3 ? "one" : "two", i);
        shmemi_segment_request_t r = {.name = name,
                                      .bytes = (uint64_t)(i + 1) * 100,
                                      .limit = 1 << 20,
                                      .kind = i % 2 ? SHMEMI_SEGMENT_REGION : SHMEMI_SEGMENT_PLAIN,
                                      .huge = SHMEMI_HUGE_OFF,
                                      .reserve = 1,
                                      .access = SHMEM_ACCESS_GROUP_READ};
        CHECK_OK(shmemi_client_segment_create(a, &r, &opened));
    }
    CHECK_OK(shmemi_client_segment_open(b, name, SHMEMI_RIGHTS_READ, &opened));
    CHECK_OK(shmemi_client_segment_open(b, name, SHMEMI_RIGHTS_READ, &opened));
    CHECK_EQ(list(b, "", entries, 64), MANY);
    for (int i = 0; i < MANY; i++) { /* newest first */
        int k = MANY - 1 - i;
        snprintf(name, sizeof name, "%s/%d", k % 3 ? "one" : "two", k);
        CHECK_STR(entries[i].name, name);
        CHECK(entries[i].first == (uint64_t)(k + 1) * 100 && entries[i].bytes == 1 << 20);
        CHECK(entries[i].kind == (k % 2 ? SHMEMI_SEGMENT_REGION : SHMEMI_SEGMENT_PLAIN));
        CHECK(entries[i].uid == geteuid() && entries[i].gid == getegid());
        CHECK_EQ(entries[i].access, SHMEM_ACCESS_GROUP_READ);
        CHECK_EQ(entries[i].users, k == MANY - 1 ? 2 : 1); /* clients, not openings */
    }
    CHECK_EQ(list(a, "two/", entries, 64), (MANY + 2) / 3);
    CHECK_EQ(list(a, "three/", entries, 64), 0);
    strcpy(entries[3].name, "untouched");
    CHECK_EQ(list(a, "one/", entries, 3), MANY - (MANY + 2) / 3);
    CHECK_STR(entries[3].name, "untouched");
    CHECK_EQ(list(a, "", NULL, 0), MANY);
    shmemi_client_detach(a);
    CHECK_EQ(list(b, "", entries, 64), 1);
    shmemi_client_detach(b);
    fixture_end(f);
}

static void come_and_go(void *arg)
{
    shmemi_client_t *client = fixture_attach(arg);
    char name[32];
    for (unsigned i = 0;; i++) {
        shmemi_segment_t s[8];
        for (unsigned k = 0; k < 8; k++) {
            snprintf(name, sizeof name, "x/%u-%u", i, k);
            s[k] = fixture_segment(client, name, 4096);
        }
        for (unsigned k = 0; k < 8; k++)
            shmemi_client_segment_close(client, &s[k]);
    }
}

/* What stays is in every list, once, whatever else comes and goes. */
static void listed_while_it_changes(void)
{
    enum { STAY = 12 };
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    char name[32];
    for (int i = 0; i < STAY; i++) {
        snprintf(name, sizeof name, "x/stays-%d", i);
        fixture_segment(client, name, 4096);
    }
    pid_t pid = harness_fork(come_and_go, f);
    double end = harness_now() + 0.5;
    for (int rounds = 0; rounds < 20 || harness_now() < end; rounds++) {
        shmemi_segment_entry_t entries[64];
        unsigned seen = 0;
        size_t count = list(client, "x/", entries, 64), stayed = 0;
        CHECK(count <= 64);
        for (size_t i = 0; i < count; i++)
            if (strncmp(entries[i].name, "x/stays-", 8) == 0) {
                seen |= 1u << atoi(entries[i].name + 8);
                stayed++;
            }
        CHECK(stayed == STAY && seen == (1u << STAY) - 1);
    }
    kill(pid, SIGKILL);
    CHECK_EQ(harness_wait(pid, 10), -SIGKILL);
    FIXTURE_AWAIT(client, segments, STAY);
    shmemi_client_detach(client);
    fixture_end(f);
}

/* The client has no room for a descriptor: the server does not count what the client did not get.
 */
static void descriptor_that_is_cut(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(f);
    shmemi_segment_t x = fixture_segment(a, "x", 4096), opened;
    shmemi_segment_entry_t entry;
    struct rlimit limit, tight;
    int next = dup(0);
    close(next);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    tight = limit;
    tight.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    opened.id = 4711;
    CHECK_STATUS(shmemi_client_segment_open(b, "x", SHMEMI_RIGHTS_WRITE, &opened), SHMEM_ERR_LIMIT);
    CHECK(strstr(shmem_error_detail()->text, "ulimit -n"));
    shmemi_segment_request_t r = {
        .name = "y", .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &opened), SHMEM_ERR_LIMIT);
    CHECK_EQ(opened.id, 4711);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_EQ(list(a, "", &entry, 1), 1);
    CHECK_EQ(entry.users, 1);
    shmemi_client_segment_close(a, &x);
    CHECK_EQ(fixture_counts(b).segments, 0);
    CHECK_OK(shmemi_client_segment_create(b, &r, &opened));
    shmemi_client_detach(a);
    shmemi_client_detach(b);
    fixture_end(f);
}

int main(void)
{
    RUN(unlinked);
    RUN(unlinked_while_pending);
    RUN(listed);
    RUN(listed_while_it_changes);
    RUN(descriptor_that_is_cut);
    return harness_end();
}
