/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A symmetric memory object: one segment, cut into one part for each PE.
 *
 *   address(r) = base + r * stride          part r = [address(r), address(r) + bytes)
 *   Invariants  bytes <= stride, stride a multiple of the page (of 2 MiB when bytes >= 2 MiB);
 *               segment.bytes >= size * stride; base is the same address in every process;
 *               base != NULL <=> this context holds one reference of the mapping;
 *               id is the same on all PEs: objects are created collectively.
 *
 * base and maps change under the process's table lock (job/mapped.h); maps, read without it, tells
 * whether base may be used.
 */
#ifndef SHMEMI_JOB_MEMORY_H
#define SHMEMI_JOB_MEMORY_H

#include "job/control.h"

#define SHMEMI_MEMORY_LIVE 0x6d656d6c69766531ull
#define SHMEMI_MEMORY_DEAD 0x6d656d6465616430ull

struct shmem_memory {
    uint64_t magic; /* first: checked on every use */
    shmem_context_t context;
    char *base;
    uint64_t stride;
    size_t bytes;
    uint64_t id;
    _Atomic unsigned maps; /* shmem_memory_map() calls not yet undone */
    shmemi_segment_t segment;
    struct shmem_memory *next;        /* in context->memories */
    struct shmem_memory *next_mapped; /* in the process's table */
};

/* Is the handle that of a live object? INVALID, STATE (destroyed). */
shmem_status_t shmemi_memory_check(shmem_memory_t memory);

/* "(the 2nd that the context created)" into text: users know objects by their order. */
enum { SHMEMI_MEMORY_WORDS = 64 };
const char *shmemi_memory_words(uint64_t id, char *text, size_t bytes);

static inline bool shmemi_memory_is_mapped(struct shmem_memory *memory)
{
    return atomic_load_explicit(&memory->maps, memory_order_acquire) != 0;
}

/* Address of part `rank`; the object is mapped. */
static inline char *shmemi_memory_part(const struct shmem_memory *memory, int rank)
{
    return memory->base + (uint64_t)rank * memory->stride;
}

/* Where a buffer lies in symmetric memory, in numbers that mean the same to all PEs. */
typedef struct shmemi_place {
    uint64_t id;     /* of the object; 0: not in symmetric memory */
    uint64_t offset; /* in the owner's part */
} shmemi_place_t;

/* The place of [buffer, buffer + bytes), if all of it is in this PE's part of a mapped object. */
shmemi_place_t shmemi_memory_locate(shmem_context_t context, const void *buffer, uint64_t bytes);

/* The address of PE `rank`'s place, or NULL when this PE has no such memory (never trusted). */
char *shmemi_memory_resolve(shmem_context_t context, const shmemi_place_t *place, int rank,
                            uint64_t bytes);

/* Unmap and close everything that the context still has. */
void shmemi_memory_drop_all(shmem_context_t context);

#endif
