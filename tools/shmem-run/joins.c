/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for PEs that did not join: are there connections to the job's node server? */
#include "joins.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_GAP_NS = 300000000 };
static const int64_t last_gap_ns = 20000000000;

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

void run_joins_init(run_joins_t *joins)
{
    *joins = (run_joins_t){.rank = -1};
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
