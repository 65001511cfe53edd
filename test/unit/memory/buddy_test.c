/* SPDX-License-Identifier: Apache-2.0 */
/* The buddy allocator alone: small arenas of every size exhaustively, bounds on work, huge arenas.
 */
#include "pool_world.h"

/* An arena without a pool around it. Nobody else uses it: no lock is taken. */
typedef struct bare {
    shmemi_arena_t arena;
    shmemi_classes_t classes;
    void *memory;
    uint64_t bytes;
} bare_t;

static bare_t bare_make(uint64_t pages)
{
    bare_t b;
    shmemi_layout_t layout;
    CHECK_OK(shmemi_layout_compute(pages * 4096, 1, SHMEMI_CHUNK_BY_SIZE, &layout));
    b.bytes = layout.data;
    b.memory = mmap(NULL, b.bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(b.memory != MAP_FAILED);
    shmemi_arena_init(&b.arena, b.memory, &layout, 0);
    shmemi_classes_init(&b.classes, layout.chunk_shift, layout.arena_pages);
    CHECK_OK(shmemi_buddy_format(&b.arena, b.arena.pages));
    shmemi_arena_commit(&b.arena);
    return b;
}

static void bare_end(bare_t *b)
{
    CHECK(munmap(b->memory, b->bytes) == 0);
}

static void bare_check(bare_t *b)
{
    CHECK_OK(shmemi_check_arena_locked(&b->arena, &b->classes, NULL));
}

static shmem_status_t bare_alloc(bare_t *b, uint32_t pages, unsigned align, uint32_t *page)
{
    uint64_t word = shmemi_owner(1, 1) | SHMEMI_PAGE_USED;
    shmem_status_t status = shmemi_buddy_alloc(&b->arena, pages, align, word, 0, page);
    if (status)
        CHECK_OK(shmemi_arena_rollback(&b->arena));
    else
        shmemi_arena_commit(&b->arena);
    return status;
}

static void bare_free(bare_t *b, uint32_t page, uint32_t pages)
{
    CHECK_OK(shmemi_buddy_free(&b->arena, page, pages));
    shmemi_arena_commit(&b->arena);
}

/* An arena of any size can be had as one block, and page by page. */
static void whole_and_single_pages(void)
{
    for (uint32_t pages = 1; pages <= 130; pages++) {
        bare_t b = bare_make(pages);
        uint32_t page;
        bare_check(&b);
        CHECK_EQ(shmemi_buddy_largest(&b.arena), pages);
        CHECK_OK(bare_alloc(&b, pages, 0, &page));
        CHECK_EQ(page, 0);
        bare_check(&b);
        CHECK_EQ(shmemi_buddy_largest(&b.arena), 0);
        CHECK_STATUS(bare_alloc(&b, 1, 0, &page), SHMEM_ERR_NOMEM);
        bare_free(&b, 0, pages);
        bare_check(&b);
        bool seen[130] = {false};
        for (uint32_t i = 0; i < pages; i++) {
            CHECK_OK(bare_alloc(&b, 1, 0, &page));
            CHECK(page < pages && !seen[page]);
            seen[page] = true;
            bare_check(&b);
        }
        CHECK_STATUS(bare_alloc(&b, 1, 0, &page), SHMEM_ERR_NOMEM);
        for (uint32_t i = 0; i < pages; i++) {
            bare_free(&b, i * 7919 % pages, 1);
            if (pages % 7919 == 0)
                break;
            bare_check(&b);
        }
        CHECK_EQ(shmemi_arena_used(&b.arena), 0);
        CHECK_EQ(shmemi_buddy_largest(&b.arena), pages);
        bare_end(&b);
    }
}

/* In every arena of up to 40 pages: every size at every alignment next to every other size. */
static void every_pair_of_sizes(void)
{
    for (uint32_t pages = 1; pages <= 40; pages++) {
        bare_t b = bare_make(pages);
        for (uint32_t n = 1; n <= pages; n++)
            for (uint32_t m = 1; m <= pages - n; m++)
                for (unsigned align = 0; align <= 3; align++) {
                    uint32_t p, q;
                    CHECK_OK(bare_alloc(&b, n, 0, &p));
                    CHECK_EQ(shmemi_arena_used(&b.arena), n);
                    shmem_status_t second = bare_alloc(&b, m, align, &q);
                    bare_check(&b);
                    if (!second) {
                        CHECK(p + n <= q || q + m <= p);
                        CHECK(q % (1u << align) == 0);
                        CHECK_EQ(shmemi_arena_used(&b.arena), n + m);
                    } else {
                        CHECK_EQ(second, SHMEM_ERR_NOMEM);
                    }
                    bare_free(&b, p, n);
                    bare_check(&b);
                    if (!second)
                        bare_free(&b, q, m);
                    CHECK_EQ(shmemi_buddy_largest(&b.arena), pages);
                }
        bare_end(&b);
    }
}

/* The end of a block of every size can be cut off at every place. */
static void every_cut(void)
{
    for (uint32_t pages = 33; pages <= 47; pages += 7)
        for (uint32_t n = 2; n <= pages; n++)
            for (uint32_t keep = 1; keep < n; keep++) {
                bare_t b = bare_make(pages);
                uint32_t p;
                CHECK_OK(bare_alloc(&b, n, 0, &p));
                CHECK_OK(shmemi_buddy_resize(&b.arena, p, n, keep));
                CHECK(shmemi_arena_set(&b.arena, &b.arena.page[p].link, keep));
                shmemi_arena_commit(&b.arena);
                bare_check(&b);
                bare_free(&b, p, keep);
                bare_check(&b);
                CHECK_EQ(shmemi_buddy_largest(&b.arena), pages);
                bare_end(&b);
            }
}

/* A block grows into what was trimmed from it, and no further than its alignment allows. */
static void every_growth(void)
{
    for (uint32_t pages = 33; pages <= 47; pages += 7)
        for (uint32_t n = 1; n <= pages; n++)
            for (uint32_t more = n + 1; more <= pages; more++) {
                bare_t b = bare_make(pages);
                uint32_t p, q;
                CHECK_OK(bare_alloc(&b, n, 0, &p));
                bool fits = p % (1u << shmemi_log2_ceil(more)) == 0 && p + more <= pages;
                shmem_status_t status = shmemi_buddy_resize(&b.arena, p, n, more);
                CHECK_EQ(status, fits ? SHMEM_OK : SHMEM_ERR_NOMEM);
                if (!status)
                    CHECK(shmemi_arena_set(&b.arena, &b.arena.page[p].link, more));
                if (status)
                    CHECK_OK(shmemi_arena_rollback(&b.arena));
                else
                    shmemi_arena_commit(&b.arena);
                bare_check(&b);
                CHECK_EQ(shmemi_arena_used(&b.arena), fits ? more : n);
                bare_free(&b, p, fits ? more : n);
                CHECK_EQ(shmemi_buddy_largest(&b.arena), pages);
                /* somebody sits behind it */
                CHECK_OK(bare_alloc(&b, n, 0, &p));
                shmem_status_t second = bare_alloc(&b, 1, 0, &q);
                if (!second && q >= p + n && q < p + more) {
                    CHECK_STATUS(shmemi_buddy_resize(&b.arena, p, n, more), SHMEM_ERR_NOMEM);
                    CHECK_OK(shmemi_arena_rollback(&b.arena));
                    bare_check(&b);
                }
                bare_end(&b);
            }
}

enum { BLOCKS = 200 };

/* Random work on arenas of odd sizes; pages belong to one block at a time. */
static void random_work(void)
{
    uint64_t seed = 88172645463325252ull;
    for (int round = 0; round < 12; round++) {
        uint32_t pages = 1 + (uint32_t)(world_random(&seed) % 3000);
        bare_t b = bare_make(pages);
        struct {
            uint32_t page, pages;
        } block[BLOCKS] = {{0, 0}};
        unsigned char *taken = calloc(pages, 1);
        uint64_t used = 0;
        for (int step = 0; step < 4000; step++) {
            uint32_t i = (uint32_t)(world_random(&seed) % BLOCKS);
            if (block[i].pages) {
                memset(taken + block[i].page, 0, block[i].pages);
                bare_free(&b, block[i].page, block[i].pages);
                used -= block[i].pages;
                block[i].pages = 0;
            } else {
                uint32_t n = 1 + (uint32_t)(world_random(&seed) % (1u << world_random(&seed) % 10));
                unsigned align = world_random(&seed) % 4 ? 0 : world_random(&seed) % 10;
                if (bare_alloc(&b, n, align, &block[i].page))
                    continue;
                block[i].pages = n;
                used += n;
                CHECK(block[i].page % (1u << align) == 0);
                CHECK(memchr(taken + block[i].page, 1, n) == NULL);
                memset(taken + block[i].page, 1, n);
            }
            CHECK_EQ(shmemi_arena_used(&b.arena), used);
            if (step % 16 == 0)
                bare_check(&b);
        }
        free(taken);
        bare_end(&b);
    }
}

/* Words changed by an operation: bounded by the number of orders, whatever the number of blocks. */
static uint64_t most_changes(bare_t *b)
{
    return atomic_load(&b->arena.control->journal_high);
}

static void work_is_bounded(void)
{
    static const uint64_t sizes[] = {1 << 10, (1 << 14) - 1, (1 << 18) + 1, (1 << 20) - 1};
    for (size_t s = 0; s < SHMEMI_COUNT(sizes); s++) {
        bare_t b = bare_make(sizes[s]);
        uint64_t seed = 1234567 + s;
        uint32_t p, n, orders = b.arena.top + 1;
        /* the longest chains: one page out of the whole, and back */
        CHECK_OK(bare_alloc(&b, 1, 0, &p));
        bare_free(&b, p, 1);
        for (int i = 0; i < 20000; i++) {
            n = 1 + (uint32_t)(world_random(&seed) % sizes[s] >> world_random(&seed) % 20);
            if (bare_alloc(&b, n, 0, &p))
                continue;
            if (world_random(&seed) % 2)
                bare_free(&b, p, n);
        }
        CHECK(most_changes(&b) <= 20 * orders);
        bare_end(&b);
    }
}

/* Journal space suffices for the worst operations: all orders split, trimmed, cut and merged. */
static void worst_cases_fit_the_journal(void)
{
    bare_t b = bare_make((1ull << 32) - 2);
    uint32_t p, q;
    CHECK_OK(bare_alloc(&b, 1, 0, &p));                /* splits 32 times */
    CHECK_OK(bare_alloc(&b, 0x55555555u >> 1, 0, &q)); /* trims every other order */
    CHECK(p < q || p >= q + (0x55555555u >> 1));
    bare_free(&b, q, 0x55555555u >> 1);
    bare_free(&b, p, 1);
    CHECK_EQ(shmemi_buddy_largest(&b.arena), 4294967294ll);
    CHECK_OK(bare_alloc(&b, 0xfffffffdu, 0, &p));
    CHECK_OK(shmemi_buddy_resize(&b.arena, p, 0xfffffffdu, 1)); /* cut: up and down all orders */
    CHECK(shmemi_arena_set(&b.arena, &b.arena.page[p].link, 1));
    shmemi_arena_commit(&b.arena);
    bare_free(&b, p, 1);
    CHECK_EQ(shmemi_buddy_largest(&b.arena), 4294967294ll);
    CHECK_EQ(shmemi_arena_used(&b.arena), 0);
    CHECK(most_changes(&b) < SHMEMI_JOURNAL_ENTRIES * 3 / 4);
    bare_end(&b);
}

/* Sixteen TiB of pages, less two: indices up to 2^32 - 3 work. Bookkeeping is sparse. */
static void many_terabytes(void)
{
    bare_t b = bare_make((1ull << 32) - 2);
    uint64_t seed = 42;
    uint32_t page[64], n[64], last;
    for (int i = 0; i < 64; i++) {
        n[i] = 1 + (uint32_t)(world_random(&seed) >> 40);
        CHECK_OK(bare_alloc(&b, n[i], 0, &page[i]));
        for (int k = 0; k < i; k++)
            CHECK((uint64_t)page[i] + n[i] <= page[k] || (uint64_t)page[k] + n[k] <= page[i]);
    }
    CHECK_OK(bare_alloc(&b, (1u << 31) - 2, 0, &last));
    CHECK_STATUS(bare_alloc(&b, (1u << 31) - 2, 0, &page[0]), SHMEM_ERR_NOMEM);
    bare_free(&b, last, (1u << 31) - 2);
    for (int i = 1; i < 64; i += 2)
        bare_free(&b, page[i], n[i]);
    bare_free(&b, page[0], n[0]);
    for (int i = 2; i < 64; i += 2)
        bare_free(&b, page[i], n[i]);
    CHECK_EQ(shmemi_arena_used(&b.arena), 0);
    CHECK_EQ(shmemi_buddy_largest(&b.arena), 4294967294ll);
    bare_end(&b);
}

/* Whatever an operation did, undoing it restores every word. */
static void rollback_restores(void)
{
    for (uint32_t n = 1; n < 100; n += 3) {
        bare_t b = bare_make(100);
        uint32_t p, q;
        size_t bytes = (size_t)(b.arena.journal_end - b.arena.pages_index) * 8;
        unsigned char *before = malloc(bytes);
        CHECK_OK(bare_alloc(&b, 7, 0, &p));
        memcpy(before, b.arena.page, bytes);
        uint64_t word = shmemi_owner(1, 1) | SHMEMI_PAGE_USED;
        shmem_status_t status = shmemi_buddy_alloc(&b.arena, n, 0, word, 0, &q);
        if (!status)
            CHECK_OK(shmemi_buddy_free(&b.arena, p, 7));
        CHECK_OK(shmemi_arena_rollback(&b.arena));
        CHECK(memcmp(before, b.arena.page, bytes) == 0);
        bare_check(&b);
        free(before);
        bare_end(&b);
    }
}

int main(void)
{
    RUN(whole_and_single_pages);
    RUN(every_pair_of_sizes);
    RUN(every_cut);
    RUN(every_growth);
    RUN(random_work);
    RUN(work_is_bounded);
    RUN(worst_cases_fit_the_journal);
    RUN(many_terabytes);
    RUN(rollback_restores);
    return harness_end();
}
