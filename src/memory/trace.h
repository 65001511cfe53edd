/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a block of a debug pool looks like, and the record of who allocated and freed it.
 *
 *   start                     user                user + asked          end - sizeof(trace)   end
 *   | front guard ... finder | the user's bytes | rear guard ......... | trace              |
 *
 *   Invariants  start, end: of a plain block of the pool;  user = start + front
 *               front is a multiple of the block's alignment
 *               the finder (16 bytes) leads from the user's pointer to the trace
 *               state ALLOCATED or REPORTED  =>  trace, finder and guards are complete
 *               state FREED or TOUCHED  =>  everything but trace and finder holds the block's
 * poison: words with a part of its check sum, so that the poison of different blocks differs
 *
 * The record is in shared memory and in the reach of every stray write: it is copied, its check
 * sums and its places are verified, before anything in it is used.
 */
#ifndef SHMEMI_MEMORY_TRACE_H
#define SHMEMI_MEMORY_TRACE_H

#include "memory/pool.h"

enum {
    SHMEMI_GUARD = 0xfd, /* what guards are filled with, */
    SHMEMI_FRESH = 0xcd, /* and new blocks */
    SHMEMI_FINDER = 16,  /* bytes */
    SHMEMI_REAR = 32,    /* least bytes of a rear guard */
    SHMEMI_SITE = 96
};

typedef enum shmemi_trace_state {
    SHMEMI_TRACE_NONE = 0,
    SHMEMI_TRACE_ALLOCATED,
    SHMEMI_TRACE_REPORTED, /* the same, its guards were found overwritten */
    SHMEMI_TRACE_FREEING,
    SHMEMI_TRACE_FREED,
    SHMEMI_TRACE_TOUCHED /* the same, its poison was found overwritten */
} shmemi_trace_state_t;

/* One event in a block's life. */
typedef struct shmemi_trace_event {
    uint64_t client; /* as in a page's word */
    uint32_t row, epoch;
    uint64_t time;          /* monotonic ns */
    char site[SHMEMI_SITE]; /* program+0x1234 (function) */
    uint64_t check;         /* sum over all before it, and over what stands before the event */
} shmemi_trace_event_t;

typedef struct shmemi_trace {
    uint64_t
        state; /* client << 16 | mark | shmemi_trace_state_t: who freed it, as in a page's word */
    uint64_t start, bytes; /* of the plain block: offset in the data, length */
    uint64_t asked, front;
    shmemi_trace_event_t allocated, freed;
} shmemi_trace_t;
SHMEMI_PIN_SIZE(shmemi_trace_t, 5 * 8 + 2 * 128);

/* A block that was found. */
typedef struct shmemi_traced {
    unsigned char *start; /* of the plain block */
    uint64_t bytes;
    unsigned char *user;
    bool known;           /* trace is valid; else it was overwritten, and asked is not known */
    shmemi_trace_t trace; /* a copy */
} shmemi_traced_t;

static inline shmemi_trace_state_t shmemi_trace_state(uint64_t word)
{
    return (shmemi_trace_state_t)(word & 15);
}

/* The word in shared memory that holds the state. */
_Atomic uint64_t *shmemi_trace_word(const shmemi_traced_t *block);
/* Was the block neither freed nor allocated since the trace was read? What was read of its bytes in
 * between belongs to it then. */
bool shmemi_trace_is_same(const shmemi_traced_t *block);
/* The word for `state` by this client. */
uint64_t shmemi_trace_word_of(const shmemi_pool_t *pool, shmemi_trace_state_t state);

/* Read the trace of the plain block at start (set), bytes (set); fills the rest. False: there is no
 * valid one (`known` says so, too). */
bool shmemi_trace_read(const shmemi_pool_t *pool, shmemi_traced_t *block);
/* Find the trace by the finder before `user`. False: there is no valid one. */
bool shmemi_trace_find(const shmemi_pool_t *pool, const void *user, shmemi_traced_t *block);

/* A new block: guards, fresh bytes, finder, trace; then it is ALLOCATED. start, bytes, user and
 * trace.asked are set. */
void shmemi_trace_begin(shmemi_pool_t *pool, shmemi_traced_t *block, const void *site);
/* The block is FREEING by the caller: poison, and say who freed it; then it is FREED. */
void shmemi_trace_end(shmemi_pool_t *pool, shmemi_traced_t *block, const void *site);

/* The byte of the guards and the finder nearest to the user's bytes that was changed, relative to
 * the user's first byte, into *at: before them, else behind them. False: all are intact. */
bool shmemi_trace_is_damaged(const shmemi_traced_t *block, int64_t *at);
/* The first byte of the poison of a FREED or TOUCHED block that was changed. False, too, when there
 * are guards or the poison of another block in it: its memory was part of another one meanwhile;
 * pages without any poison are not looked at: the library had them in use, or returned them to the
 * system. */
bool shmemi_trace_is_touched(const shmemi_traced_t *block, int64_t *at);

/* "main+0x1a2b (function) by process 4711 (PE 0 of 2)" into text; returns text. */
enum { SHMEMI_EVENT_TEXT = 256 };
const char *shmemi_trace_describe(const shmemi_pool_t *pool, const shmemi_trace_event_t *event,
                                  char text[SHMEMI_EVENT_TEXT]);

/* The sentence about a block that was written to at `at`, which is none of the user's bytes as long
 * as it is allocated, or that has no valid trace. Returns text. */
enum { SHMEMI_DAMAGE_TEXT = 600 };
const char *shmemi_trace_damage(const shmemi_pool_t *pool, const shmemi_traced_t *block, int64_t at,
                                char text[SHMEMI_DAMAGE_TEXT]);
/* Count the overrun of an ALLOCATED block, once: it is REPORTED then; FREED becomes TOUCHED. */
void shmemi_trace_report(shmemi_pool_t *pool, const shmemi_traced_t *block);

#endif
