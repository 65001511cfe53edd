/* SPDX-License-Identifier: Apache-2.0 */
/* The table of size classes; see classes.h. */
#include "memory/classes.h"

#include "memory/layout.h"

/*
 * Pages of a span for objects of `size`: from one chunk to four, the number that wastes least;
 * more only when it saves a 64th at least, because small spans are easier to get and to give back.
 */
static uint32_t span_pages(uint32_t size, uint32_t chunk_pages)
{
    uint32_t best = 0, fewest = chunk_pages == 16 ? 8 : 4;
    uint64_t best_waste = UINT64_MAX;
    const uint32_t most = 64 * SHMEMI_SPAN_WORDS;
    if (((uint64_t)chunk_pages << SHMEMI_PAGE_SHIFT) / size > most) /* the bitmaps end before */
        return (uint32_t)((uint64_t)most * size >> SHMEMI_PAGE_SHIFT);
    for (uint32_t pages = chunk_pages; pages <= SHMEMI_SPAN_CHUNKS * chunk_pages; pages++) {
        uint64_t bytes = (uint64_t)pages << SHMEMI_PAGE_SHIFT;
        uint64_t count = bytes / size;
        if (count < fewest || count > most)
            continue;
        uint64_t waste = (bytes % size) * 4096 / bytes;
        if (best && waste + 64 > best_waste)
            continue;
        best = pages;
        best_waste = waste;
    }
    return best;
}

static void class_init(shmemi_class_t *class, uint32_t size, uint32_t pages)
{
    class->size = size;
    class->pages = pages;
    class->count = (uint32_t)(((uint64_t)pages << SHMEMI_PAGE_SHIFT) / size);
    class->magic = (uint32_t)(((1ull << 36) + size - 1) / size);
    class->last = (class->count - 1) / 64;
    uint32_t rest = class->count - 64 * class->last;
    class->last_mask = rest == 64 ? ~(uint64_t)0 : ((uint64_t)1 << rest) - 1;
}

void shmemi_classes_init(shmemi_classes_t *classes, unsigned chunk_shift, uint32_t arena_pages)
{
    *classes = (shmemi_classes_t){0};
    for (uint32_t i = 0; i < SHMEMI_COUNT(classes->of); i++)
        classes->of[i] = (uint8_t)shmemi_class_of((uint64_t)i * 128 + 1);
    for (unsigned i = 0; i < SHMEMI_CLASSES; i++) {
        uint32_t size = shmemi_class_size(i);
        uint32_t pages = span_pages(size, 1u << chunk_shift);
        if (!pages || pages > arena_pages)
            break;
        class_init(&classes->class[i], size, pages);
        classes->largest = size;
    }
}
