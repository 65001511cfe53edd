/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of quotas; see quota.h. All amounts are 64-bit, products 128-bit: limit, burst and
 * rate may have any value, and so may the time that passed.
 */
#include "memory/quota.h"

#define NS_PER_S 1000000000ull

typedef unsigned __int128 wide_t;

static wide_t bytes_of(uint64_t pages)
{
    return (wide_t)pages << SHMEMI_PAGE_SHIFT;
}

static void take(shmemi_bucket_t *b, wide_t bytes)
{
    b->tokens = bytes < b->tokens ? b->tokens - (uint64_t)bytes : 0;
}

/* Never above burst; and what would be above is lost. */
static void put(shmemi_bucket_t *b, wide_t bytes)
{
    wide_t sum = b->tokens + bytes;
    if (sum >= b->burst) {
        sum = b->burst;
        b->rest = 0;
    }
    b->tokens = (uint64_t)sum;
}

void shmemi_bucket_settle(shmemi_bucket_t *b, uint64_t pages, uint64_t now)
{
    /* the sum that is seen may wrap (pages ever taken), a difference of 2^63 pages may not */
    int64_t change = (int64_t)(pages - b->seen);
    b->seen = pages;
    if (change > 0)
        take(b, bytes_of((uint64_t)change));
    else
        put(b, bytes_of(0 - (uint64_t)change));
    if (now <= b->stamp)
        return;
    wide_t grown = (wide_t)b->rate * (now - b->stamp) + b->rest;
    b->stamp = now;
    b->rest = (uint64_t)(grown % NS_PER_S);
    put(b, grown / NS_PER_S);
}

bool shmemi_bucket_at_limit(const shmemi_bucket_t *b, uint64_t held, uint64_t pages)
{
    return b->limit != UINT64_MAX && bytes_of(held) + bytes_of(pages) > b->limit;
}

bool shmemi_bucket_allows(const shmemi_bucket_t *b, uint64_t held, uint64_t pages)
{
    return !shmemi_bucket_at_limit(b, held, pages) &&
           (b->burst == UINT64_MAX || bytes_of(pages) <= b->tokens);
}

bool shmemi_bucket_ever_allows(const shmemi_bucket_t *b, uint64_t pages)
{
    bool room = b->limit == UINT64_MAX || bytes_of(pages) <= b->limit;
    return room && (b->burst == UINT64_MAX || bytes_of(pages) <= b->burst);
}

uint64_t shmemi_bucket_delay(const shmemi_bucket_t *b, uint64_t pages)
{
    if (b->burst == UINT64_MAX || bytes_of(pages) <= b->tokens)
        return 0;
    if (!b->rate || bytes_of(pages) > b->burst)
        return UINT64_MAX;
    wide_t missing = (bytes_of(pages) - b->tokens) * NS_PER_S - b->rest;
    wide_t ns = (missing + b->rate - 1) / b->rate;
    return ns < UINT64_MAX ? (uint64_t)ns : UINT64_MAX;
}
