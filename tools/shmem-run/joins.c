/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the server's clients. */
#include "joins.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FIRST_GAP_NS = 300000000 };
static const int64_t last_gap_ns = 20000000000;

/* ---- what the server tells ---- */

static void add_client(run_joins_t *joins, uint32_t slot, pid_t pid)
{
    if (joins->count == joins->capacity) {
        size_t capacity = joins->capacity ? 2 * joins->capacity : 64;
        run_client_t *clients = realloc(joins->clients, capacity * sizeof *clients);
        if (!clients)
            return; /* unknown: nothing is said about it */
        joins->clients = clients;
        joins->capacity = capacity;
    }
    joins->clients[joins->count++] = (run_client_t){slot, pid, RUN_CLIENT_OPEN};
    joins->in_state[RUN_CLIENT_OPEN]++;
}

static void end_client(run_joins_t *joins, uint32_t slot, run_client_state_t state)
{
    for (size_t i = joins->count; i-- > 0;) {
        run_client_t *client = &joins->clients[i];
        if (client->slot != slot || client->state != RUN_CLIENT_OPEN)
            continue;
        client->state = state;
        joins->in_state[RUN_CLIENT_OPEN]--;
        joins->in_state[state]++;
        uint64_t one = 1;
        if (write(joins->wake, &one, sizeof one) < 0)
            return; /* it is told already */
        return;
    }
}

void run_joins_event(void *user, shmem_server_event_t event, uint32_t client, int pid)
{
    run_joins_t *joins = user;
    pthread_mutex_lock(&joins->lock);
    if (event == SHMEM_SERVER_ATTACHED)
        add_client(joins, client, (pid_t)pid);
    else
        end_client(joins, client, event == SHMEM_SERVER_DIED ? RUN_CLIENT_DIED : RUN_CLIENT_LEFT);
    pthread_mutex_unlock(&joins->lock);
}

int run_joins_init(run_joins_t *joins)
{
    *joins = (run_joins_t){.rank = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    joins->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return joins->wake < 0 ? -1 : 0;
}

void run_joins_fini(run_joins_t *joins)
{
    close(joins->wake);
    free(joins->clients);
}

/* ---- what is known of a process ---- */

bool run_joins_has(run_joins_t *joins, pid_t pid, run_client_state_t state)
{
    bool has = false;
    pthread_mutex_lock(&joins->lock);
    for (size_t i = 0; i < joins->count && joins->in_state[state]; i++)
        has = has || (joins->clients[i].pid == pid && joins->clients[i].state == state);
    pthread_mutex_unlock(&joins->lock);
    return has;
}

bool run_joins_none(run_joins_t *joins, pid_t pid)
{
    bool none = true;
    pthread_mutex_lock(&joins->lock);
    for (size_t i = 0; i < joins->count; i++)
        none = none && joins->clients[i].pid != pid;
    pthread_mutex_unlock(&joins->lock);
    return none;
}

/* ---- looking ---- */

static bool somebody_is_there(run_joins_t *joins)
{
    pthread_mutex_lock(&joins->lock);
    bool some = joins->in_state[RUN_CLIENT_OPEN] > 0;
    pthread_mutex_unlock(&joins->lock);
    return some;
}

void run_joins_ended(run_joins_t *joins, int rank, int64_t now)
{
    if (joins->rank >= 0)
        return;
    joins->rank = rank;
    joins->gap = FIRST_GAP_NS;
    joins->next = now + joins->gap;
}

bool run_joins_look(run_joins_t *joins, int64_t now)
{
    bool waiting = somebody_is_there(joins), sure = waiting && joins->suspected;
    joins->suspected = waiting;
    joins->gap *= 2;
    joins->next = sure || joins->gap > last_gap_ns ? 0 : now + joins->gap;
    return sure;
}
