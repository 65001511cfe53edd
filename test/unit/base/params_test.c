/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of older and newer programs. */
#include "base/params.h"

#include <stdint.h>

#include "harness.h"

typedef struct old {
    size_t size;
    uint64_t a;
} old_t;

typedef struct now {
    size_t size;
    uint64_t a, b;
} now_t;

typedef struct newer {
    size_t size;
    uint64_t a, b, c;
} newer_t;

static void take(void)
{
    now_t own = {0, 7, 7};
    old_t before = {sizeof before, 1};
    now_t same = {sizeof same, 1, 2};
    newer_t next = {sizeof next, 1, 2, 0};
    CHECK_OK(shmemi_params_take(&own, sizeof own, sizeof before, &before, "x_t"));
    CHECK(own.size == sizeof own && own.a == 1 && own.b == 0);
    CHECK_OK(shmemi_params_take(&own, sizeof own, sizeof before, &same, "x_t"));
    CHECK(own.a == 1 && own.b == 2);
    own.b = 0;
    CHECK_OK(shmemi_params_take(&own, sizeof own, sizeof before, &next, "x_t"));
    CHECK(own.size == sizeof own && own.a == 1 && own.b == 2);
}

static void refuse(void)
{
    now_t own = {0, 7, 7};
    old_t before = {sizeof before - 1, 1};
    newer_t next = {sizeof next, 1, 2, 3};
    CHECK_STATUS(shmemi_params_take(&own, sizeof own, sizeof before, NULL, "x_t"),
                 SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_params_take(&own, sizeof own, sizeof before, &before, "x_t"),
                 SHMEM_ERR_INVALID);
    CHECK(strstr(shmem_error_detail()->text, "x_t") != NULL);
    CHECK_STATUS(shmemi_params_take(&own, sizeof own, sizeof before, &next, "x_t"),
                 SHMEM_ERR_INVALID);
    CHECK_STATUS(shmemi_params_check(&before, sizeof before, "x_t"), SHMEM_ERR_INVALID);
    old_t never_set = {SIZE_MAX, 1};
    CHECK_STATUS(shmemi_params_check(&never_set, sizeof before, "x_t"), SHMEM_ERR_INVALID);
    never_set.size = SHMEMI_PARAMS_MOST + 1;
    CHECK_STATUS(shmemi_params_take(&own, sizeof own, sizeof before, &never_set, "x_t"),
                 SHMEM_ERR_INVALID);
    CHECK(own.size == 0 && own.a == 7 && own.b == 7);
}

static void give(void)
{
    now_t own = {0, 1, 2};
    struct {
        old_t given;
        uint64_t behind;
    } before = {{sizeof before.given, 9}, 99};
    newer_t next = {sizeof next, 9, 9, 9};
    shmemi_params_give(&before, &own, sizeof own);
    CHECK(before.given.size == sizeof before.given && before.given.a == 1 && before.behind == 99);
    shmemi_params_give(&next, &own, sizeof own);
    CHECK(next.size == sizeof next && next.a == 1 && next.b == 2 && next.c == 0);
}

int main(void)
{
    RUN(take);
    RUN(refuse);
    RUN(give);
    return harness_end();
}
