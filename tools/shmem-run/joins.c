/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the server's lines, and looking for connections to it. */
#include "joins.h"

#include <shmem/settings.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FIRST_GAP_NS = 300000000 };
static const int64_t last_gap_ns = 20000000000;

/* ---- the server's lines ---- */

static void add_client(run_joins_t *joins, unsigned slot, pid_t pid)
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

static void end_client(run_joins_t *joins, unsigned slot, run_client_state_t state)
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

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A program chooses its name: only what stands before and after it is looked at. */
static void read_line(run_joins_t *joins, const char *text)
{
    unsigned slot;
    char mark;
    if (sscanf(text, "client %u%c", &slot, &mark) != 2)
        return;
    if (mark == ':') {
        const char *process = strrchr(text, ',');
        int pid;
        if (process && sscanf(process, ", process %d", &pid) == 1)
            add_client(joins, slot, (pid_t)pid);
    } else if (ends_with(text, ") said goodbye")) {
        end_client(joins, slot, RUN_CLIENT_LEFT);
    } else if (ends_with(text, ") died")) {
        end_client(joins, slot, RUN_CLIENT_DIED);
    }
}

static void take_line(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    run_joins_t *joins = user;
    if ((int)level <= joins->log_level)
        fprintf(stderr, "shmem %s [%s]: %s\n", names[level], layer, text);
    if (strcmp(layer, "node") != 0)
        return;
    pthread_mutex_lock(&joins->lock);
    read_line(joins, text);
    pthread_mutex_unlock(&joins->lock);
}

static int wanted_level(void)
{
    static const char *const names[] = {"off", "error", "warn", "info", "debug"};
    for (size_t i = 0; i < shmem_setting_count(); i++) {
        shmem_setting_info_t info;
        char value[32];
        if (shmem_setting_describe(i, &info) || strcmp(info.name, "SHMEM_LOG") != 0 ||
            shmem_setting_value(i, value, sizeof value, NULL))
            continue;
        for (int level = 0; level < 5; level++)
            if (strcasecmp(value, names[level]) == 0)
                return level;
    }
    return 0;
}

int run_joins_init(run_joins_t *joins)
{
    *joins = (run_joins_t){.rank = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    joins->log_level = wanted_level();
    joins->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (joins->wake < 0)
        return -1;
    shmem_log_set_sink(take_line, joins,
                       joins->log_level > SHMEM_LOG_INFO ? SHMEM_LOG_DEBUG : SHMEM_LOG_INFO);
    return 0;
}

void run_joins_fini(run_joins_t *joins)
{
    shmem_log_set_sink(NULL, NULL, SHMEM_LOG_ERROR);
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

/* Accepted connections of the server with this abstract address, as the kernel lists them; 0 also
 * when it does not. */
static int connections(const char *server)
{
    FILE *file = fopen("/proc/net/unix", "re");
    char line[512], path[256];
    int count = 0;
    enum { CONNECTED = 3 };
    while (file && fgets(line, sizeof line, file)) {
        unsigned state;
        if (sscanf(line, "%*s %*s %*s %*s %*s %x %*s %255s", &state, path) == 2)
            count += state == CONNECTED && strcmp(path, server) == 0;
    }
    if (file)
        fclose(file);
    return count;
}

void run_joins_ended(run_joins_t *joins, int rank, int64_t now)
{
    if (joins->rank >= 0)
        return;
    joins->rank = rank;
    joins->gap = FIRST_GAP_NS;
    joins->next = now + joins->gap;
}

bool run_joins_look(run_joins_t *joins, const char *server, int64_t now)
{
    bool waiting = connections(server) > 0, sure = waiting && joins->suspected;
    joins->suspected = waiting;
    joins->gap *= 2;
    joins->next = sure || joins->gap > last_gap_ns ? 0 : now + joins->gap;
    return sure;
}
