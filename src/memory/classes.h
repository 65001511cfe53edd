/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Size classes of small objects: multiples of 128 bytes up to 1 KiB, then eight to an octave up to
 * 32 KiB, so that rounding up costs at most 1/8 above 1 KiB.
 *
 *   Invariants  size(class_of(n)) >= n > size(class_of(n) - 1)
 *               a class whose size is a multiple of a power of two a <= 4 KiB has objects on a-byte
 *               borders, because spans begin on page borders
 *               count * size <= pages * 4 KiB <= 2^18,  4 <= count <= 448
 *               index = offset * magic >> 36 is the exact quotient offset / size for every offset
 *               inside a span: offset * (magic * size - 2^36) < 2^18 * 2^15 < 2^36
 *
 * The table depends on the chunk size of the pool only and is private to the process: nothing read
 * from shared memory decides a size.
 */
#ifndef SHMEMI_MEMORY_CLASSES_H
#define SHMEMI_MEMORY_CLASSES_H

#include <stdint.h>

#include "base/util.h"

enum {
    SHMEMI_CLASSES = 48,
    SHMEMI_SMALL_MAX = 32768 /* largest size that has a class */
};

typedef struct shmemi_class {
    uint32_t size;  /* bytes of an object */
    uint32_t count; /* objects of a span */
    uint32_t magic; /* reciprocal of size */
    uint32_t pages; /* of a span */
    uint32_t last;  /* index of the last word of the bitmaps */
    uint32_t reserved;
    uint64_t last_mask; /* its valid bits */
} shmemi_class_t;

typedef struct shmemi_classes {
    uint32_t largest;                   /* sizes above it are whole pages */
    uint8_t of[SHMEMI_SMALL_MAX / 128]; /* class for each (bytes - 1) / 128 */
    shmemi_class_t class[SHMEMI_CLASSES];
} shmemi_classes_t;

/* The table for chunks of 2^chunk_shift pages in an arena of `arena_pages`. */
void shmemi_classes_init(shmemi_classes_t *classes, unsigned chunk_shift, uint32_t arena_pages);

/* The class for 1 <= bytes <= SHMEMI_SMALL_MAX. */
static inline unsigned shmemi_class_of(uint64_t bytes)
{
    if (bytes <= 1024)
        return (unsigned)((bytes - 1) >> 7);
    unsigned e = shmemi_log2_floor(bytes - 1);
    return 8 + (e - 10) * 8 + (unsigned)((bytes - 1) >> (e - 3) & 7);
}

static inline uint32_t shmemi_class_size(unsigned index)
{
    if (index < 8)
        return (index + 1) * 128;
    unsigned octave = (index - 8) / 8, step = (index - 8) % 8;
    return (step + 9) << (octave + 7);
}

/* Which object lies at `offset` of a span; exact as long as offset < 2^18. */
static inline uint32_t shmemi_class_index(const shmemi_class_t *class, uint64_t offset)
{
    return (uint32_t)(offset * class->magic >> 36);
}

/* Objects of word `word` of a span's bitmaps. */
static inline uint32_t shmemi_class_objects(const shmemi_class_t *class, uint32_t word)
{
    return word < class->last ? 64 : class->count - 64 * class->last;
}

/* Valid bits of word `word` of a span's bitmaps. */
static inline uint64_t shmemi_class_mask(const shmemi_class_t *class, uint32_t word)
{
    if (word < class->last)
        return ~(uint64_t)0;
    return word == class->last ? class->last_mask : 0;
}

#endif
