/* SPDX-License-Identifier: Apache-2.0 */
/* The union of the PEs' processors. Bits are only ever added. */
#include "job/crowd.h"

#include <sched.h>

typedef struct processor_set {
    uint64_t word[SHMEMI_PROCESSOR_WORDS];
} processor_set_t;

void shmemi_crowd_publish(shmemi_control_t *control)
{
    processor_set_t set = {{0}};
    if (sched_getaffinity(0, sizeof set, (cpu_set_t *)&set))
        return; /* nobody knows: counts as a crowd, which is slower but never wrong */
    for (int i = 0; i < SHMEMI_PROCESSOR_WORDS; i++)
        if (set.word[i])
            /* SYNC crowd: relaxed; read after the step that all PEs enter when they join, in
             * shmemi_crowd_processors() */
            atomic_fetch_or_explicit(&control->processors[i], set.word[i], memory_order_relaxed);
}

int shmemi_crowd_processors(const shmemi_control_t *control)
{
    int n = 0;
    for (int i = 0; i < SHMEMI_PROCESSOR_WORDS; i++)
        /* SYNC crowd: relaxed, after the step that follows shmemi_crowd_publish() */
        n += __builtin_popcountll(
            atomic_load_explicit(&control->processors[i], memory_order_relaxed));
    return n;
}
