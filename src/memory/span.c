/* SPDX-License-Identifier: Apache-2.0 */
/* Making, dissolving and bookkeeping of spans; see span.h. */
#include "memory/span.h"

#include "base/status.h"
#include "memory/owners.h"

#define LAYER "memory"

static shmem_status_t corrupt(const shmemi_arena_t *arena, const char *what, uint32_t chunk)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: %s at chunk %u; shared memory was overwritten, make a new pool",
                       arena->index, what, chunk);
}

static bool mark(shmemi_arena_t *arena, uint32_t chunk, uint64_t value)
{
    unsigned shift = chunk % 8 * 8;
    _Atomic uint64_t *word = &arena->map[chunk / 8];
    uint64_t old = shmemi_arena_get(word);
    return shmemi_arena_set(arena, word, (old & ~((uint64_t)0xff << shift)) | value << shift);
}

/* Chunks that a span of `pages` pages covers, the last one perhaps in part. */
static uint32_t chunks_of(const shmemi_arena_t *arena, uint32_t pages)
{
    return (pages + (1u << arena->chunk_shift) - 1) >> arena->chunk_shift;
}

/* The record is filled in while nothing leads to it. */
static void record_init(shmemi_span_t *span, const shmemi_class_t *class, unsigned index,
                        uint64_t owner)
{
    atomic_store_explicit(&span->owner, 0, memory_order_relaxed);
    atomic_store_explicit(&span->owners, 0, memory_order_relaxed);
    atomic_store_explicit(&span->class, index, memory_order_relaxed);
    for (uint32_t i = 0; i < SHMEMI_SPAN_WORDS; i++) {
        atomic_store_explicit(&span->free[i], shmemi_class_mask(class, i), memory_order_relaxed);
        atomic_store_explicit(&span->remote[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&span->owner, owner, memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.span.filled");
}

static shmem_status_t create_locked(shmemi_arena_t *arena, const shmemi_class_t *class,
                                    unsigned index, const shmemi_span_owner_t *owner,
                                    uint32_t *chunk)
{
    uint32_t page;
    shmem_status_t status =
        shmemi_buddy_alloc(arena, class->pages, arena->chunk_shift,
                           owner->client | SHMEMI_PAGE_SPAN, owner->task, &page);
    if (status)
        return status;
    uint32_t first = page >> arena->chunk_shift, n = chunks_of(arena, class->pages);
    record_init(&arena->span[first], class, index, owner->thread);
    for (uint32_t i = 0; i < n; i++)
        if (!mark(arena, first + i, shmemi_span_mark_of(index, i)))
            return corrupt(arena, "the journal is full", first);
    if (!shmemi_arena_count(arena, SHMEMI_STATE_SPANS, 1) ||
        !shmemi_arena_count(arena, SHMEMI_STATE_SPAN_PAGES, class->pages))
        return corrupt(arena, "the journal is full", first);
    SHMEMI_KILL_POINT("memory.span.marked");
    *chunk = first;
    return SHMEM_OK;
}

shmem_status_t shmemi_span_create(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                  const shmemi_classes_t *classes, unsigned class,
                                  const shmemi_span_owner_t *owner, uint32_t *chunk)
{
    const shmemi_class_t *c = &classes->class[class];
    unsigned order = shmemi_log2_ceil(c->pages);
    if (!shmemi_arena_may_have(arena, order > arena->chunk_shift ? order : arena->chunk_shift))
        return SHMEM_ERR_NOMEM;
    shmem_status_t status = shmemi_arena_lock(arena, actor, SHMEMI_FOREVER);
    if (status)
        return status;
    status = create_locked(arena, c, class, owner, chunk);
    return shmemi_arena_unlock(arena, actor, status);
}

shmem_status_t shmemi_span_dissolve_locked(shmemi_arena_t *arena, uint32_t page)
{
    uint64_t word = shmemi_arena_get(&arena->page[page].word);
    uint32_t pages = shmemi_buddy_length(arena, page, word);
    uint32_t first = page >> arena->chunk_shift, n = chunks_of(arena, pages), found = 0;
    unsigned class;
    if (shmemi_word_kind(word) != SHMEMI_PAGE_SPAN || !pages || n > SHMEMI_SPAN_CHUNKS ||
        page & ((1u << arena->chunk_shift) - 1) ||
        !shmemi_span_find(arena, first, &found, &class) || found != first)
        return corrupt(arena, "impossible span", first);
    for (uint32_t i = 0; i < n; i++)
        if (!mark(arena, first + i, 0))
            return corrupt(arena, "the journal is full", first);
    if (!shmemi_arena_count(arena, SHMEMI_STATE_SPANS, -1) ||
        !shmemi_arena_count(arena, SHMEMI_STATE_SPAN_PAGES, -(int64_t)pages))
        return corrupt(arena, "the journal is full", first);
    SHMEMI_KILL_POINT("memory.span.unmarked");
    shmem_status_t status = shmemi_owners_destroy_locked(arena, &arena->span[first]);
    return status ? status : shmemi_buddy_free(arena, page, pages);
}

shmem_status_t shmemi_span_destroy(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                   uint32_t chunk)
{
    atomic_store_explicit(&arena->span[chunk].owner, 0, memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.span.disowned");
    shmem_status_t status = shmemi_arena_lock(arena, actor, SHMEMI_FOREVER);
    if (status)
        return status;
    status = shmemi_span_dissolve_locked(arena, chunk << arena->chunk_shift);
    return shmemi_arena_unlock(arena, actor, status);
}

static uint32_t collect_word(shmemi_span_t *span, uint32_t word, uint64_t mask,
                             _Atomic uint64_t *owners)
{
    /* SYNC span-remote: acquire, what the others did with the objects is over; pairs with release
     * in shmemi_span_free_remote() */
    uint64_t remote = atomic_load_explicit(&span->remote[word], memory_order_acquire);
    if (owners)
        shmemi_owners_clear(owners, word * 64, remote & mask);
    /* SYNC span-remote: release, the words are clear before the bits go; pairs with acquire in
     * free_object() of recover.c */
    atomic_fetch_and_explicit(&span->remote[word], ~remote, memory_order_release);
    SHMEMI_KILL_POINT("memory.span.collecting");
    uint64_t free = atomic_load_explicit(&span->free[word], memory_order_relaxed);
    uint64_t bits = remote & mask & ~free;
    atomic_store_explicit(&span->free[word], free | bits, memory_order_relaxed);
    return (uint32_t)__builtin_popcountll(bits);
}

uint32_t shmemi_span_collect(const shmemi_arena_t *arena, shmemi_span_t *span,
                             const shmemi_class_t *class)
{
    uint32_t n = 0;
    _Atomic uint64_t *owners;
    for (uint32_t i = 0; i <= class->last; i++)
        if (atomic_load_explicit(&span->remote[i], memory_order_relaxed)) {
            if (shmemi_owners_find(arena, span, &owners))
                return n; /* nothing of it can be trusted */
            n += collect_word(span, i, shmemi_class_mask(class, i), owners);
        }
    return n;
}

bool shmemi_span_is_empty(const shmemi_span_t *span, const shmemi_class_t *class)
{
    for (uint32_t i = 0; i <= class->last; i++) {
        uint64_t bits = atomic_load_explicit(&span->free[i], memory_order_relaxed) |
                        atomic_load_explicit(&span->remote[i], memory_order_relaxed);
        if (~bits & shmemi_class_mask(class, i))
            return false;
    }
    return true;
}

shmem_status_t shmemi_span_free_remote(shmemi_span_t *span, uint32_t index)
{
    uint64_t bit = (uint64_t)1 << index % 64;
    if (atomic_load_explicit(&span->free[index / 64], memory_order_relaxed) & bit)
        return SHMEM_ERR_DOUBLE_FREE;
    SHMEMI_KILL_POINT("memory.span.freeing");
    /* SYNC span-remote: release, the caller is done with the object; pairs with acquire in
     * shmemi_span_collect() */
    uint64_t old = atomic_fetch_or_explicit(&span->remote[index / 64], bit, memory_order_release);
    SHMEMI_KILL_POINT("memory.span.freed");
    return old & bit ? SHMEM_ERR_DOUBLE_FREE : SHMEM_OK;
}

static bool is_left_over(const shmemi_arena_t *arena, uint32_t chunk, unsigned class,
                         const shmemi_class_t *c)
{
    uint32_t first;
    unsigned found;
    uint64_t word = shmemi_arena_get(&arena->page[chunk << arena->chunk_shift].word);
    return word == (SHMEMI_OWNER_POOL | SHMEMI_PAGE_SPAN) &&
           shmemi_span_find(arena, chunk, &first, &found) && first == chunk && found == class &&
           shmemi_span_is_empty(&arena->span[chunk], c);
}

shmem_status_t shmemi_span_leave(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                 const shmemi_classes_t *classes, unsigned class, uint32_t chunk)
{
    const shmemi_class_t *c = &classes->class[class];
    /* SYNC span-left: full fence, our bit is set before we look at the other bits and at the owner;
     * pairs with those of the others who free, and with the one in take_objects() */
    shmemi_full_fence();
    if (!is_left_over(arena, chunk, class, c))
        return SHMEM_OK;
    SHMEMI_KILL_POINT("memory.span.left");
    shmem_status_t status = shmemi_arena_lock(arena, actor, SHMEMI_FOREVER);
    if (status)
        return status;
    if (is_left_over(arena, chunk, class, c))
        status = shmemi_span_dissolve_locked(arena, chunk << arena->chunk_shift);
    return shmemi_arena_unlock(arena, actor, status);
}
