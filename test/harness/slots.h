/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of a roster without a server: what a server does when one comes or goes. */
#ifndef SHMEM_TEST_HARNESS_SLOTS_H
#define SHMEM_TEST_HARNESS_SLOTS_H

#include "harness.h"
#include "sync/roster.h"
#include "sync/row.h"

/* A client in the first slot that is free. */
static inline shmem_status_t slots_add(shmemi_roster_t *roster, const char *name, int pid,
                                       unsigned uid, uint32_t *slot, uint32_t *epoch)
{
    uint32_t s = 1;
    while (s < SHMEMI_CLIENTS && atomic_load(&roster->clients[s].state) != SHMEMI_CLIENT_FREE)
        s++;
    CHECK(s < SHMEMI_CLIENTS);
    *slot = s;
    *epoch = atomic_load(&roster->clients[s].epoch);
    if (!*epoch)
        *epoch = 1;
    shmemi_roster_client_set(roster, s, *epoch, name, pid, uid);
    return SHMEM_OK;
}

static inline void slots_remove(shmemi_roster_t *roster, uint32_t slot, bool died)
{
    uint32_t epoch = slot < SHMEMI_CLIENTS ? atomic_load(&roster->clients[slot].epoch) : 1;
    shmemi_roster_client_remove(roster, slot, epoch, shmemi_row_limit(roster), died);
}

#endif
