/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heaps: which threads use which pools, and what happens when one of the two ends.
 *
 * A heap hangs in two lists: its thread's and its pool's.
 *
 *   Invariants  a heap is in both lists or in none; both change under `heaps_lock` only
 *               a pool's heaps are gone when its view is (shmemi_heap_drop_all() waits for threads
 *               that are just ending)
 *
 * In a forked child all heaps are forgotten: the spans in them are the parent's.
 */
#include <stdlib.h>

#include "base/status.h"
#include "memory/pool.h"
#include "os/identity.h"

#define LAYER "memory"

_Thread_local shmemi_heap_cache_t shmemi_heap_cache;

_Atomic uint64_t shmemi_bits_none;
shmemi_heap_arena_t shmemi_heap_none = {
    .class = {[0 ... SHMEMI_CLASSES - 1] = {.bits = &shmemi_bits_none}}};

static _Thread_local shmemi_heap_t *thread_heaps;
static pthread_mutex_t heaps_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t heaps_left = PTHREAD_COND_INITIALIZER; /* private to this process */
static pthread_key_t thread_key;                             /* its value is only a mark */
static int setup_error;

static void link_locked(shmemi_heap_t *heap)
{
    heap->next_of_thread = thread_heaps;
    heap->link_of_thread = &thread_heaps;
    if (thread_heaps)
        thread_heaps->link_of_thread = &heap->next_of_thread;
    thread_heaps = heap;
    heap->next_of_pool = heap->pool->heaps;
    heap->link_of_pool = &heap->pool->heaps;
    if (heap->pool->heaps)
        heap->pool->heaps->link_of_pool = &heap->next_of_pool;
    heap->pool->heaps = heap;
}

static void unlink_locked(shmemi_heap_t *heap)
{
    *heap->link_of_thread = heap->next_of_thread;
    if (heap->next_of_thread)
        heap->next_of_thread->link_of_thread = heap->link_of_thread;
    *heap->link_of_pool = heap->next_of_pool;
    if (heap->next_of_pool)
        heap->next_of_pool->link_of_pool = heap->link_of_pool;
}

static void heap_destroy(shmemi_heap_t *heap)
{
    for (uint32_t i = 0; i < SHMEMI_POOL_NODES; i++)
        if (heap->arena[i] != &shmemi_heap_none)
            free(heap->arena[i]);
    free(heap);
}

static void thread_end(void *mark)
{
    (void)mark;
    shmemi_heap_cache = (shmemi_heap_cache_t){0};
    pthread_mutex_lock(&heaps_lock);
    while (thread_heaps) {
        shmemi_heap_t *heap = thread_heaps;
        shmemi_pool_t *pool = heap->pool;
        unlink_locked(heap);
        pool->leaving++;
        pthread_mutex_unlock(&heaps_lock);
        shmemi_large_flush_all(heap);
        SHMEMI_KILL_POINT("memory.heap.leaving");
        shmemi_slab_abandon(heap);
        heap_destroy(heap);
        pthread_mutex_lock(&heaps_lock);
        pool->leaving--;
        pthread_cond_broadcast(&heaps_left);
    }
    pthread_mutex_unlock(&heaps_lock);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&heaps_lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&heaps_lock);
}

static void fork_child(void)
{
    shmemi_heap_cache = (shmemi_heap_cache_t){0};
    thread_heaps = NULL;
    pthread_cond_init(&heaps_left, NULL);
    pthread_mutex_unlock(&heaps_lock);
}

/* Before anybody makes an actor: keys are cleaned up in the order in which they were made, so a
 * thread that ends leaves its heaps while its rows of the rosters are still its own. */
__attribute__((constructor)) static void setup(void)
{
    setup_error = pthread_key_create(&thread_key, thread_end);
    if (!setup_error)
        setup_error = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

shmemi_heap_arena_t *shmemi_heap_arena(shmemi_heap_t *heap, uint32_t index)
{
    if (heap->arena[index] != &shmemi_heap_none)
        return heap->arena[index];
    shmemi_heap_arena_t *part = aligned_alloc(SHMEMI_CACHE_LINE, sizeof *part);
    if (!part) {
        shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "%zu bytes of private memory for a thread's cache",
                    sizeof *part);
        return NULL;
    }
    *part = shmemi_heap_none;
    for (unsigned k = 0; k < SHMEMI_CLASSES; k++) {
        const shmemi_class_t *class = &heap->pool->classes.class[k];
        shmemi_heap_class_t *c = &part->class[k];
        c->size = class->size;
        c->count = class->count;
        c->magic = class->magic;
        c->arena = index;
        c->class = k;
    }
    heap->arena[index] = part;
    return part;
}

static shmemi_heap_t *heap_create(shmemi_pool_t *pool, const shmemi_self_t *self)
{
    if (setup_error || pthread_setspecific(thread_key, &thread_key)) {
        shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                    "no thread-specific key is left in this process (PTHREAD_KEYS_MAX)");
        return NULL;
    }
    shmemi_heap_t *heap = SHMEMI_FAULT("memory.heap.create") ? NULL : calloc(1, sizeof *heap);
    if (!heap) {
        shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "%zu bytes of private memory for a thread's cache",
                    sizeof *heap);
        return NULL;
    }
    heap->pool = pool;
    heap->stats = &self->thread->stats;
    heap->thread = (uint64_t)self->row << 32 | self->epoch;
    heap->turn = self->row;
    heap->pressure = shmemi_heap_pressure(pool);
    heap->here = &shmemi_heap_none;
    for (uint32_t i = 0; i < SHMEMI_POOL_NODES; i++)
        heap->arena[i] = &shmemi_heap_none;
    return heap;
}

uint32_t shmemi_heap_relieve(shmemi_heap_t *heap)
{
    uint64_t before = heap->looked;
    uint32_t blocks = shmemi_large_flush_all(heap), spans = shmemi_slab_trim(heap);
    heap->wait = (heap->looked - before) / SHMEMI_TRIM_SHARE / (1 + spans);
    return blocks + spans;
}

uint32_t shmemi_heap_flush(shmemi_heap_t *heap, uint32_t index)
{
    shmemi_heap_arena_t *part = heap->arena[index];
    uint64_t frees =
        atomic_load_explicit(&heap->stats->value[SHMEMI_STAT_frees], memory_order_relaxed);
    if (part == &shmemi_heap_none)
        return shmemi_large_flush(heap, index);
    if (part->frees == frees)
        return 0;
    part->frees = frees;
    return shmemi_large_flush(heap, index) + shmemi_slab_flush(heap, index);
}

shmemi_heap_t *shmemi_heap_lookup(shmemi_pool_t *pool)
{
    const shmemi_self_t *self = shmemi_self(pool->actor);
    if (!self)
        return NULL;
    pthread_mutex_lock(&heaps_lock);
    shmemi_heap_t *heap = thread_heaps;
    while (heap && heap->pool != pool)
        heap = heap->next_of_thread;
    pthread_mutex_unlock(&heaps_lock);
    if (!heap) {
        heap = heap_create(pool, self);
        if (!heap)
            return NULL;
        pthread_mutex_lock(&heaps_lock);
        link_locked(heap);
        pthread_mutex_unlock(&heaps_lock);
    }
    shmemi_heap_cache = (shmemi_heap_cache_t){pool->id, heap};
    return heap;
}

void shmemi_heap_drop_all(shmemi_pool_t *pool)
{
    bool inherited = pool->actor->fork_generation != shmemi_fork_generation();
    pthread_mutex_lock(&heaps_lock);
    while (pool->leaving && !inherited)
        pthread_cond_wait(&heaps_left, &heaps_lock);
    while (pool->heaps) {
        shmemi_heap_t *heap = pool->heaps;
        if (inherited)
            pool->heaps = heap->next_of_pool; /* its other list was another process's thread's */
        else
            unlink_locked(heap);
        heap_destroy(heap);
    }
    pthread_mutex_unlock(&heaps_lock);
    if (shmemi_heap_cache.pool_id == pool->id)
        shmemi_heap_cache = (shmemi_heap_cache_t){0};
}
