/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics: always on. Each thread owns one block of counters in shared memory and adds to it
 * with plain stores; tools map it read-only and sum over threads. Readers may see a count that is
 * a moment old, never a torn one (64-bit relaxed atomics).
 */
#ifndef SHMEMI_BASE_STATS_H
#define SHMEMI_BASE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

/* X(name, unit, meaning). Append only: the order is part of the shared layout. */
#define SHMEMI_STATS_TABLE(X)                                                                      \
    X(allocs, "calls", "blocks allocated from pools")                                              \
    X(frees, "calls", "blocks given back to pools")                                                \
    X(alloc_bytes, "bytes", "bytes allocated, rounded as the pool rounds them")                    \
    X(free_bytes, "bytes", "bytes given back")                                                     \
    X(remote_frees, "calls", "blocks freed that belong to another thread's cache")                 \
    X(refills, "calls", "times a thread's cache went to the shared pool")                          \
    X(fallbacks, "calls", "allocations served by another node than the one wanted")                \
    X(lock_waits, "calls", "lock acquisitions that had to wait")                                   \
    X(sleeps, "calls", "waits that slept in the kernel")                                           \
    X(wakes, "calls", "system calls made to wake sleepers")                                        \
    X(puts, "calls", "one-sided writes to peers")                                                  \
    X(put_bytes, "bytes", "bytes written to peers")                                                \
    X(gets, "calls", "one-sided reads from peers")                                                 \
    X(get_bytes, "bytes", "bytes read from peers")                                                 \
    X(atomics, "calls", "atomic operations on peers' memory")                                      \
    X(barriers, "calls", "barriers passed")                                                        \
    X(collectives, "calls", "collectives completed")                                               \
    X(collective_bytes, "bytes", "bytes that collectives contributed")                             \
    X(late_wakes, "calls", "waits that found by themselves, after a slice, what nobody told them")

typedef enum shmemi_stat {
#define SHMEMI_STATS_ENUM(name, unit, meaning) SHMEMI_STAT_##name,
    SHMEMI_STATS_TABLE(SHMEMI_STATS_ENUM)
#undef SHMEMI_STATS_ENUM
        SHMEMI_STAT_COUNT
} shmemi_stat_t;

enum { SHMEMI_STATS_SLOTS = 48 }; /* room to append without a new layout */
_Static_assert((int)SHMEMI_STAT_COUNT <= SHMEMI_STATS_SLOTS, "the statistics block is full");

typedef struct shmemi_stats {
    _Atomic uint64_t value[SHMEMI_STATS_SLOTS];
} shmemi_stats_t;

/* Only the owning thread adds: a load and a store, no locked instruction. */
static inline void shmemi_stats_add(shmemi_stats_t *stats, shmemi_stat_t which, uint64_t amount)
{
    uint64_t old = atomic_load_explicit(&stats->value[which], memory_order_relaxed);
    atomic_store_explicit(&stats->value[which], old + amount, memory_order_relaxed);
}

typedef struct shmemi_stat_info {
    const char *name;
    const char *unit;
    const char *meaning;
} shmemi_stat_info_t;

/* Static description of counter `which`, or NULL when there is none. */
const shmemi_stat_info_t *shmemi_stats_describe(unsigned which);

#endif
