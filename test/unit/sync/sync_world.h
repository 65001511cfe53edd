/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of this layer share: a roster in shared memory without a node server, and actors
 * made by hand. The test plays the server: it adds the clients before it forks, and after a child
 * died it calls world_bury().
 */
#ifndef SHMEM_TEST_SYNC_WORLD_H
#define SHMEM_TEST_SYNC_WORLD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fault.h"
#include "harness.h"
#include "os/barrier.h"
#include "slots.h"
#include "sync/roster.h"
#include "sync/row.h"
#include "sync/wait.h"

#define MS 1000000ll
enum { WORLD_CLIENTS = 64, WORLD_ROWS = 512 };

typedef struct world {
    shmemi_roster_t *roster;
    struct {
        uint32_t slot, epoch;
    } client[WORLD_CLIENTS];
    int clients;
} world_t;

static world_t world;

/* A fresh roster with n clients, numbered from 0. */
static inline void world_make(int n)
{
    world = (world_t){.roster = harness_shared(sizeof(shmemi_roster_t)), .clients = n};
    shmemi_roster_init(world.roster, WORLD_ROWS);
    CHECK(shmemi_barrier_register());
    for (int i = 0; i < n; i++)
        CHECK_OK(
            slots_add(world.roster, "test", 0, 0, &world.client[i].slot, &world.client[i].epoch));
}

/* The calling process acts as client i. */
static inline void world_actor(shmemi_actor_t *actor, int i, int64_t spin_ns)
{
    CHECK(i < world.clients);
    shmemi_barrier_register();
    shmemi_actor_init(actor, world.roster, world.client[i].slot, world.client[i].epoch, spin_ns);
}

/* Client i died: what the server does. */
static inline void world_bury(int i)
{
    slots_remove(world.roster, world.client[i].slot, true);
}

/* Rows in use. A half-freed row counts. */
static inline int world_rows(void)
{
    int rows = 0;
    for (int i = 0; i < WORLD_ROWS; i++)
        rows += atomic_load(&world.roster->threads[i].owner) != 0;
    return rows;
}

static inline uint64_t world_stat(shmemi_stat_t which)
{
    uint64_t sum = 0;
    for (int i = 0; i < WORLD_ROWS; i++)
        sum += atomic_load(&world.roster->threads[i].stats.value[which]);
    return sum;
}

/* Late wake-ups that a busy machine may cause by itself: the waker is off its processor for a slice
 * between its store and its call. A lost wake-up in one round of a hundred would be more. */
enum { WORLD_LATE = 2 };

/* Is some thread of the roster asleep (or about to be) in a wait of this kind? Waits for it. */
static inline void world_await_sleeper(shmemi_wait_kind_t kind, int count)
{
    for (double end = harness_now() + 10; harness_now() < end; harness_sleep(0.0005)) {
        int found = 0;
        for (int i = 0; i < WORLD_ROWS; i++)
            found += atomic_load(&world.roster->threads[i].waits) == (uint32_t)kind;
        if (found >= count) {
            harness_sleep(0.002); /* from the announcement into the kernel */
            return;
        }
    }
    harness_fail(__FILE__, __LINE__, "nobody sleeps");
}

/* In a child that the test is going to kill; it does not survive a test that failed. */
static inline void world_wait_for_death(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    harness_sleep(30);
    exit(3);
}

/* Forks function(client), to be killed at its first passage of a fault point (NULL: not at all). */
static inline pid_t world_start(void (*function)(void *), int client, const char *kill_at)
{
    if (kill_at)
        shmemi_fault_arm(kill_at, SHMEMI_FAULT_KILL, 1);
    pid_t pid = harness_fork(function, (void *)(intptr_t)client);
    shmemi_fault_disarm();
    return pid;
}

/* Where a test cannot run: */
static inline void world_needs_kills(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed, and ThreadSanitizer sees threads only");
}

#endif
