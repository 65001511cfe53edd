/* SPDX-License-Identifier: Apache-2.0 */
/* Traces and guards of the blocks of debug pools; see trace.h. */
#include "memory/trace.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "os/clock.h"

#define MARK       0x5d40ull /* between client and state */
#define MARK_MASK  0xfff0ull
#define POISON     0xdddddddd00000000ull /* and the low half of the check sum */
#define GUARDS     (0x0101010101010101ull * SHMEMI_GUARD)
#define FINDER_KEY 0x66696e6465725f31ull

enum {
    TRACE_WORDS = sizeof(shmemi_trace_t) / 8,
    EVIDENCE = 64 /* bytes alike that are no accident */
};

/*
 * Bytes that others may look at, or spoil, at the same time. Who walks over all blocks may read one
 * that is freed meanwhile and whose memory becomes a user's again: he looks at the state before and
 * after, and forgets what he read when it changed. ThreadSanitizer would call that a race, atomic
 * or not.
 */
#if SHMEMI_TSAN
#define RACY                  __attribute__((no_sanitize("thread"), noinline))
#define LOAD(type, at, order) (*(const volatile type *)(const volatile void *)(at))
#else
#define RACY
#define LOAD(type, at, order)                                                                      \
    atomic_load_explicit((const _Atomic type *)(const void *)(at), memory_order_##order)
#endif

static void fill(unsigned char *at, uint64_t bytes, unsigned char value)
{
    uint64_t word = 0x0101010101010101ull * value;
    for (; bytes && (uintptr_t)at % 8; at++, bytes--)
        atomic_store_explicit((_Atomic unsigned char *)at, value, memory_order_relaxed);
    for (; bytes >= 8; at += 8, bytes -= 8)
        atomic_store_explicit((_Atomic uint64_t *)(void *)at, word, memory_order_relaxed);
    for (; bytes; at++, bytes--)
        atomic_store_explicit((_Atomic unsigned char *)at, value, memory_order_relaxed);
}

/* Index of the first byte that is not `value`; `bytes`: all are. */
static RACY uint64_t first_other(const unsigned char *at, uint64_t bytes, unsigned char value)
{
    uint64_t word = 0x0101010101010101ull * value, i = 0;
    while (i < bytes) {
        if (!((uintptr_t)(at + i) % 8) && bytes - i >= 8 && LOAD(uint64_t, at + i, relaxed) == word)
            i += 8;
        else if (LOAD(unsigned char, at + i, relaxed) == value)
            i++;
        else
            return i;
    }
    return bytes;
}

/* The same for whole words. */
static void fill_words(unsigned char *at, uint64_t bytes, uint64_t word)
{
    for (uint64_t i = 0; i < bytes; i += 8)
        atomic_store_explicit((_Atomic uint64_t *)(void *)(at + i), word, memory_order_relaxed);
}

static RACY uint64_t word_at(const unsigned char *at)
{
    return LOAD(uint64_t, at, relaxed);
}

/* ---- the record ---- */

static _Atomic uint64_t *words_of(const shmemi_traced_t *b)
{
    return (_Atomic uint64_t *)(void *)(b->start + b->bytes - sizeof(shmemi_trace_t));
}

_Atomic uint64_t *shmemi_trace_word(const shmemi_traced_t *block)
{
    return words_of(block);
}

uint64_t shmemi_trace_word_of(const shmemi_pool_t *pool, shmemi_trace_state_t state)
{
    return pool->owner | MARK | state;
}

static uint64_t sum(const void *from, size_t bytes)
{
    const unsigned char *at = from;
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h;
}

/* Over everything between the state and the sum itself. */
static uint64_t sum_of(const shmemi_trace_t *t, const shmemi_trace_event_t *e)
{
    return sum(&t->start, (size_t)((const char *)&e->check - (const char *)&t->start));
}

/* Words `from` to `to` - 1 of the record into shared memory. */
static void words_write(const shmemi_traced_t *b, size_t from, size_t to)
{
    _Atomic uint64_t *shared = words_of(b);
    const unsigned char *t = (const unsigned char *)&b->trace;
    for (size_t i = from; i < to; i++) {
        uint64_t word;
        memcpy(&word, t + 8 * i, 8);
        atomic_store_explicit(&shared[i], word, memory_order_relaxed);
    }
}

static RACY void words_read(shmemi_traced_t *b)
{
    _Atomic uint64_t *shared = words_of(b);
    unsigned char *t = (unsigned char *)&b->trace;
    for (size_t i = 0; i < TRACE_WORDS; i++) {
        /* SYNC trace-state: acquire, the state is read first; pairs with release in publish() */
        uint64_t word = LOAD(uint64_t, &shared[i], acquire);
        __builtin_memcpy(t + 8 * i, &word, 8);
    }
}

RACY bool shmemi_trace_is_same(const shmemi_traced_t *b)
{
    const _Atomic uint64_t *words = words_of(b);
    shmemi_full_fence(); /* the bytes were read before; pairs with those in begin() and end() */
    /* SYNC trace-state: acquire, the time of the event is read after it; pairs with release in
     * publish() */
    return LOAD(uint64_t, words, acquire) == b->trace.state &&
           LOAD(uint64_t, words + offsetof(shmemi_trace_t, freed.check) / 8, relaxed) ==
               b->trace.freed.check;
}

static void publish(shmemi_pool_t *pool, const shmemi_traced_t *b, shmemi_trace_state_t state)
{
    /* SYNC trace-state: release, what it speaks of is complete; pairs with acquire in words_read()
     */
    atomic_store_explicit(words_of(b), shmemi_trace_word_of(pool, state), memory_order_release);
}

static void site_print(const void *address, char *text)
{
    Dl_info info;
    memset(text, 0, SHMEMI_SITE);
    if (!address || !dladdr(address, &info) || !info.dli_fname) {
        snprintf(text, SHMEMI_SITE, "%p", address);
        return;
    }
    const char *file = strrchr(info.dli_fname, '/');
    int n = snprintf(text, SHMEMI_SITE, "%.40s+0x%lx", file ? file + 1 : info.dli_fname,
                     (unsigned long)((const char *)address - (const char *)info.dli_fbase));
    if (info.dli_sname)
        snprintf(text + n, SHMEMI_SITE - (size_t)n, " (%.40s)", info.dli_sname);
}

/* Now, here. `site`: where the call returns to. */
static void event_fill(shmemi_pool_t *pool, shmemi_trace_event_t *e, const void *site)
{
    const shmemi_self_t *self = shmemi_self(pool->actor);
    memset(e, 0, sizeof *e);
    e->client = pool->owner;
    e->row = self ? self->row : 0;
    e->epoch = self ? self->epoch : 0;
    e->time = (uint64_t)shmemi_clock_now();
    site_print(site ? (const char *)site - 1 : NULL, e->site);
}

const char *shmemi_trace_describe(const shmemi_pool_t *pool, const shmemi_trace_event_t *event,
                                  char text[SHMEMI_EVENT_TEXT])
{
    char who[SHMEMI_WHO], site[SHMEMI_SITE];
    size_t n = 0;
    for (; n < sizeof site - 1 && event->site[n]; n++) /* it comes from shared memory */
        site[n] = event->site[n] >= ' ' && event->site[n] < 127 ? event->site[n] : '?';
    site[n] = 0;
    snprintf(text, SHMEMI_EVENT_TEXT, "%s by %s", n ? site : "a place that is not known yet",
             shmemi_roster_who(pool->actor->roster, event->row, event->epoch, who, sizeof who));
    return text;
}

const char *shmemi_trace_damage(const shmemi_pool_t *pool, const shmemi_traced_t *b, int64_t at,
                                char text[SHMEMI_DAMAGE_TEXT])
{
    char allocated[SHMEMI_EVENT_TEXT], freed[SHMEMI_EVENT_TEXT];
    if (!b->known)
        snprintf(text, SHMEMI_DAMAGE_TEXT,
                 "the trace of the block of %llu bytes (with guards) at %p was overwritten: who "
                 "allocated it is not known",
                 (unsigned long long)b->bytes, (void *)b->start);
    else if (shmemi_trace_state(b->trace.state) >= SHMEMI_TRACE_FREED)
        snprintf(text, SHMEMI_DAMAGE_TEXT,
                 "written after free: byte %lld of the block of %llu bytes at %p was changed after "
                 "it had been freed at %s; it had been allocated at %s",
                 (long long)at, (unsigned long long)b->trace.asked, (void *)b->user,
                 shmemi_trace_describe(pool, &b->trace.freed, freed),
                 shmemi_trace_describe(pool, &b->trace.allocated, allocated));
    else
        snprintf(text, SHMEMI_DAMAGE_TEXT,
                 "written %s of the block of %llu bytes at %p: byte %lld is the %s one that was "
                 "changed; it was allocated at %s",
                 at < 0 ? "before the start" : "behind the end", (unsigned long long)b->trace.asked,
                 (void *)b->user, (long long)at, at < 0 ? "nearest" : "first",
                 shmemi_trace_describe(pool, &b->trace.allocated, allocated));
    return text;
}

void shmemi_trace_report(shmemi_pool_t *pool, const shmemi_traced_t *b)
{
    uint64_t word = b->trace.state;
    bool live = shmemi_trace_state(word) == SHMEMI_TRACE_ALLOCATED;
    if (!live && shmemi_trace_state(word) != SHMEMI_TRACE_FREED)
        return;
    /* SYNC trace-state: acq_rel, pairs with acquire in words_read() */
    if (atomic_compare_exchange_strong_explicit(words_of(b), &word,
                                                word + 1, /* REPORTED, or TOUCHED */
                                                memory_order_acq_rel, memory_order_relaxed))
        atomic_fetch_add_explicit(live ? &pool->header->overruns : &pool->header->uses_after_free,
                                  1, memory_order_relaxed);
}

/* ---- finding ---- */

static bool is_valid(const shmemi_pool_t *pool, const shmemi_traced_t *b)
{
    const shmemi_trace_t *t = &b->trace;
    return (t->state & MARK_MASK) == MARK && t->allocated.check == sum_of(t, &t->allocated) &&
           t->start == (uint64_t)(b->start - pool->data) && t->bytes == b->bytes &&
           t->front >= SHMEMI_CACHE_LINE && t->front < b->bytes &&
           t->asked <= b->bytes - t->front &&
           b->bytes - t->front - t->asked >= SHMEMI_REAR + sizeof *t;
}

bool shmemi_trace_read(const shmemi_pool_t *pool, shmemi_traced_t *b)
{
    b->known = false;
    if (b->bytes < sizeof(shmemi_trace_t) + SHMEMI_CACHE_LINE)
        return false;
    words_read(b);
    b->known = is_valid(pool, b);
    if (b->known)
        b->user = b->start + b->trace.front;
    return b->known;
}

static _Atomic uint64_t *finder_of(const unsigned char *user)
{
    return (_Atomic uint64_t *)(void *)(uintptr_t)(user - SHMEMI_FINDER);
}

bool shmemi_trace_find(const shmemi_pool_t *pool, const void *user, shmemi_traced_t *b)
{
    uint64_t at = (uint64_t)((const unsigned char *)user - pool->data);
    if (at % SHMEMI_CACHE_LINE || at < SHMEMI_CACHE_LINE || at >= pool->data_bytes)
        return false;
    uint64_t trace = atomic_load_explicit(&finder_of(user)[0], memory_order_relaxed);
    uint64_t key = atomic_load_explicit(&finder_of(user)[1], memory_order_relaxed);
    if ((trace ^ key) != FINDER_KEY || trace % 8 || trace <= at || trace >= pool->data_bytes ||
        pool->data_bytes - trace < sizeof(shmemi_trace_t))
        return false;
    *b = (shmemi_traced_t){.start = pool->data + trace, .bytes = sizeof(shmemi_trace_t)};
    words_read(b);
    uint64_t start = b->trace.start;
    if (start > at || at - start != b->trace.front)
        return false;
    b->start = pool->data + start;
    b->bytes = trace + sizeof(shmemi_trace_t) - start;
    return shmemi_trace_read(pool, b);
}

/* ---- a block's life ---- */

static unsigned char *rear_of(const shmemi_traced_t *b)
{
    return b->user + b->trace.asked;
}

static unsigned char *end_of(const shmemi_traced_t *b)
{
    return b->start + b->bytes - sizeof(shmemi_trace_t);
}

static uint64_t poison_of(const shmemi_traced_t *b)
{
    return POISON | (uint32_t)b->trace.allocated.check;
}

static void finder_write(const shmemi_pool_t *pool, const shmemi_traced_t *b)
{
    uint64_t trace = (uint64_t)(end_of(b) - pool->data);
    atomic_store_explicit(&finder_of(b->user)[0], trace, memory_order_relaxed);
    atomic_store_explicit(&finder_of(b->user)[1], trace ^ FINDER_KEY, memory_order_relaxed);
}

void shmemi_trace_begin(shmemi_pool_t *pool, shmemi_traced_t *b, const void *site)
{
    shmemi_trace_t *t = &b->trace;
    atomic_store_explicit(words_of(b), SHMEMI_TRACE_NONE, memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.debug.begun");
    shmemi_full_fence(); /* who reads what follows sees that; pairs with shmemi_trace_is_same() */
    t->start = (uint64_t)(b->start - pool->data);
    t->bytes = b->bytes;
    t->front = (uint64_t)(b->user - b->start);
    event_fill(pool, &t->allocated, site);
    t->allocated.check = sum_of(t, &t->allocated);
    memset(&t->freed, 0, sizeof t->freed);
    words_write(b, 1, TRACE_WORDS);
    fill(b->start, t->front - SHMEMI_FINDER, SHMEMI_GUARD);
    finder_write(pool, b);
    fill(b->user, t->asked, SHMEMI_FRESH);
    fill(rear_of(b), (uint64_t)(end_of(b) - rear_of(b)), SHMEMI_GUARD);
    SHMEMI_KILL_POINT("memory.debug.traced");
    publish(pool, b, SHMEMI_TRACE_ALLOCATED);
    b->known = true;
}

void shmemi_trace_end(shmemi_pool_t *pool, shmemi_traced_t *b, const void *site)
{
    shmemi_trace_t *t = &b->trace;
    shmemi_full_fence(); /* FREEING first; pairs with that in shmemi_trace_is_same() */
    event_fill(pool, &t->freed, site);
    t->freed.check = sum_of(t, &t->freed);
    words_write(b, offsetof(shmemi_trace_t, freed) / 8, TRACE_WORDS);
    fill_words(b->start, t->front - SHMEMI_FINDER, poison_of(b));
    SHMEMI_KILL_POINT("memory.debug.poisoning");
    finder_write(pool, b);
    fill_words(b->user, (uint64_t)(end_of(b) - b->user), poison_of(b));
    publish(pool, b, SHMEMI_TRACE_FREED);
    SHMEMI_KILL_POINT("memory.debug.poisoned");
}

/* The byte before the user's that was changed and is nearest to them, relative to them; 0: none. */
static RACY int64_t nearest_before(const shmemi_traced_t *b)
{
    uint64_t front = b->trace.front - SHMEMI_FINDER;
    uint64_t trace = b->trace.start + b->bytes - sizeof(shmemi_trace_t);
    const uint64_t finder[2] = {trace, trace ^ FINDER_KEY};
    for (int64_t at = -1; at >= -SHMEMI_FINDER; at--)
        if (LOAD(unsigned char, b->user + at, relaxed) !=
            ((const unsigned char *)finder)[SHMEMI_FINDER + at])
            return at;
    uint64_t i = first_other(b->start, front, SHMEMI_GUARD);
    for (uint64_t last = i; last < front;
         last = i + 1 + first_other(b->start + i + 1, front - i - 1, SHMEMI_GUARD))
        i = last;
    return i < front ? (int64_t)i - (int64_t)b->trace.front : 0;
}

bool shmemi_trace_is_damaged(const shmemi_traced_t *b, int64_t *at)
{
    uint64_t rear = (uint64_t)(end_of(b) - rear_of(b));
    int64_t before = nearest_before(b);
    uint64_t i = before ? 0 : first_other(rear_of(b), rear, SHMEMI_GUARD);
    *at = before ? before : (int64_t)(b->trace.asked + i);
    return before || i < rear;
}

/* ---- poison ---- */

static bool any_poison(const unsigned char *page, uint64_t poison)
{
    for (uint64_t i = 0; i < SHMEMI_PAGE; i += 8)
        if (word_at(page + i) == poison)
            return true;
    return false;
}

/* Was the memory part of another block after this one was freed? Each one leaves guards behind, or
 * poison: at least the front guard's words, all alike. */
static bool is_reused(const shmemi_traced_t *b, uint64_t poison)
{
    uint64_t last = poison;
    for (const unsigned char *at = b->start, *from = at; at < end_of(b); at += 8) {
        uint64_t word = word_at(at);
        if (word != last)
            from = at;
        last = word;
        if (at - from >= EVIDENCE &&
            (word == GUARDS || (word != poison && word >> 32 == POISON >> 32)))
            return true;
    }
    return false;
}

bool shmemi_trace_is_touched(const shmemi_traced_t *b, int64_t *at)
{
    unsigned char *finder = b->user - SHMEMI_FINDER, *end = end_of(b);
    uint64_t poison = poison_of(b);
    for (unsigned char *word = b->start; word < end; word += 8) {
        if (word == finder)
            word = b->user;
        uint64_t changed = word_at(word) ^ poison;
        if (!changed)
            continue;
        unsigned char *page = word - (uintptr_t)word % SHMEMI_PAGE;
        if (page >= b->start && page + SHMEMI_PAGE <= end && !any_poison(page, poison)) {
            word = page + SHMEMI_PAGE - 8;
            continue;
        }
        *at = word - b->user + __builtin_ctzll(changed) / 8;
        return !is_reused(b, poison);
    }
    return false;
}
