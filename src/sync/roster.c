/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The roster's own operations: layout, clients, and the freeing of rows. Who of this process uses
 * which row is in actor.c.
 *
 * Freeing a row has one winner: who changes owner from X to X | FREEING bumps the epoch and then
 * clears owner. A winner killed in between leaves X | FREEING, which the server finishes when the
 * client of X is dead, that is when nobody else can.
 */
#include "sync/roster.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/status.h"
#include "os/futex.h"
#include "os/space.h"
#include "sync/row.h"

enum { SERVER_SLOT = 0 };

uint32_t shmemi_roster_layout(void)
{
    static const uint64_t facts[] = {
        SHMEMI_ROSTER_VERSION,
        sizeof(shmemi_roster_t),
        sizeof(shmemi_roster_client_t),
        sizeof(shmemi_roster_thread_t),
        SHMEMI_CLIENTS,
        SHMEMI_THREADS,
        SHMEMI_STATS_SLOTS,
        SHMEMI_SPACE_BASE,
        SHMEMI_SPACE_BYTES,
        SHMEMI_SPACE_UNIT,
        SHMEMI_CACHE_LINE,
        SHMEMI_SYNC_OBJECTS_VERSION,
        sizeof(void *),
    };
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a, over words */
    for (size_t i = 0; i < SHMEMI_COUNT(facts); i++)
        hash = (hash ^ facts[i]) * 0x100000001b3ull;
    return (uint32_t)(hash ^ hash >> 32);
}

/* Rows and clients of zeroed memory need no work: epoch 0 becomes 1 at first use. So only the
 * first two pages are touched, whatever the capacity. */
void shmemi_roster_init(shmemi_roster_t *roster, uint32_t thread_limit)
{
    roster->magic = SHMEMI_ROSTER_MAGIC;
    roster->version = SHMEMI_ROSTER_VERSION;
    roster->client_capacity = SHMEMI_CLIENTS;
    roster->thread_capacity = SHMEMI_THREADS;
    roster->layout = shmemi_roster_layout();
    roster->space_base = SHMEMI_SPACE_BASE;
    roster->space_bytes = SHMEMI_SPACE_BYTES;
    if (thread_limit > SHMEMI_THREADS)
        thread_limit = SHMEMI_THREADS;
    atomic_store_explicit(&roster->thread_limit, thread_limit, memory_order_relaxed);
    shmemi_roster_client_t *server = &roster->clients[SERVER_SLOT];
    snprintf(server->name, sizeof server->name, "node server");
    atomic_store_explicit(&server->epoch, 1, memory_order_relaxed);
    atomic_store_explicit(&server->state, SHMEMI_CLIENT_LIVE, memory_order_relaxed);
    /* SYNC roster-ready: release, pairs with acquire in shmemi_roster_check() */
    atomic_store_explicit(&roster->ready, 1, memory_order_release);
}

shmem_status_t shmemi_roster_check(const shmemi_roster_t *roster)
{
    /* SYNC roster-ready: acquire, pairs with release in shmemi_roster_init() */
    uint32_t ready = atomic_load_explicit(&roster->ready, memory_order_acquire);
    if (ready != 1 || roster->magic != SHMEMI_ROSTER_MAGIC)
        return shmemi_fail(SHMEM_ERR_VERSION, "sync",
                           "not a roster of a node server (magic %#llx, ready %u; expected %#llx, "
                           "1): the server and this program are of different versions",
                           (unsigned long long)roster->magic, ready, SHMEMI_ROSTER_MAGIC);
    if (roster->version != SHMEMI_ROSTER_VERSION || roster->layout != shmemi_roster_layout() ||
        roster->client_capacity != SHMEMI_CLIENTS || roster->thread_capacity != SHMEMI_THREADS)
        return shmemi_fail(SHMEM_ERR_VERSION, "sync",
                           "the node server has roster version %u, layout %08x; this program has "
                           "version %u, layout %08x: use the same build of the library on both "
                           "sides (sanitizer builds differ from normal ones)",
                           roster->version, roster->layout, (unsigned)SHMEMI_ROSTER_VERSION,
                           shmemi_roster_layout());
    return SHMEM_OK;
}

/* ---- clients (server side; one thread) ---- */

uint32_t shmemi_roster_epoch_after(uint32_t epoch)
{
    return epoch + 1 ? epoch + 1 : 1;
}

void shmemi_roster_client_set(shmemi_roster_t *roster, uint32_t slot, uint32_t epoch,
                              const char *name, int pid, unsigned uid)
{
    shmemi_roster_client_t *c = &roster->clients[slot];
    c->pid = pid;
    c->uid = uid;
    snprintf(c->name, sizeof c->name, "%s", name ? name : "");
    atomic_store_explicit(&c->epoch, epoch, memory_order_relaxed);
    SHMEMI_KILL_POINT("sync.roster.client_set.filled");
    /* SYNC roster-client: release, pairs with acquire in shmemi_roster_client_alive() */
    atomic_store_explicit(&c->state, SHMEMI_CLIENT_LIVE, memory_order_release);
}

/* Returns the slot's new epoch. */
static uint32_t slot_end(shmemi_roster_t *roster, uint32_t slot, uint32_t epoch, uint32_t rows,
                         bool died)
{
    shmemi_roster_client_t *c = &roster->clients[slot];
    uint32_t next = shmemi_roster_epoch_after(epoch);
    /* SYNC roster-client: release, pairs with acquire in shmemi_roster_client_alive() */
    atomic_store_explicit(&c->epoch, next, memory_order_release);
    SHMEMI_KILL_POINT("sync.roster.client_remove.bumped");
    for (uint32_t row = 1; row < rows; row++)
        shmemi_row_free_slot(roster, row, slot, died);
    SHMEMI_KILL_POINT("sync.roster.client_remove.rows");
    if (died) {
        /* SYNC roster-deaths: release, pairs with acquire in shmemi_roster_deaths() */
        atomic_fetch_add_explicit(&roster->deaths, 1, memory_order_release);
        shmemi_futex_wake(&roster->deaths, INT_MAX);
    }
    return next;
}

uint32_t shmemi_roster_server_next(shmemi_roster_t *roster, uint32_t epoch, uint32_t rows)
{
    return slot_end(roster, SERVER_SLOT, epoch, rows, true);
}

static void clear_name(shmemi_roster_client_t *c)
{
    c->pid = 0;
    memset(c->name, 0, sizeof c->name);
}

void shmemi_roster_client_remove(shmemi_roster_t *roster, uint32_t slot, uint32_t epoch,
                                 uint32_t rows, bool died)
{
    if (slot == SERVER_SLOT || slot >= SHMEMI_CLIENTS)
        return;
    shmemi_roster_client_t *c = &roster->clients[slot];
    atomic_store_explicit(&c->state, SHMEMI_CLIENT_DEAD, memory_order_relaxed);
    slot_end(roster, slot, epoch, rows, died);
    clear_name(c);
    atomic_store_explicit(&c->state, SHMEMI_CLIENT_FREE, memory_order_release);
}

void shmemi_roster_client_correct(shmemi_roster_t *roster, uint32_t slot, uint32_t epoch,
                                  shmemi_client_state_t state)
{
    shmemi_roster_client_t *c = &roster->clients[slot];
    if (state == SHMEMI_CLIENT_FREE)
        clear_name(c);
    /* SYNC roster-client: release, pairs with acquire in shmemi_roster_client_alive() */
    atomic_store_explicit(&c->epoch, epoch, memory_order_release);
    /* SYNC roster-client: release, pairs with acquire in shmemi_roster_client_alive() */
    atomic_store_explicit(&c->state, state, memory_order_release);
}

bool shmemi_roster_client_alive(const shmemi_roster_t *roster, uint32_t slot, uint32_t epoch)
{
    if (slot >= SHMEMI_CLIENTS || !epoch)
        return false;
    const shmemi_roster_client_t *c = &roster->clients[slot];
    /* SYNC roster-client: acquire, pairs with release in shmemi_roster_client_set() and
     * shmemi_roster_client_remove() */
    return atomic_load_explicit(&c->state, memory_order_acquire) == SHMEMI_CLIENT_LIVE &&
           atomic_load_explicit(&c->epoch, memory_order_acquire) == epoch;
}

/* ---- rows ---- */

bool shmemi_row_claim(shmemi_roster_t *roster, uint32_t row, uint64_t owner, uint32_t *epoch)
{
    shmemi_roster_thread_t *thread = &roster->threads[row];
    uint64_t found = 0;
    if (atomic_load_explicit(&thread->owner, memory_order_relaxed))
        return false;
    /* SYNC roster-row: acquire, pairs with release in row_finish_free() */
    if (!atomic_compare_exchange_strong_explicit(&thread->owner, &found, owner,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    SHMEMI_KILL_POINT("sync.row.claim.owned");
    uint32_t slot = (uint32_t)(owner >> 32);
    if (slot < SHMEMI_CLIENTS)
        atomic_store_explicit(&thread->pid, roster->clients[slot].pid, memory_order_relaxed);
    uint32_t e = atomic_load_explicit(&thread->epoch, memory_order_relaxed);
    if (!e) {
        e = 1;
        atomic_store_explicit(&thread->epoch, e, memory_order_relaxed);
    }
    /* SYNC mutex-holder: full fence, pairs with acquire in attempt_ready(): locking is an acquire
     * only, and must not show our name before our epoch */
    shmemi_full_fence();
    *epoch = e;
    return true;
}

/* The caller changed owner to FREEING, or knows that who did is dead. */
static void row_finish_free(shmemi_roster_thread_t *thread)
{
    SHMEMI_KILL_POINT("sync.row.free.marked");
    uint32_t e = atomic_load_explicit(&thread->epoch, memory_order_relaxed);
    atomic_store_explicit(&thread->waits, 0, memory_order_relaxed);
    atomic_store_explicit(&thread->wait_object, 0, memory_order_relaxed);
    /* SYNC roster-epoch: release, pairs with acquire in shmemi_roster_thread_alive() */
    atomic_store_explicit(&thread->epoch, shmemi_roster_epoch_after(e), memory_order_release);
    SHMEMI_KILL_POINT("sync.row.free.bumped");
    /* SYNC roster-row: release, pairs with acquire in shmemi_row_claim() */
    atomic_store_explicit(&thread->owner, 0, memory_order_release);
}

void shmemi_row_free(shmemi_roster_t *roster, uint32_t row, uint64_t owner)
{
    shmemi_roster_thread_t *thread = &roster->threads[row];
    uint64_t found = owner;
    /* SYNC roster-row: acquire, pairs with release in row_finish_free() */
    if (atomic_compare_exchange_strong_explicit(&thread->owner, &found, owner | SHMEMI_ROW_FREEING,
                                                memory_order_acquire, memory_order_relaxed))
        row_finish_free(thread);
}

void shmemi_row_free_slot(shmemi_roster_t *roster, uint32_t row, uint32_t slot, bool died)
{
    shmemi_roster_thread_t *thread = &roster->threads[row];
    uint64_t owner = atomic_load_explicit(&thread->owner, memory_order_relaxed);
    if (!owner || (uint32_t)((owner & ~SHMEMI_ROW_FREEING) >> 32) != slot)
        return;
    if (!(owner & SHMEMI_ROW_FREEING))
        shmemi_row_free(roster, row, owner);
    else if (died)
        row_finish_free(thread);
}

/* ---- words ---- */

void shmemi_roster_client_name(const shmemi_roster_t *roster, uint32_t slot, char *name,
                               size_t bytes)
{
    char text[SHMEMI_CLIENT_NAME + 1] = "";
    if (slot < SHMEMI_CLIENTS)
        memcpy(text, roster->clients[slot].name, SHMEMI_CLIENT_NAME);
    text[SHMEMI_CLIENT_NAME] = 0;
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    snprintf(name, bytes, "%s", text);
}

const char *shmemi_roster_who(const shmemi_roster_t *roster, uint32_t row, uint32_t epoch,
                              char *text, size_t bytes)
{
    char name[SHMEMI_CLIENT_NAME + 1];
    snprintf(text, bytes, "a process no longer known");
    if (!row || row >= shmemi_row_limit(roster))
        return text;
    const shmemi_roster_thread_t *thread = &roster->threads[row];
    bool alive = shmemi_roster_thread_alive(roster, row, epoch);
    uint64_t owner = atomic_load_explicit(&thread->owner, memory_order_relaxed);
    uint32_t slot = (uint32_t)(owner >> 32);
    int pid = atomic_load_explicit(&thread->pid, memory_order_relaxed);
    if (!pid || (!alive && owner))
        return text;
    snprintf(text, bytes, "process %d", pid);
    if (!alive || slot >= SHMEMI_CLIENTS)
        return text;
    shmemi_roster_client_name(roster, slot, name, sizeof name);
    if (*name)
        snprintf(text, bytes, "process %d (%s)", pid, name);
    return text;
}
