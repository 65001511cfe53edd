/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing the control segment.
 *
 * Generations: the segment of generation g is named "job/<name>/<g>". A PE takes the first g whose
 * segment is not closed. It keeps the closed ones that it met open until all PEs have joined; until
 * then the others meet them too, and so all end up in the same generation. A PE that finalized a
 * generation finds it closed, because it closed it itself.
 */
#include "job/control.h"

#include <string.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/status.h"
#include "job/crowd.h"
#include "job/lifeline.h"
#include "job/peers.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "job"

_Static_assert(SHMEMI_PES == 4095, "the limit of SHMEM_SIZE in base/settings.h");

enum { JOB_NAME = 63 };

static unsigned counters_of(int size)
{
    unsigned total = 0, level = (unsigned)size;
    do {
        level = (level + SHMEMI_COUNTER_FAN - 1) / SHMEMI_COUNTER_FAN;
        total += level;
    } while (level > 1);
    return total;
}

static uint64_t layout_identity(void)
{
    static const uint32_t facts[] = {
        sizeof(shmemi_control_t), sizeof(shmemi_pe_t), sizeof(shmemi_line_t), sizeof(shmemi_call_t),
        SHMEMI_COUNTER_FAN,       SHMEMI_BODY,         SHMEMI_PAYLOAD,        SHMEMI_SCRATCH};
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < SHMEMI_COUNT(facts); i++)
        hash = (hash ^ facts[i]) * 16777619u;
    return (uint64_t)(SHMEMI_CONTROL_MAGIC | SHMEMI_CONTROL_VERSION) << 32 | hash;
}

static uint64_t segment_bytes(int size)
{
    return sizeof(shmemi_control_t) +
           (uint64_t)size * (sizeof(shmemi_pe_t) + (uint64_t)SHMEMI_SCRATCH);
}

/* Pages of the header, of the counters in use, of all PEs' blocks, and of the own scratch. */
static shmem_status_t reserve(shmem_context_t c)
{
    int fd = c->segment.fd;
    uint64_t counters = counters_of(c->size) * (uint64_t)sizeof(shmemi_counter_t);
    uint64_t pes = sizeof(shmemi_control_t),
             scratch = pes + (uint64_t)c->size * sizeof(shmemi_pe_t);
    if (SHMEMI_FAULT("job.control.reserve"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "reserving the control segment: injected");
    shmem_status_t status =
        shmemi_segment_reserve(fd, 0, offsetof(shmemi_control_t, counters) + counters);
    if (!status)
        status = shmemi_segment_reserve(fd, pes, (uint64_t)c->size * sizeof(shmemi_pe_t));
    if (!status && !c->alone)
        status = shmemi_segment_reserve(fd, scratch + (uint64_t)c->rank * SHMEMI_SCRATCH,
                                        SHMEMI_SCRATCH);
    return status;
}

static shmem_status_t map(shmem_context_t c)
{
    void *address;
    shmem_status_t status =
        shmemi_space_map(c->segment.offset, c->segment.bytes, c->segment.fd, 1, &address);
    if (status)
        return status;
    c->control = address;
    c->pes = (shmemi_pe_t *)(void *)((char *)address + sizeof(shmemi_control_t));
    c->scratch = (unsigned char *)(c->pes + c->size);
    status = reserve(c);
    if (status) {
        shmemi_space_unmap(address);
        c->control = NULL;
    }
    return status;
}

static void unmap(shmem_context_t c)
{
    if (c->control)
        shmemi_space_unmap(c->control);
    c->control = NULL;
    c->pes = NULL;
}

/* The server says that the segment has another size: say it in numbers of PEs. */
static shmem_status_t other_size(shmem_context_t c, const char *name)
{
    void *address;
    uint32_t found = 0;
    if (shmemi_client_segment_open(c->client, name, SHMEMI_RIGHTS_WRITE, &c->segment) == SHMEM_OK) {
        if (shmemi_segment_reserve(c->segment.fd, 0, SHMEMI_PAGE) == SHMEM_OK &&
            shmemi_space_map(c->segment.offset, c->segment.bytes, c->segment.fd, 1, &address) ==
                SHMEM_OK) {
            shmemi_control_t *control = address;
            /* SYNC control-size: acquire, pairs with release in settle() */
            found = atomic_load_explicit(&control->size, memory_order_acquire);
            shmemi_space_unmap(address);
        }
        shmemi_client_segment_close(c->client, &c->segment);
    }
    return shmemi_fail(SHMEM_ERR_MISMATCH, LAYER,
                       "this process joins job '%s' as PE %d of %d, others as one of %u: give all "
                       "processes the same number of PEs",
                       c->name, c->rank, c->size, found);
}

/* Settle what all PEs must agree on: the first one's word stands. */
static shmem_status_t settle(shmem_context_t c)
{
    uint64_t identity = 0, mine = layout_identity();
    /* SYNC control-identity: acquire-release, pairs with itself in the other PEs */
    if (!atomic_compare_exchange_strong_explicit(&c->control->identity, &identity, mine,
                                                 memory_order_acq_rel, memory_order_acquire) &&
        identity != mine)
        return shmemi_fail(
            SHMEM_ERR_VERSION, LAYER,
            "job '%s' has a control segment of version %08x layout %08x, this "
            "program uses %08x, %08x: run all PEs with the same build of the library",
            c->name, (unsigned)(identity >> 32), (unsigned)identity, (unsigned)(mine >> 32),
            (unsigned)mine);
    SHMEMI_KILL_POINT("job.control.identified");
    uint32_t size = 0;
    /* SYNC control-size: acquire-release, pairs with itself and with acquire in other_size() */
    if (!atomic_compare_exchange_strong_explicit(&c->control->size, &size, (uint32_t)c->size,
                                                 memory_order_acq_rel, memory_order_acquire) &&
        size != (uint32_t)c->size)
        return shmemi_fail(SHMEM_ERR_MISMATCH, LAYER,
                           "this process joins job '%s' as PE %d of %d, others as one of %u: give "
                           "all processes the same number of PEs",
                           c->name, c->rank, c->size, size);
    return SHMEM_OK;
}

/* By a living client of process `pid`, as the server numbers processes. */
static shmem_status_t rank_taken(shmem_context_t c, int pid)
{
    if (pid == (int)c->actor->roster->clients[c->actor->slot].pid)
        return shmemi_fail(SHMEM_ERR_MISMATCH, LAYER,
                           "this process is PE %d of job '%s' already: call shmem_init() once, or "
                           "give further contexts a rank or a job of their own",
                           c->rank, c->name);
    return shmemi_fail(SHMEM_ERR_MISMATCH, LAYER,
                       "rank %d of job '%s' is taken, by process %d: give each process a rank of "
                       "its own",
                       c->rank, c->name, pid);
}

static shmem_status_t claim(shmem_context_t c)
{
    shmemi_pe_t *me = &c->pes[c->rank];
    uint64_t found = 0, mine = (uint64_t)c->actor->slot << 32 | c->actor->epoch;
    /* SYNC pe-claim: release, pairs with acquire in shmemi_peers_claim() */
    if (!atomic_compare_exchange_strong_explicit(&me->claim, &found, mine, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        if (shmemi_roster_client_alive(c->actor->roster, (uint32_t)(found >> 32), (uint32_t)found))
            return rank_taken(c, (int)c->actor->roster->clients[found >> 32].pid);
        return shmemi_fail(SHMEM_ERR_PEER_DEAD, LAYER,
                           "PE %d of job '%s' died while the others still run: end them before "
                           "starting it again",
                           c->rank, c->name);
    }
    SHMEMI_KILL_POINT("job.control.claimed");
    shmemi_crowd_publish(c->control);
    shmemi_pe_state_set(me, SHMEMI_PE_JOINED);
    return SHMEM_OK;
}

/* One generation: OK with *closed telling whether to go on with the next one. */
static shmem_status_t try_generation(shmem_context_t c, const char *name, bool *closed)
{
    shmemi_segment_request_t request = {.name = name,
                                        .bytes = segment_bytes(c->size),
                                        .kind = SHMEMI_SEGMENT_PLAIN,
                                        .huge = SHMEMI_HUGE_OFF,
                                        .open_existing = name != NULL};
    shmem_status_t status = shmemi_client_segment_create(c->client, &request, &c->segment);
    if (status == SHMEM_ERR_MISMATCH)
        return other_size(c, name);
    if (status)
        return status;
    SHMEMI_KILL_POINT("job.control.opened");
    if ((status = map(c)))
        goto close;
    /* SYNC control-closed: acquire, pairs with release in shmemi_control_close() */
    *closed = atomic_load_explicit(&c->control->closed, memory_order_acquire) != 0;
    if (*closed) {
        unmap(c);
        return SHMEM_OK;
    }
    shmemi_lifeline_take(c);
    if ((status = settle(c)) || (status = claim(c)))
        goto unmap;
    return SHMEM_OK;
unmap:
    shmemi_lifeline_drop(c);
    unmap(c);
close:
    shmemi_client_segment_close(c->client, &c->segment);
    return status;
}

static shmem_status_t name_check(const char *job)
{
    size_t n = strlen(job);
    for (size_t i = 0; i < n && i <= JOB_NAME; i++)
        if ((unsigned char)job[i] <= ' ' || job[i] == '/' || job[i] == 127)
            return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                               "job name '%.63s' holds a space, '/' or control character", job);
    if (!n || n > JOB_NAME)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "a job name has 1 to %d bytes, this one %zu",
                           JOB_NAME, n);
    return SHMEM_OK;
}

shmem_status_t shmemi_control_open(shmem_context_t c, const char *job)
{
    bool closed = false;
    if (!job)
        return try_generation(c, NULL, &closed);
    shmem_status_t status = name_check(job);
    if (status)
        return status;
    snprintf(c->name, sizeof c->name, "%s", job);
    for (unsigned g = 0; g < SHMEMI_GENERATIONS; g++) {
        char name[SHMEMI_NAME_MAX + 1];
        snprintf(name, sizeof name, "job/%s/%u", job, g);
        status = try_generation(c, name, &closed);
        if (status || !closed)
            return status;
        c->held[c->held_count++] = c->segment;
    }
    return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                       "job name '%s': %d earlier jobs of this name have not ended yet: wait for "
                       "their processes or use another name",
                       job, SHMEMI_GENERATIONS);
}

void shmemi_control_release_held(shmem_context_t c)
{
    while (c->held_count)
        shmemi_client_segment_close(c->client, &c->held[--c->held_count]);
}

void shmemi_control_close(shmem_context_t c)
{
    if (!c->control)
        return;
    /* SYNC control-closed: release, pairs with acquire in try_generation() */
    atomic_store_explicit(&c->control->closed, 1, memory_order_release);
    SHMEMI_KILL_POINT("job.control.closed");
    shmemi_pe_state_set(&c->pes[c->rank], SHMEMI_PE_LEFT);
    shmemi_peers_ring(c);
    shmemi_lifeline_drop(c);
    unmap(c);
    shmemi_client_segment_close(c->client, &c->segment);
}
