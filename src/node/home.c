/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's own house: the roster's segment, its place, its growth, and the fence flag.
 *
 * Only the pages of the header, the clients and the first thread rows are reserved; more rows are
 * reserved before thread_limit is raised, so that no client ever touches an unreserved page.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/server_core.h"
#include "os/barrier.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "node"

enum { PLACES_TRIED = 8 };

static uint64_t roster_bytes_for(uint32_t rows)
{
    return offsetof(shmemi_roster_t, threads) + (uint64_t)rows * sizeof(shmemi_roster_thread_t);
}

/* In the first quarter of the range: three quarters stay in one piece for large segments. */
static shmem_status_t random_start(uint64_t *start)
{
    uint64_t value;
    if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value)
        return shmemi_fail_errno(LAYER, "cannot get random bytes for the place of the roster");
    *start = value % (SHMEMI_SPACE_BYTES / 4 / SHMEMI_SPACE_UNIT) * SHMEMI_SPACE_UNIT;
    return SHMEM_OK;
}

/* A server of this process may sit at the place that was drawn: draw again. */
static shmem_status_t roster_map(shmem_server_t server)
{
    shmem_status_t status = SHMEM_OK;
    void *address;
    for (int i = 0; i < PLACES_TRIED; i++) {
        uint64_t start = 0;
        status = random_start(&start);
        if (status)
            return status;
        shmemi_table_init(&server->table, start, server->state);
        status = shmemi_ranges_take(&server->table.ranges, sizeof(shmemi_roster_t),
                                    &server->roster_offset);
        if (status)
            return status;
        status = shmemi_space_map(server->roster_offset, sizeof(shmemi_roster_t), server->roster_fd,
                                  1, &address);
        if (status == SHMEM_OK) {
            server->roster = address;
            return SHMEM_OK;
        }
        shmemi_table_fini(&server->table);
        if (status != SHMEM_ERR_ADDRESS_TAKEN)
            return status;
    }
    return status;
}

/* Take part as the client of slot 0. */
static void act(shmem_server_t server, uint32_t epoch)
{
    shmemi_actor_init(&server->actor, server->roster, 0, epoch, server->settings.spin);
    server->actor.living = server->living;
    server->living[0] = server->state->server_epoch = epoch;
}

shmem_status_t shmemi_home_make(shmem_server_t server)
{
    shmemi_segment_params_t params = {"shmem-roster", sizeof(shmemi_roster_t), SHMEMI_HUGE_OFF, 0};
    uint64_t bytes, page_bytes;
    shmem_status_t status = shmemi_space_reserve();
    if (status)
        return status;
    status = shmemi_segment_create(&params, &server->roster_fd, &bytes, &page_bytes);
    if (status)
        return status;
    status = shmemi_segment_reserve(server->roster_fd, 0, roster_bytes_for(SHMEMI_FIRST_ROWS));
    if (status)
        goto close_fd;
    status = roster_map(server);
    if (status)
        goto close_fd;
    server->state->thread_limit = SHMEMI_FIRST_ROWS;
    shmemi_roster_init(server->roster, SHMEMI_FIRST_ROWS);
    shmemi_table_publish(&server->table, &server->roster->names_gone);
    if (!shmemi_barrier_register())
        shmemi_home_fence(server, true); /* the server itself is a client that lacks it */
    act(server, 1);
    return SHMEM_OK;
close_fd:
    close(server->roster_fd);
    server->roster_fd = -1;
    return status;
}

/* What the records say: who did not come to a record is not there, who is half buried is dead. */
static void correct_slots(shmem_server_t server)
{
    const shmemi_state_t *state = server->state;
    for (uint32_t s = 1; s < SHMEMI_CLIENTS; s++) {
        const shmemi_peer_t *peer = server->by_slot[s];
        uint32_t next =
            shmemi_roster_epoch_after(s <= state->peers_used ? state->peers[s].epoch : 0);
        if (!peer)
            shmemi_roster_client_correct(server->roster, s, next, SHMEMI_CLIENT_FREE);
        else if (peer->record->death)
            shmemi_roster_client_correct(server->roster, s, next, SHMEMI_CLIENT_DEAD);
        else
            shmemi_roster_client_correct(server->roster, s, peer->epoch, SHMEMI_CLIENT_LIVE);
    }
}

void shmemi_home_resume(shmem_server_t server)
{
    shmemi_roster_t *roster = server->roster;
    shmemi_actor_fini(&server->actor);
    correct_slots(server);
    uint32_t epoch =
        shmemi_roster_server_next(roster, server->state->server_epoch, server->state->thread_limit);
    server->fences = 0;
    if (!shmemi_barrier_register())
        shmemi_home_fence(server, true);
    for (const shmemi_peer_t *peer = server->attached.first; peer; peer = peer->next)
        if (peer->lacks_membarrier)
            shmemi_home_fence(server, true);
    /* SYNC fence-needed: relaxed; only ever lowered here, and who needs it was counted before */
    atomic_store_explicit(&roster->fence_needed, server->fences, memory_order_relaxed);
    atomic_store_explicit(&roster->thread_limit, server->state->thread_limit, memory_order_relaxed);
    shmemi_table_publish(&server->table, &roster->names_gone);
    act(server, epoch);
}

void shmemi_home_close(shmem_server_t server)
{
    if (!server->roster)
        return;
    shmemi_actor_fini(&server->actor);
    shmemi_space_unmap(server->roster);
    shmemi_table_fini(&server->table);
    close(server->roster_fd);
    server->roster = NULL;
    server->roster_fd = -1;
}

shmem_status_t shmemi_home_grow(shmem_server_t server)
{
    uint32_t old = server->state->thread_limit;
    uint32_t rows = old * 2 < SHMEMI_THREADS ? old * 2 : SHMEMI_THREADS;
    if (rows == old)
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                            "all %d thread rows of this node server may be used already; end some "
                            "threads or clients",
                            SHMEMI_THREADS);
    shmem_status_t status = shmemi_segment_reserve(server->roster_fd, roster_bytes_for(old),
                                                   roster_bytes_for(rows) - roster_bytes_for(old));
    if (status)
        return status;
    SHMEMI_KILL_POINT("node.home.grow.reserved");
    server->state->thread_limit = rows;
    atomic_store_explicit(&server->roster->thread_limit, rows, memory_order_relaxed);
    return SHMEM_OK;
}

void shmemi_home_fence(shmem_server_t server, bool more)
{
    server->fences += more ? 1 : -1u;
    /* SYNC fence-needed: relaxed, followed by the heavy barrier: every thread of a registered
     * client sees the flag in its next shmemi_light_barrier() */
    atomic_store_explicit(&server->roster->fence_needed, server->fences, memory_order_relaxed);
    if (more)
        shmemi_heavy_barrier();
}
