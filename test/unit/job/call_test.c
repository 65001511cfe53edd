/* SPDX-License-Identifier: Apache-2.0 */
/* Collective calls in words: what an error message says of them, whatever the shared memory holds.
 */
#include "job/step.h"
#include "shmem/comm.h"

#include "harness.h"

static const char *words(shmemi_call_t call)
{
    static char text[160];
    shmemi_call_describe(&call, text, sizeof text);
    return text;
}

static void calls_are_described(void)
{
    CHECK_STR(words((shmemi_call_t){.kind = SHMEMI_CALL_BARRIER}), "shmem_context_barrier()");
    CHECK_STR(words((shmemi_call_t){.kind = SHMEMI_CALL_CREATE, .size = 4096}),
              "shmem_memory_create(4096 bytes)");
    CHECK_STR(words((shmemi_call_t){.kind = SHMEMI_CALL_BROADCAST, .size = 64, .root = 1}),
              "shmem_coll_broadcast(64 bytes, root 1)");
    CHECK_STR(
        words((shmemi_call_t){
            .kind = SHMEMI_CALL_ALLREDUCE, .size = 5, .type = SHMEM_TYPE_FLOAT, .op = SHMEM_MAX}),
        "shmem_coll_allreduce(5 elements, float, max)");
    CHECK_STR(words((shmemi_call_t){
                  .kind = SHMEMI_CALL_ALLGATHER, .size = 8, .refused = SHMEM_ERR_INVALID}),
              "shmem_coll_allgather(8 bytes), refused there: invalid argument");
}

static void garbage_is_described(void)
{
    shmemi_call_t call;
    char small[8];
    for (int i = 0; i < 256; i++) {
        memset(&call, i, sizeof call);
        CHECK(strlen(words(call)) > 0);
        shmemi_call_describe(&call, small, sizeof small);
        CHECK(strlen(small) < sizeof small);
    }
}

int main(void)
{
    RUN(calls_are_described);
    RUN(garbage_is_described);
    return harness_end();
}
