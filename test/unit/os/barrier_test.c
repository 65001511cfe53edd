/* SPDX-License-Identifier: Apache-2.0 */
/* The asymmetric barrier: registration, refusal, and the outcome that it must exclude. */
#include "os/barrier.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "helpers.h"

static void registers_again(void)
{
    if (!shmemi_barrier_register())
        SKIP("this kernel has no membarrier GLOBAL_EXPEDITED");
    CHECK(shmemi_barrier_register());
    shmemi_heavy_barrier();
}

static void refusal_hook(void)
{
    shmemi_barrier_refuse(true);
    CHECK(!shmemi_barrier_register());
    shmemi_heavy_barrier(); /* a plain fence */
    shmemi_barrier_refuse(false);
}

static void under_seccomp(void *arg)
{
    (void)arg;
    int call = SYS_membarrier;
    refuse_calls(&call, 1, EPERM);
    errno = 4711;
    CHECK(!shmemi_barrier_register());
    shmemi_heavy_barrier();
    CHECK_EQ(errno, 4711);
}

static void refusal_by_the_kernel(void)
{
    CHECK_EQ(harness_wait(harness_fork(under_seccomp, NULL), 5), 0);
}

/* Two sides store and then look at the other's store; both missing it is what must not happen. */
enum { ROUNDS = 3000 };

typedef struct litmus {
    _Alignas(128) _Atomic uint32_t x;
    _Alignas(128) _Atomic uint32_t y;
    _Alignas(128) _Atomic uint32_t arrived;
    _Alignas(128) uint32_t saw[2][ROUNDS];
} litmus_t;

/* Both sides start a round at nearly the same time. */
static void meet(litmus_t *l, uint32_t n)
{
    double end = harness_now() + 20;
    atomic_fetch_add(&l->arrived, 1);
    while (atomic_load(&l->arrived) < n)
        CHECK(harness_now() < end);
}

static void litmus_side(int rank, int n, void *arg)
{
    litmus_t *l = arg;
    (void)n;
    CHECK(shmemi_barrier_register());
    meet(l, 2); /* both are registered */
    for (uint32_t i = 0; i < ROUNDS; i++) {
        meet(l, 4 * i + 4);
        if (rank) {
            atomic_store_explicit(&l->x, i + 1, memory_order_relaxed);
            atomic_signal_fence(memory_order_seq_cst); /* the light side */
            l->saw[1][i] = atomic_load_explicit(&l->y, memory_order_relaxed);
        } else {
            atomic_store_explicit(&l->y, i + 1, memory_order_relaxed);
            shmemi_heavy_barrier();
            l->saw[0][i] = atomic_load_explicit(&l->x, memory_order_relaxed);
        }
        meet(l, 4 * i + 6);
    }
}

static void excludes_both_missing(void)
{
    if (!shmemi_barrier_register())
        SKIP("this kernel has no membarrier GLOBAL_EXPEDITED");
    for (int mode = HARNESS_PROC; mode <= HARNESS_THREAD; mode++) {
        litmus_t *l = harness_shared(sizeof *l);
        harness_pes(2, (harness_mode_t)mode, 30, litmus_side, l);
        for (uint32_t i = 0; i < ROUNDS; i++)
            CHECK(l->saw[0][i] == i + 1 || l->saw[1][i] == i + 1);
    }
}

int main(void)
{
    RUN(registers_again);
    RUN(refusal_hook);
    RUN(refusal_by_the_kernel);
    RUN(excludes_both_missing);
    return harness_end();
}
