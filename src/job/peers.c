/* SPDX-License-Identifier: Apache-2.0 */
/* Looking after the other PEs. Nothing here changes shared memory except bells. */
#include "job/peers.h"

#include <stdio.h>

#include "base/status.h"
#include "job/lifeline.h"

#define LAYER "job"

bool shmemi_peers_dead(shmem_context_t c, int rank)
{
    uint64_t claim = shmemi_peers_claim(c, rank);
    if (!claim)
        return false;
    bool alive =
        shmemi_roster_client_alive(c->actor->roster, (uint32_t)(claim >> 32), (uint32_t)claim);
    if (alive && shmemi_client_server_lost(c->client)) /* nobody keeps the roster */
        alive = !shmemi_lifeline_is_cut(c, rank);
    return !alive && shmemi_pe_state(&c->pes[rank]) != SHMEMI_PE_LEFT;
}

shmem_status_t shmemi_peers_check_deaths(shmem_context_t c, uint32_t *deaths)
{
    /* SYNC roster-deaths: acquire, pairs with release in shmemi_roster_client_remove() */
    uint32_t now = atomic_load_explicit(&c->actor->roster->deaths, memory_order_acquire);
    if (now == *deaths && !shmemi_client_server_lost(c->client))
        return SHMEM_OK;
    for (int r = 0; r < c->size; r++)
        if (shmemi_peers_dead(c, r))
            return shmemi_fail(
                SHMEM_ERR_PEER_DEAD, LAYER,
                "PE %d of %d (job '%s') died; PE %d cannot go on with it" SHMEMI_ADVICE, r, c->size,
                c->name, c->rank);
    *deaths = now;
    return SHMEM_OK;
}

shmem_status_t shmemi_peers_check(shmem_context_t c, uint32_t *deaths)
{
    shmem_status_t status = shmemi_peers_check_deaths(c, deaths);
    for (int r = 0; r < c->size && !status; r++) {
        uint32_t state = shmemi_pe_state(&c->pes[r]);
        if (r == c->rank || state < SHMEMI_PE_OUT_OF_STEP)
            continue;
        /* who left because of a death saw it before: so do we now, and name the dead, not him */
        status = shmemi_peers_check_deaths(c, deaths);
        if (status)
            break;
        if (state == SHMEMI_PE_OUT_OF_STEP)
            status = shmemi_fail(SHMEM_ERR_STATE, LAYER,
                                 "PE %d gave up waiting in a timed barrier and is out of step; PE "
                                 "%d cannot go on with it" SHMEMI_ADVICE,
                                 r, c->rank);
        else
            status = shmemi_fail(SHMEM_ERR_STATE, LAYER,
                                 "PE %d left the job '%s' after an error; PE %d cannot go on with "
                                 "it" SHMEMI_ADVICE,
                                 r, c->name, c->rank);
    }
    return status;
}

void shmemi_peers_ring(shmem_context_t c)
{
    if (c->alone)
        return;
    const shmemi_self_t *self = shmemi_self(c->actor);
    for (int r = 0; r < c->size; r++)
        shmemi_bell_ring(c->actor->roster, &c->pes[r].bell, self ? &self->thread->stats : NULL);
}

int shmemi_peers_list(shmem_context_t c, bool (*pick)(shmem_context_t, int), char *text,
                      size_t bytes)
{
    enum { SHOWN = 8 };
    int n = 0;
    size_t used = 0;
    text[0] = 0;
    for (int r = 0; r < c->size; r++)
        if (pick(c, r) && n++ < SHOWN && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", n > 1 ? ", " : "", r);
    if (n > SHOWN && used < bytes)
        snprintf(text + used, bytes - used, " and %d more", n - SHOWN);
    return n;
}
