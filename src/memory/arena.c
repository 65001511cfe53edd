/* SPDX-License-Identifier: Apache-2.0 */
/* Lock and journal of an arena; see arena.h. */
#include "memory/arena.h"

#include "base/status.h"

#define LAYER "memory"

void shmemi_arena_init(shmemi_arena_t *arena, void *memory, const shmemi_layout_t *layout,
                       uint32_t index)
{
    unsigned char *base = memory;
    unsigned char *books = base + layout->arenas + layout->arena_stride * index;
    *arena = (shmemi_arena_t){
        .control = (shmemi_arena_control_t *)books,
        .charge = (shmemi_charge_t *)(books + layout->charges),
        .header = memory,
        .tasks = (shmemi_task_t *)(base + layout->tasks),
        .map = (_Atomic uint64_t *)(books + layout->map),
        .page = (shmemi_page_t *)(books + layout->pages),
        .span = (shmemi_span_t *)(books + layout->spans),
        .data = base + layout->data + layout->data_stride * index,
        .pages = layout->arena_pages,
        .chunks = layout->chunks,
        .chunk_shift = layout->chunk_shift,
        .top = shmemi_log2_ceil(layout->arena_pages),
        .index = index,
        .map_index = layout->map / 8,
        .pages_index = layout->pages / 8,
        .journal_end = layout->pages / 8 + 2 * (uint64_t)layout->arena_pages,
        .spans_index = layout->spans / 8,
    };
}

static shmem_status_t corrupt(const shmemi_arena_t *arena, const char *what, uint64_t value)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: %s is %llu; shared memory was overwritten, make a new pool",
                       arena->index, what, (unsigned long long)value);
}

/* The word that a journal entry names, NULL when it names none of ours. */
static _Atomic uint64_t *journal_target(shmemi_arena_t *arena, uint64_t index)
{
    const uint64_t state = offsetof(shmemi_arena_control_t, state) / 8;
    bool in_state = index >= state && index < state + SHMEMI_STATE_WORDS;
    const uint64_t charges = (uint64_t)(arena->charge - (shmemi_charge_t *)(void *)arena->control) *
                             (sizeof(shmemi_charge_t) / 8);
    bool in_charges =
        index >= charges && index < charges + SHMEMI_TASKS * sizeof(shmemi_charge_t) / 8;
    bool in_map = index >= arena->map_index && index < arena->map_index + (arena->chunks + 7) / 8;
    bool in_pages = index >= arena->pages_index && index < arena->journal_end;
    if (!in_state && !in_charges && !in_map && !in_pages)
        return NULL;
    return (_Atomic uint64_t *)(void *)arena->control + index;
}

bool shmemi_arena_set(shmemi_arena_t *arena, _Atomic uint64_t *word, uint64_t value)
{
    shmemi_arena_control_t *c = arena->control;
    uint64_t n = shmemi_arena_get(&c->journal_count);
    if (n >= SHMEMI_JOURNAL_ENTRIES)
        return false;
    uint64_t index = (uint64_t)(word - (_Atomic uint64_t *)(void *)c);
    atomic_store_explicit(&c->journal[n].index, index, memory_order_relaxed);
    atomic_store_explicit(&c->journal[n].old, shmemi_arena_get(word), memory_order_relaxed);
    /* SYNC journal-count: release, the entry is complete before it counts; pairs with acquire in
     * shmemi_arena_rollback() */
    atomic_store_explicit(&c->journal_count, n + 1, memory_order_release);
    SHMEMI_KILL_POINT("memory.journal.noted");
    /* SYNC journal-word: release, the entry counts before the word changes; pairs with acquire in
     * shmemi_arena_rollback() */
    atomic_store_explicit(word, value, memory_order_release);
    SHMEMI_KILL_POINT("memory.journal.changed");
    return true;
}

bool shmemi_arena_set_after(shmemi_arena_t *arena, _Atomic uint64_t *word, uint64_t value)
{
    shmemi_arena_control_t *c = arena->control;
    uint64_t index = (uint64_t)(word - (_Atomic uint64_t *)(void *)c);
    return shmemi_arena_set(arena, &c->state[SHMEMI_STATE_AFTER_VALUE], value) &&
           shmemi_arena_set(arena, &c->state[SHMEMI_STATE_AFTER], index);
}

/* The word of class and owners that lies there; NULL: none does. */
static _Atomic uint64_t *after_target(shmemi_arena_t *arena, uint64_t index)
{
    const uint64_t words = sizeof(shmemi_span_t) / 8;
    uint64_t inside = index - arena->spans_index;
    if (index < arena->spans_index || inside / words >= arena->chunks ||
        inside % words != offsetof(shmemi_span_t, class) / 8)
        return NULL;
    return (_Atomic uint64_t *)(void *)arena->control + index;
}

/* The operation is committed, perhaps by a holder that is dead now: make the store that it left. */
static void store_after(shmemi_arena_t *arena)
{
    shmemi_arena_control_t *c = arena->control;
    uint64_t index = shmemi_arena_get(&c->state[SHMEMI_STATE_AFTER]);
    if (!index)
        return;
    SHMEMI_KILL_POINT("memory.journal.after");
    _Atomic uint64_t *word = after_target(arena, index);
    if (word)
        /* SYNC span-owners: release, the page of owners is complete before it is found; pairs with
         * acquire in shmemi_owners_find() */
        atomic_store_explicit(word, shmemi_arena_get(&c->state[SHMEMI_STATE_AFTER_VALUE]),
                              memory_order_release);
    SHMEMI_KILL_POINT("memory.journal.stored");
    atomic_store_explicit(&c->state[SHMEMI_STATE_AFTER], 0, memory_order_release);
}

void shmemi_arena_commit(shmemi_arena_t *arena)
{
    shmemi_arena_control_t *c = arena->control;
    uint64_t n = shmemi_arena_get(&c->journal_count);
    if (n > shmemi_arena_get(&c->journal_high))
        atomic_store_explicit(&c->journal_high, n, memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.journal.commit");
    /* SYNC journal-count: release, all words are changed before the entries end; pairs with acquire
     * in shmemi_arena_rollback() */
    atomic_store_explicit(&c->journal_count, 0, memory_order_release);
    SHMEMI_KILL_POINT("memory.journal.committed");
    store_after(arena);
}

shmem_status_t shmemi_arena_rollback(shmemi_arena_t *arena)
{
    shmemi_arena_control_t *c = arena->control;
    /* SYNC journal-count: acquire, pairs with release in shmemi_arena_set(); SYNC journal-word:
     * acquire, a word seen changed has its entry */
    uint64_t n = atomic_load_explicit(&c->journal_count, memory_order_acquire);
    if (n > SHMEMI_JOURNAL_ENTRIES)
        return corrupt(arena, "the number of journal entries", n);
    for (uint64_t i = n; i-- > 0;) {
        uint64_t index = shmemi_arena_get(&c->journal[i].index);
        _Atomic uint64_t *word = journal_target(arena, index);
        if (!word)
            return corrupt(arena, "a journal entry's place", index);
        atomic_store_explicit(word, shmemi_arena_get(&c->journal[i].old), memory_order_relaxed);
        SHMEMI_KILL_POINT("memory.journal.undone");
    }
    /* SYNC journal-count: release, everything is undone before the entries end; pairs with acquire
     * in shmemi_arena_rollback() */
    atomic_store_explicit(&c->journal_count, 0, memory_order_release);
    return SHMEM_OK;
}

shmem_status_t shmemi_arena_lock(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                 shmemi_deadline_t deadline)
{
    shmemi_mutex_t *lock = &arena->control->lock;
    shmem_status_t status = shmemi_mutex_lock(actor, lock, deadline);
    if (status == SHMEM_ERR_POISONED || status == SHMEM_ERR_INVALID)
        return corrupt(arena, "the lock's word",
                       atomic_load_explicit(&lock->word, memory_order_relaxed));
    if (status && status != SHMEM_ERR_OWNER_DIED)
        return status;
    shmem_status_t repaired = SHMEM_OK;
    if (shmemi_arena_get(&arena->control->journal_count))
        repaired = shmemi_arena_rollback(arena);
    if (!repaired)
        store_after(arena);
    if (status == SHMEM_ERR_OWNER_DIED && !repaired)
        shmemi_mutex_consistent(actor, lock);
    if (repaired)
        shmemi_mutex_unlock(actor, lock);
    return repaired;
}

/* Some of it may have been committed even if the last operation failed. */
static void ring(const shmemi_arena_t *arena, const shmemi_actor_t *actor, uint64_t given[2])
{
    for (uint32_t i = 0; i < 2; i++)
        for (; given[i]; given[i] &= given[i] - 1) {
            uint32_t task = 64 * i + (uint32_t)__builtin_ctzll(given[i]);
            shmemi_bell_ring(actor->roster, &arena->tasks[task].bell, NULL);
        }
    shmemi_bell_ring(actor->roster, &arena->header->bell, NULL);
}

shmem_status_t shmemi_arena_unlock(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                   shmem_status_t status)
{
    uint64_t given[2] = {arena->given[0], arena->given[1]};
    if (!status)
        shmemi_arena_commit(arena);
    else
        shmemi_arena_rollback(arena);
    arena->given[0] = arena->given[1] = 0;
    SHMEMI_KILL_POINT("memory.arena.unlock");
    shmemi_mutex_unlock(actor, &arena->control->lock);
    if (given[0] | given[1])
        ring(arena, actor, given);
    return status;
}
