/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when a client is gone. docs/design/server.md says why in this order:
 *
 *   1. mark the slot DEAD       who looks sees that repair is under way
 *   2. bump its epochs          its locks and permits are free from here on, its waiters' bells
 * ring
 *   3. close its segments       those that nobody else has open are freed
 *   4. the slot may be reused   its new holder has another epoch
 *   5. give back pool blocks    of (slot, old epoch); may need locks that step 2 made free
 *
 * Step 5 is queued, and done when all deaths that are known have come through step 4: it takes as
 * long as the pool is large. A pool may be locked by a client that lives but is stopped. Its repair
 * is then tried again later, at growing intervals: blocks of (slot, old epoch) are nobody else's,
 * however often the slot is used again meanwhile.
 *
 * A repair goes on where it was when the time of a turn is over.
 *
 *   Invariants  all repairs of one pool are due at the same time, so that one attempt finds out for
 *               all of them that its lock cannot be had
 *               one call of retry() takes TURN_NS and one attempt at most; an attempt waits for
 *               locks PATIENCE_NS at most, and only one per call waits
 */
#include <stdlib.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "memory/pool_core.h"
#include "node/server_core.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "node"

enum {
    LAST_WORDS = 16, /* messages that a process may have sent before it ended */
    ANYBODY = 0      /* as slot and epoch: whoever is dead */
};

#define TURN_NS        5000000
#define PATIENCE_NS    2000000 /* long enough to get a lock that is always held, but by turns */
#define FIRST_RETRY_NS 5000000
#define LAST_RETRY_NS  1000000000

/* ---- pools ---- */

typedef struct shmemi_retry {
    struct shmemi_retry *next;
    shmemi_entry_t *entry;
    uint32_t slot, epoch;
    int64_t due, pause;
    shmemi_repair_t repair;
} shmemi_retry_t;

/* Give back later what client (slot, epoch) holds. pause 0: it has not been tried yet. */
static void retry_add(shmem_server_t server, shmemi_entry_t *entry, uint32_t slot, uint32_t epoch)
{
    int64_t due = 0, pause = 0;
    for (shmemi_retry_t *other = server->retries; other; other = other->next)
        if (other->entry == entry) {
            due = other->due;
            pause = other->pause;
            break;
        }
    shmemi_retry_t *retry = malloc(sizeof *retry);
    if (!retry) { /* clients that run out of memory look for such blocks themselves */
        shmemi_log(SHMEM_LOG_ERROR, LAYER, "no memory to repair pool '%s' later", entry->spec.name);
        return;
    }
    *retry = (shmemi_retry_t){server->retries, entry, slot, epoch, due, pause, {0}};
    server->retries = retry;
}

/* All repairs of a pool wait when one had to. The pause counts from now, after the attempt. */
static void retry_postpone(shmem_server_t server, const shmemi_retry_t *tried)
{
    int64_t pause = tried->pause ? 2 * tried->pause : FIRST_RETRY_NS;
    if (pause > LAST_RETRY_NS)
        pause = LAST_RETRY_NS;
    int64_t due = shmemi_clock_now() + pause;
    const shmemi_entry_t *entry = tried->entry;
    for (shmemi_retry_t *retry = server->retries; retry; retry = retry->next)
        if (retry->entry == entry) {
            retry->due = due;
            retry->pause = pause;
        }
}

/* Clients may have given huge pages of the bookkeeping back to the system, which has no others:
 * asking for them is an error then, touching them would be SIGBUS. Other pages come when they are
 * touched. */
static shmem_status_t bring_in(const shmemi_entry_t *entry, void *pool)
{
    uint64_t page = entry->page_bytes, data;
    if (page <= SHMEMI_PAGE)
        return SHMEM_OK;
    shmem_status_t status = shmemi_segment_populate(pool, page, SHMEMI_HUGE_OFF, 1, NULL);
    if (status == SHMEM_OK)
        status = shmemi_pool_data_offset(pool, entry->bytes, &data);
    if (status == SHMEM_OK)
        status = shmemi_segment_populate(pool, (data + page - 1) / page * page, SHMEMI_HUGE_OFF, 1,
                                         NULL);
    return status;
}

/* Pools are mapped for the time of the repair only: the server holds no page of them otherwise. */
static shmem_status_t reclaim(shmem_server_t server, shmemi_retry_t *retry,
                              shmemi_deadline_t deadline)
{
    void *address;
    const shmemi_entry_t *entry = retry->entry;
    uint64_t before = retry->repair.blocks;
    shmem_status_t status = shmemi_space_map(entry->offset, entry->bytes, entry->fd, 1, &address);
    if (status == SHMEM_OK) {
        status = bring_in(entry, address);
        if (status == SHMEM_OK)
            status = shmemi_pool_reclaim(address, entry->bytes, &server->actor, retry->slot,
                                         retry->epoch, deadline, &retry->repair);
        shmemi_space_unmap(address);
    }
    server->state->reclaimed += retry->repair.blocks - before;
    if (status == SHMEM_ERR_BUSY)
        return status;
    if (status && status != SHMEM_ERR_TIMEOUT)
        shmemi_log(SHMEM_LOG_ERROR, LAYER, "pool '%s': blocks of the dead are lost: %s",
                   entry->spec.name, shmem_error_detail()->text);
    else
        shmemi_log(SHMEM_LOG_INFO, LAYER, "pool '%s': %llu blocks of the dead given back%s",
                   entry->spec.name, (unsigned long long)retry->repair.blocks,
                   status ? "; a living client locks the rest" : "");
    return status;
}

int64_t shmemi_death_retry(shmem_server_t server, bool may_wait)
{
    int64_t now = shmemi_clock_now(), end = now + TURN_NS, next = SHMEMI_FOREVER;
    shmemi_retry_t **link = &server->retries;
    while (*link) {
        shmemi_retry_t *retry = *link;
        if (retry->due <= now && now < end) {
            bool waits = may_wait && retry->pause;
            shmem_status_t status =
                reclaim(server, retry, waits ? shmemi_deadline_in(PATIENCE_NS) : 0);
            now = shmemi_clock_now();
            if (status == SHMEM_ERR_BUSY)
                continue; /* the next part of it, if there is time */
            if (status != SHMEM_ERR_TIMEOUT) {
                *link = retry->next;
                free(retry);
                continue;
            }
            may_wait &= !waits;
            retry_postpone(server, retry);
        }
        next = retry->due < next ? retry->due : next;
        link = &retry->next;
    }
    return next;
}

void shmemi_death_sweep(shmem_server_t server, shmemi_entry_t *entry)
{
    retry_add(server, entry, ANYBODY, ANYBODY);
}

void shmemi_death_forget(shmem_server_t server, const shmemi_entry_t *entry)
{
    shmemi_retry_t **link = &server->retries;
    while (*link) {
        shmemi_retry_t *retry = *link;
        if (entry && retry->entry != entry) {
            link = &retry->next;
            continue;
        }
        *link = retry->next;
        free(retry);
    }
}

/* ---- clients ---- */

void shmemi_death_repair(shmem_server_t server, shmemi_peer_t *peer, bool died)
{
    shmemi_roster_client_t *row = &server->roster->clients[peer->slot];
    if (died) {
        if (!peer->record->death) { /* counted once, however often this is begun */
            peer->record->death = server->state->deaths + 1;
            server->state->deaths = peer->record->death;
            shmemi_log(SHMEM_LOG_WARN, LAYER, "client %u (%s, process %d) died", peer->slot,
                       peer->name, (int)peer->who.pid);
            shmemi_server_observe(server, SHMEM_SERVER_DIED, peer);
        }
        /* SYNC roster-client: release, pairs with acquire in shmemi_roster_client_alive() */
        atomic_store_explicit(&row->state, SHMEMI_CLIENT_DEAD, memory_order_release);
        SHMEMI_KILL_POINT("node.death.marked");
    }
    shmemi_roster_client_remove(server->roster, peer->slot, peer->epoch,
                                server->state->thread_limit, died);
    SHMEMI_KILL_POINT("node.death.removed");
    for (shmemi_hold_t *hold = peer->holds; hold; hold = hold->next)
        if (hold->entry->spec.kind == SHMEMI_SEGMENT_POOL && hold->entry->opens > hold->count)
            retry_add(server, hold->entry, peer->slot, peer->epoch); /* else it goes as a whole */
    SHMEMI_KILL_POINT("node.death.queued");
    shmemi_segments_release(server, peer);
    SHMEMI_KILL_POINT("node.death.released");
    server->by_slot[peer->slot] = NULL;
    server->living[peer->slot] = 0;
    server->clients--;
    if (peer->state == SHMEMI_PEER_SUSPECT)
        server->suspects--;
    if (peer->lacks_membarrier)
        shmemi_home_fence(server, false);
}

void shmemi_death_noticed(shmem_server_t server, shmemi_peer_t *peer)
{
    for (int i = 0; i < LAST_WORDS && peer->state == SHMEMI_PEER_ATTACHED; i++)
        if (!shmemi_connection_receive(server, peer))
            break;
    if (peer->state == SHMEMI_PEER_GONE)
        return;
    shmemi_death_repair(server, peer, true);
    shmemi_peer_bury(server, peer);
}
