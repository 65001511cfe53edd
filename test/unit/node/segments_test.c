/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: names, kinds, counts of openings, what is freed when, long reservations, two servers.
 */
#include <poll.h>

#include "fixture.h"
#include "os/segment.h"

#define MIB (1ull << 20)

static void create_open_close(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(f);
    shmemi_segment_t made = fixture_segment(a, "heap", 10000), opened;
    void *one, *two;
    CHECK(made.created);
    CHECK_EQ(made.bytes, 12288);
    CHECK_EQ(made.page_bytes, 4096);
    CHECK(fcntl(made.fd, F_GETFD) & FD_CLOEXEC);
    CHECK_OK(shmemi_client_segment_open(b, "heap", SHMEMI_RIGHTS_WRITE, &opened));
    CHECK(!opened.created);
    CHECK_EQ(opened.id, made.id);
    CHECK_EQ(opened.offset, made.offset);
    CHECK(opened.fd != made.fd);
    CHECK_OK(shmemi_space_map(made.offset, made.bytes, made.fd, 1, &one));
    CHECK_OK(shmemi_space_map(opened.offset, opened.bytes, opened.fd, 1, &two));
    CHECK(one == two);
    ((volatile char *)one)[11111] = 1;
    CHECK_OK(shmemi_space_unmap(one));
    CHECK_OK(shmemi_space_unmap(two));
    CHECK_EQ(fixture_counts(a).segments, 1);
    CHECK_EQ(fixture_counts(a).segment_bytes, 12288);
    shmemi_client_segment_close(a, &made);
    CHECK_EQ(made.fd, -1);
    shmemi_client_segment_close(a, &made); /* again: nothing */
    CHECK_EQ(fixture_counts(a).segments, 1);
    shmemi_client_segment_close(b, &opened); /* the last one */
    CHECK_EQ(fixture_counts(a).segments, 0);
    CHECK_EQ(fixture_counts(a).segment_bytes, 0);
    shmemi_client_detach(a);
    shmemi_client_detach(b);
    fixture_end(f);
}

static void refusals(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(f);
    shmemi_segment_t made = fixture_segment(a, "x", 4096), s = {.id = 77, .fd = -1};
    shmemi_segment_request_t r = {
        .name = "x", .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_EXISTS);
    CHECK(strstr(shmem_error_detail()->text, "'x' of 4096 bytes"));
    r.open_existing = 1;
    r.bytes = 4097;
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_MISMATCH);
    CHECK(strstr(shmem_error_detail()->text, "4096") && strstr(shmem_error_detail()->text, "4097"));
    r.bytes = 4096;
    r.kind = SHMEMI_SEGMENT_POOL;
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_MISMATCH);
    r.kind = (shmemi_segment_kind_t)9;
    r.name = "y";
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_INVALID);
    r.kind = SHMEMI_SEGMENT_PLAIN;
    r.huge = 5;
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_INVALID);
    r.huge = SHMEMI_HUGE_OFF;
    r.bytes = 0;
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_INVALID);
    r.bytes = SHMEMI_SPACE_BYTES + 1;
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_LIMIT);
    r.bytes = SHMEMI_SPACE_BYTES; /* the guard does not fit any more */
    r.reserve = 0;
    CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_LIMIT);
    r.bytes = 4096;
    static const char *const bad[] = {"", "..", "a/../b", "with space", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        r.name = bad[i];
        CHECK_STATUS(shmemi_client_segment_create(b, &r, &s), SHMEM_ERR_INVALID);
        CHECK_STATUS(shmemi_client_segment_open(b, bad[i], SHMEMI_RIGHTS_WRITE, &s),
                     SHMEM_ERR_INVALID);
    }
    CHECK_STATUS(shmemi_client_segment_open(b, NULL, SHMEMI_RIGHTS_WRITE, &s), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_client_segment_open(b, "nosuch", SHMEMI_RIGHTS_WRITE, &s),
                 SHMEM_ERR_NOT_FOUND);
    CHECK_EQ(s.id, 77);
    CHECK_EQ(fixture_counts(b).segments, 1);
    r.name = "x"; /* all those refusals have broken nothing */
    r.open_existing = 1;
    CHECK_OK(shmemi_client_segment_create(b, &r, &s));
    CHECK_EQ(s.id, made.id);
    shmemi_client_detach(a);
    shmemi_client_detach(b);
    fixture_end(f);
}

static void counted_openings(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f);
    shmemi_segment_t s[8];
    s[0] = fixture_segment(a, "x", 4096);
    for (int i = 1; i < 8; i++)
        CHECK_OK(shmemi_client_segment_open(a, "x", SHMEMI_RIGHTS_WRITE, &s[i]));
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(fixture_counts(a).segments, 1);
        shmemi_client_segment_close(a, &s[i]);
    }
    CHECK_EQ(fixture_counts(a).segments, 0);
    s[0] = fixture_segment(a, NULL, 4096); /* anonymous: never meet */
    s[1] = fixture_segment(a, NULL, 4096);
    CHECK(s[0].id != s[1].id && s[0].offset != s[1].offset);
    CHECK_EQ(fixture_counts(a).segments, 2);
    shmemi_client_detach(a); /* closes what is open, and returns when that is done */
    a = fixture_attach(f);
    CHECK_EQ(fixture_counts(a).segments, 0);
    shmemi_client_detach(a);
    fixture_end(f);
}

static void openings_are_limited(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f);
    fixture_segment(a, "x", 4096);
    shmemi_wire_message_t m;
    int fd = fixture_raw(f); /* keeps no descriptor of what it opens */
    fixture_hello(&m);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_welcome_t));
    for (int i = 0; i <= SHMEMI_HOLDS; i++) {
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_OPEN, fixture_next());
        m.open.name_bytes = 1;
        m.open.rights = SHMEMI_RIGHTS_READ;
        m.open.name[0] = 'x';
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        if (i < SHMEMI_HOLDS)
            CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_segment_t));
    }
    fixture_expect_error(fd, SHMEM_ERR_LIMIT, "4096 segments open already");
    shmemi_wire_begin(&m, SHMEMI_WIRE_GOODBYE, fixture_next()); /* closes them all */
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    FIXTURE_AWAIT(a, clients, 1);
    close(fd);
    shmemi_client_detach(a);
    fixture_end(f);
}

static void freed_memory_returns(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f);
    uint64_t first = 0;
    for (int i = 0; i < 100; i++) { /* 1.6 GiB in all, never more than 16 MiB */
        shmemi_segment_t s = fixture_segment(a, "big", 16 * MIB);
        if (!first)
            first = s.offset;
        CHECK_EQ(s.offset, first); /* the place is used again */
        shmemi_client_segment_close(a, &s);
    }
    shmemi_client_detach(a);
    fixture_end(f);
}

static void impatient(int rank, int n, void *arg)
{
    shmemi_client_t *a = fixture_attach(arg);
    shmemi_segment_request_t r = {.name = "slow",
                                  .bytes = 96 * MIB,
                                  .huge = SHMEMI_HUGE_OFF,
                                  .reserve = 1,
                                  .open_existing = 1};
    shmemi_segment_t s;
    (void)rank;
    (void)n;
    CHECK_OK(shmemi_client_segment_create(a, &r, &s));
    CHECK_EQ(s.bytes, 96 * MIB);
    CHECK_OK(shmemi_segment_verify(s.fd, s.bytes));
    shmemi_client_detach(a);
}

static void made_by_a_thread(void)
{
    fixture_server_t *f = fixture_server();
    harness_pes(6, HARNESS_THREAD, 60, impatient, f); /* one makes it, the others wait */
    shmemi_client_t *a = fixture_attach(f);
    FIXTURE_AWAIT(a, clients, 1);
    CHECK_EQ(fixture_counts(a).segments, 0);
    shmemi_segment_request_t r = {
        .name = "toomuch", .bytes = SHMEMI_SPACE_BYTES / 2, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    shmemi_segment_t s;
    CHECK_STATUS(shmemi_client_segment_create(a, &r, &s), SHMEM_ERR_NOMEM);
    CHECK_EQ(fixture_counts(a).segments, 0);
    shmemi_client_detach(a);
    fixture_end(f);
}

static void ask_and_die(void *arg)
{
    shmemi_client_t *a = fixture_attach(arg);
    shmemi_segment_request_t r = {
        .name = "orphan", .bytes = 64 * MIB, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    shmemi_segment_t s;
    alarm(1); /* in case the server is faster */
    signal(SIGALRM, SIG_DFL);
    shmemi_client_segment_create(a, &r, &s);
    raise(SIGKILL);
}

static void creator_dies_waiting(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f);
    for (int i = 0; i < 3; i++) {
        pid_t pid = harness_fork(ask_and_die, f);
        harness_sleep(0.004 * (i + 1));
        kill(pid, SIGKILL);
        CHECK_EQ(harness_wait(pid, 10), -SIGKILL);
        FIXTURE_AWAIT(a, clients, 1);
        FIXTURE_AWAIT(a, segments, 0);
    }
    shmemi_client_detach(a);
    fixture_end(f);
}

/* More at once than the server has threads for: all get theirs. */
static void many_at_once(void)
{
    enum { MANY = 40 };
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_wire_message_t m;
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        fds[i] = fixture_raw(f);
        fixture_hello(&m);
        CHECK(fixture_send(fds[i], &m, m.header.bytes, NULL, 0));
        CHECK_EQ(fixture_receive(fds[i], &m), (int)sizeof(shmemi_wire_welcome_t));
    }
    for (int i = 0; i < MANY; i++) {
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_CREATE, 2);
        m.create.bytes = (8 << 20) + 4096;
        m.create.flags = SHMEMI_CREATE_RESERVE;
        m.create.huge = SHMEMI_HUGE_OFF;
        m.create.node = -1;
        CHECK(fixture_send(fds[i], &m, m.header.bytes, NULL, 0));
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(fixture_receive(fds[i], &m), (int)sizeof(shmemi_wire_segment_t));
        shmemi_wire_begin(&m, SHMEMI_WIRE_GOODBYE, 3);
        CHECK(fixture_send(fds[i], &m, m.header.bytes, NULL, 0));
        close(fds[i]);
    }
    FIXTURE_AWAIT(client, segments, 0);
    FIXTURE_AWAIT(client, clients, 1);
    shmemi_client_detach(client);
    fixture_end(f);
}

/* Who asks again and again without waiting for answers fills neither the table nor the queue. */
static void impatience_makes_no_crowd(void)
{
    enum { MANY = 120 };
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_wire_message_t m;
    uint64_t ready = 0;
    int fd = fixture_raw(f);
    fixture_hello(&m);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_welcome_t));
    for (uint32_t i = 2; i < MANY + 2; i++) {
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_CREATE, i);
        m.create.bytes = (16 << 20) + 4096;
        m.create.flags = SHMEMI_CREATE_RESERVE;
        m.create.huge = SHMEMI_HUGE_OFF;
        m.create.node = -1;
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        if (i % 10)
            continue;
        uint64_t there = fixture_counts(client).segments;
        while (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1) {
            CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_segment_t));
            ready++; /* before the next was asked for: it is open, and stays */
        }
        CHECK(there <= ready + 16 + 2);
    }
    while (m.header.type != SHMEMI_WIRE_SEGMENT || m.header.sequence != MANY + 1)
        CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_segment_t));
    shmemi_wire_begin(&m, SHMEMI_WIRE_GOODBYE, MANY + 2);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    FIXTURE_AWAIT(client, segments, 0);
    close(fd);
    shmemi_client_detach(client);
    fixture_end(f);
}

/* Descriptors that others do not read keep the kernel from taking more: who asks then is told so,
 * and goes on. */
static void crowded(void)
{
    for (unsigned nth = 1; nth <= 2; nth++) { /* the welcome, a segment */
        fixture_server_t *f = fixture_new();
        f->fault_armed = 1;
        strcpy(f->fault, "os.socket.send.crowded");
        f->action = SHMEMI_FAULT_FAIL;
        f->nth = nth;
        fixture_start(f);
        shmemi_client_t *a = NULL;
        shmemi_segment_t s;
        shmemi_segment_request_t r = {
            .name = "x", .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
        if (nth == 1) {
            CHECK_STATUS(fixture_try_attach(f, &a), SHMEM_ERR_LIMIT);
            CHECK(strstr(shmem_error_detail()->text, "in flight"));
        }
        a = fixture_attach(f);
        CHECK_EQ(fixture_counts(a).clients, 1);
        if (nth == 2) {
            CHECK_STATUS(shmemi_client_segment_create(a, &r, &s), SHMEM_ERR_LIMIT);
            CHECK_EQ(fixture_counts(a).segments, 0);
        }
        CHECK_OK(shmemi_client_segment_create(a, &r, &s));
        shmemi_client_detach(a);
        fixture_end(f);
    }
}

static void server_failures(void)
{
    static const struct {
        const char *point;
        unsigned nth;
    } faults[] = {{"node.table.add", 1}, {"node.hold.add", 1}, {"os.segment.create", 2}};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        fixture_server_t *f = fixture_new();
        f->fault_armed = 1;
        strcpy(f->fault, faults[i].point);
        f->action = SHMEMI_FAULT_FAIL;
        f->nth = faults[i].nth;
        fixture_start(f);
        shmemi_client_t *a = fixture_attach(f);
        shmemi_segment_request_t r = {
            .name = "x", .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
        shmemi_segment_t s;
        if (shmemi_client_segment_create(a, &r, &s) == SHMEM_OK && i < 2)
            harness_fail(__FILE__, __LINE__, "%s did not strike", faults[i].point);
        shmemi_client_detach(a);
        a = fixture_attach(f);
        CHECK_EQ(fixture_counts(a).segments, 0);
        CHECK_OK(shmemi_client_segment_create(a, &r, &s));
        shmemi_client_detach(a);
        fixture_end(f);
    }
}

static void two_servers(void)
{
    fixture_server_t *f = fixture_server(), *g = fixture_server();
    shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(g);
    CHECK(shmemi_client_actor(a)->roster != shmemi_client_actor(b)->roster);
    shmemi_segment_t s = fixture_segment(a, "same", 4096), t = fixture_segment(b, "same", 4096);
    void *p, *q;
    CHECK_OK(shmemi_space_map(s.offset, s.bytes, s.fd, 1, &p));
    CHECK_OK(shmemi_space_map(t.offset, t.bytes, t.fd, 1, &q));
    CHECK(p != q);
    CHECK_OK(shmemi_space_unmap(p));
    CHECK_OK(shmemi_space_unmap(q));
    shmemi_client_detach(a);
    shmemi_client_detach(b);
    fixture_end(f);
    fixture_end(g);
}

/* A number that was used cannot stand for another request. */
static void numbers_count_up(void)
{
    static const uint32_t wrong[] = {0, 1, 6, 7, 7 + (1u << 31)};
    fixture_server_t *f = fixture_server();
    shmemi_wire_message_t m;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int fd = fixture_raw(f);
        fixture_hello(&m);
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_welcome_t));
        shmemi_wire_begin(&m, SHMEMI_WIRE_STATUS, 7);
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_counts_t));
        shmemi_wire_begin(&m, SHMEMI_WIRE_STATUS, wrong[i]);
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        fixture_expect_error(fd, SHMEM_ERR_PROTOCOL, "not above the last one");
        fixture_expect_closed(fd);
        close(fd);
    }
    fixture_end(f);
}

int main(void)
{
    RUN(create_open_close);
    RUN(refusals);
    RUN(counted_openings);
    RUN(openings_are_limited);
    RUN(freed_memory_returns);
    RUN(made_by_a_thread);
    RUN(impatience_makes_no_crowd);
    RUN(creator_dies_waiting);
    RUN(many_at_once);
    RUN(crowded);
    RUN(server_failures);
    RUN(two_servers);
    RUN(numbers_count_up);
    return harness_end();
}
