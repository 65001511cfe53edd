/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block a pointer names, and what is wrong with one that names none.
 *
 * Everything here looks without a lock: the answer about a block is stable as long as somebody
 * holds the block.
 */
#include "base/status.h"
#include "memory/pool.h"

#define LAYER "memory"

static shmem_status_t corrupt(const shmemi_place_t *place)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: the span at chunk %u has an impossible class; shared memory was "
                       "overwritten, make a new pool",
                       place->arena, place->chunk);
}

static shmem_status_t foreign(const shmemi_pool_t *pool, const void *block)
{
    return shmemi_fail(SHMEM_ERR_FOREIGN_POINTER, LAYER,
                       "%p is not in this pool, which lies at %p to %p", block,
                       (const void *)pool->data, (const void *)(pool->data + pool->data_bytes));
}

static shmem_status_t interior(const void *block, uint32_t size)
{
    return shmemi_fail(SHMEM_ERR_INTERIOR_POINTER, LAYER,
                       "%p is not the start of a block (these have %u bytes); pass what alloc "
                       "returned",
                       block, size);
}

shmem_status_t shmemi_place_double_free(const void *block)
{
    return shmemi_fail(SHMEM_ERR_DOUBLE_FREE, LAYER, "the block at %p is free already", block);
}

shmem_status_t shmemi_place_of(const shmemi_pool_t *pool, const void *block, shmemi_place_t *place)
{
    uint64_t offset = (uint64_t)((const unsigned char *)block - pool->data);
    if (offset >= pool->data_bytes)
        return foreign(pool, block);
    place->arena = 0;
    if (pool->nodes > 1) {
        place->arena = (uint32_t)(offset / pool->data_stride);
        offset %= pool->data_stride;
        if (offset >= pool->arena_bytes)
            return foreign(pool, block);
    }
    const shmemi_arena_t *arena = &pool->arenas[place->arena].arena;
    uint32_t chunk = (uint32_t)(offset >> (arena->chunk_shift + SHMEMI_PAGE_SHIFT));
    place->offset = offset;
    place->in_span = false;
    if (!shmemi_span_find(arena, chunk, &place->chunk, &place->class))
        return SHMEM_OK;
    if (!pool->classes.class[place->class].size)
        return corrupt(place);
    uint64_t inside = offset - shmemi_span_offset(arena, place->chunk);
    if (inside < (uint64_t)pool->classes.class[place->class].pages << SHMEMI_PAGE_SHIFT) {
        place->in_span = true;
        place->offset = inside;
    }
    return SHMEM_OK;
}

shmem_status_t shmemi_place_object(const shmemi_pool_t *pool, const shmemi_place_t *place,
                                   const void *block, uint32_t *index)
{
    const shmemi_class_t *class = &pool->classes.class[place->class];
    *index = shmemi_class_index(class, place->offset);
    if ((uint64_t)*index * class->size != place->offset || *index >= class->count)
        return interior(block, class->size);
    return SHMEM_OK;
}

shmem_status_t shmemi_place_bytes(shmemi_pool_t *pool, const shmemi_place_t *place,
                                  const void *block, uint64_t *bytes)
{
    uint32_t index;
    if (!place->in_span)
        return shmemi_large_bytes(pool, place->arena, place->offset, bytes);
    shmem_status_t status = shmemi_place_object(pool, place, block, &index);
    if (status)
        return status;
    if (shmemi_span_is_free(&pool->arenas[place->arena].arena.span[place->chunk], index))
        return shmemi_place_double_free(block);
    *bytes = pool->classes.class[place->class].size;
    return SHMEM_OK;
}
