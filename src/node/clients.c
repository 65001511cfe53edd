/* SPDX-License-Identifier: Apache-2.0 */
/* Clients: hello, goodbye, counts; and the lists of peers. */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "node/server_core.h"
#include "os/space.h"

#define LAYER "node"

enum { ROWS_PER_CLIENT = 8 };

/* ---- lists ---- */

void shmemi_peers_append(shmemi_peers_t *peers, shmemi_peer_t *peer)
{
    peer->next = NULL;
    peer->previous = peers->last;
    *(peers->last ? &peers->last->next : &peers->first) = peer;
    peers->last = peer;
}

void shmemi_peers_remove(shmemi_peers_t *peers, shmemi_peer_t *peer)
{
    *(peer->previous ? &peer->previous->next : &peers->first) = peer->next;
    *(peer->next ? &peer->next->previous : &peers->last) = peer->previous;
}

void shmemi_peer_bury(shmem_server_t server, shmemi_peer_t *peer)
{
    if (peer->state == SHMEMI_PEER_GONE)
        return;
    if (peer->state == SHMEMI_PEER_HALF_OPEN) {
        shmemi_peers_remove(&server->half_open, peer);
        server->half_opens--;
    } else {
        shmemi_peers_remove(&server->attached, peer);
    }
    if (peer->record)
        shmemi_state_peer_drop(peer->record);
    shmemi_server_unwatch(server, &peer->socket);
    shmemi_server_unwatch(server, &peer->life);
    peer->state = SHMEMI_PEER_GONE;
    shmemi_peers_append(&server->graves, peer);
}

void shmemi_peer_reap(shmem_server_t server)
{
    shmemi_peer_t *peer;
    while ((peer = server->graves.first) != NULL) {
        shmemi_peers_remove(&server->graves, peer);
        free(peer);
    }
}

/* ---- hello ---- */

static shmem_status_t hello_check(const shmemi_wire_hello_t *hello)
{
    if (hello->layout != shmemi_wire_layout() || hello->space_base != SHMEMI_SPACE_BASE ||
        hello->space_bytes != SHMEMI_SPACE_BYTES)
        return shmemi_quiet(
            SHMEM_ERR_VERSION, LAYER,
            "the client was built with layout %08x and address range %llx+%llx, the "
            "node server with %08x and %llx+%llx: use the same build of shmem for "
            "both (sanitizer builds differ from others)",
            hello->layout, (unsigned long long)hello->space_base,
            (unsigned long long)hello->space_bytes, shmemi_wire_layout(),
            (unsigned long long)SHMEMI_SPACE_BASE, (unsigned long long)SHMEMI_SPACE_BYTES);
    if (hello->flags & ~(uint32_t)SHMEMI_HELLO_FLAGS || !memchr(hello->name, 0, sizeof hello->name))
        return shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER,
                            "a hello with unknown flags or a name that "
                            "does not end");
    return SHMEM_OK;
}

static shmem_status_t take_slot(shmem_server_t server, shmemi_peer_t *peer)
{
    uint32_t slot = 1;
    while (slot < SHMEMI_CLIENTS && server->by_slot[slot])
        slot++;
    if (slot == SHMEMI_CLIENTS)
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                            "no client slot is free: all %d are taken; end some clients of this "
                            "node server or use a second server",
                            SHMEMI_CLIENTS - 1);
    peer->slot = slot;
    peer->epoch = shmemi_roster_epoch_after(server->state->peers[slot].epoch);
    shmemi_roster_client_set(server->roster, slot, peer->epoch, peer->name, (int)peer->who.pid,
                             peer->who.uid);
    SHMEMI_KILL_POINT("node.hello.slot");
    server->by_slot[slot] = peer;
    server->living[slot] = peer->epoch;
    return SHMEM_OK;
}

/* Its hello counts as not answered yet. */
static void note(shmem_server_t server, shmemi_peer_t *peer, const shmemi_wire_hello_t *hello)
{
    shmemi_state_peer_t *record = peer->record = &server->state->peers[peer->slot];
    record->epoch = peer->epoch;
    record->socket = peer->socket.fd;
    record->life = peer->life.fd;
    record->lacks_membarrier = peer->lacks_membarrier;
    record->who = peer->who;
    record->death = 0;
    record->answered = record->tries = 0;
    record->arrival = ++server->state->arrivals;
    atomic_store_explicit(&record->awaited, 0, memory_order_relaxed);
    memcpy(record->name, peer->name, sizeof record->name);
    record->request.hello = *hello;
    shmemi_state_peer_publish(server->state, peer->slot);
}

/* From here on its death is noticed and repaired. */
static void admit(shmem_server_t server, shmemi_peer_t *peer, const shmemi_wire_hello_t *hello)
{
    note(server, peer, hello);
    shmemi_peers_remove(&server->half_open, peer);
    server->half_opens--;
    shmemi_peers_append(&server->attached, peer);
    peer->state = SHMEMI_PEER_ATTACHED;
    server->clients++;
    server->state->had_client = true;
    if (peer->lacks_membarrier)
        shmemi_home_fence(server, true);
    while (server->state->thread_limit < SHMEMI_FIRST_ROWS + ROWS_PER_CLIENT * server->clients &&
           shmemi_home_grow(server) == SHMEM_OK)
        ;
    shmemi_log(SHMEM_LOG_INFO, LAYER, "client %u: %s, process %d", peer->slot, peer->name,
               (int)peer->who.pid);
    shmemi_server_observe(server, SHMEM_SERVER_ATTACHED, peer);
}

void shmemi_clients_welcome(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence)
{
    shmemi_wire_message_t answer;
    shmemi_wire_begin(&answer, SHMEMI_WIRE_WELCOME, sequence);
    answer.welcome.slot = peer->slot;
    answer.welcome.epoch = peer->epoch;
    answer.welcome.roster_offset = server->roster_offset;
    answer.welcome.roster_bytes = sizeof(shmemi_roster_t);
    shmem_status_t status = shmemi_connection_answer(server, peer, &answer, server->roster_fd);
    if (!status)
        return;
    shmemi_connection_refuse(server, peer, sequence, status);
    shmemi_death_repair(server, peer, false);
    shmemi_peer_bury(server, peer);
}

static void hello_refuse(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence,
                         shmem_status_t status)
{
    shmemi_connection_refuse(server, peer, sequence, status);
    shmemi_connection_lost(server, peer);
}

bool shmemi_peer_is_claimed(const shmemi_peer_t *peer)
{
    return peer->state == SHMEMI_PEER_HALF_OPEN && peer->life.fd >= 0;
}

/* Whose hello is it? True with life.fd at its process; false: it has its answer. */
static bool identify(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence, pid_t sender)
{
    shmemi_wire_message_t answer;
    bool claimed = shmemi_peer_is_claimed(peer);
    int fd = peer->socket.fd;
    shmem_status_t status = claimed ? shmemi_identity_prove(fd, sender, peer->life.fd)
                                    : shmemi_identity_pidfd(fd, &peer->life.fd);
    if (status == SHMEM_ERR_UNSUPPORTED) {
        status = shmemi_identity_claim(fd, &peer->life.fd);
        if (status == SHMEM_OK) {
            shmemi_wire_begin(&answer, SHMEMI_WIRE_HELLO_AGAIN, sequence);
            shmemi_connection_answer(server, peer, &answer, -1);
            return false;
        }
    }
    if (status)
        hello_refuse(server, peer, sequence, status);
    return status == SHMEM_OK;
}

/* It will stand in logs and on terminals: nothing in it may pass for anything else. */
static void take_name(shmemi_peer_t *peer, const shmemi_wire_hello_t *hello)
{
    for (size_t i = 0; i + 1 < sizeof peer->name && hello->name[i]; i++)
        peer->name[i] = hello->name[i] < ' ' || hello->name[i] > '~' ? '?' : hello->name[i];
}

void shmemi_clients_hello(shmem_server_t server, shmemi_peer_t *peer,
                          const shmemi_wire_hello_t *hello, pid_t sender)
{
    uint32_t sequence = hello->header.sequence;
    shmem_status_t status = hello_check(hello);
    if (status) {
        hello_refuse(server, peer, sequence, status);
        return;
    }
    if (!identify(server, peer, sequence, sender))
        return;
    take_name(peer, hello);
    peer->lacks_membarrier = !(hello->flags & SHMEMI_HELLO_MEMBARRIER);
    status = shmemi_server_watch(server, &peer->life);
    if (status == SHMEM_OK)
        status = take_slot(server, peer);
    if (status) {
        hello_refuse(server, peer, sequence, status);
        return;
    }
    admit(server, peer, hello);
    SHMEMI_KILL_POINT("node.hello.admitted");
    shmemi_clients_welcome(server, peer, sequence);
}

/* ---- goodbye, counts ---- */

void shmemi_clients_goodbye(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence)
{
    shmemi_wire_message_t answer;
    shmemi_log(SHMEM_LOG_INFO, LAYER, "client %u (%s) said goodbye", peer->slot, peer->name);
    shmemi_server_observe(server, SHMEM_SERVER_DETACHED, peer);
    shmemi_death_repair(server, peer, false);
    shmemi_death_retry(server, false);
    shmemi_wire_begin(&answer, SHMEMI_WIRE_DONE, sequence);
    shmemi_socket_send(peer->socket.fd, &answer, answer.header.bytes, NULL, 0, 0); /* may be gone */
    shmemi_peer_bury(server, peer);
}

void shmemi_clients_counts(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence)
{
    shmemi_wire_message_t answer;
    shmemi_wire_begin(&answer, SHMEMI_WIRE_COUNTS, sequence);
    answer.counts.clients = server->clients;
    answer.counts.suspects = server->suspects;
    answer.counts.segments = server->table.count;
    answer.counts.segment_bytes = server->table.bytes;
    answer.counts.deaths = server->state->deaths;
    answer.counts.reclaimed_blocks = server->state->reclaimed;
    answer.counts.thread_limit = server->state->thread_limit;
    shmemi_connection_answer(server, peer, &answer, -1);
}
