/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random work on a pool beside a model of it. Each worker (a thread or a process, with a client of
 * its own or a shared one) knows its blocks: address, bytes asked for, and the pattern it wrote. It
 * allocates, aligns, resizes, frees, and passes blocks to the others through mailboxes; whoever
 * gets one frees it or keeps it. A block that overlaps another, moves, or loses its content shows
 * as a wrong pattern.
 */
#ifndef SHMEM_TEST_POOL_MODEL_H
#define SHMEM_TEST_POOL_MODEL_H

#include "pool_world.h"

enum { MODEL_LIVE = 600, MODEL_MAIL = 64, MODEL_STRIDE = 509 };

typedef struct model_block {
    unsigned char *p;
    size_t bytes;
    uint64_t pattern;
} model_block_t;

/* state: 0 empty, 1 being written, 2 full, 3 being read */
typedef struct model_mail {
    _Atomic uint32_t state;
    model_block_t block;
} model_mail_t;

typedef struct model_shared {
    model_mail_t mail[MODEL_MAIL];
    _Atomic uint32_t done;
} model_shared_t;

typedef struct model {
    shmemi_pool_t *pool;
    model_shared_t *shared;
    uint64_t seed;
    uint64_t next_pattern;
    size_t largest; /* bytes of a request */
    size_t budget;  /* bytes that the worker holds at most */
    size_t held;
    int live;
    model_block_t block[MODEL_LIVE];
    uint64_t allocs, refused, passed;
} model_t;

static inline unsigned char model_byte(uint64_t pattern, size_t i)
{
    return (unsigned char)(pattern * 131 + i * 29 + (pattern >> 11));
}

static inline void model_fill(const model_block_t *b, size_t from)
{
    for (size_t i = from - from % MODEL_STRIDE; i < b->bytes; i += MODEL_STRIDE)
        b->p[i] = model_byte(b->pattern, i);
    b->p[b->bytes - 1] = model_byte(b->pattern, b->bytes - 1);
}

static inline void model_verify(const model_block_t *b, size_t bytes, bool whole)
{
    for (size_t i = 0; i < bytes; i += MODEL_STRIDE)
        if (i != b->bytes - 1 && b->p[i] != model_byte(b->pattern, i))
            harness_fail(__FILE__, __LINE__, "block %p of %zu bytes lost byte %zu", (void *)b->p,
                         b->bytes, i);
    if (whole && b->p[b->bytes - 1] != model_byte(b->pattern, b->bytes - 1))
        harness_fail(__FILE__, __LINE__, "block %p of %zu bytes lost its end", (void *)b->p,
                     b->bytes);
}

static inline size_t model_size(model_t *m)
{
    uint64_t r = world_random(&m->seed);
    unsigned bits = 1 + (unsigned)(r % shmemi_log2_ceil(m->largest));
    size_t n = 1 + (size_t)(r >> 8) % ((size_t)1 << bits);
    return n > m->largest ? m->largest : n;
}

static inline void model_alloc(model_t *m)
{
    void *p = NULL;
    size_t bytes = model_size(m), align = 0, got = 0;
    uint64_t r = world_random(&m->seed);
    if (m->live == MODEL_LIVE || m->held + bytes > m->budget)
        return;
    if (r % 5 == 0)
        align = (size_t)64 << (r >> 8) % 14;
    shmem_status_t status = align ? shmemi_pool_alloc_aligned(m->pool, bytes, align, &p)
                                  : shmemi_pool_alloc_default(m->pool, bytes, &p);
    if (status) {
        CHECK(status == SHMEM_ERR_NOMEM && p == NULL);
        m->refused++;
        return;
    }
    CHECK((uintptr_t)p % (align > 128 ? align : 128) == 0);
    CHECK_OK(shmemi_pool_block_bytes(m->pool, p, &got));
    CHECK(got >= bytes);
    model_block_t b = {p, bytes, m->next_pattern++};
    model_fill(&b, 0);
    m->block[m->live++] = b;
    m->held += bytes;
    m->allocs++;
}

static inline model_block_t model_take(model_t *m)
{
    int i = (int)(world_random(&m->seed) % (uint64_t)m->live);
    model_block_t b = m->block[i];
    m->block[i] = m->block[--m->live];
    m->held -= b.bytes;
    return b;
}

static inline void model_free(model_t *m, const model_block_t *b)
{
    model_verify(b, b->bytes, true);
    CHECK_OK(shmemi_pool_free(m->pool, b->p));
}

static inline void model_resize(model_t *m)
{
    int i = (int)(world_random(&m->seed) % (uint64_t)m->live);
    model_block_t *b = &m->block[i];
    size_t old = b->bytes, bytes = model_size(m);
    if (m->held + bytes > m->budget + old)
        return;
    void *p = b->p;
    model_verify(b, old, true);
    shmem_status_t status = shmemi_pool_resize(m->pool, &p, bytes);
    if (status) {
        CHECK(status == SHMEM_ERR_NOMEM && p == b->p);
        m->refused++;
        return;
    }
    b->p = p;
    size_t kept = old < bytes ? old : bytes;
    if (kept == old)
        model_verify(b, old, true);
    else
        model_verify(b, kept, false);
    m->held += bytes - old;
    b->bytes = bytes;
    b->pattern = m->next_pattern++;
    model_fill(b, 0);
}

static inline void model_send(model_t *m)
{
    model_mail_t *mail = &m->shared->mail[world_random(&m->seed) % MODEL_MAIL];
    uint32_t empty = 0;
    if (!atomic_compare_exchange_strong(&mail->state, &empty, 1))
        return;
    mail->block = model_take(m);
    atomic_store(&mail->state, 2);
    m->passed++;
}

static inline void model_receive(model_t *m)
{
    model_mail_t *mail = &m->shared->mail[world_random(&m->seed) % MODEL_MAIL];
    uint32_t full = 2;
    if (!atomic_compare_exchange_strong(&mail->state, &full, 3))
        return;
    model_block_t b = mail->block;
    atomic_store(&mail->state, 0);
    if (m->live < MODEL_LIVE && m->held + b.bytes <= m->budget && world_random(&m->seed) % 2) {
        model_verify(&b, b.bytes, true);
        m->block[m->live++] = b;
        m->held += b.bytes;
    } else {
        model_free(m, &b);
    }
}

static inline void model_step(model_t *m)
{
    uint64_t r = world_random(&m->seed) % 100;
    if (r < 42 || !m->live) {
        model_alloc(m);
    } else if (r < 75) {
        model_block_t b = model_take(m);
        model_free(m, &b);
    } else if (r < 82) {
        model_resize(m);
    } else if (r < 90) {
        model_send(m);
    } else if (r < 99) {
        model_receive(m);
    } else if (world_random(&m->seed) % 20 == 0) {
        CHECK_OK(shmemi_pool_trim(m->pool));
    }
}

/* `steps` steps, then everything goes. */
static inline void model_run(model_t *m, uint64_t steps)
{
    m->next_pattern = m->seed;
    for (uint64_t i = 0; i < steps; i++)
        model_step(m);
    while (m->live) {
        model_block_t b = model_take(m);
        model_free(m, &b);
    }
    CHECK_EQ(m->held, 0);
    CHECK(m->allocs > steps / 10);
}

/* Free what is still in the mailboxes. */
static inline void model_drain(shmemi_pool_t *pool, model_shared_t *shared)
{
    for (int i = 0; i < MODEL_MAIL; i++) {
        model_mail_t *mail = &shared->mail[i];
        if (atomic_load(&mail->state) != 2)
            continue;
        model_verify(&mail->block, mail->block.bytes, true);
        CHECK_OK(shmemi_pool_free(pool, mail->block.p));
        atomic_store(&mail->state, 0);
    }
}

#endif
