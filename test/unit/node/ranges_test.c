/* SPDX-License-Identifier: Apache-2.0 */
/* Places in the address range: never overlapping, reused, all of it usable; against a model. */
#include <stdlib.h>

#include "harness.h"
#include "node/ranges.h"
#include "os/space.h"

#define UNIT SHMEMI_SPACE_UNIT

static uint64_t seed = 88172645463325252ull;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static void first_fit(void)
{
    shmemi_ranges_t r;
    uint64_t a, b, c, d;
    shmemi_ranges_init(&r, 10 * UNIT, 100 * UNIT);
    CHECK_OK(shmemi_ranges_take(&r, 1, &a)); /* one unit and its guard */
    CHECK_OK(shmemi_ranges_take(&r, UNIT, &b));
    CHECK_OK(shmemi_ranges_take(&r, UNIT + 1, &c));
    CHECK_EQ(a, 10 * UNIT);
    CHECK_EQ(b, 12 * UNIT);
    CHECK_EQ(c, 14 * UNIT);
    shmemi_ranges_give(&r, b);
    CHECK_OK(shmemi_ranges_take(&r, 2 * UNIT, &d)); /* does not fit into the hole */
    CHECK_EQ(d, 17 * UNIT);
    CHECK_OK(shmemi_ranges_take(&r, 7, &b)); /* fits */
    CHECK_EQ(b, 12 * UNIT);
    shmemi_ranges_give(&r, 13 * UNIT); /* nothing begins there */
    shmemi_ranges_give(&r, 99 * UNIT);
    CHECK_EQ(r.count, 4);
    shmemi_ranges_fini(&r);
}

static void wraps_and_ends(void)
{
    shmemi_ranges_t r;
    uint64_t a, untouched = 5;
    shmemi_ranges_init(&r, 90 * UNIT, 100 * UNIT);
    CHECK_OK(shmemi_ranges_take(&r, 9 * UNIT, &a));
    CHECK_EQ(a, 90 * UNIT);
    CHECK_OK(shmemi_ranges_take(&r, 89 * UNIT, &a)); /* everything before the start */
    CHECK_EQ(a, 0);
    CHECK_STATUS(shmemi_ranges_take(&r, 1, &untouched), SHMEM_ERR_LIMIT);
    shmemi_ranges_give(&r, 90 * UNIT);
    CHECK_STATUS(shmemi_ranges_take(&r, 10 * UNIT, &untouched), SHMEM_ERR_LIMIT);
    CHECK_STATUS(shmemi_ranges_take(&r, UINT64_MAX, &untouched), SHMEM_ERR_LIMIT);
    CHECK_STATUS(shmemi_ranges_take(&r, UINT64_MAX - UNIT, &untouched), SHMEM_ERR_LIMIT);
    CHECK_EQ(untouched, 5);
    CHECK_OK(shmemi_ranges_take(&r, 9 * UNIT, &a));
    shmemi_ranges_fini(&r);
}

enum { UNITS = 512, LIVE = 100 };
static unsigned char owner[UNITS]; /* the model */

static void random_model(void)
{
    shmemi_ranges_t r;
    struct {
        uint64_t offset, units;
    } live[LIVE] = {{0}};
    shmemi_ranges_init(&r, draw(UNITS) * UNIT, UNITS * UNIT);
    for (int step = 0; step < 200000; step++) {
        size_t i = draw(LIVE);
        if (live[i].units) {
            shmemi_ranges_give(&r, live[i].offset);
            memset(owner + live[i].offset / UNIT, 0, live[i].units);
            live[i].units = 0;
            continue;
        }
        uint64_t bytes = 1 + draw(12 * UNIT), units = (bytes + UNIT - 1) / UNIT + 1, offset;
        shmem_status_t status = shmemi_ranges_take(&r, bytes, &offset);
        if (status) { /* then the model has no hole either */
            CHECK_EQ(status, SHMEM_ERR_LIMIT);
            uint64_t run = 0;
            for (int u = 0; u < UNITS; u++) {
                run = owner[u] ? 0 : run + 1;
                CHECK(run < units);
            }
            continue;
        }
        CHECK_EQ(offset % UNIT, 0);
        CHECK(offset / UNIT + units <= UNITS);
        for (uint64_t u = 0; u < units; u++) {
            CHECK_EQ(owner[offset / UNIT + u], 0);
            owner[offset / UNIT + u] = 1;
        }
        live[i].offset = offset;
        live[i].units = units;
    }
    shmemi_ranges_fini(&r);
}

/* A place is taken again where it was, if nobody has it. */
static void put(void)
{
    shmemi_ranges_t r;
    uint64_t a, b, c;
    shmemi_ranges_init(&r, 0, 64 * UNIT);
    CHECK_OK(shmemi_ranges_put(&r, 8 * UNIT, 3 * UNIT)); /* 8 to 11, and one that stays free */
    CHECK_STATUS(shmemi_ranges_put(&r, 8 * UNIT, 1), SHMEM_ERR_LIMIT);
    CHECK_STATUS(shmemi_ranges_put(&r, 7 * UNIT, 1), SHMEM_ERR_LIMIT);
    CHECK_STATUS(shmemi_ranges_put(&r, 11 * UNIT, 1), SHMEM_ERR_LIMIT);
    CHECK_STATUS(shmemi_ranges_put(&r, 20 * UNIT + 4096, 1), SHMEM_ERR_LIMIT);
    CHECK_STATUS(shmemi_ranges_put(&r, 63 * UNIT, 1), SHMEM_ERR_LIMIT);
    CHECK_STATUS(shmemi_ranges_put(&r, 20 * UNIT, UINT64_MAX), SHMEM_ERR_LIMIT);
    CHECK_STATUS(shmemi_ranges_put(&r, 20 * UNIT, UINT64_MAX - UNIT), SHMEM_ERR_LIMIT);
    CHECK_OK(shmemi_ranges_put(&r, 12 * UNIT, 1));
    CHECK_OK(shmemi_ranges_put(&r, 62 * UNIT, UNIT));
    CHECK_OK(shmemi_ranges_put(&r, 6 * UNIT, 1));
    CHECK_OK(shmemi_ranges_take(&r, 5 * UNIT, &a)); /* 0 to 5 */
    CHECK_OK(shmemi_ranges_take(&r, 5 * UNIT, &b)); /* behind 12 and 13 */
    CHECK_EQ(a, 0);
    CHECK_EQ(b, 14 * UNIT);
    shmemi_ranges_give(&r, 8 * UNIT);
    CHECK_OK(shmemi_ranges_take(&r, 3 * UNIT, &c));
    CHECK_EQ(c, 8 * UNIT);
    shmemi_ranges_fini(&r);
}

int main(void)
{
    RUN(first_fit);
    RUN(wraps_and_ends);
    RUN(put);
    RUN(random_model);
    return harness_end();
}
