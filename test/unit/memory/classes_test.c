/* SPDX-License-Identifier: Apache-2.0 */
/* Size classes and the layout: every size, every offset, and the edges of the number range. */
#include "base/util.h"
#include "harness.h"
#include "memory/classes.h"
#include "memory/layout.h"

static void every_size_has_the_tightest_class(void)
{
    for (uint32_t n = 1; n <= SHMEMI_SMALL_MAX; n++) {
        unsigned k = shmemi_class_of(n);
        CHECK(k < SHMEMI_CLASSES);
        CHECK(shmemi_class_size(k) >= n);
        CHECK(k == 0 || shmemi_class_size(k - 1) < n);
        CHECK(shmemi_class_size(k) % 128 == 0);
        if (n > 1024)
            CHECK(shmemi_class_size(k) - n < n / 8 + 1);
    }
    CHECK_EQ(shmemi_class_size(SHMEMI_CLASSES - 1), SHMEMI_SMALL_MAX);
}

/* Rounding a size up to a multiple of an alignment leads to a class whose size is a multiple. */
static void aligned_sizes(void)
{
    for (uint32_t a = 128; a <= 4096; a *= 2)
        for (uint32_t n = a; n <= SHMEMI_SMALL_MAX; n += a)
            CHECK_EQ(shmemi_class_size(shmemi_class_of(n)) % a, 0);
}

static void check_table(unsigned chunk_shift, uint32_t arena_pages)
{
    shmemi_classes_t t;
    shmemi_classes_init(&t, chunk_shift, arena_pages);
    for (unsigned i = 0; i < SHMEMI_CLASSES; i++) {
        const shmemi_class_t *c = &t.class[i];
        if (!c->size) {
            CHECK(t.largest < shmemi_class_size(i));
            continue;
        }
        CHECK(c->size <= t.largest);
        uint64_t bytes = (uint64_t)c->pages * 4096;
        CHECK(c->pages <= arena_pages && bytes <= 1 << 18);
        CHECK(c->pages >= (1u << chunk_shift) * 7 / 8 && c->pages <= 4u << chunk_shift);
        CHECK(c->count >= 4 && c->count <= 448 && (uint64_t)c->count * c->size <= bytes);
        CHECK(bytes - (uint64_t)c->count * c->size < c->size);
        CHECK(bytes - (uint64_t)c->count * c->size <= bytes / (chunk_shift ? 12 : 5));
        for (uint64_t offset = 0; offset < bytes; offset++)
            if (shmemi_class_index(c, offset) != offset / c->size)
                CHECK_EQ(shmemi_class_index(c, offset), offset / c->size);
        uint32_t bits = 0;
        for (uint32_t w = 0; w < SHMEMI_SPAN_WORDS; w++)
            bits += (uint32_t)__builtin_popcountll(shmemi_class_mask(c, w));
        CHECK_EQ(bits, c->count);
    }
}

static void tables(void)
{
    check_table(4, 1 << 20);
    check_table(2, 16384);
    check_table(0, 256);
    for (uint32_t pages = 1; pages < 8; pages++)
        check_table(0, pages);
}

static void layouts(void)
{
    shmemi_layout_t l;
    static const uint64_t sizes[] = {
        1,          4096, 4097, 20480, 1 << 20, 1 << 21, 123456789, 1ull << 30, (1ull << 40) + 1,
        16ull << 40};
    static const uint32_t nodes[] = {1, 2, 3, 8, 64};
    for (size_t i = 0; i < SHMEMI_COUNT(sizes); i++)
        for (size_t k = 0; k < SHMEMI_COUNT(nodes); k++) {
            if (sizes[i] >> 44 && nodes[k] == 1)
                continue;
            CHECK_OK(shmemi_layout_compute(sizes[i], nodes[k], SHMEMI_CHUNK_BY_SIZE, &l));
            uint64_t arena_bytes = (uint64_t)l.arena_pages * 4096;
            uint64_t align = arena_bytes < SHMEMI_DATA_ALIGN ? 4096 : SHMEMI_DATA_ALIGN;
            CHECK(arena_bytes * nodes[k] >= sizes[i]);
            CHECK(arena_bytes * nodes[k] - sizes[i] < 4096ull * nodes[k] + 4096);
            CHECK(l.data % align == 0 && l.data_stride % align == 0);
            CHECK(l.data_stride >= arena_bytes);
            CHECK(l.arenas + l.arena_stride * nodes[k] <= l.data);
            CHECK(l.map >= sizeof(shmemi_arena_control_t) && l.pages >= l.map + l.chunks);
            CHECK(l.spans >= l.pages + 16ull * l.arena_pages);
            CHECK(l.arena_stride >= l.spans + 128ull * l.chunks);
            CHECK_EQ(l.segment_bytes, l.data + l.data_stride * (nodes[k] - 1) + arena_bytes);
            if (sizes[i] >= 1 << 30)
                CHECK(l.segment_bytes - sizes[i] < sizes[i] / 100 + 4096ull * nodes[k] * 1024);
        }
}

static void layout_edges(void)
{
    shmemi_layout_t l;
    const uint64_t most = ((1ull << 32) - 2) * 4096;
    CHECK_OK(shmemi_layout_compute(most, 1, SHMEMI_CHUNK_BY_SIZE, &l));
    CHECK_EQ(l.arena_pages, 4294967294ll);
    CHECK_STATUS(shmemi_layout_compute(most + 1, 1, SHMEMI_CHUNK_BY_SIZE, &l), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmemi_layout_compute(UINT64_MAX, 1, SHMEMI_CHUNK_BY_SIZE, &l),
                 SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmemi_layout_compute(UINT64_MAX, 64, SHMEMI_CHUNK_BY_SIZE, &l),
                 SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmemi_layout_compute(1ull << 63, 64, SHMEMI_CHUNK_BY_SIZE, &l),
                 SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmemi_layout_compute(0, 1, SHMEMI_CHUNK_BY_SIZE, &l), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_layout_compute(4096, 0, SHMEMI_CHUNK_BY_SIZE, &l), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_layout_compute(4096, 65, SHMEMI_CHUNK_BY_SIZE, &l), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_layout_compute(4096, (uint32_t)-1, SHMEMI_CHUNK_BY_SIZE, &l),
                 SHMEM_ERR_INVALID);
}

int main(void)
{
    RUN(every_size_has_the_tightest_class);
    RUN(aligned_sizes);
    RUN(tables);
    RUN(layouts);
    RUN(layout_edges);
    return harness_end();
}
