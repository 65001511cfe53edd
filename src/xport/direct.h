/* SPDX-License-Identifier: Apache-2.0 */
/* The direct transport: the peer's memory is mapped here, loads and stores do everything. */
#ifndef SHMEMI_XPORT_DIRECT_H
#define SHMEMI_XPORT_DIRECT_H

#include <stdatomic.h>
#include <string.h>

#include "xport/xport.h"

extern const shmemi_xport_ops_t shmemi_xport_direct;

#define SHMEMI_DIRECT_LARGE (16u << 20) /* from here on the caches are of no use to a copy */

/* memcpy() for large blocks, without filling the caches with what nobody reads soon. */
void shmemi_direct_copy_large(void *dst, const void *src, size_t n);

static inline void shmemi_direct_copy(void *dst, const void *src, size_t n)
{
    if (__builtin_expect(n >= SHMEMI_DIRECT_LARGE, 0))
        shmemi_direct_copy_large(dst, src, n);
    else if (n) /* NULL is allowed then */
        memcpy(dst, src, n);
}

static inline uint64_t shmemi_direct_fetch_add(char *address, uint64_t value)
{
    /* SYNC signal: release (sequentially consistent), pairs with acquire in
     * shmemi_direct_load() */
    return atomic_fetch_add_explicit((_Atomic uint64_t *)(void *)address, value,
                                     memory_order_seq_cst);
}

static inline void shmemi_direct_set(char *address, uint64_t value)
{
    /* SYNC signal: release, pairs with acquire in shmemi_direct_load() */
    atomic_store_explicit((_Atomic uint64_t *)(void *)address, value, memory_order_release);
}

static inline uint64_t shmemi_direct_load(const char *address)
{
    /* SYNC signal: acquire, pairs with release in shmemi_direct_set() and ..._fetch_add() */
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)address,
                                memory_order_acquire);
}

#endif
