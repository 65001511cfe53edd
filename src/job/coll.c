/* SPDX-License-Identifier: Apache-2.0 */
/* Moving the data of collectives: see coll.h. */
#include "job/coll.h"

#include <string.h>

#include "base/fault.h"
#include "base/status.h"

#define LAYER "job"

void shmemi_coll_send(shmem_context_t c, const void *src, size_t bytes)
{
    void *to = shmemi_step_half(c);
    if (bytes <= SHMEMI_BODY)
        to = shmemi_step_body(c);
    else if (bytes <= SHMEMI_PAYLOAD)
        to = shmemi_step_payload(c);
    if (bytes)
        memcpy(to, src, bytes);
    SHMEMI_KILL_POINT("job.coll.sent");
}

const void *shmemi_coll_received(shmem_context_t c, int rank, size_t bytes)
{
    if (bytes <= SHMEMI_BODY)
        return shmemi_step_body_of(c, rank);
    if (bytes <= SHMEMI_PAYLOAD)
        return shmemi_step_payload_of(c, rank);
    return shmemi_step_half_of(c, rank);
}

void shmemi_coll_send_places(shmem_context_t c, const void *src, size_t src_bytes, const void *dst,
                             size_t dst_bytes)
{
    const shmemi_places_t places = {shmemi_memory_locate(c, src, src_bytes),
                                    shmemi_memory_locate(c, dst, dst_bytes)};
    memcpy(shmemi_step_body(c), &places, sizeof places);
}

static shmemi_places_t places_of(shmem_context_t c, int rank)
{
    shmemi_places_t places;
    memcpy(&places, shmemi_step_body_of(c, rank), sizeof places);
    return places;
}

static shmem_status_t bad_place(shmem_context_t c, const shmemi_place_t *place, int rank)
{
    shmem_status_t status =
        shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                    "PE %d names byte %llu of symmetric object %llu, which is impossible", rank,
                    (unsigned long long)place->offset, (unsigned long long)place->id);
    shmemi_context_break(c, status); /* the others go on with the call */
    return status;
}

shmem_status_t shmemi_coll_sources(shmem_context_t c, size_t bytes, bool *direct)
{
    uint64_t id = places_of(c, c->rank).src.id;
    *direct = id != 0;
    for (int r = 0; r < c->size && *direct; r++) {
        shmemi_place_t place = places_of(c, r).src;
        if (!(*direct = place.id == id))
            break;
        c->sources[r] = shmemi_memory_resolve(c, &place, r, bytes);
        if (!c->sources[r])
            return bad_place(c, &place, r);
    }
    return SHMEM_OK;
}

shmem_status_t shmemi_coll_targets(shmem_context_t c, size_t bytes, bool *direct)
{
    uint64_t id = places_of(c, c->rank).dst.id;
    *direct = id != 0;
    for (int r = 0; r < c->size && *direct; r++) {
        shmemi_place_t place = places_of(c, r).dst;
        if (!(*direct = place.id == id))
            break;
        c->targets[r] = shmemi_memory_resolve(c, &place, r, bytes);
        if (!c->targets[r])
            return bad_place(c, &place, r);
    }
    return SHMEM_OK;
}

shmem_status_t shmemi_coll_meet(shmem_context_t c, shmemi_call_t *call, const void *src,
                                size_t bytes, bool *direct)
{
    shmemi_coll_send_places(c, src, bytes, NULL, 0);
    shmem_status_t status = shmemi_step_next(c, call);
    return status ? status : shmemi_coll_sources(c, bytes, direct);
}

shmem_status_t shmemi_coll_end(shmem_context_t c, const shmemi_self_t *self, size_t bytes,
                               shmem_status_t status)
{
    if (!status) {
        shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_collectives, 1);
        shmemi_stats_add(&self->thread->stats, SHMEMI_STAT_collective_bytes, bytes);
    }
    return shmemi_call_end(c, status);
}
