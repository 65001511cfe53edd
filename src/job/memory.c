/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating and destroying symmetric memory.
 *
 * Creation in three steps, in each of which all PEs learn what the others achieved, so that all
 * return the same and nothing stays behind:
 *
 *   0  all ask for the same size
 *   1  PE 0 has created the segment           (the others open it by name)
 *   2  every PE has mapped it and reserved its own part, on its own node
 */
#include "job/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "job/arenas.h"
#include "job/graves.h"
#include "job/mapped.h"
#include "job/peers.h"
#include "job/step.h"
#include "os/reserve.h"
#include "os/segment.h"
#include "os/space.h"
#include "topo/topo.h"

#define LAYER "job"

static shmemi_cemetery_t destroyed;

/* What a PE tells the others of its part of the work. */
typedef struct report {
    int32_t status;
    char text[SHMEMI_PAYLOAD - 4];
} report_t;
_Static_assert(sizeof(report_t) == SHMEMI_PAYLOAD, "a report fills the payload");

const char *shmemi_memory_words(uint64_t id, char *text, size_t bytes)
{
    const char *ending = "th";
    if (id % 100 < 11 || id % 100 > 13)
        ending = id % 10 == 1 ? "st" : id % 10 == 2 ? "nd" : id % 10 == 3 ? "rd" : "th";
    snprintf(text, bytes, "(the %llu%s that the context created)", (unsigned long long)id, ending);
    return text;
}

shmem_status_t shmemi_memory_check(shmem_memory_t memory)
{
    char words[SHMEMI_MEMORY_WORDS];
    if (memory && memory->magic == SHMEMI_MEMORY_LIVE)
        return SHMEM_OK;
    if (memory && memory->magic == SHMEMI_MEMORY_DEAD)
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "symmetric memory %s is gone, by shmem_memory_destroy() or with the end "
                           "of its context: create it again",
                           shmemi_memory_words(memory->id, words, sizeof words));
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%p is no symmetric memory object",
                       (void *)memory);
}

/* ---- steps of creation ---- */

/* What failed may have failed because a PE died and its segment with it: then that is the error. */
static shmem_status_t blame_the_dead(shmem_context_t c, shmem_status_t status)
{
    char text[SHMEMI_BROKEN_TEXT * 2];
    uint32_t deaths = c->deaths - 1; /* look at everybody */
    snprintf(text, sizeof text, "%s", shmem_error_detail()->text);
    shmem_status_t peers = shmemi_peers_check(c, &deaths);
    if (!peers)
        return shmemi_quiet(status, LAYER, "%s", text);
    shmemi_context_break(c, peers);
    return peers;
}

/* Tell `mine` (with the thread's detail), learn the others'. Returns the first failure. */
static shmem_status_t share(shmem_context_t c, shmemi_call_t *call, shmem_status_t mine)
{
    report_t *report = (report_t *)(void *)shmemi_step_payload(c);
    report->status = mine;
    snprintf(report->text, sizeof report->text, "%s", mine ? shmem_error_detail()->text : "");
    shmem_status_t status = shmemi_step_next(c, call);
    if (status)
        return status;
    for (int r = 0; r < c->size && !status; r++) {
        const report_t *other = (const report_t *)(const void *)shmemi_step_payload_of(c, r);
        int32_t found = other->status;
        if (found && r == c->rank)
            status = shmemi_quiet(mine, LAYER, "%.*s", (int)sizeof other->text - 1, other->text);
        else if (found)
            status =
                shmemi_fail(found < 0 && found > -64 ? (shmem_status_t)found : SHMEM_ERR_CORRUPT,
                            LAYER, "on PE %d: %.*s", r, (int)sizeof other->text - 1, other->text);
    }
    return status ? blame_the_dead(c, status) : SHMEM_OK;
}

static void segment_name(const struct shmem_memory *m, char *name, size_t bytes)
{
    snprintf(name, bytes, "job/%s/%llu/memory/%llu", m->context->name,
             (unsigned long long)m->context->segment.id, (unsigned long long)m->id);
}

static shmem_status_t create_segment(struct shmem_memory *m)
{
    shmem_context_t c = m->context;
    char name[SHMEMI_NAME_MAX + 1];
    segment_name(m, name, sizeof name);
    shmemi_segment_request_t request = {.name = *c->name ? name : NULL,
                                        .bytes = m->stride * (uint64_t)c->size,
                                        .kind = SHMEMI_SEGMENT_PLAIN,
                                        .huge = (int)c->settings.huge_pages};
    if (m->stride < SHMEMI_SPACE_UNIT)
        request.huge = SHMEMI_HUGE_OFF;
    if (SHMEMI_FAULT("job.memory.create"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "creating symmetric memory: injected");
    shmem_status_t status = shmemi_segment_afford(request.bytes);
    if (!status)
        status = shmemi_client_segment_create(c->client, &request, &m->segment);
    SHMEMI_KILL_POINT("job.memory.created");
    return status;
}

static shmem_status_t open_segment(struct shmem_memory *m)
{
    char name[SHMEMI_NAME_MAX + 1];
    segment_name(m, name, sizeof name);
    shmem_status_t status =
        shmemi_client_segment_open(m->context->client, name, SHMEMI_RIGHTS_WRITE, &m->segment);
    if (status)
        return status;
    if (m->segment.bytes < m->stride * (uint64_t)m->context->size) {
        status = shmemi_fail(SHMEM_ERR_CORRUPT, LAYER, "segment '%s' has %llu bytes, %llu expected",
                             name, (unsigned long long)m->segment.bytes,
                             (unsigned long long)m->stride * (unsigned)m->context->size);
        shmemi_client_segment_close(m->context->client, &m->segment);
    }
    return status;
}

/* Keep the own part on the node that this PE runs on. A small one comes from there anyway when this
 * PE fills it, and is not worth the time that detecting the machine takes. */
static shmem_status_t bind_own_part(struct shmem_memory *m)
{
    shmem_topology_t topology;
    if (m->stride < SHMEMI_SPACE_UNIT)
        return SHMEM_OK;
    shmem_status_t status = shmemi_context_topology(m->context, &topology);
    if (status)
        return status;
    return shmemi_topo_bind(topology, shmemi_memory_part(m, m->context->rank), m->stride,
                            shmemi_topo_current_node(topology), 0);
}

/* All pages of the own part. */
static shmem_status_t fill_own_part(struct shmem_memory *m)
{
    shmem_context_t c = m->context;
    int huge = m->stride < SHMEMI_SPACE_UNIT ? SHMEMI_HUGE_OFF : (int)c->settings.huge_pages;
    char *part = shmemi_memory_part(m, c->rank);
    if (SHMEMI_FAULT("job.memory.reserve"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "reserving symmetric memory: injected");
    shmem_status_t status = bind_own_part(m);
    if (!status)
        status = shmemi_segment_reserve_huge(m->segment.fd, (uint64_t)c->rank * m->stride,
                                             m->stride, huge);
    if (!status)
        status =
            shmemi_segment_populate(part, m->stride, huge, (int)c->settings.fill_threads, NULL);
    if (!status && c->settings.lock_pages)
        shmemi_segment_lock(part, m->stride); /* a refusal is logged there */
    SHMEMI_KILL_POINT("job.memory.filled");
    return status;
}

static shmem_status_t map_and_fill(struct shmem_memory *m)
{
    void *address;
    shmem_status_t status =
        shmemi_space_map(m->segment.offset, m->segment.bytes, m->segment.fd, 1, &address);
    if (status)
        return status;
    m->base = address;
    return fill_own_part(m);
}

static void release(struct shmem_memory *m)
{
    if (m->base && !shmemi_context_is_inherited(m->context))
        shmemi_space_unmap(m->base);
    m->base = NULL;
    if (m->segment.bytes)
        shmemi_arenas_segment_close(m->context, &m->segment);
    m->segment.bytes = 0;
}

static shmem_status_t create_steps(struct shmem_memory *m, shmemi_call_t *call)
{
    shmem_context_t c = m->context;
    shmem_status_t status = shmemi_step_next(c, call);
    if (status)
        return status;
    status = share(c, call, c->rank == 0 ? create_segment(m) : SHMEM_OK);
    if (status)
        return status;
    if (c->rank != 0)
        status = open_segment(m);
    if (!status)
        status = map_and_fill(m);
    return share(c, call, status);
}

static shmem_status_t arguments_check(shmem_context_t c, const shmem_memory_t *memory, size_t bytes,
                                      uint64_t *stride)
{
    uint64_t total, unit = bytes >= SHMEMI_SPACE_UNIT ? SHMEMI_SPACE_UNIT : SHMEMI_PAGE;
    if (!memory || !bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           memory ? "symmetric memory of 0 bytes was asked for"
                                  : "nowhere to put the memory object: NULL");
    if (!shmemi_round_up(bytes, unit, stride) ||
        __builtin_mul_overflow(*stride, (uint64_t)c->size, &total) || total > SHMEMI_SPACE_BYTES)
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "%zu bytes on each of %d PEs: more than the %llu GiB of the unified "
                           "address range",
                           bytes, c->size, SHMEMI_SPACE_BYTES >> 30);
    return SHMEM_OK;
}

static shmem_status_t create(shmem_context_t c, shmem_memory_t *memory, size_t bytes)
{
    shmemi_call_t call = {.kind = SHMEMI_CALL_CREATE, .size = bytes};
    uint64_t stride = 0;
    shmem_status_t status = arguments_check(c, memory, bytes, &stride);
    if (status)
        return shmemi_call_refuse(c, &call, status);
    struct shmem_memory *m = calloc(1, sizeof *m);
    if (!m)
        return shmemi_call_refuse(
            c, &call, shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a memory object"));
    *m = (struct shmem_memory){.magic = SHMEMI_MEMORY_LIVE,
                               .context = c,
                               .stride = stride,
                               .bytes = bytes,
                               .id = c->next_memory};
    status = create_steps(m, &call);
    if (status) {
        release(m);
        free(m);
        return status;
    }
    c->next_memory++;
    m->next = c->memories;
    c->memories = m;
    *memory = m;
    return SHMEM_OK;
}

shmem_status_t shmem_memory_create(shmem_context_t context, shmem_memory_t *memory, size_t bytes)
{
    const shmemi_self_t *self;
    shmem_status_t status = shmemi_call_begin(context, &self);
    if (status)
        return status;
    return shmemi_call_end(context, create(context, memory, bytes));
}

/* ---- the end ---- */

/* No operation of an engine needs it any more. */
static void release_and_bury(void *memory)
{
    struct shmem_memory *m = memory;
    release(m);
    m->context = NULL;
    shmemi_bury(&destroyed, m);
}

static void bury(struct shmem_memory *m)
{
    shmemi_mapped_lock();
    if (m->maps)
        shmemi_mapped_remove_locked(m);
    m->maps = 0;
    m->magic = SHMEMI_MEMORY_DEAD;
    shmemi_mapped_unlock();
    shmemi_arenas_remove(m->context, m, release_and_bury, m);
}

static void unlink_live(struct shmem_memory *m)
{
    struct shmem_memory **link = &m->context->memories;
    while (*link && *link != m)
        link = &(*link)->next;
    if (*link)
        *link = m->next;
}

shmem_status_t shmem_memory_destroy(shmem_memory_t memory)
{
    const shmemi_self_t *self;
    if (!memory)
        return SHMEM_OK;
    shmem_status_t status = shmemi_memory_check(memory);
    if (status)
        return status;
    shmem_context_t c = memory->context;
    status = shmemi_call_begin(c, &self);
    if (status && !c->broken)
        return status;
    if (!status) {
        const shmemi_call_t call = {.kind = SHMEMI_CALL_DESTROY, .size = memory->id};
        status = shmemi_call_end(c, shmemi_step(c, &call, SHMEMI_FOREVER));
    }
    SHMEMI_KILL_POINT("job.memory.destroy.met");
    unlink_live(memory);
    bury(memory);
    return status;
}

void shmemi_memory_drop_all(shmem_context_t c)
{
    unsigned objects = 0;
    uint64_t bytes = 0;
    while (c->memories) {
        struct shmem_memory *m = c->memories;
        c->memories = m->next;
        objects++;
        bytes += m->bytes;
        bury(m);
    }
    if (objects && !shmemi_context_is_inherited(c))
        shmemi_log(SHMEM_LOG_WARN, LAYER,
                   "the context ends with %u symmetric objects, %llu bytes on each PE, that were "
                   "not destroyed",
                   objects, (unsigned long long)bytes);
}
