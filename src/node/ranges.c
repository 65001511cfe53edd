/* SPDX-License-Identifier: Apache-2.0 */
/* First fit over a sorted array: some thousand segments at most, so a scan is cheap. */
#include "node/ranges.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/util.h"
#include "os/space.h"

#define LAYER "node"

void shmemi_ranges_init(shmemi_ranges_t *ranges, uint64_t start, uint64_t limit)
{
    *ranges = (shmemi_ranges_t){NULL, 0, 0, start & ~(SHMEMI_SPACE_UNIT - 1), limit};
}

void shmemi_ranges_fini(shmemi_ranges_t *ranges)
{
    free(ranges->taken);
    *ranges = (shmemi_ranges_t){0};
}

/* Index of the first taken range that ends after `offset`. */
static size_t ranges_after(const shmemi_ranges_t *ranges, uint64_t offset)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->taken[middle].offset + ranges->taken[middle].bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* First hole of `bytes` in [from, to). *index: where it goes into the array. */
static bool ranges_fit(const shmemi_ranges_t *ranges, uint64_t from, uint64_t to, uint64_t bytes,
                       size_t *index, uint64_t *offset)
{
    for (size_t i = ranges_after(ranges, from);; i++) {
        uint64_t next = i < ranges->count ? ranges->taken[i].offset : to;
        uint64_t end = next < to ? next : to;
        if (end >= from && end - from >= bytes) {
            *index = i;
            *offset = from;
            return true;
        }
        if (next >= to)
            return false;
        from = ranges->taken[i].offset + ranges->taken[i].bytes;
    }
}

static bool ranges_make_room(shmemi_ranges_t *ranges)
{
    if (ranges->count < ranges->room)
        return true;
    size_t room = ranges->room ? 2 * ranges->room : 64;
    shmemi_range_t *taken = realloc(ranges->taken, room * sizeof *taken);
    if (!taken)
        return false;
    ranges->taken = taken;
    ranges->room = room;
    return true;
}

static shmem_status_t ranges_insert(shmemi_ranges_t *ranges, size_t index, uint64_t offset,
                                    uint64_t length)
{
    if (!ranges_make_room(ranges))
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER, "no memory for the table of address ranges");
    memmove(&ranges->taken[index + 1], &ranges->taken[index],
            (ranges->count - index) * sizeof ranges->taken[0]);
    ranges->taken[index] = (shmemi_range_t){offset, length};
    ranges->count++;
    return SHMEM_OK;
}

shmem_status_t shmemi_ranges_take(shmemi_ranges_t *ranges, uint64_t bytes, uint64_t *offset)
{
    uint64_t length, place;
    size_t index;
    if (bytes > ranges->limit || !shmemi_round_up(bytes, SHMEMI_SPACE_UNIT, &length))
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                            "a segment of %llu bytes is larger than the address range of %llu",
                            (unsigned long long)bytes, (unsigned long long)ranges->limit);
    length += SHMEMI_SPACE_UNIT;
    if (!ranges_fit(ranges, ranges->start, ranges->limit, length, &index, &place) &&
        !ranges_fit(ranges, 0, ranges->limit, length, &index, &place))
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                            "no hole for a segment of %llu bytes in the address range of %llu, "
                            "which holds %zu segments; close some",
                            (unsigned long long)bytes, (unsigned long long)ranges->limit,
                            ranges->count);
    shmem_status_t status = ranges_insert(ranges, index, place, length);
    if (status == SHMEM_OK)
        *offset = place;
    return status;
}

shmem_status_t shmemi_ranges_put(shmemi_ranges_t *ranges, uint64_t offset, uint64_t bytes)
{
    uint64_t length;
    size_t index = ranges_after(ranges, offset);
    if (offset % SHMEMI_SPACE_UNIT || bytes > ranges->limit ||
        !shmemi_round_up(bytes, SHMEMI_SPACE_UNIT, &length) ||
        !shmemi_range_inside(offset, length += SHMEMI_SPACE_UNIT, ranges->limit) ||
        (index < ranges->count && ranges->taken[index].offset < offset + length))
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER, "place %llx of the address range is not free",
                            (unsigned long long)offset);
    return ranges_insert(ranges, index, offset, length);
}

void shmemi_ranges_give(shmemi_ranges_t *ranges, uint64_t offset)
{
    size_t i = ranges_after(ranges, offset);
    if (i == ranges->count || ranges->taken[i].offset != offset)
        return;
    ranges->count--;
    memmove(&ranges->taken[i], &ranges->taken[i + 1],
            (ranges->count - i) * sizeof ranges->taken[0]);
}
