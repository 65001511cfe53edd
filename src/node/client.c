/* SPDX-License-Identifier: Apache-2.0 */
/* Attach and detach: the life of a client object. */
#include "node/client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/client_core.h"
#include "os/barrier.h"
#include "os/identity.h"
#include "os/segment.h"
#include "os/socket.h"
#include "os/space.h"

#define LAYER "node"

enum { ATTEMPTS = 8 }; /* to attach to a server that is killed meanwhile */

/* ---- attach ---- */

/* Anybody may take an abstract name: who listens must be the user himself, or root. */
static shmem_status_t check_server(const shmemi_client_t *client, int fd)
{
    shmemi_credentials_t server;
    shmem_status_t status = shmemi_identity_peer(fd, &server);
    if (status)
        return status;
    if (server.uid == geteuid() || server.uid == 0)
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                       "at %s listens a program of user %u, not one of user %u or of root: the "
                       "address is taken by another user. Start a server at a path in a directory "
                       "of your own and set SHMEM_SERVER to it",
                       client->address, (unsigned)server.uid, (unsigned)geteuid());
}

shmem_status_t shmemi_client_connect(shmemi_client_t *client)
{
    int fd;
    shmem_status_t status = shmemi_socket_connect(client->address, &fd);
    if (status)
        return status;
    status = check_server(client, fd);
    if (status == SHMEM_OK)
        status = shmemi_handle_init(&client->socket, fd);
    if (status)
        close(fd);
    return status;
}

void shmemi_client_disconnect(shmemi_client_t *client)
{
    shmemi_handle_close(&client->socket);
    atomic_store_explicit(&client->lost, false, memory_order_relaxed);
}

static void hello_fill(shmemi_wire_message_t *message, const char *name, bool membarrier)
{
    shmemi_wire_begin(message, SHMEMI_WIRE_HELLO, 0);
    message->hello.layout = shmemi_wire_layout();
    message->hello.flags = membarrier ? SHMEMI_HELLO_MEMBARRIER : 0;
    message->hello.space_base = SHMEMI_SPACE_BASE;
    message->hello.space_bytes = SHMEMI_SPACE_BYTES;
    if (name)
        memcpy(message->hello.name, name, strnlen(name, sizeof message->hello.name - 1));
}

/* Hello, and once more where the server's kernel cannot name its peer by itself. */
static shmem_status_t say_hello(shmemi_client_t *client, const char *name,
                                shmemi_deadline_t deadline, shmemi_wire_message_t *message, int *fd)
{
    bool membarrier = shmemi_barrier_register();
    hello_fill(message, name, membarrier);
    shmem_status_t status =
        shmemi_client_request(client, message, SHMEMI_WIRE_WELCOME, fd, deadline);
    if (status || message->header.type == SHMEMI_WIRE_WELCOME)
        return status;
    hello_fill(message, name, membarrier);
    status = shmemi_client_request(client, message, SHMEMI_WIRE_WELCOME, fd, deadline);
    if (status || message->header.type == SHMEMI_WIRE_WELCOME)
        return status;
    return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER, "the server at %s wants a third hello",
                       client->address);
}

static shmem_status_t map_roster(shmemi_client_t *client, const shmemi_wire_welcome_t *welcome,
                                 int fd)
{
    void *address;
    if (fd < 0 || welcome->roster_bytes != sizeof(shmemi_roster_t) ||
        welcome->roster_offset % SHMEMI_SPACE_UNIT || welcome->slot == 0 ||
        welcome->slot >= SHMEMI_CLIENTS || welcome->epoch == 0 ||
        !shmemi_range_inside(welcome->roster_offset, welcome->roster_bytes, SHMEMI_SPACE_BYTES))
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER,
                           "the server at %s welcomed with an impossible roster: %llu bytes at "
                           "%llx, slot %u, descriptor %d",
                           client->address, (unsigned long long)welcome->roster_bytes,
                           (unsigned long long)welcome->roster_offset, welcome->slot, fd);
    shmem_status_t status = shmemi_segment_verify(fd, welcome->roster_bytes);
    if (status)
        return status;
    status = shmemi_space_map(welcome->roster_offset, welcome->roster_bytes, fd, 1, &address);
    if (status)
        return status;
    status = shmemi_roster_check(address);
    if (status) {
        shmemi_space_unmap(address);
        return status;
    }
    client->roster = address;
    return SHMEM_OK;
}

static void say_goodbye(shmemi_client_t *client, bool wait)
{
    shmemi_wire_message_t message;
    shmemi_wire_begin(&message, SHMEMI_WIRE_GOODBYE, 0);
    if (wait)
        shmemi_client_request(client, &message, SHMEMI_WIRE_DONE, NULL,
                              shmemi_deadline_in(SHMEMI_REQUEST_NS));
    else if (shmemi_handle_is_ours(&client->socket)) {
        message.header.sequence = ++client->sequence;
        shmemi_socket_send(client->socket.fd, &message, message.header.bytes, NULL, 0, 0);
    }
}

static shmem_status_t grow_rows(void *client)
{
    return shmemi_client_grow(client);
}

int64_t shmemi_client_patience(const shmemi_settings_t *settings, int64_t least, int64_t most)
{
    int64_t patience = settings->init_timeout;
    if (patience < 0 || patience > most)
        return most;
    return patience < least ? least : patience;
}

shmem_status_t shmemi_client_hello(shmemi_client_t *client, const char *name,
                                   const shmemi_settings_t *settings)
{
    shmemi_wire_message_t message;
    int fd = -1;
    shmem_status_t status = say_hello(client, name,
                                      shmemi_deadline_in(shmemi_client_patience(
                                          settings, SHMEMI_LEAST_HELLO_NS, SHMEMI_REQUEST_NS)),
                                      &message, &fd);
    if (status)
        return status;
    uint32_t slot = message.welcome.slot, epoch = message.welcome.epoch;
    status = map_roster(client, &message.welcome, fd);
    if (status == SHMEM_OK)
        status = shmemi_handle_init(&client->roster_handle, fd);
    if (status) {
        if (client->roster)
            shmemi_space_unmap(client->roster);
        client->roster = NULL;
        if (fd >= 0)
            close(fd);
        say_goodbye(client, false);
        return status;
    }
    shmemi_actor_init(&client->actor, client->roster, slot, epoch, settings->spin);
    client->actor.grow = grow_rows;
    client->actor.grow_user = client;
    return SHMEM_OK;
}

static shmemi_client_t *client_alloc(void)
{
    shmemi_client_t *client = SHMEMI_FAULT("node.client.alloc") ? NULL : calloc(1, sizeof *client);
    if (!client)
        return NULL;
    pthread_mutex_init(&client->lock, NULL);
    client->socket.fd = client->roster_handle.fd = -1;
    client->fork_generation = shmemi_fork_generation();
    return client;
}

static void client_free(shmemi_client_t *client)
{
    pthread_mutex_destroy(&client->lock);
    free(client);
}

static shmem_status_t attach_to(shmemi_client_t *client, const shmemi_settings_t *settings,
                                const char *name)
{
    size_t length = strlen(settings->server);
    if (length >= sizeof client->address)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "the server address '%.32s...' is longer than the %zu bytes that a "
                           "socket address may have",
                           settings->server, sizeof client->address - 1);
    memcpy(client->address, settings->server, length + 1);
    shmem_status_t status = SHMEM_ERR_SERVER_LOST;
    for (int i = 0; i < ATTEMPTS && status == SHMEM_ERR_SERVER_LOST; i++) {
        shmemi_client_disconnect(client); /* it was killed: its successor listens */
        status = shmemi_client_connect(client);
        if (status == SHMEM_OK)
            status = shmemi_client_hello(client, name, settings);
    }
    if (status == SHMEM_ERR_NO_SERVER)
        return shmemi_fail(SHMEM_ERR_NO_SERVER, LAYER,
                           "no node server listens at %s, where SHMEM_SERVER (or the program) says "
                           "it is; start it with: shmemd --address %s",
                           client->address, client->address);
    return status;
}

shmem_status_t shmemi_client_attach(const shmemi_settings_t *settings, const char *name,
                                    shmemi_client_t **out)
{
    shmem_status_t status = shmemi_space_reserve();
    if (status)
        return status;
    shmemi_client_t *client = client_alloc();
    if (!client)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a client");
    status = settings->server[0] ? attach_to(client, settings, name)
                                 : shmemi_private_attach(client, settings, name);
    if (status == SHMEM_ERR_SERVER_LOST)
        shmemi_fail(status, LAYER,
                    "the node server at %s ends whenever this program attaches to it",
                    client->address);
    if (status) {
        shmemi_client_disconnect(client);
        client_free(client);
        return status;
    }
    *out = client;
    return SHMEM_OK;
}

/* ---- detach ---- */

static void close_all(shmemi_client_t *client)
{
    while (client->opened) {
        shmemi_opened_t *opened = client->opened;
        client->opened = opened->next;
        shmemi_handle_close(&opened->handle);
        free(opened);
    }
    shmemi_handle_close(&client->roster_handle);
    shmemi_handle_close(&client->socket);
}

void shmemi_client_detach(shmemi_client_t *client)
{
    if (!client)
        return;
    if (client->fork_generation != shmemi_fork_generation()) {
        close_all(client); /* copies; slot, rows and mappings are the parent's */
        free(client);
        return;
    }
    shmemi_actor_fini(&client->actor);
    if (!atomic_load_explicit(&client->lost, memory_order_relaxed))
        say_goodbye(client, client->opened != NULL); /* its segments are free when we return */
    shmemi_space_unmap(client->roster);
    close_all(client);
    client_free(client);
}

/* ---- questions ---- */

shmemi_actor_t *shmemi_client_actor(shmemi_client_t *client)
{
    return &client->actor;
}

const char *shmemi_client_address(const shmemi_client_t *client)
{
    return client->address;
}

bool shmemi_client_server_lost(shmemi_client_t *client)
{
    if (atomic_load_explicit(&client->lost, memory_order_relaxed))
        return true;
    struct pollfd p = {.fd = client->socket.fd, .events = 0};
    bool gone = !shmemi_handle_is_ours(&client->socket) ||
                (poll(&p, 1, 0) == 1 && p.revents & (POLLHUP | POLLERR | POLLNVAL));
    if (gone)
        atomic_store_explicit(&client->lost, true, memory_order_relaxed);
    return gone;
}
