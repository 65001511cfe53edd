/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a successor begins: what the server before knew is built anew from the state (state.h), what
 * that one had begun is finished or undone.
 *
 *   found                                    done
 *   a descriptor that no record names        closed: half-open connections, files half made
 *   a segment that nobody has open           dropped
 *   what the roster says of slots            written anew, as the records say
 *   a record whose process has ended         its pidfd says so in the first turn: repaired
 *   a segment that is waited for             handed over, or made once more
 *   another request without an answer        done once more, in the order in which they came
 *                                            (segments.c knows what was done)
 *   blocks of dead clients, the killed       swept in all pools
 *   server's own among them
 *
 *   Invariant  afterwards server_core.h's invariants hold
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "node/server_core.h"
#include "os/space.h"

#define LAYER "node"

/* ---- forgetting: memory is that of the time when the keeper was made ---- */

static void forget_peers(shmemi_peers_t *peers)
{
    shmemi_peer_t *peer;
    while ((peer = peers->first) != NULL) {
        shmemi_peers_remove(peers, peer);
        while (peer->holds) {
            shmemi_hold_t *hold = peer->holds;
            peer->holds = hold->next;
            free(hold);
        }
        free(peer);
    }
}

/* The numbers of descriptors are not closed: they may be others' by now. */
static void forget(shmem_server_t server)
{
    shmemi_death_forget(server, NULL);
    forget_peers(&server->half_open);
    forget_peers(&server->attached);
    forget_peers(&server->graves);
    memset(server->by_slot, 0, sizeof server->by_slot);
    memset(server->living, 0, sizeof server->living);
    server->half_opens = server->clients = server->suspects = 0;
    for (shmemi_entry_t *entry = server->table.all; entry; entry = entry->newer) {
        entry->record = 0;
        entry->fd = -1;
        entry->spec.name[0] = 0; /* the buckets go, too */
    }
    shmemi_table_fini(&server->table);
    server->keeper.fd = server->state->keeper_life;
    server->epoll = server->spare = -1;
}

/* ---- descriptors ---- */

typedef struct fds {
    int *fd;
    size_t count, room;
} fds_t;

static void fds_add(fds_t *fds, int fd)
{
    if (fds->count < fds->room && fd > STDERR_FILENO)
        fds->fd[fds->count] = fd;
    fds->count += fd > STDERR_FILENO;
}

/* Every descriptor that is the server's; only counted where there is no room. */
static void fds_collect(const struct shmem_server *server, fds_t *fds)
{
    const shmemi_state_t *state = server->state;
    const int own[] = {server->listener.fd, server->stop.fd,    server->reserved.fd,
                       server->roster_fd,   state->server_life, state->keeper_life};
    fds->count = 0;
    for (size_t i = 0; i < SHMEMI_COUNT(own); i++)
        fds_add(fds, own[i]);
    for (uint32_t s = 1; s <= state->peers_used; s++)
        if (atomic_load_explicit(&state->peers[s].used, memory_order_relaxed)) {
            fds_add(fds, state->peers[s].socket);
            fds_add(fds, state->peers[s].life);
        }
    for (uint32_t i = 1; i <= state->segments_used; i++) {
        uint32_t valid = atomic_load_explicit(&state->segments[i].valid, memory_order_relaxed);
        if (valid)
            fds_add(fds, state->segments[i].copy[valid - 1].fd);
    }
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* All descriptors in [first, last]. */
static void close_between(unsigned first, unsigned last)
{
    struct rlimit limit;
    if (first > last)
        return;
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0) == 0)
        return;
#endif
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && last >= limit.rlim_cur)
        last = (unsigned)limit.rlim_cur;
    for (unsigned fd = first; fd < last; fd++)
        close((int)fd);
    close((int)last);
}

static shmem_status_t close_unknown(shmem_server_t server)
{
    fds_t fds = {0};
    fds_collect(server, &fds);
    fds.room = fds.count;
    fds.fd = malloc(fds.room * sizeof *fds.fd);
    if (!fds.fd)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory to list %zu descriptors", fds.room);
    fds_collect(server, &fds);
    qsort(fds.fd, fds.count, sizeof *fds.fd, by_number);
    unsigned next = STDERR_FILENO + 1;
    for (size_t i = 0; i < fds.count; i++) {
        if ((unsigned)fds.fd[i] > next)
            close_between(next, (unsigned)fds.fd[i] - 1);
        next = (unsigned)fds.fd[i] + 1;
    }
    close_between(next, ~0u);
    free(fds.fd);
    return SHMEM_OK;
}

static shmem_status_t watch_own(shmem_server_t server)
{
    shmemi_source_t *const own[] = {&server->stop, &server->reserved, &server->listener,
                                    &server->keeper};
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll < 0)
        return shmemi_fail_errno(LAYER, "cannot create an epoll set");
    server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    listen(server->listener.fd, SOMAXCONN); /* once more: who connects is told of this process */
    for (size_t i = 0; i < SHMEMI_COUNT(own); i++) {
        shmem_status_t status = shmemi_server_watch(server, own[i]);
        if (status)
            return status;
    }
    return SHMEM_OK;
}

/* ---- loading ---- */

/* A segment's record and its entry, to be found by number. */
typedef struct numbered {
    uint64_t id;
    uint32_t record;
    shmemi_entry_t *entry;
} numbered_t;

static int by_id(const void *a, const void *b)
{
    const numbered_t *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The records in the order in which the table wants them. */
static uint32_t sort_segments(const shmemi_state_t *state, numbered_t *sorted)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i <= state->segments_used; i++) {
        /* SYNC state-segment: acquire, pairs with release in shmemi_state_segment_save() */
        uint32_t valid = atomic_load_explicit(&state->segments[i].valid, memory_order_acquire);
        if (valid)
            sorted[n++] = (numbered_t){state->segments[i].copy[valid - 1].id, i, NULL};
    }
    qsort(sorted, n, sizeof *sorted, by_id);
    return n;
}

static shmem_status_t load_segments(shmem_server_t server, numbered_t *sorted, uint32_t *count)
{
    shmemi_state_t *state = server->state;
    shmemi_table_init(&server->table, server->roster_offset, state);
    shmem_status_t status =
        shmemi_ranges_put(&server->table.ranges, server->roster_offset, sizeof(shmemi_roster_t));
    *count = sort_segments(state, sorted);
    for (uint32_t i = 0; i < *count && status == SHMEM_OK; i++) {
        shmemi_state_segment_t *record = &state->segments[sorted[i].record];
        uint32_t valid = atomic_load_explicit(&record->valid, memory_order_relaxed);
        status = shmemi_table_restore(&server->table, &record->copy[valid - 1], sorted[i].record,
                                      &sorted[i].entry);
    }
    return status;
}

static shmem_status_t load_peer(shmem_server_t server, uint32_t slot, shmemi_state_peer_t *record)
{
    shmemi_peer_t *peer = calloc(1, sizeof *peer);
    if (!peer)
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER, "the node server has no memory for a client");
    peer->state = record->socket >= 0 ? SHMEMI_PEER_ATTACHED : SHMEMI_PEER_SUSPECT;
    peer->socket = (shmemi_source_t){SHMEMI_SOURCE_SOCKET, record->socket, peer};
    peer->life = (shmemi_source_t){SHMEMI_SOURCE_LIFE, record->life, peer};
    peer->who = record->who;
    peer->slot = slot;
    peer->epoch = record->epoch;
    peer->lacks_membarrier = record->lacks_membarrier;
    peer->record = record;
    if (record->death > server->state->deaths) /* its number is taken, if not counted yet */
        server->state->deaths = record->death;
    memcpy(peer->name, record->name, sizeof peer->name);
    shmemi_peers_append(&server->attached, peer);
    server->by_slot[slot] = peer;
    server->living[slot] = record->death ? 0 : peer->epoch; /* its holds may be gone already */
    server->clients++;
    server->suspects += peer->state == SHMEMI_PEER_SUSPECT;
    shmem_status_t status = shmemi_server_watch(server, &peer->life);
    if (status == SHMEM_OK && peer->socket.fd >= 0)
        status = shmemi_server_watch(server, &peer->socket);
    return status;
}

static shmem_status_t load_peers(shmem_server_t server)
{
    shmem_status_t status = SHMEM_OK;
    for (uint32_t s = 1; s <= server->state->peers_used && status == SHMEM_OK; s++) {
        shmemi_state_peer_t *record = &server->state->peers[s];
        /* SYNC state-peer: acquire, pairs with release in shmemi_state_peer_publish() */
        if (atomic_load_explicit(&record->used, memory_order_acquire))
            status = load_peer(server, s, record);
    }
    return status;
}

static shmem_status_t load_holds(shmem_server_t server, const numbered_t *sorted, uint32_t count)
{
    shmemi_state_t *state = server->state;
    for (uint32_t i = 1; i <= state->holds_used; i++) {
        shmemi_state_hold_t *record = &state->holds[i];
        /* SYNC state-hold: acquire, pairs with release in shmemi_state_hold_set() */
        uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
        if (!word)
            continue;
        shmemi_peer_t *peer = server->by_slot[record->slot];
        numbered_t wanted = {record->segment, 0, NULL};
        const numbered_t *found = bsearch(&wanted, sorted, count, sizeof *sorted, by_id);
        if (!peer || !found) { /* dropped with one that went, but for the last step */
            shmemi_state_hold_set(state, i, 0);
            continue;
        }
        shmem_status_t status = shmemi_hold_restore(peer, found->entry, i, word);
        if (status)
            return status;
    }
    return SHMEM_OK;
}

/* Who waits for a segment goes on waiting. */
static void load_awaited(shmem_server_t server, const numbered_t *sorted, uint32_t count)
{
    for (shmemi_peer_t *peer = server->attached.first; peer; peer = peer->next) {
        shmemi_state_peer_t *record = peer->record;
        uint32_t sequence = record->request.header.sequence;
        /* SYNC state-awaited: acquire, pairs with release in shmemi_state_await() */
        uint64_t id = atomic_load_explicit(&record->awaited, memory_order_acquire);
        numbered_t wanted = {id, 0, NULL};
        const numbered_t *found = bsearch(&wanted, sorted, count, sizeof *sorted, by_id);
        if (!found || !record->request.header.magic || record->answered == sequence ||
            record->wish.sequence != sequence)
            continue;
        peer->awaited = found->entry;
        peer->wish = record->wish;
        found->entry->waiting++;
    }
}

static shmem_status_t load(shmem_server_t server)
{
    uint32_t count = 0;
    numbered_t *sorted = malloc((server->state->segments_used + 1) * sizeof *sorted);
    if (!sorted)
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER, "no memory to list the segments");
    shmemi_state_collect_free(server->state);
    shmem_status_t status = load_segments(server, sorted, &count);
    if (status == SHMEM_OK)
        status = load_peers(server);
    if (status == SHMEM_OK)
        status = load_holds(server, sorted, count);
    if (status == SHMEM_OK)
        load_awaited(server, sorted, count);
    free(sorted);
    return status;
}

/* ---- finishing what was begun ---- */

static void tidy_segments(shmem_server_t server)
{
    shmemi_entry_t *next;
    for (shmemi_entry_t *entry = server->table.all; entry; entry = next) {
        next = entry->newer;
        if (!shmemi_table_drop_unused(&server->table, entry) && entry->fd >= 0 &&
            entry->spec.kind == SHMEMI_SEGMENT_POOL)
            shmemi_death_sweep(server, entry);
    }
}

static int by_arrival(const void *a, const void *b)
{
    const shmemi_peer_t *const *x = a, *const *y = b;
    uint64_t first = (*x)->record->arrival, second = (*y)->record->arrival;
    return first < second ? -1 : first > second;
}

static void continue_awaited(shmem_server_t server)
{
    shmemi_entry_t *next;
    for (shmemi_entry_t *entry = server->table.all; entry; entry = next) {
        next = entry->newer;
        if (entry->waiting)
            shmemi_segments_continue(server, entry);
    }
}

/* A peer that ends by its request is buried, not freed. */
static shmem_status_t redo_requests(shmem_server_t server)
{
    size_t n = 0;
    shmemi_peer_t **peers = malloc((server->clients + 1) * sizeof(shmemi_peer_t *));
    if (!peers)
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER, "no memory to sort requests");
    for (shmemi_peer_t *peer = server->attached.first; peer; peer = peer->next)
        peers[n++] = peer;
    qsort(peers, n, sizeof(shmemi_peer_t *), by_arrival);
    server->redoing = true;
    continue_awaited(server);
    for (size_t i = 0; i < n; i++)
        shmemi_connection_redo(server, peers[i]);
    server->redoing = false;
    free(peers);
    return SHMEM_OK;
}

shmem_status_t shmemi_resume(shmem_server_t server)
{
    shmemi_peer_t self = {.who.pid = getpid()};
    shmemi_server_observe(server, SHMEM_SERVER_TAKEN_OVER, &self);
    forget(server);
    shmem_status_t status = close_unknown(server);
    if (status == SHMEM_OK)
        status = watch_own(server);
    SHMEMI_KILL_POINT("node.resume.opened");
    if (status == SHMEM_OK)
        status = load(server);
    if (status)
        return status;
    SHMEMI_KILL_POINT("node.resume.loaded");
    shmemi_home_resume(server);
    tidy_segments(server);
    SHMEMI_KILL_POINT("node.resume.tidied");
    status = redo_requests(server);
    if (status)
        return status;
    shmemi_log(SHMEM_LOG_WARN, LAYER,
               "process %d is the node server at %s now: %u clients, %llu "
               "segments",
               (int)getpid(), server->address, server->clients,
               (unsigned long long)server->table.count);
    return SHMEM_OK;
}
