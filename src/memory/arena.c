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
    bool in_map = index >= arena->map_index && index < arena->map_index + (arena->chunks + 7) / 8;
    bool in_pages = index >= arena->pages_index && index < arena->journal_end;
    if (!in_state && !in_map && !in_pages)
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
    if (status == SHMEM_ERR_OWNER_DIED && !repaired)
        shmemi_mutex_consistent(actor, lock);
    if (repaired)
        shmemi_mutex_unlock(actor, lock);
    return repaired;
}

shmem_status_t shmemi_arena_unlock(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                   shmem_status_t status)
{
    if (!status)
        shmemi_arena_commit(arena);
    else
        shmemi_arena_rollback(arena);
    SHMEMI_KILL_POINT("memory.arena.unlock");
    shmemi_mutex_unlock(actor, &arena->control->lock);
    return status;
}
