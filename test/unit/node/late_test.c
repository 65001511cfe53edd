/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that their client has given up: nothing of them stays, the connection goes on. */
#include "fixture.h"

#include "node/client_core.h"

enum { MIB = 1 << 20, TRIES = 10 };

/* Ask for a segment that takes long to make, and for something else before it is there. */
static void the_next_request_takes_the_last_one_back(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *witness = fixture_attach(f);
    shmemi_wire_message_t m;
    bool late = false;
    for (int i = 0; i < 3 && !late; i++) {
        int fd = fixture_raw(f);
        fixture_hello(&m);
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        CHECK(fixture_receive(fd, &m) > 0 && m.header.type == SHMEMI_WIRE_WELCOME);
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_CREATE, 2);
        m.create.bytes = 128 * MIB;
        m.create.huge = SHMEMI_HUGE_OFF;
        m.create.flags = SHMEMI_CREATE_RESERVE;
        m.create.node = -1;
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        shmemi_wire_begin(&m, SHMEMI_WIRE_STATUS, 3);
        CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
        CHECK(fixture_receive(fd, &m) > 0);
        late = m.header.type == SHMEMI_WIRE_SEGMENT; /* it was made before we asked again */
        if (late)
            CHECK(fixture_receive(fd, &m) > 0);
        else
            FIXTURE_AWAIT(witness, segments, 0);
        CHECK_EQ(m.header.type, SHMEMI_WIRE_COUNTS);
        CHECK_EQ(m.header.sequence, 3);
        close(fd);
    }
    shmemi_client_detach(witness);
    fixture_end(f);
}

/* The answer comes when nobody waits for it any more: what it opened is closed again. */
static void late_answers_leave_nothing_open(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *owner = fixture_attach(f), *late = fixture_attach(f);
    shmemi_segment_t s = fixture_segment(owner, "wanted", MIB);
    int timeouts = 0;
    for (int i = 0; i < TRIES; i++) {
        shmemi_wire_message_t m;
        int fd = -1;
        shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_OPEN, 0);
        m.open.name_bytes = (uint32_t)strlen("wanted");
        memcpy(m.open.name, "wanted", m.open.name_bytes);
        m.open.rights = SHMEMI_RIGHTS_WRITE;
        kill(f->pid, SIGSTOP);
        shmem_status_t status =
            shmemi_client_request(late, &m, SHMEMI_WIRE_SEGMENT, &fd, shmemi_deadline_in(100000));
        kill(f->pid, SIGCONT);
        CHECK(status == SHMEM_OK || status == SHMEM_ERR_TIMEOUT);
        timeouts += status == SHMEM_ERR_TIMEOUT;
        if (fd >= 0)
            close(fd);
    }
    CHECK(timeouts > 0);
    CHECK_EQ(fixture_counts(late).segments, 1); /* the connection is as good as before */
    shmemi_client_segment_close(owner, &s);
    if (timeouts == TRIES)
        CHECK_EQ(fixture_counts(late).segments, 0);
    shmemi_client_detach(late);
    shmemi_client_detach(owner);
    fixture_end(f);
}

int main(void)
{
    RUN(the_next_request_takes_the_last_one_back);
    RUN(late_answers_leave_nothing_open);
    return harness_end();
}
