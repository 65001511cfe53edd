/* SPDX-License-Identifier: Apache-2.0 */
/* Anything at all on the socket: the server answers or closes, leaks nothing, serves the others. */
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "fixture.h"

static uint64_t seed = 0x9e3779b97f4a7c15ull;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static int with_hello(const fixture_server_t *f)
{
    shmemi_wire_message_t m;
    int fd = fixture_raw(f);
    fixture_hello(&m);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_welcome_t));
    return fd;
}

static void each_breach(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_wire_message_t m;
    static const struct {
        int greeted, type;
        const char *text;
    } breaches[] = {
        {0, SHMEMI_WIRE_STATUS, "before the hello"}, {0, SHMEMI_WIRE_GOODBYE, "before the hello"},
        {1, SHMEMI_WIRE_HELLO, "after the hello"},   {1, SHMEMI_WIRE_WELCOME, "not a request"},
        {1, SHMEMI_WIRE_ERROR, "not a request"},
    };
    for (size_t i = 0; i < sizeof breaches / sizeof breaches[0]; i++) {
        int fd = breaches[i].greeted ? with_hello(f) : fixture_raw(f);
        shmemi_wire_begin(&m, (shmemi_wire_type_t)breaches[i].type, 5);
        if (breaches[i].type == SHMEMI_WIRE_HELLO)
            fixture_hello(&m);
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        fixture_expect_error(fd, SHMEM_ERR_PROTOCOL, breaches[i].text);
        fixture_expect_closed(fd);
        close(fd);
    }
    fixture_end(f);
}

/* A server as on an old kernel: where the named thing fails. */
static fixture_server_t *old_kernel(const char *point)
{
    fixture_server_t *f = fixture_new();
    f->fault_armed = 1;
    strcpy(f->fault, point);
    f->action = SHMEMI_FAULT_FAIL;
    f->nth = 1;
    fixture_start(f);
    return f;
}

/* Where the kernel lets them come: with every type of message, before and after the hello. The
 * reading end of a pipe says whether anybody keeps its other end. */
static void descriptors_are_not_taken(void)
{
    static const int types[] = {SHMEMI_WIRE_HELLO,        SHMEMI_WIRE_GOODBYE,
                                SHMEMI_WIRE_SEGMENT_OPEN, SHMEMI_WIRE_SEGMENT_CLOSE,
                                SHMEMI_WIRE_STATUS,       SHMEMI_WIRE_SEGMENT_LIST,
                                SHMEMI_WIRE_WELCOME,      SHMEMI_WIRE_SEGMENT_CREATE};
    fixture_server_t *f = old_kernel("os.socket.passrights");
    int before = fixture_count_fds(f->pid);
    for (unsigned i = 0; i < 2 * sizeof types / sizeof types[0]; i++) {
        shmemi_wire_message_t m;
        int ends[2], fd = i % 2 ? with_hello(f) : fixture_raw(f);
        char c;
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        shmemi_wire_begin(&m, (shmemi_wire_type_t)types[i / 2], 5);
        if (types[i / 2] == SHMEMI_WIRE_HELLO)
            fixture_hello(&m);
        int five[5] = {ends[1], ends[1], ends[1], ends[1], ends[1]};
        CHECK(fixture_send(fd, &m, m.header.bytes, five, i % 4 == 3 ? 5 : 1));
        fixture_expect_error(fd, SHMEM_ERR_PROTOCOL, "brought descriptors");
        fixture_expect_closed(fd);
        close(fd);
        close(ends[1]);
        CHECK_EQ(read(ends[0], &c, 1), 0); /* waits while somebody has it */
        close(ends[0]);
    }
    double end = harness_now() + 5; /* of those who said hello: once they are known to be gone */
    while (fixture_count_fds(f->pid) > before + (int)(sizeof types / sizeof types[0]))
        CHECK(harness_now() < end);
    fixture_end(f);
}

/* Where it does not, they cannot even be sent. */
static void descriptors_cannot_be_sent(void)
{
    fixture_server_t *f = fixture_server();
    int fd = fixture_raw(f), probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), two = 2;
    int no = 0;
    shmemi_wire_message_t m;
    fixture_hello(&m);
    if (setsockopt(probe, SOL_SOCKET, 83 /* SO_PASSRIGHTS */, &no, sizeof no) == 0) {
        CHECK(!fixture_send(fd, &m, m.header.bytes, &two, 1));
        CHECK_EQ(errno, EPERM);
    }
    close(probe);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_welcome_t));
    close(fd);
    fixture_end(f);
}

static void say_hello_for_the_parent(void *arg)
{
    shmemi_wire_message_t m;
    fixture_hello(&m);
    CHECK(fixture_send(*(int *)arg, &m, m.header.bytes, NULL, 0));
}

/* The second hello of an old kernel's peer counts only from the process that connected. */
static void anothers_hello(void)
{
    fixture_server_t *f = old_kernel("os.identity.peerpidfd");
    shmemi_wire_message_t m;
    int fd = fixture_raw(f);
    fixture_hello(&m);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_plain_t));
    CHECK_EQ(m.header.type, SHMEMI_WIRE_HELLO_AGAIN);
    CHECK_EQ(harness_wait(harness_fork(say_hello_for_the_parent, &fd), 10), 0);
    fixture_expect_error(fd, SHMEM_ERR_ACCESS, "the process that made it");
    fixture_expect_closed(fd);
    close(fd);
    fixture_end(f);
}

/* Both were sent before the server asked: nothing is proved. */
static void hello_sent_too_early(void)
{
    fixture_server_t *f = old_kernel("os.identity.peerpidfd");
    shmemi_wire_message_t m;
    fixture_hello(&m);
    siginfo_t info;
    kill(f->pid, SIGSTOP);
    CHECK(waitid(P_PID, (id_t)f->pid, &info, WSTOPPED) == 0);
    int fd = fixture_raw(f);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    kill(f->pid, SIGCONT);
    fixture_expect_error(fd, SHMEM_ERR_PROTOCOL, "before it was asked");
    fixture_expect_closed(fd);
    close(fd);
    fixture_end(f);
}

/* One random message: damaged valid ones, noise, too long, with and without descriptors. */
static size_t invent(unsigned char *data, size_t room, int greeted)
{
    static const int types[] = {
        SHMEMI_WIRE_HELLO,         SHMEMI_WIRE_SEGMENT_CREATE, SHMEMI_WIRE_SEGMENT_OPEN,
        SHMEMI_WIRE_SEGMENT_CLOSE, SHMEMI_WIRE_STATUS,         SHMEMI_WIRE_GROW_ROSTER,
        SHMEMI_WIRE_SEGMENT,       SHMEMI_WIRE_COUNTS,         0x1234,
        SHMEMI_WIRE_SEGMENT_LIST,  SHMEMI_WIRE_SEGMENT_UNLINK, SHMEMI_WIRE_SEGMENT_GROW,
        SHMEMI_WIRE_ENTRIES};
    shmemi_wire_message_t m;
    size_t n = 1 + draw(draw(8) ? 600 : room);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)draw(256);
    if (draw(4) == 0)
        return n;
    shmemi_wire_begin(&m, (shmemi_wire_type_t)types[draw(sizeof types / sizeof types[0])],
                      (uint32_t)draw(100));
    if (m.header.type == SHMEMI_WIRE_HELLO && !greeted)
        fixture_hello(&m);
    size_t whole = m.header.bytes;
    for (uint64_t i = draw(4); i; i--) /* few damages: deep ones */
        m.bytes[draw(whole)] ^= (unsigned char)(1u << draw(8));
    if (m.header.type == SHMEMI_WIRE_SEGMENT_CREATE && m.create.bytes > 1 << 20)
        m.create.bytes &= 0xfffff;
    if (m.header.type == SHMEMI_WIRE_SEGMENT_GROW) {
        m.grow.id &= 0xff;
        m.grow.bytes &= 0xfffff;
    }
    memcpy(data, &m, whole);
    return draw(3) ? whole : n;
}

/* A request that is well formed as a message and means nothing. */
static void expect(int fd, shmemi_wire_message_t *m, shmem_status_t status, const char *text)
{
    CHECK(fixture_send(fd, m, m->header.bytes, NULL, 0));
    fixture_expect_error(fd, status, text);
}

static void wrong_values(void)
{
    static const struct {
        const char *text;
        uint64_t bytes, limit;
        uint32_t kind, huge, flags, access;
        int32_t node;
    } creates[] = {
        {"0 bytes", 0, 0, 0, 2, 0, 0, -1},
        {"limit of 4096", 8192, 4096, 0, 2, 0, 0, -1},
        {"unknown", 4096, 0, SHMEMI_SEGMENT_KINDS, 2, 0, 0, -1},
        {"unknown", 4096, 0, 0, 3, 0, 0, -1},
        {"unknown", 4096, 0, 0, 2, 4, 0, -1},
        {"unknown", 4096, 0, 0, 2, 0, 0, -2},
        {"NUMA node 4711", 4096, 0, 0, 2, 0, 0, 4711},
        {"access 01", 4096, 0, 0, 2, 0, 01, -1},
        {"access 020", 4096, 0, 0, 2, 0, 020, -1},
        {"access 0600", 4096, 0, 0, 2, 0, 0600, -1},
        {"access 04000", 4096, 0, 0, 2, 0, 04000, -1},
    };
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_wire_message_t m;
    int fd = with_hello(f);
    for (size_t i = 0; i < sizeof creates / sizeof creates[0]; i++) {
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_CREATE, fixture_next());
        m.create.bytes = creates[i].bytes;
        m.create.limit = creates[i].limit;
        m.create.kind = creates[i].kind;
        m.create.huge = creates[i].huge;
        m.create.flags = creates[i].flags;
        m.create.access = creates[i].access;
        m.create.node = creates[i].node;
        expect(fd, &m, SHMEM_ERR_INVALID, creates[i].text);
    }
    CHECK_EQ(fixture_counts(client).segments, 0);
    fixture_segment(client, "x", 4096);
    for (uint32_t rights = 0; rights < 8; rights++) {
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_OPEN, fixture_next());
        m.open.name_bytes = 1;
        m.open.name[0] = 'x';
        m.open.rights = rights;
        if (rights != SHMEMI_RIGHTS_READ && rights != SHMEMI_RIGHTS_WRITE)
            expect(fd, &m, SHMEM_ERR_INVALID, "rights");
    }
    shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_GROW, fixture_next());
    m.grow.id = 1;
    m.grow.bytes = 8192;
    expect(fd, &m, SHMEM_ERR_NOT_FOUND, "no segment number 1 open"); /* the other has */
    close(fd);
    shmemi_client_detach(client);
    fixture_end(f);
}

/* Names without an end, with something behind their end, of wrong length. */
static void wrong_names(void)
{
    static const struct {
        uint32_t bytes;
        int at;
    } names[] = {{0, 0}, {SHMEMI_WIRE_NAME, 0}, {UINT32_MAX, 0}, {3, 2}, {3, 100}, {2, 0}};
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_wire_message_t m;
    int fd = with_hello(f);
    fixture_segment(client, "xyz", 4096);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char field[SHMEMI_WIRE_NAME] = "xyz";
        if (names[i].bytes == SHMEMI_WIRE_NAME)
            memset(field, 'x', sizeof field);
        if (names[i].at)
            field[names[i].at] = names[i].at < 3 ? 0 : 'x';
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_UNLINK, fixture_next());
        m.unlink.name_bytes = names[i].bytes;
        memcpy(m.unlink.name, field, sizeof field);
        expect(fd, &m, SHMEM_ERR_INVALID, "name");
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_LIST, fixture_next());
        m.list.prefix_bytes = names[i].bytes;
        memcpy(m.list.prefix, field, sizeof field);
        expect(fd, &m, SHMEM_ERR_INVALID, "names to list");
    }
    /* cursors of any value end */
    static const uint64_t cursors[] = {1, 2, UINT64_MAX, 1ull << 63};
    for (size_t i = 0; i < sizeof cursors / sizeof cursors[0]; i++) {
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_LIST, fixture_next());
        m.list.cursor = cursors[i];
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_entries_t));
        CHECK(m.entries.cursor == 0 && m.entries.count == (i == 0 ? 0 : 1));
    }
    shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_LIST, fixture_next());
    m.list.zero = 1;
    expect(fd, &m, SHMEM_ERR_INVALID, "names to list");
    close(fd);
    CHECK_EQ(fixture_counts(client).segments, 1);
    shmemi_client_detach(client);
    fixture_end(f);
}

static void attacker(void *arg)
{
    fixture_server_t *f = arg;
    static unsigned char data[70000];
    int fd = -1, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fds[8] = {null, null, null, null, null, null, null, null}, greeted = 0;
    shmemi_wire_message_t m;
    for (int i = 0; i < 6000; i++) {
        if (fd < 0) {
            greeted = draw(2) == 0;
            fd = greeted ? with_hello(f) : fixture_raw(f);
        }
        size_t n = invent(data, sizeof data, greeted);
        if (!fixture_send(fd, data, n, fds, draw(8) ? 0 : (int)draw(8)) || draw(50) == 0 ||
            fixture_receive_within(fd, &m, 1000) == 0) {
            close(fd);
            fd = -1;
        }
    }
}

static void noise(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    int before = fixture_count_fds(f->pid);
    shmemi_segment_t kept = fixture_segment(client, "kept", 4096), again;
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        seed += (uint64_t)i * 7919;
        pids[i] = harness_fork(attacker, f);
    }
    for (int i = 0; i < 2; i++)
        CHECK_EQ(harness_wait(pids[i], 60), 0);
    FIXTURE_AWAIT(client, clients, 1);
    CHECK_OK(shmemi_client_segment_open(client, "kept", SHMEMI_RIGHTS_WRITE, &again));
    CHECK_EQ(again.id, kept.id);
    shmemi_client_segment_close(client, &again);
    shmemi_client_segment_close(client, &kept);
    CHECK_EQ(fixture_counts(client).segments, 0);
    double end = harness_now() + 7; /* half-open connections end by time at the latest */
    while (fixture_count_fds(f->pid) != before && harness_now() < end)
        harness_sleep(0.01);
    CHECK_EQ(fixture_count_fds(f->pid), before);
    shmemi_client_detach(client);
    fixture_end(f);
}

static void slow_reader(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    int fd = with_hello(f), sent = 0;
    shmemi_wire_message_t m;
    shmemi_wire_begin(&m, SHMEMI_WIRE_STATUS, 1);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    double end = harness_now() + 5;
    while (harness_now() < end) { /* asks and asks, never reads */
        m.header.sequence++;
        if (!fixture_send(fd, &m, m.header.bytes, NULL, 0) && errno != EAGAIN)
            break;
        sent++;
    }
    CHECK(sent > 10 && harness_now() < end);
    CHECK_EQ(fixture_counts(client).suspects, 1); /* dropped; its process lives */
    CHECK_EQ(fixture_counts(client).clients, 2);
    close(fd);
    shmemi_client_detach(client);
    fixture_end(f);
}

static void half_open(void)
{
    fixture_server_t *f = fixture_new();
    f->hello_ns = 50000000;
    fixture_start(f);
    shmemi_client_t *client = fixture_attach(f);
    int before = fixture_count_fds(f->pid), fds[40];
    for (int i = 0; i < 40; i++)
        fds[i] = fixture_raw(f);
    for (int i = 0; i < 40; i++) {
        fixture_expect_error(fds[i], SHMEM_ERR_TIMEOUT, "no hello in time");
        fixture_expect_closed(fds[i]);
        close(fds[i]);
    }
    CHECK_EQ(fixture_count_fds(f->pid), before);
    fixture_counts(client); /* attached ones are not affected */
    shmemi_client_detach(client);
    fixture_end(f);
}

static void crowd(void)
{
    fixture_server_t *f = fixture_server();
    enum { MORE = SHMEMI_HALF_OPEN + 30 };
    static int fds[MORE];
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_cur < MORE + 100)
        SKIP("needs more descriptors than ulimit -n allows");
    for (int i = 0; i < MORE; i++)
        fds[i] = fixture_raw(f);
    shmemi_client_t *client = fixture_attach(f); /* gets in all the same */
    shmemi_wire_message_t m;
    CHECK_EQ(fixture_receive(fds[0], &m), 0); /* the oldest had to go */
    CHECK(fixture_count_fds(f->pid) < SHMEMI_HALF_OPEN + 40);
    for (int i = 0; i < MORE; i++)
        close(fds[i]);
    shmemi_client_detach(client);
    fixture_end(f);
}

/* Every slot there is; then all of those clients end at once. */
static void take_all_slots(void *arg)
{
    fixture_server_t *f = arg;
    shmemi_wire_message_t m;
    for (int i = 1; i < SHMEMI_CLIENTS - 1; i++) /* one is the watcher's */
        with_hello(f);
    int fd = fixture_raw(f);
    fixture_hello(&m);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    fixture_expect_error(fd, SHMEM_ERR_LIMIT, "no client slot is free");
}

static void all_slots(void)
{
    struct rlimit limit, wide;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < 3 * SHMEMI_CLIENTS)
        SKIP("needs 12,288 descriptors, more than the hard limit");
    wide = (struct rlimit){3 * SHMEMI_CLIENTS, limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &wide) == 0);
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    CHECK_EQ(harness_wait(harness_fork(take_all_slots, f), 30), 0);
    FIXTURE_AWAIT(client, clients, 1);
    CHECK_EQ(fixture_counts(client).deaths, SHMEMI_CLIENTS - 2);
    shmemi_client_detach(fixture_attach(f));
    shmemi_client_detach(client);
    fixture_end(f);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void few_descriptors(void *arg)
{
    struct rlimit limit = {40, 40};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    fixture_serve(arg);
}

static void descriptors_run_out(void)
{
    fixture_server_t *f = fixture_new();
    f->pid = harness_fork(few_descriptors, f);
    while (!atomic_load(&f->ready))
        harness_sleep(0.001);
    shmemi_client_t *client = fixture_attach(f), *clients[40];
    int n = 0, segments = 0;
    while (n < 40 && fixture_try_attach(f, &clients[n]) == SHMEM_OK)
        n++;
    CHECK(n > 5 && n < 40);
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_LIMIT);
    shmemi_segment_request_t r = {.bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    shmemi_segment_t s;
    while (segments < 40 && shmemi_client_segment_create(client, &r, &s) == SHMEM_OK)
        segments++;
    CHECK(segments < 40);
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_LIMIT);
    while (n)
        shmemi_client_detach(clients[--n]);
    FIXTURE_AWAIT(client, clients, 1);
    CHECK_OK(shmemi_client_segment_create(client, &r, &s)); /* and all is well again */
    shmemi_client_detach(client);
    fixture_end(f);
}

int main(void)
{
    RUN(each_breach);
    RUN(descriptors_are_not_taken);
    RUN(descriptors_cannot_be_sent);
    RUN(anothers_hello);
    RUN(hello_sent_too_early);
    RUN(slow_reader);
    RUN(half_open);
    RUN(crowd);
    RUN(descriptors_run_out);
    RUN(all_slots);
    RUN(wrong_values);
    RUN(wrong_names);
    RUN(noise);
    return harness_end();
}
