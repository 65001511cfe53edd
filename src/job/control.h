/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control segment of a job: what its PEs know of each other.
 *
 *   header | counters | pes[n] | scratch[n]
 *
 * Zero is a valid initial state of everything, so that nobody initializes it: each PE settles the
 * header's words by compare-and-swap from 0 and checks what it finds; a PE killed in between
 * leaves nothing half done.
 *
 *   Invariants  identity, size: 0, or what the first PE settled; never change afterwards.
 *               pes[r].claim: 0, or (slot << 32 | epoch) of the client that is PE r; set once.
 *               pes[r].line[k]: written by PE r only, read by the others after its sequence.
 *
 * A job name may be used again: a control segment in which somebody left is `closed`, and later
 * PEs meet in the next generation of the name (see control.c).
 *
 * What it does not do: waiting (job/step.h), deciding who is dead (job/peers.h).
 */
#ifndef SHMEMI_JOB_CONTROL_H
#define SHMEMI_JOB_CONTROL_H

#include <stdatomic.h>

#include "job/context.h"
#include "sync/wait.h"

#define SHMEMI_CONTROL_MAGIC 0x534a0000u /* "SJ" and the version in the low half */
enum {
    SHMEMI_CONTROL_VERSION = 1,
    SHMEMI_PES = SHMEMI_CLIENTS - 1, /* at most: each is a client of the server */
    SHMEMI_PROCESSOR_WORDS = 64,     /* 4096 processors */
    SHMEMI_COUNTER_FAN = 8,          /* PEs or counters below one counter */
    SHMEMI_COUNTERS = 1024,          /* enough for SHMEMI_PES: 512 + 64 + 8 + 1 */
    SHMEMI_BODY = 96,                /* bytes of payload inside a line */
    SHMEMI_PAYLOAD = 1024,           /* bytes of payload beside a line */
    SHMEMI_SCRATCH = 262144          /* bytes of staging memory of each PE */
};

typedef struct shmemi_counter {
    _Atomic uint64_t arrived;
    uint64_t reserved[15];
} shmemi_counter_t;
SHMEMI_PIN_SIZE(shmemi_counter_t, SHMEMI_CACHE_LINE);

struct shmemi_control {
    _Atomic uint64_t identity; /* magic, version and layout */
    _Atomic uint32_t size;     /* number of PEs */
    _Atomic uint32_t closed;   /* somebody left: nobody joins here any more */
    uint64_t reserved0[14];
    _Atomic uint64_t processors[SHMEMI_PROCESSOR_WORDS]; /* that some PE may run on, one bit each */
    _Atomic uint64_t released; /* last step that all PEs entered (counted steps only) */
    uint64_t reserved1[431];
    shmemi_counter_t counters[SHMEMI_COUNTERS];
};
SHMEMI_PIN(shmemi_control_t, processors, 128);
SHMEMI_PIN(shmemi_control_t, released, 640);
SHMEMI_PIN(shmemi_control_t, counters, 4096);

/* What a PE calls, as its peers must see it to be sure that they call the same. */
typedef struct shmemi_call {
    uint8_t kind;  /* shmemi_call_kind_t */
    uint8_t phase; /* step inside the call, from 0 */
    uint8_t type, op;
    uint32_t root;
    uint64_t size;   /* bytes, count or object number */
    int32_t refused; /* status with which this PE refused its own arguments, or 0 */
    uint32_t reserved;
} shmemi_call_t;
SHMEMI_PIN_SIZE(shmemi_call_t, 24);

/* One step of one PE. The first 64 bytes hold a barrier or a small reduction whole. */
typedef struct shmemi_line {
    _Atomic uint64_t sequence; /* of the step; stored last */
    shmemi_call_t call;
    unsigned char body[SHMEMI_BODY];
} shmemi_line_t;
SHMEMI_PIN_SIZE(shmemi_line_t, SHMEMI_CACHE_LINE);

typedef enum shmemi_pe_state {
    SHMEMI_PE_ABSENT = 0,
    SHMEMI_PE_JOINED,
    SHMEMI_PE_OUT_OF_STEP, /* gave up waiting in a timed collective */
    SHMEMI_PE_LEAVING,     /* waits in finalize, takes part in nothing else */
    SHMEMI_PE_LEFT
} shmemi_pe_state_t;

struct shmemi_pe {
    shmemi_line_t line[2]; /* by the lowest bit of the sequence: no PE is two steps ahead */
    shmemi_bell_t bell;    /* where this PE sleeps, whatever it waits for */
    uint64_t reserved0[15];
    _Atomic uint64_t claim;
    _Atomic uint32_t state;     /* shmemi_pe_state_t */
    _Atomic uint32_t processor; /* that the PE ran on at its last crowded step: a hint */
    uint64_t reserved2[206];
    unsigned char payload[2][SHMEMI_PAYLOAD]; /* as line[] */
};
SHMEMI_PIN(shmemi_pe_t, bell, 256);
SHMEMI_PIN(shmemi_pe_t, claim, 384);
SHMEMI_PIN(shmemi_pe_t, payload, 2048);
SHMEMI_PIN_SIZE(shmemi_pe_t, 4096);

static inline unsigned char *shmemi_control_scratch(shmem_context_t context, int rank)
{
    return context->scratch + (size_t)rank * SHMEMI_SCRATCH;
}

/*
 * Open the control segment of `job` (NULL: an anonymous one, only for one PE), claim the rank.
 * Fills control, pes, scratch, segment and name of the context. Errors: INVALID (name), MISMATCH
 * (other size, rank taken), VERSION, PEER_DEAD (the rank belongs to a dead process), what the
 * server says. On failure nothing is left behind.
 */
shmem_status_t shmemi_control_open(shmem_context_t context, const char *job);

/* All PEs have joined: give back the closed generations that were met on the way. */
void shmemi_control_release_held(shmem_context_t context);

/* Leave the segment: no PE joins here any more, peers see this one as gone. */
void shmemi_control_close(shmem_context_t context);

static inline uint32_t shmemi_pe_state(const shmemi_pe_t *pe)
{
    /* SYNC pe-state: acquire, pairs with release in shmemi_pe_state_set() */
    return atomic_load_explicit(&pe->state, memory_order_acquire);
}

static inline void shmemi_pe_state_set(shmemi_pe_t *pe, shmemi_pe_state_t state)
{
    /* SYNC pe-state: release, pairs with acquire in shmemi_pe_state() */
    atomic_store_explicit(&pe->state, state, memory_order_release);
}

#endif
