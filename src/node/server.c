/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's life: create, run, stop, destroy.
 *
 * run() is one loop over epoll. An event names a source by address; a peer that ends during a round
 * is buried (its descriptors closed, sources at -1) and freed after the round, when no fetched
 * event can name it any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/params.h"
#include "base/status.h"
#include "node/server_core.h"

#define LAYER "node"

#define FIRST_CLIENT_NS 10000000000

enum { EVENTS = 64 };

shmem_status_t shmemi_server_watch(shmem_server_t server, shmemi_source_t *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    if (SHMEMI_FAULT("node.server.watch"))
        return shmemi_fail(SHMEM_ERR_INJECTED, LAYER, "injected at node.server.watch");
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, source->fd, &event))
        return shmemi_fail_errno(LAYER, "cannot watch descriptor %d", source->fd);
    return SHMEM_OK;
}

/* A copy of the descriptor in a forked child of an embedding program would keep it in the set after
 * close(): it is removed first. In such a child itself the set is the parent's: hands off. */
void shmemi_server_unwatch(shmem_server_t server, shmemi_source_t *source)
{
    if (source->fd < 0)
        return;
    if (server->fork_generation == shmemi_fork_generation())
        epoll_ctl(server->epoll, EPOLL_CTL_DEL, source->fd, NULL);
    close(source->fd);
    source->fd = -1;
}

void shmemi_server_set_hello_time(shmem_server_t server, int64_t ns)
{
    server->hello_ns = ns;
}

/* ---- create, destroy ---- */

static shmem_status_t choose_address(shmem_server_t server, const char *address)
{
    uint64_t random;
    if (address) {
        if (strlen(address) >= sizeof server->address)
            return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                               "server address '%.32s...' is longer than %zu bytes", address,
                               sizeof server->address - 1);
        snprintf(server->address, sizeof server->address, "%s", address);
        return SHMEM_OK;
    }
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return shmemi_fail_errno(LAYER, "cannot get random bytes for the server's address");
    snprintf(server->address, sizeof server->address, "@shmem-%u-server-%016llx",
             (unsigned)geteuid(), (unsigned long long)random);
    return SHMEM_OK;
}

static shmem_status_t open_event(shmem_server_t server, shmemi_source_t *source)
{
    source->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (source->fd < 0)
        return shmemi_fail_errno(LAYER, "cannot create an event descriptor");
    return shmemi_server_watch(server, source);
}

static shmem_status_t open_descriptors(shmem_server_t server)
{
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll < 0)
        return shmemi_fail_errno(LAYER, "cannot create an epoll set");
    server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    shmem_status_t status = open_event(server, &server->stop);
    if (status == SHMEM_OK)
        status = open_event(server, &server->reserved);
    return status;
}

static shmem_status_t open_all(shmem_server_t server, const shmem_server_params_t *params)
{
    shmem_status_t status = shmemi_state_create(&server->state);
    if (status == SHMEM_OK)
        status = shmemi_settings_load(&server->settings);
    if (status == SHMEM_OK)
        status = choose_address(server, params->address);
    if (status == SHMEM_OK)
        status = open_descriptors(server);
    if (status == SHMEM_OK)
        status = shmemi_home_make(server);
    SHMEMI_KILL_POINT("node.server.home");
    if (status == SHMEM_OK) /* last: who connects finds everything in place */
        status = shmemi_socket_listen(server->address, &server->listener.fd);
    if (status == SHMEM_OK && server->all_users)
        status = shmemi_socket_open_to_all(server->address);
    if (status == SHMEM_OK)
        status = shmemi_server_watch(server, &server->listener);
    SHMEMI_KILL_POINT("node.server.listening");
    return status;
}

void shmemi_server_observe(shmem_server_t server, shmem_server_event_t event,
                           const shmemi_peer_t *peer)
{
    if (server->observer)
        server->observer(server->observer_user, event, peer->slot, (int)peer->who.pid);
}

static shmem_server_t server_alloc(const shmem_server_params_t *params)
{
    shmem_server_t server = calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->epoll = server->spare = server->roster_fd = -1;
    server->listener = (shmemi_source_t){SHMEMI_SOURCE_LISTENER, -1, NULL};
    server->stop = (shmemi_source_t){SHMEMI_SOURCE_STOP, -1, NULL};
    server->reserved = (shmemi_source_t){SHMEMI_SOURCE_RESERVED, -1, NULL};
    server->keeper = (shmemi_source_t){SHMEMI_SOURCE_KEEPER, -1, NULL};
    server->takeover = params->takeover != 0;
    server->all_users = params->all_users != 0;
    server->exit_when_unused = params->exit_when_unused != 0;
    server->observer = params->observer;
    server->observer_user = params->observer_user;
    server->first_client_ns = params->first_client_ns ? params->first_client_ns : FIRST_CLIENT_NS;
    server->hello_ns = SHMEMI_HELLO_NS;
    server->user = geteuid();
    server->fork_generation = shmemi_fork_generation();
    server->started = shmemi_clock_now();
    return server;
}

shmem_status_t shmem_server_create(shmem_server_t *out, const shmem_server_params_t *given)
{
    shmem_server_params_t own = SHMEM_SERVER_PARAMS_INIT;
    if (given) {
        shmem_status_t status =
            shmemi_params_take(&own, sizeof own, sizeof own, given, "shmem_server_params_t");
        if (status)
            return status;
    }
    const shmem_server_params_t *params = &own;
    if (!out || params->first_client_ns < 0)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_server_create: no place for the server, or a negative time");
    if (params->all_users && geteuid() != 0)
        return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                           "a server for all users must run as root, to give each user's segments "
                           "to him; this process runs as user %u",
                           (unsigned)geteuid());
    shmem_server_t server = server_alloc(params);
    if (!server)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a node server");
    shmem_status_t status = open_all(server, params);
    if (status) {
        shmem_server_destroy(server);
        return status;
    }
    shmemi_log(SHMEM_LOG_INFO, LAYER, "node server at %s", server->address);
    *out = server;
    return SHMEM_OK;
}

static void destroy_peers(shmem_server_t server, shmemi_peers_t *peers)
{
    while (peers->first) {
        shmemi_segments_release(server, peers->first);
        shmemi_peer_bury(server, peers->first);
    }
    shmemi_peer_reap(server);
}

void shmem_server_destroy(shmem_server_t server)
{
    if (!server)
        return;
    if (server->fork_generation == shmemi_fork_generation()) {
        shmemi_socket_unlisten(server->address, server->listener.fd);
        server->listener.fd = -1;
        shmemi_reserve_fini(server);
    } else {
        shmemi_state_disown(server->state);
    }
    shmemi_death_forget(server, NULL);
    destroy_peers(server, &server->half_open);
    destroy_peers(server, &server->attached);
    shmemi_home_close(server);
    shmemi_server_unwatch(server, &server->listener);
    shmemi_server_unwatch(server, &server->stop);
    shmemi_server_unwatch(server, &server->reserved);
    if (server->spare >= 0)
        close(server->spare);
    if (server->epoll >= 0)
        close(server->epoll);
    shmemi_state_destroy(server->state);
    free(server);
}

const char *shmem_server_address(shmem_server_t server)
{
    return server ? server->address : NULL;
}

/* ---- run, stop ---- */

void shmem_server_stop(shmem_server_t server)
{
    int saved = errno;
    uint64_t one = 1;
    if (server && write(server->stop.fd, &one, sizeof one) < 0)
        errno = saved; /* full: it is told already */
    errno = saved;
}

/* True: stop. */
static bool handle(shmem_server_t server, shmemi_source_t *source)
{
    uint64_t count;
    if (source->fd < 0)
        return false; /* closed earlier in this round */
    switch (source->kind) {
    case SHMEMI_SOURCE_LISTENER:
        shmemi_connection_accept(server);
        return false;
    case SHMEMI_SOURCE_STOP:
        return read(source->fd, &count, sizeof count) == (ssize_t)sizeof count;
    case SHMEMI_SOURCE_RESERVED:
        shmemi_reserve_collect(server);
        return false;
    case SHMEMI_SOURCE_KEEPER:
        shmemi_keeper_lost(server);
        return false;
    case SHMEMI_SOURCE_SOCKET:
        shmemi_connection_receive(server, source->peer);
        return false;
    case SHMEMI_SOURCE_LIFE:
        shmemi_death_noticed(server, source->peer);
        return false;
    }
    return false;
}

/* Is an exit_when_unused server out of use? Otherwise *next is lowered to when to ask again. */
static bool unused(const struct shmem_server *server, int64_t now, int64_t *next)
{
    if (!server->exit_when_unused || server->clients)
        return false;
    if (server->state->had_client)
        return true;
    int64_t end = server->started + server->first_client_ns;
    if (end < *next)
        *next = end;
    return now >= end;
}

static int epoll_timeout(int64_t now, int64_t next)
{
    if (next == SHMEMI_FOREVER)
        return -1;
    int64_t ms = (next - now + 999999) / 1000000;
    return ms < 0 ? 0 : ms > 60000 ? 60000 : (int)ms;
}

/* Deaths first: nobody waits for a dead peer, or is answered as if it lived, because blocks are
 * being given back or others ask for something. True: stop. */
static bool handle_all(shmem_server_t server, struct epoll_event *events, int n)
{
    bool stop = false, deaths = false;
    for (int i = 0; i < n; i++) {
        shmemi_source_t *source = events[i].data.ptr;
        if (source->kind == SHMEMI_SOURCE_LIFE)
            deaths |= !handle(server, source);
    }
    if (deaths)
        shmemi_death_retry(server, false);
    for (int i = 0; i < n; i++) {
        shmemi_source_t *source = events[i].data.ptr;
        if (source->kind != SHMEMI_SOURCE_LIFE)
            stop |= handle(server, source);
    }
    return stop;
}

static shmem_status_t serve(shmem_server_t server)
{
    struct epoll_event events[EVENTS];
    bool stop = false;
    while (!stop) {
        shmem_status_t status = SHMEM_OK;
        if (server->keeper_due && !server->jobs && shmemi_clock_now() >= server->keeper_at)
            status = shmemi_keeper_start(server);
        if (status)
            return status;
        int64_t retry = shmemi_death_retry(server, true), now = shmemi_clock_now();
        int64_t next = shmemi_connection_expire(server, now);
        next = retry < next ? retry : next;
        if (server->keeper_due && !server->jobs && server->keeper_at < next)
            next = server->keeper_at;
        shmemi_peer_reap(server);
        if (unused(server, now, &next))
            return SHMEM_OK;
        int n = epoll_wait(server->epoll, events, EVENTS, epoll_timeout(now, next));
        if (n < 0 && errno != EINTR)
            return shmemi_fail_errno(LAYER, "cannot wait for events");
        stop = n > 0 && handle_all(server, events, n);
    }
    shmemi_peer_reap(server);
    return SHMEM_OK;
}

shmem_status_t shmem_server_run(shmem_server_t server)
{
    if (!server || server->fork_generation != shmemi_fork_generation())
        return shmemi_fail(server ? SHMEM_ERR_STATE : SHMEM_ERR_INVALID, LAYER,
                           "shmem_server_run: %s",
                           server ? "the server belongs to the parent of "
                                    "this forked process"
                                  : "no server");
    /* SYNC server-running: acquire, pairs with release in shmem_server_run() */
    if (atomic_exchange_explicit(&server->running, true, memory_order_acquire))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER, "shmem_server_run: another thread runs it");
    server->keeper_due = server->takeover;
    shmem_status_t status = serve(server);
    shmemi_keeper_stop(server);
    /* SYNC server-running: release, pairs with acquire in shmem_server_run() */
    atomic_store_explicit(&server->running, false, memory_order_release);
    return status;
}
