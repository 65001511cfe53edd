/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when a client is gone. docs/design/server.md says why in this order:
 *
 *   1. mark the slot DEAD       who looks sees that repair is under way
 *   2. bump its epochs          its locks and permits are free from here on, its waiters' bells
 * ring
 *   3. give back pool blocks    of (slot, old epoch); may need locks that step 2 made free
 *   4. close its segments       those that nobody else has open are freed
 *   5. the slot may be reused   no step of the old client's repair is left
 */
#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "memory/pool_core.h"
#include "node/server_core.h"
#include "os/space.h"

#define LAYER "node"

enum { LAST_WORDS = 16 }; /* messages that a process may have sent before it ended */

/* Pools are mapped for the time of the repair only: the server holds no page of them otherwise. */
static void reclaim_pool(shmem_server_t server, const shmemi_peer_t *peer, shmemi_entry_t *entry)
{
    void *address;
    uint64_t blocks = 0;
    shmem_status_t status = shmemi_space_map(entry->offset, entry->bytes, entry->fd, 1, &address);
    if (status == SHMEM_OK) {
        status = shmemi_pool_reclaim(address, entry->bytes, &server->actor, peer->slot, peer->epoch,
                                     &blocks);
        shmemi_space_unmap(address);
    }
    server->reclaimed += blocks;
    if (status)
        shmemi_log(SHMEM_LOG_ERROR, LAYER,
                   "pool '%s': the blocks of client %u (%s) could not be given back: %s",
                   entry->name, peer->slot, peer->name, shmem_error_detail()->text);
    else if (blocks)
        shmemi_log(SHMEM_LOG_INFO, LAYER, "pool '%s': %llu blocks of client %u (%s) given back",
                   entry->name, (unsigned long long)blocks, peer->slot, peer->name);
}

void shmemi_death_repair(shmem_server_t server, shmemi_peer_t *peer, bool died)
{
    shmemi_roster_client_t *row = &server->roster->clients[peer->slot];
    if (died) {
        server->deaths++;
        shmemi_log(SHMEM_LOG_WARN, LAYER, "client %u (%s, process %d) died", peer->slot, peer->name,
                   (int)peer->who.pid);
        /* SYNC roster-client: release, pairs with acquire in shmemi_roster_client_alive() */
        atomic_store_explicit(&row->state, SHMEMI_CLIENT_DEAD, memory_order_release);
        SHMEMI_KILL_POINT("node.death.marked");
    }
    shmemi_roster_client_remove(server->roster, peer->slot, died);
    SHMEMI_KILL_POINT("node.death.removed");
    for (shmemi_hold_t *hold = peer->holds; hold; hold = hold->next)
        if (hold->entry->kind == SHMEMI_SEGMENT_POOL)
            reclaim_pool(server, peer, hold->entry);
    SHMEMI_KILL_POINT("node.death.reclaimed");
    shmemi_segments_release(server, peer);
    SHMEMI_KILL_POINT("node.death.released");
    server->by_slot[peer->slot] = NULL;
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
