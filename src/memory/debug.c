/* SPDX-License-Identifier: Apache-2.0 */
/* Debug pools: what is wrong with a pointer or a block, and who did it. */
#include "memory/debug.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "memory/trace.h"

#define LAYER "memory"

static void *mutable(const void *block)
{
    return (void *)(uintptr_t)block;
}

/* ---- finding ---- */

static shmem_status_t freed_before(const shmemi_pool_t *pool, const shmemi_traced_t *b)
{
    char allocated[SHMEMI_EVENT_TEXT], freed[SHMEMI_EVENT_TEXT];
    return shmemi_fail(SHMEM_ERR_DOUBLE_FREE, LAYER,
                       "the block of %llu bytes at %p is free already: freed at %s; it had been "
                       "allocated at %s",
                       (unsigned long long)b->trace.asked, (void *)b->user,
                       shmemi_trace_describe(pool, &b->trace.freed, freed),
                       shmemi_trace_describe(pool, &b->trace.allocated, allocated));
}

static shmem_status_t not_start(const shmemi_pool_t *pool, const shmemi_traced_t *b,
                                const void *block)
{
    char allocated[SHMEMI_EVENT_TEXT];
    return shmemi_fail(SHMEM_ERR_INTERIOR_POINTER, LAYER,
                       "%p lies %lld bytes from the start of the block of %llu bytes at %p, "
                       "allocated at %s; pass what alloc returned",
                       block, (long long)((const unsigned char *)block - b->user),
                       (unsigned long long)b->trace.asked, (void *)b->user,
                       shmemi_trace_describe(pool, &b->trace.allocated, allocated));
}

/* Start and length of the plain block that contains the pointer. Errors of plain pools. */
static shmem_status_t locate_plain(shmemi_pool_t *pool, const void *block, shmemi_traced_t *b)
{
    shmemi_place_t place;
    size_t bytes = 0;
    shmem_status_t status = shmemi_place_of(pool, block, &place);
    if (status)
        return status;
    shmemi_arena_t *arena = &pool->arenas[place.arena].arena;
    unsigned char *start = mutable(block);
    if (place.in_span) {
        start -= place.offset % pool->classes.class[place.class].size;
    } else {
        uint32_t page = (uint32_t)(place.offset >> SHMEMI_PAGE_SHIFT), head = page;
        uint64_t word;
        status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
        if (status)
            return status;
        shmemi_buddy_locate(arena, page, &head, &word);
        status = shmemi_arena_unlock(arena, pool->actor, SHMEM_OK);
        start = arena->data + ((uint64_t)head << SHMEMI_PAGE_SHIFT);
    }
    if (!status)
        status = shmemi_pool_block_bytes(pool, start, &bytes);
    b->start = start;
    b->bytes = bytes;
    return status;
}

/* It is the user's: by its trace, or, when that was overwritten, as far as can be told. */
static shmem_status_t locate_by_block(shmemi_pool_t *pool, const void *block, shmemi_traced_t *b)
{
    shmem_status_t status = locate_plain(pool, block, b);
    if (status)
        return status;
    if (shmemi_trace_read(pool, b))
        return b->user == block ? SHMEM_OK : not_start(pool, b, block);
    uint64_t front = (uint64_t)((const unsigned char *)block - b->start);
    if (front < SHMEMI_CACHE_LINE || !shmemi_is_power_of_two(front))
        return shmemi_fail(SHMEM_ERR_INTERIOR_POINTER, LAYER,
                           "%p is not the start of a block; pass what alloc returned (the trace of "
                           "the block around it was overwritten)",
                           block);
    b->user = mutable(block);
    return SHMEM_OK;
}

/* Was whoever is freeing the block killed before he was done? */
static bool is_left(const shmemi_pool_t *pool, const shmemi_traced_t *b)
{
    uint64_t word = b->trace.state;
    return !shmemi_roster_client_alive(pool->actor->roster, shmemi_word_slot(word),
                                       shmemi_word_epoch(word));
}

/* Is there such a plain block, in somebody's hands? */
static bool is_taken(shmemi_pool_t *pool, const shmemi_traced_t *b)
{
    shmemi_place_t place;
    if (shmemi_place_of(pool, b->start, &place))
        return false;
    const shmemi_arena_t *arena = &pool->arenas[place.arena].arena;
    if (place.in_span) {
        const shmemi_class_t *class = &pool->classes.class[place.class];
        uint32_t index = shmemi_class_index(class, place.offset);
        return class->size == b->bytes && (uint64_t)index * class->size == place.offset &&
               index < class->count && !shmemi_span_is_free(&arena->span[place.chunk], index);
    }
    uint32_t page = (uint32_t)(place.offset >> SHMEMI_PAGE_SHIFT);
    /* SYNC page-word: acquire, pairs with release in shmemi_arena_set() and cache_take() */
    uint64_t word = atomic_load_explicit(&arena->page[page].word, memory_order_acquire);
    return place.offset % SHMEMI_PAGE == 0 && shmemi_word_kind(word) == SHMEMI_PAGE_USED &&
           (uint64_t)shmemi_buddy_length(arena, page, word) << SHMEMI_PAGE_SHIFT == b->bytes;
}

/* The block that `block` is the start of, allocated. Errors as of free. */
static shmem_status_t locate(shmemi_pool_t *pool, const void *block, shmemi_traced_t *b)
{
    if (!shmemi_trace_find(pool, block, b))
        return locate_by_block(pool, block, b);
    bool taken = is_taken(pool, b);
    if (shmemi_trace_state(b->trace.state) >= SHMEMI_TRACE_FREEING && !(taken && is_left(pool, b)))
        return freed_before(pool, b);
    return taken ? SHMEM_OK : locate_by_block(pool, block, b); /* a trace of earlier times */
}

/* ---- alloc ---- */

static uint64_t front_of(const shmemi_debug_request_t *r)
{
    uint64_t front = r->alignment > SHMEMI_CACHE_LINE ? r->alignment : SHMEMI_CACHE_LINE;
    if (front < SHMEMI_PAGE && !r->alignment &&
        (r->bytes > SHMEMI_SMALL_MAX || r->bytes % SHMEMI_PAGE == 0))
        front = SHMEMI_PAGE;
    return front;
}

static shmem_status_t alloc_plain(shmemi_pool_t *pool, const shmemi_debug_request_t *r,
                                  uint64_t bytes, uint64_t alignment, void **start)
{
    if (r->placed)
        return shmemi_pool_alloc(pool, bytes, alignment, r->policy, r->node, start);
    if (r->timed)
        return shmemi_pool_alloc_timed(pool, bytes, alignment, r->timeout, start);
    return shmemi_pool_alloc_aligned(pool, bytes, alignment, start);
}

shmem_status_t shmemi_debug_alloc(shmemi_pool_t *pool, const shmemi_debug_request_t *r,
                                  const void *site, void **block)
{
    char text[SHMEMI_DAMAGE_TEXT];
    uint64_t front = front_of(r), bytes;
    shmemi_traced_t b = {0};
    size_t usable;
    void *start;
    int64_t at;
    /* the plain pool says what is wrong with these */
    if (!block || !r->bytes || (r->alignment && !shmemi_is_power_of_two(r->alignment)) ||
        front > SHMEMI_DATA_ALIGN)
        return alloc_plain(pool, r, r->bytes, r->alignment, block);
    if (__builtin_add_overflow(r->bytes, front + SHMEMI_REAR + sizeof(shmemi_trace_t), &bytes))
        bytes = UINT64_MAX;
    shmem_status_t status = alloc_plain(pool, r, bytes, front, &start);
    if (!status)
        status = shmemi_pool_block_bytes(pool, start, &usable);
    if (status)
        return status;
    SHMEMI_KILL_POINT("memory.debug.taken");
    b.start = start;
    b.bytes = usable;
    if (shmemi_trace_read(pool, &b) && shmemi_trace_state(b.trace.state) >= SHMEMI_TRACE_FREED &&
        shmemi_trace_is_touched(&b, &at)) {
        shmemi_trace_report(pool, &b);
        shmemi_log(SHMEM_LOG_ERROR, LAYER, "%s", shmemi_trace_damage(pool, &b, at, text));
    }
    b.user = b.start + front;
    b.trace.asked = r->bytes;
    shmemi_trace_begin(pool, &b, site);
    *block = b.user;
    return SHMEM_OK;
}

/* ---- free ---- */

/* Claim it: of two who free a block one wins. */
static shmem_status_t begin_free(shmemi_pool_t *pool, shmemi_traced_t *b)
{
    uint64_t word = b->trace.state;
    /* SYNC trace-state: acq_rel, pairs with release in publish() */
    if (atomic_compare_exchange_strong_explicit(shmemi_trace_word(b), &word,
                                                shmemi_trace_word_of(pool, SHMEMI_TRACE_FREEING),
                                                memory_order_acq_rel, memory_order_relaxed))
        return SHMEM_OK;
    shmemi_trace_read(pool, b);
    return freed_before(pool, b);
}

/* Nothing is known of the block but where it is. */
static shmem_status_t free_unknown(shmemi_pool_t *pool, const shmemi_traced_t *b)
{
    atomic_store_explicit(shmemi_trace_word(b), SHMEMI_TRACE_NONE, memory_order_relaxed);
    shmem_status_t status = shmemi_pool_free(pool, b->start);
    if (status)
        return status;
    atomic_fetch_add_explicit(&pool->header->overruns, 1, memory_order_relaxed);
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "written far behind the end of the block at %p: its trace, in the last %zu "
                       "of the %llu bytes from there, was overwritten, so who allocated it is not "
                       "known",
                       (void *)b->user, sizeof b->trace,
                       (unsigned long long)(b->start + b->bytes - b->user));
}

shmem_status_t shmemi_debug_free(shmemi_pool_t *pool, void *block, const void *site)
{
    char text[SHMEMI_DAMAGE_TEXT];
    shmemi_traced_t b;
    int64_t at = 0;
    if (!block)
        return SHMEM_OK;
    shmem_status_t status = locate(pool, block, &b);
    if (status)
        return status;
    if (!b.known)
        return free_unknown(pool, &b);
    bool left = shmemi_trace_state(b.trace.state) >= SHMEMI_TRACE_FREEING; /* half poisoned */
    status = begin_free(pool, &b);
    if (status)
        return status;
    SHMEMI_KILL_POINT("memory.debug.freeing");
    bool spoiled = !left && shmemi_trace_is_damaged(&b, &at);
    shmemi_trace_end(pool, &b, site);
    status = shmemi_pool_free(pool, b.start);
    if (status)
        return status;
    if (!spoiled)
        return SHMEM_OK;
    if (shmemi_trace_state(b.trace.state) != SHMEMI_TRACE_REPORTED)
        atomic_fetch_add_explicit(&pool->header->overruns, 1, memory_order_relaxed);
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER, "%s", shmemi_trace_damage(pool, &b, at, text));
}

/* ---- the others ---- */

/* As locate(), for who does not free: a block that somebody left half freed is free. */
static shmem_status_t locate_live(shmemi_pool_t *pool, const void *block, shmemi_traced_t *b)
{
    shmem_status_t status = locate(pool, block, b);
    if (status)
        return status;
    if (!b->known)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "the trace of the block at %p was overwritten: its size is not known",
                           block);
    return shmemi_trace_state(b->trace.state) < SHMEMI_TRACE_FREEING ? SHMEM_OK
                                                                     : freed_before(pool, b);
}

/* CORRUPT when the guards of a block that stays were overwritten. */
static shmem_status_t check_guards(shmemi_pool_t *pool, const shmemi_traced_t *b)
{
    char text[SHMEMI_DAMAGE_TEXT];
    int64_t at;
    if (!shmemi_trace_is_damaged(b, &at) || !shmemi_trace_is_same(b))
        return SHMEM_OK;
    shmemi_trace_report(pool, b);
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER, "%s", shmemi_trace_damage(pool, b, at, text));
}

shmem_status_t shmemi_debug_resize(shmemi_pool_t *pool, void **block, size_t bytes,
                                   const void *site)
{
    shmemi_traced_t b;
    void *moved;
    if (!block || !*block)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "resize of NULL: use alloc");
    shmem_status_t status = locate_live(pool, *block, &b);
    const shmemi_debug_request_t request = {.bytes = bytes};
    if (!status)
        status = check_guards(pool, &b);
    if (!status)
        status = shmemi_debug_alloc(pool, &request, site, &moved);
    if (status)
        return status;
    memcpy(moved, *block, b.trace.asked < bytes ? b.trace.asked : bytes);
    status = shmemi_debug_free(pool, *block, site);
    if (status && status != SHMEM_ERR_CORRUPT) {
        shmemi_debug_free(pool, moved, site);
        return status;
    }
    *block = moved; /* also when guards were overwritten just now: the old one is given back */
    return SHMEM_OK;
}

shmem_status_t shmemi_debug_block_bytes(shmemi_pool_t *pool, const void *block, size_t *bytes)
{
    shmemi_traced_t b;
    if (!block || !bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "block_bytes of NULL, or into NULL");
    shmem_status_t status = locate_live(pool, block, &b);
    if (!status)
        *bytes = b.trace.asked;
    return status;
}

shmem_status_t shmemi_debug_give(shmemi_pool_t *pool, void *block)
{
    shmemi_traced_t b;
    shmem_status_t status = block ? locate_live(pool, block, &b) : SHMEM_OK;
    return status ? status : shmemi_pool_give(pool, block ? b.start : NULL);
}

shmem_status_t shmemi_debug_hold(shmemi_pool_t *pool, void *block)
{
    shmemi_traced_t b;
    shmem_status_t status = block ? locate_live(pool, block, &b) : SHMEM_OK;
    return status ? status : shmemi_pool_hold(pool, block ? b.start : NULL);
}

shmem_status_t shmemi_debug_root_set(shmemi_pool_t *pool, void *block)
{
    shmemi_traced_t b;
    shmem_status_t status = block ? locate_live(pool, block, &b) : SHMEM_OK;
    if (status)
        return status;
    uint64_t root = block ? (uint64_t)((unsigned char *)block - pool->data) + 1 : 0;
    /* SYNC pool-root: release, what the block holds is complete; pairs with acquire in
     * shmemi_pool_root_get() */
    atomic_store_explicit(&pool->header->root, root, memory_order_release);
    return SHMEM_OK;
}
