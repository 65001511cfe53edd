/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: accept, receive, dispatch, answer.
 *
 * Nothing here waits for a peer: a message is taken whole or not at all, and an answer that does
 * not fit into the socket at once ends the connection. Who breaks the protocol is told so and loses
 * the connection. Descriptors that come are never opened here, not even to close them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "node/server_core.h"

#define LAYER "node"

enum { TRIES = 3 }; /* to do a request that a predecessor left: it may be what ends servers */

/* ---- accept ---- */

static void say_no(int fd, shmem_status_t status, const char *text)
{
    shmemi_wire_message_t message;
    shmemi_wire_error(&message, 0, status, text);
    shmemi_socket_send(fd, &message, message.header.bytes, NULL, 0, 0);
}

/* No descriptor is left (or no memory): use the spare one to say so, rather than leave the peer
 * waiting. */
static void turn_away(shmem_server_t server)
{
    int fd;
    if (server->spare >= 0) {
        close(server->spare);
        if (shmemi_socket_accept(server->listener.fd, &fd) == SHMEM_OK) {
            say_no(fd, SHMEM_ERR_LIMIT,
                   "the node server has no descriptor left for another client "
                   "(see ulimit -n where it was started)");
            close(fd);
        }
    }
    server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    nanosleep(&(struct timespec){0, 1000000},
              NULL); /* the next connection waits already: no spin */
}

/* Rights to be served at all. */
static shmem_status_t check_user(shmem_server_t server, int fd, shmemi_credentials_t *who)
{
    shmem_status_t status = shmemi_identity_peer(fd, who);
    if (status)
        return status;
    if (!server->all_users && who->uid != server->user && who->uid != 0)
        return shmemi_quiet(SHMEM_ERR_ACCESS, LAYER,
                            "this node server belongs to user %u and serves him and root only, not "
                            "user %u",
                            (unsigned)server->user, (unsigned)who->uid);
    return SHMEM_OK;
}

static shmem_status_t peer_create(shmem_server_t server, int fd, const shmemi_credentials_t *who)
{
    shmemi_peer_t *peer = SHMEMI_FAULT("node.accept.peer") ? NULL : calloc(1, sizeof *peer);
    if (!peer)
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER, "the node server has no memory for a client");
    peer->state = SHMEMI_PEER_HALF_OPEN;
    peer->who = *who;
    peer->since = shmemi_clock_now();
    peer->socket = (shmemi_source_t){SHMEMI_SOURCE_SOCKET, fd, peer};
    peer->life = (shmemi_source_t){SHMEMI_SOURCE_LIFE, -1, peer};
    shmemi_peers_append(&server->half_open, peer);
    server->half_opens++;
    return SHMEM_OK;
}

void shmemi_connection_accept(shmem_server_t server)
{
    shmemi_credentials_t who;
    int fd;
    shmem_status_t status = shmemi_socket_accept(server->listener.fd, &fd);
    if (status && status != SHMEM_ERR_BUSY)
        turn_away(server);
    if (status)
        return;
    SHMEMI_KILL_POINT("node.accept.accepted");
    status = check_user(server, fd, &who);
    if (status == SHMEM_OK)
        status = peer_create(server, fd, &who);
    if (status) {
        say_no(fd, status, shmem_error_detail()->text);
        close(fd);
        return;
    }
    shmemi_peer_t *peer = server->half_open.last;
    if (server->half_opens > SHMEMI_HALF_OPEN)
        shmemi_connection_lost(server, server->half_open.first);
    shmemi_connection_receive(server, peer); /* its hello is mostly there: answer at once */
    if (peer->socket.fd >= 0 && shmemi_server_watch(server, &peer->socket))
        shmemi_connection_lost(server, peer);
}

int64_t shmemi_connection_expire(shmem_server_t server, int64_t now)
{
    shmemi_peer_t *peer;
    while ((peer = server->half_open.first) != NULL) {
        if (now - peer->since < server->hello_ns)
            return peer->since + server->hello_ns;
        say_no(peer->socket.fd, SHMEM_ERR_TIMEOUT, "the connection said no hello in time");
        shmemi_connection_lost(server, peer);
    }
    return SHMEMI_FOREVER;
}

/* ---- end ---- */

void shmemi_connection_lost(shmem_server_t server, shmemi_peer_t *peer)
{
    if (peer->state == SHMEMI_PEER_HALF_OPEN) {
        shmemi_peer_bury(server, peer);
        return;
    }
    if (peer->state != SHMEMI_PEER_ATTACHED)
        return;
    peer->record->request.header.magic = 0;
    peer->record->socket = -1;
    shmemi_server_unwatch(server, &peer->socket);
    shmemi_segments_wait_no_more(peer);
    peer->state = SHMEMI_PEER_SUSPECT; /* it may still use what it has mapped */
    server->suspects++;
    shmemi_log(
        SHMEM_LOG_INFO, LAYER,
        "client %u (%s, process %d) has no connection any more; what it has open stays until "
        "its process ends",
        peer->slot, peer->name, (int)peer->who.pid);
}

/* ---- answers ---- */

shmem_status_t shmemi_connection_answer(shmem_server_t server, shmemi_peer_t *peer,
                                        const shmemi_wire_message_t *message, int fd)
{
    if (peer->socket.fd < 0)
        return SHMEM_OK;
    SHMEMI_KILL_POINT("node.answer.ready");
    shmem_status_t status =
        shmemi_socket_send(peer->socket.fd, message, message->header.bytes, &fd, fd >= 0, 0);
    SHMEMI_KILL_POINT("node.answer.sent");
    if (fd >= 0 && (status == SHMEM_ERR_LIMIT || status == SHMEM_ERR_NOMEM))
        return status; /* others' descriptors are on their way: not this peer's fault */
    if (peer->record) {
        peer->record->answered = peer->record->request.header.sequence;
        peer->record->request.header.magic = 0; /* whatever comes now is not done twice */
        peer->record->arrival = UINT64_MAX;
    }
    if (status == SHMEM_OK || status == SHMEM_ERR_SERVER_LOST)
        return SHMEM_OK; /* who has closed may have left last words, and then finds the end, too */
    if (status == SHMEM_ERR_TIMEOUT)
        shmemi_log(SHMEM_LOG_WARN, LAYER, "process %d does not read its answers",
                   (int)peer->who.pid);
    shmemi_connection_lost(server, peer);
    return SHMEM_OK;
}

void shmemi_connection_refuse(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence,
                              shmem_status_t status)
{
    shmemi_wire_message_t message;
    const char *text = shmem_error_detail()->text;
    shmemi_log(SHMEM_LOG_INFO, LAYER, "refused process %d: %s: %s", (int)peer->who.pid,
               shmem_status_name(status), text);
    shmemi_wire_error(&message, sequence, status, text);
    shmemi_connection_answer(server, peer, &message, -1);
}

/* Tell the peer what it did wrong, and part. */
static void part(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence,
                 shmem_status_t status)
{
    shmemi_connection_refuse(server, peer, sequence, status);
    shmemi_connection_lost(server, peer);
}

/* ---- requests ---- */

static void grow(shmem_server_t server, shmemi_peer_t *peer, uint32_t sequence)
{
    shmemi_wire_message_t answer;
    shmem_status_t status = shmemi_home_grow(server);
    if (status) {
        shmemi_connection_refuse(server, peer, sequence, status);
        return;
    }
    shmemi_wire_begin(&answer, SHMEMI_WIRE_GROWN, sequence);
    answer.grown.thread_limit = server->state->thread_limit;
    shmemi_connection_answer(server, peer, &answer, -1);
}

/* Requests of an attached client. False: not a request. */
static bool serve(shmem_server_t server, shmemi_peer_t *peer, const shmemi_wire_message_t *message)
{
    uint32_t sequence = message->header.sequence;
    switch (message->header.type) {
    case SHMEMI_WIRE_GOODBYE:
        shmemi_clients_goodbye(server, peer, sequence);
        return true;
    case SHMEMI_WIRE_SEGMENT_CREATE:
        shmemi_segments_create(server, peer, &message->create);
        return true;
    case SHMEMI_WIRE_SEGMENT_OPEN:
        shmemi_segments_open(server, peer, &message->open);
        return true;
    case SHMEMI_WIRE_SEGMENT_CLOSE:
        shmemi_segments_close(server, peer, &message->close);
        return true;
    case SHMEMI_WIRE_SEGMENT_GROW:
        shmemi_growing_request(server, peer, &message->grow);
        return true;
    case SHMEMI_WIRE_SEGMENT_UNLINK:
        shmemi_names_unlink(server, peer, &message->unlink);
        return true;
    case SHMEMI_WIRE_SEGMENT_LIST:
        shmemi_names_list(server, peer, &message->list);
        return true;
    case SHMEMI_WIRE_STATUS:
        shmemi_clients_counts(server, peer, sequence);
        return true;
    case SHMEMI_WIRE_GROW_ROSTER:
        grow(server, peer, sequence);
        return true;
    default:
        return false;
    }
}

/* Numbers count up, so that no request is taken for another that was done before. */
static bool is_new(const shmemi_peer_t *peer, uint32_t sequence)
{
    return sequence && (!peer->record || (int32_t)(sequence - peer->record->answered) > 0);
}

/* The protocol's order: hello first and once, one request at a time. */
static void dispatch(shmem_server_t server, shmemi_peer_t *peer,
                     const shmemi_wire_message_t *message, pid_t sender)
{
    uint16_t type = message->header.type;
    bool is_hello = type == SHMEMI_WIRE_HELLO, half_open = peer->state == SHMEMI_PEER_HALF_OPEN;
    shmem_status_t status = SHMEM_ERR_PROTOCOL;
    if (is_hello != half_open)
        shmemi_quiet(status, LAYER, "%s came %s the hello", shmemi_wire_type_name(type),
                     half_open ? "before" : "after");
    else if (!is_new(peer, message->header.sequence))
        shmemi_quiet(status, LAYER, "%s has number %u, which is not above the last one",
                     shmemi_wire_type_name(type), message->header.sequence);
    else if (is_hello) {
        shmemi_clients_hello(server, peer, &message->hello, sender);
        return;
    } else {
        shmemi_segments_wait_no_more(peer); /* who asks again has given up on the last one */
        if (serve(server, peer, message))
            return;
        shmemi_quiet(status, LAYER, "%s is not a request", shmemi_wire_type_name(type));
    }
    part(server, peer, message->header.sequence, status);
}

void shmemi_connection_redo(shmem_server_t server, shmemi_peer_t *peer)
{
    const shmemi_wire_message_t *request = &peer->record->request;
    uint32_t sequence = request->header.sequence;
    if (!request->header.magic || peer->awaited)
        return;
    shmem_status_t status = shmemi_wire_check(request, request->header.bytes);
    if (status == SHMEM_OK && peer->record->tries == TRIES)
        status = shmemi_quiet(SHMEM_ERR_SYSTEM, LAYER, "%d node servers ended while they did this",
                              TRIES);
    peer->record->tries++;
    if (status == SHMEM_OK && !is_new(peer, sequence))
        peer->record->request.header.magic = 0; /* answered, but for the last step */
    else if (status == SHMEM_OK && request->header.type == SHMEMI_WIRE_HELLO)
        shmemi_clients_welcome(server, peer, sequence);
    else if (status)
        part(server, peer, sequence, status);
    else if (!serve(server, peer, request))
        part(server, peer, sequence, SHMEM_ERR_PROTOCOL);
    peer->record->tries = 0;
}

/* A client's request is received where it outlives the server. */
bool shmemi_connection_receive(shmem_server_t server, shmemi_peer_t *peer)
{
    shmemi_wire_message_t first, *message = peer->record ? &peer->record->request : &first;
    pid_t sender = 0;
    size_t got = 0;
    if (peer->socket.fd < 0)
        return false;
    message->bytes[SHMEMI_WIRE_MAX - 1] = 0; /* a missing page could lose what comes, when killed */
    shmem_status_t status =
        shmemi_peer_is_claimed(peer)
            ? shmemi_socket_receive_signed(peer->socket.fd, message, sizeof *message, &got, &sender,
                                           0)
            : shmemi_socket_receive(peer->socket.fd, message, sizeof *message, &got, NULL, NULL, 0);
    if (status == SHMEM_ERR_TIMEOUT)
        return false;
    if (status == SHMEM_ERR_PROTOCOL || status == SHMEM_ERR_LIMIT) {
        part(server, peer, 0, status);
        return true;
    }
    if (status) {
        shmemi_connection_lost(server, peer);
        return true;
    }
    SHMEMI_KILL_POINT("node.receive.received");
    if (peer->record) {
        peer->record->arrival = ++server->state->arrivals;
        peer->record->tries = 0;
    }
    status = shmemi_wire_check(message, got);
    if (status)
        part(server, peer, got >= sizeof message->header ? message->header.sequence : 0, status);
    else
        dispatch(server, peer, message, sender);
    return true;
}
