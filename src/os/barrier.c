/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membarrier(2), global expedited. The kernel keeps the registration with the address space and a
 * second registration returns at once, so nothing is cached here: exec and fork cannot make a
 * cached answer wrong.
 */
#include "os/barrier.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool refused; /* test hook */

static bool membarrier_call(int command)
{
    if (atomic_load_explicit(&refused, memory_order_relaxed))
        return false;
    int saved = errno;
    bool done = syscall(SYS_membarrier, command, 0, 0) == 0;
    errno = saved;
    return done;
}

bool shmemi_barrier_register(void)
{
    return membarrier_call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

void shmemi_barrier_refuse(bool refuse)
{
    atomic_store_explicit(&refused, refuse, memory_order_relaxed);
}

void shmemi_heavy_barrier(void)
{
    /* The kernel's call orders the caller too, but only by its documentation of running threads:
     * the fence makes it independent of that, and is all there is when the call is refused. */
    atomic_thread_fence(memory_order_seq_cst);
    if (membarrier_call(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
        atomic_thread_fence(memory_order_seq_cst);
}
