/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds: how often which client has which segment open.
 *
 *   Invariants  for every peer: hold_count = sum over its holds of count
 *               for every entry: opens = sum over all peers of their counts of it
 *               a hold's record in the state that outlives the server says the same
 */
#include <stdlib.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/server_core.h"

#define LAYER "node"

shmemi_hold_t **shmemi_hold_find(shmemi_peer_t *peer, uint64_t id)
{
    shmemi_hold_t **link = &peer->holds;
    while (*link && (*link)->entry->id != id)
        link = &(*link)->next;
    return link;
}

/* Add `count` openings to what is known here. NULL: no memory. */
static shmemi_hold_t *hold_count(shmemi_peer_t *peer, shmemi_entry_t *entry, uint32_t count)
{
    shmemi_hold_t *hold = *shmemi_hold_find(peer, entry->id);
    if (!hold) {
        hold = SHMEMI_FAULT("node.hold.add") ? NULL : malloc(sizeof *hold);
        if (!hold)
            return NULL;
        *hold = (shmemi_hold_t){.next = peer->holds, .entry = entry};
        peer->holds = hold;
        entry->users++;
    }
    hold->count += count;
    entry->opens += count;
    peer->hold_count += count;
    return hold;
}

static void hold_save(shmem_server_t server, const shmemi_hold_t *hold)
{
    uint64_t word = shmemi_state_hold_word(hold->count, hold->created, hold->sequence);
    shmemi_state_hold_set(server->state, hold->record, hold->count ? word : 0);
}

shmem_status_t shmemi_hold_add(shmem_server_t server, shmemi_peer_t *peer, shmemi_entry_t *entry,
                               const shmemi_wish_t *wish)
{
    if (peer->hold_count >= SHMEMI_HOLDS)
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                            "this client has %d segments open already; close some", SHMEMI_HOLDS);
    const shmemi_hold_t *known = *shmemi_hold_find(peer, entry->id);
    uint32_t record =
        known ? known->record : shmemi_state_hold_take(server->state, peer->slot, entry->id);
    if (!record)
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                            "the clients of this node server have %d segments open already; close "
                            "some",
                            SHMEMI_STATE_HOLDS);
    shmemi_hold_t *hold = hold_count(peer, entry, 1);
    if (!hold) {
        if (!known)
            shmemi_state_hold_set(server->state, record, 0);
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER,
                            "the node server has no memory to note an open segment");
    }
    hold->record = record;
    hold->created = wish->creates;
    hold->sequence = wish->sequence;
    hold_save(server, hold);
    return SHMEM_OK;
}

void shmemi_hold_drop(shmem_server_t server, shmemi_peer_t *peer, shmemi_hold_t **link,
                      uint32_t count, uint32_t sequence)
{
    shmemi_hold_t *hold = *link;
    shmemi_entry_t *entry = hold->entry;
    hold->count -= count;
    hold->created = false;
    hold->sequence = sequence;
    entry->opens -= count;
    peer->hold_count -= count;
    hold_save(server, hold);
    if (!hold->count) {
        *link = hold->next;
        free(hold);
        entry->users--;
    }
    if (!entry->opens)
        shmemi_death_forget(server, entry);
    shmemi_table_drop_unused(&server->table, entry);
}

shmem_status_t shmemi_hold_restore(shmemi_peer_t *peer, shmemi_entry_t *entry, uint32_t record,
                                   uint64_t word)
{
    shmemi_hold_t *hold = hold_count(peer, entry, (uint32_t)(word >> 33));
    if (!hold)
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER,
                            "the node server has no memory to note an open segment");
    hold->record = record;
    hold->created = word >> 32 & 1;
    hold->sequence = (uint32_t)word;
    return SHMEM_OK;
}

const shmemi_hold_t *shmemi_hold_of_request(const shmemi_peer_t *peer, uint32_t sequence)
{
    const shmemi_hold_t *hold = peer->holds;
    while (hold && hold->sequence != sequence)
        hold = hold->next;
    return hold;
}
