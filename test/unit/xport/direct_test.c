/* SPDX-License-Identifier: Apache-2.0 */
/* The direct transport: copies of all sizes, the words that signal. */
#include "xport/direct.h"

#include <stdlib.h>

#include "harness.h"

static void copies(void)
{
    size_t most = SHMEMI_DIRECT_LARGE + 4097;
    unsigned char *a = malloc(most + 64), *b = malloc(most + 64);
    CHECK(a && b);
    const size_t sizes[] = {
        0, 1, 7, 64, 4095, 65536, SHMEMI_DIRECT_LARGE - 1, SHMEMI_DIRECT_LARGE, most};
    for (size_t i = 0; i < most + 64; i++)
        a[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t shift = 0; shift < 3; shift++) {
            memset(b, 0xee, most + 64);
            shmemi_direct_copy(b + 5 - shift, a + shift, sizes[s]);
            CHECK(memcmp(b + 5 - shift, a + shift, sizes[s]) == 0);
            CHECK_EQ(b[4 - shift], 0xee);
            CHECK_EQ(b[5 - shift + sizes[s]], 0xee);
        }
    free(a);
    free(b);
}

static void table(void)
{
    _Alignas(8) char memory[64] = {0};
    shmemi_xport_target_t target = {.address = memory + 8};
    uint64_t old = 0;
    char got[8];
    CHECK_STR(shmemi_xport_direct.name, "direct");
    CHECK_OK(shmemi_xport_direct.set(&target, 40));
    CHECK_OK(shmemi_xport_direct.fetch_add(&target, 2, &old));
    CHECK_EQ(old, 40);
    CHECK_EQ(shmemi_direct_load(memory + 8), 42);
    CHECK_OK(shmemi_xport_direct.put(&target, "abcdefg", 8));
    CHECK_OK(shmemi_xport_direct.get(&target, got, 8));
    CHECK_STR(got, "abcdefg");
    CHECK_EQ(memory[7], 0);
    CHECK_EQ(memory[16], 0);
}

int main(void)
{
    RUN(copies);
    RUN(table);
    return harness_end();
}
