/* SPDX-License-Identifier: Apache-2.0 */
/* Hard instances fit where they are known to fit: those of test/fixtures, and cut rectangles. */
#include <inttypes.h>
#include <stdlib.h>

#include "harness.h"
#include "shmem/plan.h"

enum { MOST = 1000, UNIT = 1024, CAPACITY = 1024 * UNIT };

static shmem_plan_buffer_t buffers[MOST];
static uint64_t offsets[MOST];

static void must_fit(const char *name, size_t count)
{
    shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
    shmem_plan_result_t r = {.size = sizeof r};
    uint64_t peak;
    bool is_slow = harness_has_asan() || harness_has_tsan();
    params.capacity = CAPACITY;
    params.time_limit = (is_slow ? 100 : 30) * INT64_C(1000000000);
    double begin = harness_now();
    CHECK_OK(shmem_plan_solve(buffers, count, &params, offsets, &r));
    printf("%s: %zu buffers, %.3f s\n", name, count, harness_now() - begin);
    CHECK_OK(shmem_plan_check(buffers, count, offsets, &peak));
    CHECK(r.fits && peak <= CAPACITY);
}

static size_t load(const char *name)
{
    char path[4096], line[256];
    size_t count = 0;
    const char *source = getenv("SOURCE_DIR");
    if (!source)
        SKIP("SOURCE_DIR is not set");
    snprintf(path, sizeof path, "%s/test/fixtures/minimalloc/%s.1048576.csv", source, name);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file) && count < MOST) {
        shmem_plan_buffer_t *b = &buffers[count++];
        *b = (shmem_plan_buffer_t){0};
        CHECK_EQ(
            sscanf(line, "%*u,%" SCNd64 ",%" SCNd64 ",%" SCNu64, &b->first, &b->last, &b->bytes),
            3);
    }
    fclose(file);
    return count;
}

static void fixtures(void)
{
    const struct {
        const char *name;
        size_t count;
    } files[] = {{"A", 154}, {"C", 203}, {"E", 215}, {"G", 308}, {"I", 374}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t count = load(files[i].name);
        CHECK_EQ(count, files[i].count);
        must_fit(files[i].name, count);
    }
}

/* ---- a rectangle, time by space, cut at random: it can be put together again ---- */

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* Cuts one of the larger pieces in time or in space; times and sizes are in units here. */
static void cut(size_t count)
{
    size_t i = draw(count);
    for (int tries = 0; tries < 3; tries++) {
        size_t j = draw(count);
        uint64_t area_i = (uint64_t)(buffers[i].last - buffers[i].first) * buffers[i].bytes;
        uint64_t area_j = (uint64_t)(buffers[j].last - buffers[j].first) * buffers[j].bytes;
        i = area_j > area_i ? j : i;
    }
    shmem_plan_buffer_t *a = &buffers[i], *b = &buffers[count];
    *b = *a;
    if (a->last - a->first < 2 || (a->bytes > 1 && draw(5) < 3)) {
        a->bytes = 1 + draw(a->bytes - 1);
        b->bytes -= a->bytes;
    } else {
        a->last = b->first = a->first + 1 + (int64_t)draw((uint64_t)(a->last - a->first) - 1);
    }
}

static size_t cut_rectangle(size_t count, unsigned percent_dropped)
{
    buffers[0] = (shmem_plan_buffer_t){.bytes = 1024, .first = 0, .last = 1024};
    for (size_t n = 1; n < count; n++)
        cut(n);
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (draw(100) >= percent_dropped)
            buffers[left++] = buffers[i];
    for (size_t i = 0; i < left; i++)
        buffers[i].bytes *= UNIT;
    for (size_t i = left; i-- > 1;) { /* the order must not help */
        size_t j = draw(i + 1);
        shmem_plan_buffer_t b = buffers[i];
        buffers[i] = buffers[j];
        buffers[j] = b;
    }
    return left;
}

static void rectangles(void)
{
    for (unsigned number = 1; number <= 16; number++) {
        char name[64];
        seed = number;
        snprintf(name, sizeof name, "rectangle %u", number);
        must_fit(name, cut_rectangle(60 + 20 * (number % 6), number % 3 * 4));
    }
}

int main(void)
{
    RUN(fixtures);
    RUN(rectangles);
    return harness_end();
}
