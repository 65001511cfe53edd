/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who and what the memory of a pool is for: by size class, by client.
 *
 *   Invariant  sum of the clients' held_bytes = used bytes of the pool, when nobody changes it
 *
 * Everything is read without a lock, so that a stopped client does not stop a tool: numbers are a
 * moment apart, and a block that changes meanwhile may be missed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "memory/pool.h"

#define LAYER "memory"

/* ---- by size class ---- */

static uint64_t used_objects(const shmemi_span_t *span, const shmemi_class_t *class)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i <= class->last; i++) {
        uint64_t bits = atomic_load_explicit(&span->free[i], memory_order_relaxed) |
                        atomic_load_explicit(&span->remote[i], memory_order_relaxed);
        used += (uint64_t)__builtin_popcountll(~bits & shmemi_class_mask(class, i));
    }
    return used;
}

static void count_spans(const shmemi_arena_t *arena, unsigned index, const shmemi_class_t *class,
                        shmem_pool_class_info_t *info)
{
    for (uint32_t chunk = 0; chunk < arena->chunks; chunk++) {
        if (shmemi_span_mark(arena, chunk) != shmemi_span_mark_of(index, 0))
            continue;
        info->spans++;
        info->used += used_objects(&arena->span[chunk], class);
    }
}

shmem_status_t shmemi_pool_class_info(const shmemi_pool_t *pool, size_t index,
                                      shmem_pool_class_info_t *info)
{
    if (!info || info->size < sizeof *info)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "class info: NULL, or its size is not set to %zu", sizeof *info);
    if (index >= SHMEMI_CLASSES || !pool->classes.class[index].size)
        return shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER, "size class %zu: this pool has fewer",
                            index);
    const shmemi_class_t *class = &pool->classes.class[index];
    shmem_pool_class_info_t found = {.size = info->size, .block_bytes = class->size};
    for (uint32_t i = 0; i < pool->nodes; i++)
        count_spans(&pool->arenas[i].arena, (unsigned)index, class, &found);
    found.span_bytes = found.spans * class->pages << SHMEMI_PAGE_SHIFT;
    found.blocks = found.spans * class->count;
    *info = found;
    return SHMEM_OK;
}

/* ---- by client ---- */

/* What one client holds; for each slot there is one that lives and those that are gone. */
typedef struct holding {
    uint64_t owner;
    uint64_t blocks, spans, pages;
} holding_t;

enum { KINDS = 2, POOL_ENTRY = KINDS * SHMEMI_CLIENTS, ENTRIES };

static holding_t *holding_of(const shmemi_pool_t *pool, holding_t *table, uint64_t owner)
{
    uint32_t slot = shmemi_word_slot(owner), epoch = shmemi_word_epoch(owner);
    if (owner == SHMEMI_OWNER_POOL || slot >= SHMEMI_CLIENTS)
        return &table[POOL_ENTRY];
    bool alive = shmemi_roster_client_alive(pool->actor->roster, slot, epoch);
    return &table[KINDS * slot + alive];
}

static void count_block(const shmemi_pool_t *pool, holding_t *table, uint64_t word, uint32_t pages)
{
    unsigned kind = shmemi_word_kind(word);
    if (kind == SHMEMI_PAGE_FREE || kind == SHMEMI_PAGE_ABSENT)
        return;
    holding_t *h = holding_of(pool, table, shmemi_word_owner(word));
    h->owner = shmemi_word_owner(word);
    h->pages += pages;
    h->blocks += kind == SHMEMI_PAGE_USED || kind == SHMEMI_PAGE_CACHED;
    h->spans += kind == SHMEMI_PAGE_SPAN;
}

static void count_arena(const shmemi_pool_t *pool, const shmemi_arena_t *arena, holding_t *table)
{
    for (uint64_t page = 0; page < arena->pages;) {
        uint64_t word = shmemi_arena_get(&arena->page[page].word);
        uint32_t pages = shmemi_buddy_length(arena, (uint32_t)page, word);
        if (pages)
            count_block(pool, table, word, pages);
        page += pages ? pages : 1; /* a block is just changing here */
    }
}

static void describe(const shmemi_pool_t *pool, const holding_t *h, bool alive,
                     shmem_pool_client_info_t *info)
{
    uint32_t slot = shmemi_word_slot(h->owner);
    info->alive = alive;
    info->blocks = h->blocks;
    info->spans = h->spans;
    info->held_bytes = h->pages << SHMEMI_PAGE_SHIFT;
    info->pid = 0;
    info->name[0] = 0;
    if (h->owner == SHMEMI_OWNER_POOL || slot >= SHMEMI_CLIENTS) {
        snprintf(info->name, sizeof info->name, "(pool)");
    } else if (alive) {
        info->pid = pool->actor->roster->clients[slot].pid;
        shmemi_roster_client_name(pool->actor->roster, slot, info->name, sizeof info->name);
    }
}

shmem_status_t shmemi_pool_clients(const shmemi_pool_t *pool, shmem_pool_client_info_t *clients,
                                   size_t room, size_t *count)
{
    if (!count || (room && (!clients || clients[0].size < sizeof *clients)))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "clients of a pool: no count, or no array whose first size is set to "
                           "%zu",
                           sizeof *clients);
    holding_t *table = calloc(ENTRIES, sizeof *table);
    if (!table)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for %d clients", SHMEMI_CLIENTS);
    for (uint32_t i = 0; i < pool->nodes; i++)
        count_arena(pool, &pool->arenas[i].arena, table);
    size_t n = 0;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        if (!table[i].pages)
            continue;
        if (n < room) {
            clients[n].size = clients[0].size;
            describe(pool, &table[i], i == POOL_ENTRY || i % KINDS, &clients[n]);
        }
        n++;
    }
    free(table);
    *count = n;
    return SHMEM_OK;
}
