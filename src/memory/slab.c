/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small objects: a thread's spans, how it gets more, and how spans go back.
 *
 * A thread hands out from its current span until that is exhausted. Then, in this order: objects
 * that others freed there; a span with free objects; what others freed in up to SCAN of its full
 * spans, oldest first; an orphan of its client; a new span. Others do not notify the owner when
 * they free an object: nothing can be lost by a kill, and the owner finds it here.
 *
 *   Invariants  see pool.h; a class keeps at most one empty span besides the current one
 */
#include "base/status.h"
#include "memory/quota.h"

#define LAYER "memory"

enum {
    SCAN = 16,  /* full spans looked at before a new one is made */
    RETIRE = 4, /* empty ones among them that one refill gives back */
    ADOPT = 8   /* orphans taken by one refill */
};

/* What a refill works on. */
typedef struct slab {
    shmemi_heap_t *heap;
    shmemi_arena_view_t *view;
    shmemi_heap_class_t *c;
    const shmemi_class_t *class;
    uint32_t arena_index;
    unsigned class_index;
} slab_t;

/* ---- lists of spans; private memory ---- */

static void push_tail(shmemi_arena_view_t *view, shmemi_span_list_t *list, uint32_t chunk)
{
    shmemi_span_node_t *node = &view->nodes[chunk];
    node->list = list;
    node->next = 0;
    node->previous = list->tail;
    if (list->tail)
        view->nodes[list->tail - 1].next = chunk + 1;
    else
        list->head = chunk + 1;
    list->tail = chunk + 1;
}

static void unlist(shmemi_arena_view_t *view, uint32_t chunk)
{
    shmemi_span_node_t *node = &view->nodes[chunk];
    shmemi_span_list_t *list = node->list;
    if (node->next)
        view->nodes[node->next - 1].previous = node->previous;
    else
        list->tail = node->previous;
    if (node->previous)
        view->nodes[node->previous - 1].next = node->next;
    else
        list->head = node->next;
    node->list = NULL;
}

static uint32_t pop_head(shmemi_arena_view_t *view, shmemi_span_list_t *list)
{
    uint32_t chunk = list->head - 1;
    unlist(view, chunk);
    return chunk;
}

static uint32_t chunks_of(const slab_t *slab)
{
    unsigned shift = slab->view->arena.chunk_shift;
    return (slab->class->pages + (1u << shift) - 1) >> shift;
}

/* Who allocates from the span, or nobody: known to this process, and written down for tools. */
static void set_home(slab_t *slab, uint32_t chunk, bool ours)
{
    const shmemi_arena_t *arena = &slab->view->arena;
    shmemi_span_t *span = &arena->span[chunk];
    for (uint32_t i = 0; i < chunks_of(slab); i++) {
        shmemi_span_node_t *node = &slab->view->nodes[chunk + i];
        node->home = slab->c;
        node->span = span;
        node->offset =
            (uint64_t)(arena->data - slab->heap->pool->data) + shmemi_span_offset(arena, chunk);
        node->first = chunk;
        atomic_store_explicit(&node->heap, ours ? slab->heap : NULL, memory_order_relaxed);
    }
    atomic_store_explicit(&span->owner, ours ? slab->heap->thread : 0, memory_order_relaxed);
}

/* ---- the current span ---- */

static slab_t slab_of(shmemi_heap_t *heap, shmemi_heap_arena_t *part, uint32_t index,
                      unsigned class)
{
    return (slab_t){heap,
                    &heap->pool->arenas[index],
                    &part->class[class],
                    &heap -> pool -> classes.class[class],
                    index,
                    class};
}

static void make_current(slab_t *slab, uint32_t chunk)
{
    shmemi_heap_class_t *c = slab->c;
    c->span = &slab->view->arena.span[chunk];
    c->current = chunk + 1;
    c->used = &slab->view->nodes[chunk].used;
    c->bits = &shmemi_bits_none; /* until find_word() */
    c->hot = NULL;
    if (c->spare == chunk + 1)
        c->spare = 0;
}

static void drop_current(slab_t *slab)
{
    slab->c->span = NULL;
    slab->c->current = 0;
    slab->c->bits = &shmemi_bits_none;
    slab->c->hot = NULL;
}

/* Point at a word of the current span with free objects. */
static bool find_word(slab_t *slab)
{
    shmemi_heap_class_t *c = slab->c;
    const shmemi_arena_t *arena = &slab->view->arena;
    for (uint32_t i = 0; i <= slab->class->last; i++)
        if (atomic_load_explicit(&c->span->free[i], memory_order_relaxed)) {
            c->bits = &c->span->free[i];
            c->base = arena->data + shmemi_span_offset(arena, c->current - 1) +
                      (uint64_t)i * 64 * c->size;
            c->limit = shmemi_class_objects(slab->class, i);
            return true;
        }
    return false;
}

/* ---- refill ---- */

static shmemi_span_t *span_at(const slab_t *slab, uint32_t chunk)
{
    return &slab->view->arena.span[chunk];
}

/* Take what others freed; true: the span has free objects. */
static inline bool collect(slab_t *slab, uint32_t chunk)
{
    shmemi_span_node_t *node = &slab->view->nodes[chunk];
    node->used -= shmemi_span_collect(&slab->view->arena, span_at(slab, chunk), slab->class);
    return node->used < slab->class->count;
}

static inline bool is_empty(const slab_t *slab, uint32_t chunk)
{
    return slab->view->nodes[chunk].used == 0;
}

static void retire(slab_t *slab, uint32_t chunk)
{
    set_home(slab, chunk, false);
    SHMEMI_KILL_POINT("memory.slab.retire");
    shmemi_span_destroy(&slab->view->arena, slab->heap->pool->actor, chunk);
}

/* Look at the oldest full spans: the first with free objects becomes the current one, further empty
 * ones go back. */
static bool refill_from_full(slab_t *slab)
{
    shmemi_heap_class_t *c = slab->c;
    bool found = false;
    uint32_t retired = 0, last = c->full.tail;
    for (uint32_t i = 0; i < SCAN && c->full.head; i++) {
        uint32_t chunk = pop_head(slab->view, &c->full);
        bool any = collect(slab, chunk);
        if (any && !found) {
            make_current(slab, chunk);
            found = true;
        } else if (is_empty(slab, chunk) && retired < RETIRE) {
            retire(slab, chunk);
            retired++;
        } else {
            push_tail(slab->view, any ? &c->available : &c->full, chunk);
        }
        if (chunk + 1 == last || (found && i >= RETIRE))
            break;
    }
    return found;
}

static bool refill_from_orphans(slab_t *slab)
{
    shmemi_pool_t *pool = slab->heap->pool;
    shmemi_span_list_t *orphans = &slab->view->orphans[slab->class_index];
    for (uint32_t i = 0; i < ADOPT; i++) {
        pthread_mutex_lock(&pool->lock);
        uint32_t chunk = orphans->head ? pop_head(slab->view, orphans) : UINT32_MAX;
        pthread_mutex_unlock(&pool->lock);
        if (chunk == UINT32_MAX)
            return false;
        set_home(slab, chunk, true);
        SHMEMI_KILL_POINT("memory.slab.adopted");
        if (collect(slab, chunk)) {
            make_current(slab, chunk);
            return true;
        }
        push_tail(slab->view, &slab->c->full, chunk);
    }
    return false;
}

static shmem_status_t lost(const slab_t *slab, uint32_t chunk, const char *what)
{
    return shmemi_fail(
        SHMEM_ERR_CORRUPT, LAYER,
        "arena %u: the span at chunk %u %s; shared memory was overwritten, make a new "
        "pool",
        slab->arena_index, chunk, what);
}

static shmem_status_t refill_from_arena(slab_t *slab)
{
    uint32_t chunk;
    shmemi_pool_t *pool = slab->heap->pool;
    shmemi_span_owner_t owner = {pool->owner, slab->heap->thread, pool->task};
    bool entered;
    shmem_status_t status = shmemi_quota_enter(pool, pool->task, slab->class->pages, &entered);
    if (status)
        return status;
    status = shmemi_span_create(&slab->view->arena, pool->actor, &pool->classes, slab->class_index,
                                &owner, &chunk);
    shmemi_quota_leave(pool, pool->task, entered);
    if (status)
        return status;
    SHMEMI_KILL_POINT("memory.slab.refilled");
    for (uint32_t i = 0; i < chunks_of(slab); i++) {
        const shmemi_span_node_t *node = &slab->view->nodes[chunk + i];
        if (node->list || atomic_load_explicit(&node->heap, memory_order_relaxed))
            return lost(slab, chunk, "was handed out twice");
    }
    slab->view->nodes[chunk].used = 0;
    set_home(slab, chunk, true);
    make_current(slab, chunk);
    shmemi_pool_note_high(pool);
    return SHMEM_OK;
}

static shmem_status_t refill(slab_t *slab)
{
    shmemi_heap_class_t *c = slab->c;
    if (c->current && collect(slab, c->current - 1) && find_word(slab))
        return SHMEM_OK;
    shmemi_stats_add(slab->heap->stats, SHMEMI_STAT_refills, 1);
    if (c->current) {
        push_tail(slab->view, &c->full, c->current - 1);
        drop_current(slab);
    }
    if (c->available.head)
        make_current(slab, pop_head(slab->view, &c->available));
    else if (!refill_from_full(slab) && !refill_from_orphans(slab)) {
        shmem_status_t status = refill_from_arena(slab);
        if (status)
            return status;
    }
    if (find_word(slab))
        return SHMEM_OK;
    return lost(slab, c->current - 1, "lost its free objects");
}

shmem_status_t shmemi_slab_alloc(shmemi_heap_t *heap, uint32_t index, unsigned class, void **block)
{
    shmemi_heap_arena_t *part = shmemi_heap_arena(heap, index);
    if (!part)
        return SHMEM_ERR_NOMEM;
    slab_t slab = slab_of(heap, part, index, class);
    shmemi_heap_listen(heap);
    while (!shmemi_slab_take(slab.c, block)) {
        uint64_t bits = atomic_load_explicit(slab.c->bits, memory_order_relaxed);
        if (bits)
            return lost(&slab, slab.c->current - 1, "has free objects behind its end");
        shmem_status_t status = refill(&slab);
        if (status)
            return status;
    }
    return SHMEM_OK;
}

/* ---- free ---- */

shmem_status_t shmemi_slab_settle(shmemi_heap_t *heap, shmemi_heap_class_t *c, uint32_t chunk)
{
    slab_t slab = slab_of(heap, heap->arena[c->arena], c->arena, c->class);
    shmemi_span_node_t *node = &slab.view->nodes[chunk];
    if (node->list == &c->full) {
        unlist(slab.view, chunk);
        push_tail(slab.view, &c->available, chunk);
    }
    if (node->used || node->list != &c->available)
        return SHMEM_OK;
    bool current_is_empty = c->current && !slab.view->nodes[c->current - 1].used;
    if (!c->spare && !current_is_empty) {
        c->spare = chunk + 1;
    } else if (c->spare != chunk + 1) {
        unlist(slab.view, chunk);
        retire(&slab, chunk);
    }
    return SHMEM_OK;
}

/* ---- trim and thread end ---- */

uint32_t shmemi_slab_flush(shmemi_heap_t *heap, uint32_t index)
{
    uint32_t retired = 0;
    for (unsigned k = 0; k < SHMEMI_CLASSES; k++) {
        slab_t slab = slab_of(heap, heap->arena[index], index, k);
        uint32_t spare = slab.c->spare, current = slab.c->current;
        if (spare) {
            slab.c->spare = 0;
            unlist(slab.view, spare - 1);
            retire(&slab, spare - 1);
            retired++;
        }
        if (current && is_empty(&slab, current - 1)) {
            drop_current(&slab);
            retire(&slab, current - 1);
            retired++;
        }
    }
    return retired;
}

/* Collect in all spans of a list; give empty ones back. Spans of `full` that have free objects now
 * move to `available`. */
static uint32_t trim_list(slab_t *slab, shmemi_span_list_t *list)
{
    uint32_t retired = 0, last = list->tail;
    for (bool more = list->head; more;) {
        uint32_t chunk = pop_head(slab->view, list);
        bool any = collect(slab, chunk);
        more = chunk + 1 != last;
        slab->heap->looked++;
        if (is_empty(slab, chunk)) {
            retire(slab, chunk);
            retired++;
        } else {
            push_tail(slab->view, any ? &slab->c->available : &slab->c->full, chunk);
        }
    }
    return retired;
}

/* Adopt the view's orphans of this class; the trimming that follows gives empty ones back. */
static void adopt_all(slab_t *slab)
{
    shmemi_pool_t *pool = slab->heap->pool;
    shmemi_span_list_t *orphans = &slab->view->orphans[slab->class_index];
    pthread_mutex_lock(&pool->lock);
    while (orphans->head) {
        uint32_t chunk = pop_head(slab->view, orphans);
        set_home(slab, chunk, true);
        push_tail(slab->view, &slab->c->full, chunk);
    }
    pthread_mutex_unlock(&pool->lock);
}

static uint32_t trim_class(slab_t *slab)
{
    uint32_t current = slab->c->current;
    if (current) {
        push_tail(slab->view, &slab->c->full, current - 1);
        drop_current(slab);
    }
    adopt_all(slab);
    slab->c->spare = 0;
    uint32_t retired = trim_list(slab, &slab->c->full);
    retired += trim_list(slab, &slab->c->available);
    return retired;
}

uint32_t shmemi_slab_trim(shmemi_heap_t *heap)
{
    uint32_t retired = 0;
    for (uint32_t i = 0; i < heap->pool->nodes; i++) {
        shmemi_heap_arena_t *part = shmemi_heap_arena(heap, i);
        for (unsigned k = 0; part && k < SHMEMI_CLASSES; k++) {
            slab_t slab = slab_of(heap, part, i, k);
            if (slab.class->size)
                retired += trim_class(&slab);
        }
    }
    return retired;
}

static void orphan_list(slab_t *slab, shmemi_span_list_t *list)
{
    while (list->head) {
        uint32_t chunk = pop_head(slab->view, list);
        set_home(slab, chunk, false);
        SHMEMI_KILL_POINT("memory.slab.orphaned");
        push_tail(slab->view, &slab->view->orphans[slab->class_index], chunk);
    }
}

void shmemi_slab_abandon(shmemi_heap_t *heap)
{
    for (uint32_t i = 0; i < heap->pool->nodes; i++)
        for (unsigned k = 0; heap->arena[i] != &shmemi_heap_none && k < SHMEMI_CLASSES; k++) {
            slab_t slab = slab_of(heap, heap->arena[i], i, k);
            if (!slab.class->size)
                continue;
            trim_class(&slab);
            pthread_mutex_lock(&heap->pool->lock);
            orphan_list(&slab, &slab.c->available);
            orphan_list(&slab, &slab.c->full);
            pthread_mutex_unlock(&heap->pool->lock);
        }
}
