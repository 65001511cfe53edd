/* SPDX-License-Identifier: Apache-2.0 */
/* Small arithmetic that every layer needs. Overflow is reported, never wrapped. */
#ifndef SHMEMI_BASE_UTIL_H
#define SHMEMI_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMEMI_CACHE_LINE 128 /* two 64-byte lines: the adjacent-line prefetcher pairs them */
#define SHMEMI_PAGE       4096

#define SHMEMI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Pins a shared layout: member of struct at offset. */
#define SHMEMI_PIN(type, member, offset)                                                           \
    _Static_assert(offsetof(type, member) == (offset), #type "." #member " moved")
#define SHMEMI_PIN_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " resized")

static inline bool shmemi_is_power_of_two(uint64_t x)
{
    return x && !(x & (x - 1));
}

/* x rounded up to a multiple of `unit` (a power of two); false when that overflows. */
static inline bool shmemi_round_up(uint64_t x, uint64_t unit, uint64_t *out)
{
    uint64_t sum;
    if (__builtin_add_overflow(x, unit - 1, &sum))
        return false;
    *out = sum & ~(unit - 1);
    return true;
}

/* Is [offset, offset + bytes) inside [0, limit)? For values read from shared memory. */
static inline bool shmemi_range_inside(uint64_t offset, uint64_t bytes, uint64_t limit)
{
    return offset <= limit && bytes <= limit - offset;
}

static inline unsigned shmemi_log2_floor(uint64_t x)
{
    return 63u - (unsigned)__builtin_clzll(x);
}

static inline unsigned shmemi_log2_ceil(uint64_t x)
{
    return x <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(x - 1);
}

#endif
