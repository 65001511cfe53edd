/* SPDX-License-Identifier: Apache-2.0 */
/* The records that outlive a server. One process writes at a time: the server that runs. */
#include "node/state.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"

#define LAYER "node"

shmem_status_t shmemi_state_create(shmemi_state_t **out)
{
    shmemi_state_t *state = MAP_FAILED;
    if (!SHMEMI_FAULT("node.state.map"))
        state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (state == MAP_FAILED)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "cannot map %zu bytes for a server's state",
                           sizeof *state);
    state->server_life = state->keeper_life = -1;
    state->next_id = 1;
    *out = state;
    return SHMEM_OK;
}

void shmemi_state_destroy(shmemi_state_t *state)
{
    if (!state)
        return;
    if (state->server_life >= 0)
        close(state->server_life);
    munmap(state, sizeof *state);
}

void shmemi_state_disown(shmemi_state_t *state)
{
    if (!state)
        return;
    int life = state->server_life; /* the child has a copy of its own */
    mmap(state, sizeof *state, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    state->server_life = life;
}

/* ---- segments ---- */

/* The table holds no more entries than there are records. */
static uint32_t segment_take(shmemi_state_t *state)
{
    uint32_t index = state->free_segment;
    if (index)
        state->free_segment = state->segments[index].next_free;
    else
        index = ++state->segments_used;
    return index;
}

void shmemi_state_segment_save(shmemi_state_t *state, shmemi_entry_t *entry)
{
    if (!entry->record)
        entry->record = segment_take(state);
    shmemi_state_segment_t *record = &state->segments[entry->record];
    uint32_t valid = atomic_load_explicit(&record->valid, memory_order_relaxed);
    uint32_t other = valid == 1 ? 2 : 1;
    record->copy[other - 1] = *entry;
    SHMEMI_KILL_POINT("node.state.segment.written");
    /* SYNC state-segment: release, pairs with acquire in load_segments() */
    atomic_store_explicit(&record->valid, other, memory_order_release);
}

void shmemi_state_segment_drop(shmemi_state_t *state, shmemi_entry_t *entry)
{
    if (!entry->record)
        return;
    shmemi_state_segment_t *record = &state->segments[entry->record];
    /* SYNC state-segment: release, pairs with acquire in load_segments() */
    atomic_store_explicit(&record->valid, 0, memory_order_release);
    SHMEMI_KILL_POINT("node.state.segment.dropped");
    record->next_free = state->free_segment;
    state->free_segment = entry->record;
    entry->record = 0;
}

/* ---- holds ---- */

uint32_t shmemi_state_hold_take(shmemi_state_t *state, uint32_t slot, uint64_t segment)
{
    uint32_t index = state->free_hold;
    if (index)
        state->free_hold = state->holds[index].next_free;
    else if (state->holds_used < SHMEMI_STATE_HOLDS)
        index = ++state->holds_used;
    else
        return 0;
    state->holds[index].slot = slot;
    state->holds[index].segment = segment;
    return index;
}

void shmemi_state_hold_set(shmemi_state_t *state, uint32_t index, uint64_t word)
{
    shmemi_state_hold_t *hold = &state->holds[index];
    /* SYNC state-hold: release, pairs with acquire in load_holds() */
    atomic_store_explicit(&hold->word, word, memory_order_release);
    SHMEMI_KILL_POINT("node.state.hold");
    if (word)
        return;
    hold->next_free = state->free_hold;
    state->free_hold = index;
}

/* ---- peers ---- */

void shmemi_state_await(shmemi_state_peer_t *peer, uint64_t segment, const shmemi_wish_t *wish)
{
    /* SYNC state-awaited: release, pairs with acquire in load_awaited() */
    atomic_store_explicit(&peer->awaited, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    peer->wish = *wish;
    /* SYNC state-awaited: release, pairs with acquire in load_awaited() */
    atomic_store_explicit(&peer->awaited, segment, memory_order_release);
    SHMEMI_KILL_POINT("node.state.awaited");
}

void shmemi_state_peer_publish(shmemi_state_t *state, uint32_t slot)
{
    if (state->peers_used < slot)
        state->peers_used = slot;
    /* SYNC state-peer: release, pairs with acquire in load_peers() */
    atomic_store_explicit(&state->peers[slot].used, 1, memory_order_release);
    SHMEMI_KILL_POINT("node.state.peer.published");
}

void shmemi_state_peer_drop(shmemi_state_peer_t *peer)
{
    /* SYNC state-peer: release, pairs with acquire in load_peers() */
    atomic_store_explicit(&peer->used, 0, memory_order_release);
    SHMEMI_KILL_POINT("node.state.peer.dropped");
    peer->request.header.magic = 0;
}

/* ---- successors ---- */

void shmemi_state_collect_free(shmemi_state_t *state)
{
    state->free_segment = state->free_hold = 0;
    for (uint32_t i = state->segments_used; i; i--)
        if (!atomic_load_explicit(&state->segments[i].valid, memory_order_relaxed)) {
            state->segments[i].next_free = state->free_segment;
            state->free_segment = i;
        }
    for (uint32_t i = state->holds_used; i; i--)
        if (!atomic_load_explicit(&state->holds[i].word, memory_order_relaxed)) {
            state->holds[i].next_free = state->free_hold;
            state->free_hold = i;
        }
}
