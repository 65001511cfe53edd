/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that grow: pages exactly, races, failures, and those who asked and died. */
#include <sys/mman.h>
#include <sys/stat.h>

#include "fixture.h"

#define MIB   (1ull << 20)
#define LIMIT (64 * MIB)

static shmemi_segment_t region(shmemi_client_t *client, uint64_t bytes)
{
    shmemi_segment_request_t r = {.name = "region",
                                  .bytes = bytes,
                                  .limit = LIMIT + 4096,
                                  .kind = SHMEMI_SEGMENT_REGION,
                                  .huge = SHMEMI_HUGE_OFF,
                                  .reserve = 1};
    shmemi_segment_t s;
    CHECK_OK(shmemi_client_segment_create(client, &r, &s));
    return s;
}

static uint64_t pages_of(const shmemi_segment_t *s)
{
    struct stat info;
    CHECK(fstat(s->fd, &info) == 0);
    return (uint64_t)info.st_blocks * 512 / 4096;
}

static uint64_t published(const shmemi_segment_t *s)
{
    uint64_t bytes;
    CHECK_EQ(pread(s->fd, &bytes, sizeof bytes, (off_t)(s->bytes - 4096)), sizeof bytes);
    return bytes;
}

static void pages_exactly(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(f);
    shmemi_segment_t s = region(a, 5000), t;
    CHECK(s.first == 5000 && s.bytes == LIMIT + 4096);
    CHECK(pages_of(&s) == 3 && published(&s) == 5000); /* two, and the last one */
    CHECK_OK(shmemi_client_segment_grow(a, &s, 8192));
    CHECK(pages_of(&s) == 3 && published(&s) == 8192);
    CHECK_OK(shmemi_client_segment_grow(a, &s, 8193));
    CHECK(pages_of(&s) == 4 && published(&s) == 8193);
    CHECK_OK(shmemi_client_segment_grow(a, &s, 20 * MIB)); /* by a thread */
    CHECK(pages_of(&s) == 20 * 256 + 1 && published(&s) == 20 * MIB);
    CHECK_OK(shmemi_client_segment_grow(a, &s, 20 * MIB));
    CHECK_STATUS(shmemi_client_segment_grow(a, &s, 20 * MIB - 1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_client_segment_grow(a, &s, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_client_segment_grow(a, &s, LIMIT + 1), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmemi_client_segment_grow(a, &s, UINT64_MAX), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmemi_client_segment_grow(b, &s, LIMIT), SHMEM_ERR_NOT_FOUND); /* not b's */
    CHECK_OK(shmemi_client_segment_open(b, "region", SHMEMI_RIGHTS_WRITE, &t));
    CHECK_EQ(t.first, 20 * MIB);
    CHECK_OK(shmemi_client_segment_grow(b, &t, LIMIT));
    CHECK(pages_of(&s) == LIMIT / 4096 + 1 && published(&s) == LIMIT);
    shmemi_segment_t plain = fixture_segment(a, "plain", 4096);
    CHECK_STATUS(shmemi_client_segment_grow(a, &plain, 8192), SHMEM_ERR_INVALID);
    shmemi_client_detach(a);
    shmemi_client_detach(b);
    fixture_end(f);
}

/* Nothing stays reserved, and the next try succeeds. */
static void failures(void)
{
    static const struct {
        const char *point;
        unsigned nth;
        uint64_t bytes;
    } faults[] = {{"node.growing.reserve", 1, 2 * MIB},
                  {"node.growing.reserve", 1, 30 * MIB},
                  {"node.growing.page", 2, 2 * MIB}, /* the first one is of its making */
                  {"node.growing.page", 2, 30 * MIB},
                  {"node.reserve.thread", 1, 30 * MIB}}; /* goes on without a thread */
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        fixture_server_t *f = fixture_new();
        f->fault_armed = 1;
        strcpy(f->fault, faults[i].point);
        f->action = SHMEMI_FAULT_FAIL;
        f->nth = faults[i].nth;
        fixture_start(f);
        shmemi_client_t *a = fixture_attach(f), *b = fixture_attach(f);
        shmemi_segment_t s = region(a, 100), t;
        CHECK_EQ(shmemi_client_segment_grow(a, &s, faults[i].bytes) == SHMEM_OK, i == 4);
        if (i < 4) {
            CHECK(pages_of(&s) == 2 && published(&s) == 100);
            CHECK_OK(shmemi_client_segment_open(b, "region", SHMEMI_RIGHTS_READ, &t));
            CHECK_EQ(t.first, 100);
        }
        CHECK_OK(shmemi_client_segment_grow(a, &s, faults[i].bytes));
        CHECK(pages_of(&s) == faults[i].bytes / 4096 + 1 && published(&s) == faults[i].bytes);
        shmemi_client_detach(a);
        shmemi_client_detach(b);
        fixture_end(f);
    }
}

static void grower(int rank, int n, void *arg)
{
    shmemi_client_t *client = fixture_attach(arg);
    shmemi_segment_t s;
    uint64_t last = 0;
    CHECK_OK(shmemi_client_segment_open(client, "region", SHMEMI_RIGHTS_WRITE, &s));
    for (uint64_t step = 1; step <= 6; step++) {
        uint64_t wanted = step * 9 * MIB + (uint64_t)rank * 4096;
        shmem_status_t status = shmemi_client_segment_grow(client, &s, wanted);
        uint64_t now = published(&s);
        if (status && status != SHMEM_ERR_INVALID) /* others were faster */
            CHECK_OK(status);
        CHECK(now >= wanted && now >= last);
        last = now;
    }
    (void)n;
    shmemi_client_detach(client);
}

static void races(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t s = region(client, 100);
    harness_pes(4, HARNESS_PROC, 60, grower, f);
    CHECK_EQ(published(&s), 54 * MIB + 3 * 4096);
    CHECK_EQ(pages_of(&s), 54 * 256 + 3 + 1);
    FIXTURE_AWAIT(client, clients, 1);
    shmemi_client_segment_close(client, &s);
    CHECK_EQ(fixture_counts(client).segments, 0);
    shmemi_client_detach(client);
    fixture_end(f);
}

static void ask_and_die(void *arg)
{
    shmemi_client_t *client = fixture_attach(arg);
    shmemi_segment_t s;
    CHECK_OK(shmemi_client_segment_open(client, "region", SHMEMI_RIGHTS_WRITE, &s));
    shmemi_fault_arm("node.request.sent", SHMEMI_FAULT_KILL, 1);
    shmemi_client_segment_grow(client, &s, LIMIT);
}

static void make_ask_and_die(void *arg)
{
    shmemi_client_t *client = fixture_attach(arg);
    shmemi_segment_t s = region(client, 100);
    shmemi_fault_arm("node.request.sent", SHMEMI_FAULT_KILL, 1);
    shmemi_client_segment_grow(client, &s, LIMIT);
}

/* It grows all the same; what nobody else has open goes. */
static void who_asked_dies(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t s = region(client, 100);
    CHECK_EQ(harness_wait(harness_fork(ask_and_die, f), 20), -SIGKILL);
    FIXTURE_AWAIT(client, clients, 1);
    double end = harness_now() + 20;
    while (published(&s) != LIMIT && harness_now() < end)
        harness_sleep(0.001);
    CHECK_EQ(pages_of(&s), LIMIT / 4096 + 1);
    CHECK_EQ(fixture_counts(client).segments, 1);
    shmemi_client_segment_close(client, &s);
    CHECK_EQ(fixture_counts(client).segments, 0);
    CHECK_EQ(harness_wait(harness_fork(make_ask_and_die, f), 20), -SIGKILL);
    FIXTURE_AWAIT(client, segments, 0);
    shmemi_client_detach(client);
    fixture_end(f);
}

int main(void)
{
    RUN(pages_exactly);
    RUN(failures);
    RUN(races);
    RUN(who_asked_dies);
    return harness_end();
}
