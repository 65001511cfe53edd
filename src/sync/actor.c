/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Actors: which rows of which rosters the threads of this process use.
 *
 * A claim is one (thread, actor) pair with its row. It hangs in two lists: its thread's (to give
 * the rows back when the thread ends) and the process's (to give them back when the actor is
 * closed).
 *
 *   Invariants  a claim is in both lists or in none; row != 0 <=> it still owns that row.
 *               claims change under `lock` only; the one-entry cache belongs to its thread.
 *
 * In a forked child all claims are dropped without touching the rosters: the rows are the parent's.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/fault.h"
#include "base/status.h"
#include "os/identity.h"
#include "sync/row.h"

typedef struct claim {
    struct claim *next_of_thread;
    struct claim *next, *previous; /* of the process */
    uint64_t actor_id;
    shmemi_roster_t *roster;
    uint64_t owner;
    uint32_t row, epoch;
} claim_t;

static const shmemi_self_t empty = SHMEMI_SELF_EMPTY;
_Thread_local shmemi_self_t shmemi_self_cache = SHMEMI_SELF_EMPTY;

static _Thread_local claim_t *thread_claims;
static claim_t *process_claims;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key; /* its value is only a mark: the destructor uses thread_claims */
static int setup_error;
static _Atomic uint64_t next_actor_id = 1;

static void claim_release_locked(claim_t *claim)
{
    if (claim->row)
        shmemi_row_free(claim->roster, claim->row, claim->owner);
    claim->row = 0;
    claim->actor_id = 0;
}

static void claim_unlink_locked(claim_t *claim)
{
    if (claim->previous)
        claim->previous->next = claim->next;
    else
        process_claims = claim->next;
    if (claim->next)
        claim->next->previous = claim->previous;
}

static void thread_end(void *mark)
{
    (void)mark;
    shmemi_self_cache = empty;
    pthread_mutex_lock(&lock);
    while (thread_claims) {
        claim_t *claim = thread_claims;
        thread_claims = claim->next_of_thread;
        claim_release_locked(claim);
        claim_unlink_locked(claim);
        free(claim);
    }
    pthread_mutex_unlock(&lock);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void fork_child(void)
{
    shmemi_self_cache = empty;
    thread_claims = NULL;
    while (process_claims) {
        claim_t *claim = process_claims;
        process_claims = claim->next;
        free(claim);
    }
    growing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* fork() does not wait for a server */
    pthread_mutex_unlock(&lock);
}

static void setup(void)
{
    setup_error = pthread_key_create(&thread_key, thread_end);
    if (!setup_error)
        setup_error = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void shmemi_actor_init(shmemi_actor_t *actor, shmemi_roster_t *roster, uint32_t slot,
                       uint32_t epoch, int64_t spin_ns)
{
    pthread_once(&once, setup);
    *actor = (shmemi_actor_t){
        .roster = roster,
        .slot = slot,
        .epoch = epoch,
        .fork_generation = shmemi_fork_generation(),
        .id = atomic_fetch_add_explicit(&next_actor_id, 1, memory_order_relaxed),
        .spin_ns = spin_ns,
    };
}

void shmemi_actor_fini(shmemi_actor_t *actor)
{
    if (!actor || !actor->id)
        return;
    pthread_mutex_lock(&lock);
    for (claim_t *claim = process_claims; claim; claim = claim->next)
        if (claim->actor_id == actor->id)
            claim_release_locked(claim);
    pthread_mutex_unlock(&lock);
    if (shmemi_self_cache.actor_id == actor->id)
        shmemi_self_cache = empty;
    actor->id = 0;
    actor->roster = NULL;
}

/* A claim of this thread for the actor; one whose actor was closed is reused for another. */
static claim_t *claim_find(uint64_t actor_id)
{
    for (claim_t *claim = thread_claims; claim; claim = claim->next_of_thread)
        if (claim->actor_id == actor_id)
            return claim;
    return NULL;
}

/* The row, or 0: none of the first `usable` is free. */
static uint32_t claim_any(const shmemi_actor_t *actor, uint32_t usable, uint32_t *epoch)
{
    uint64_t owner = shmemi_row_owner(actor->slot, actor->epoch);
    for (uint32_t i = 0; i < usable; i++) {
        uint32_t candidate = 1 + (actor->slot * 2 + i) % usable;
        if (shmemi_row_claim(actor->roster, candidate, owner, epoch))
            return candidate;
    }
    return 0;
}

/* Are there more rows than `usable` by now? Of many threads that find none one asks for them. */
static bool more_rows(const shmemi_actor_t *actor, uint32_t usable)
{
    pthread_mutex_lock(&growing);
    if (actor->grow && shmemi_row_limit(actor->roster) <= usable + 1)
        actor->grow(actor->grow_user);
    pthread_mutex_unlock(&growing);
    return shmemi_row_limit(actor->roster) > usable + 1;
}

static shmem_status_t claim_row(const shmemi_actor_t *actor, uint32_t *row, uint32_t *epoch)
{
    uint32_t usable = 0;
    if (SHMEMI_FAULT("sync.actor.row"))
        return shmemi_fail(SHMEM_ERR_INJECTED, "sync", "a row of the roster, refused by a test");
    do {
        uint32_t limit = shmemi_row_limit(actor->roster);
        usable = limit > 1 ? limit - 1 : 0;
        *row = claim_any(actor, usable, epoch);
    } while (!*row && more_rows(actor, usable));
    if (*row)
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_LIMIT, "sync",
                       "no row for this thread: all %u thread rows of the node server are taken; "
                       "end some threads or clients",
                       usable);
}

static shmem_status_t claim_add(const shmemi_actor_t *actor, claim_t **out)
{
    uint32_t row = 0, epoch = 0;
    if (setup_error || pthread_setspecific(thread_key, &thread_key))
        return shmemi_fail(SHMEM_ERR_LIMIT, "sync",
                           "no thread-specific key is left in this process (PTHREAD_KEYS_MAX)");
    claim_t *claim = claim_find(0);
    bool is_new = !claim;
    if (is_new && !(claim = calloc(1, sizeof *claim)))
        return shmemi_fail(SHMEM_ERR_NOMEM, "sync", "%zu bytes for a thread's row", sizeof *claim);
    shmem_status_t status = claim_row(actor, &row, &epoch);
    if (status) {
        if (is_new)
            free(claim);
        return status;
    }
    pthread_mutex_lock(&lock);
    claim->actor_id = actor->id;
    claim->roster = actor->roster;
    claim->owner = shmemi_row_owner(actor->slot, actor->epoch);
    claim->row = row;
    claim->epoch = epoch;
    if (is_new) {
        claim->next_of_thread = thread_claims;
        thread_claims = claim;
        claim->next = process_claims;
        if (process_claims)
            process_claims->previous = claim;
        process_claims = claim;
    }
    pthread_mutex_unlock(&lock);
    *out = claim;
    return SHMEM_OK;
}

const shmemi_self_t *shmemi_self_lookup(const shmemi_actor_t *actor)
{
    if (!actor->id || actor->fork_generation != shmemi_fork_generation()) {
        shmemi_fail(SHMEM_ERR_STATE, "sync",
                    "this context %s; make a new one with shmem_context_init()",
                    actor->id ? "belongs to the parent of this forked process" : "is finalized");
        return NULL;
    }
    if (!shmemi_roster_client_alive(actor->roster, actor->slot, actor->epoch)) {
        shmemi_fail(SHMEM_ERR_STATE, "sync",
                    "the node server no longer knows this client (slot %u, epoch %u)", actor->slot,
                    actor->epoch);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    claim_t *claim = claim_find(actor->id);
    pthread_mutex_unlock(&lock);
    if (!claim && claim_add(actor, &claim))
        return NULL;
    shmemi_self_cache = (shmemi_self_t){actor->id, claim->row, claim->epoch,
                                        &actor->roster->threads[claim->row], NULL};
    return &shmemi_self_cache;
}
