/* SPDX-License-Identifier: Apache-2.0 */
/* Fault points: one armed name per process, counted atomically so that threads share the count. */
#include "base/fault.h"

#if SHMEMI_FAULT_POINTS

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char armed_name[96];
static shmemi_fault_action_t armed_action;
static void (*armed_call)(void);
static unsigned armed_n;
static atomic_uint passages;
static atomic_bool armed;

__attribute__((constructor)) static void fault_from_environment(void)
{
    const char *text = getenv("SHMEMI_FAULT");
    char name[sizeof armed_name], action[8];
    unsigned n;
    if (text && sscanf(text, "%95[^:]:%7[^:]:%u", name, action, &n) == 3)
        shmemi_fault_arm(name, strcmp(action, "kill") ? SHMEMI_FAULT_FAIL : SHMEMI_FAULT_KILL, n);
}

void shmemi_fault_arm(const char *name, shmemi_fault_action_t action, unsigned n)
{
    shmemi_fault_disarm();
    snprintf(armed_name, sizeof armed_name, "%s", name);
    armed_action = action;
    armed_n = n;
    atomic_store_explicit(&passages, 0, memory_order_relaxed);
    /* SYNC fault-armed: release, pairs with acquire in shmemi_fault_hit() */
    atomic_store_explicit(&armed, true, memory_order_release);
}

void shmemi_fault_arm_call(const char *name, void (*call)(void), unsigned n)
{
    armed_call = call;
    shmemi_fault_arm(name, SHMEMI_FAULT_CALL, n);
}

void shmemi_fault_disarm(void)
{
    atomic_store_explicit(&armed, false, memory_order_relaxed);
}

unsigned shmemi_fault_passages(void)
{
    return atomic_load_explicit(&passages, memory_order_relaxed);
}

static bool name_matches(const char *name)
{
    size_t n = strlen(armed_name);
    if (n && armed_name[n - 1] == '*')
        return strncmp(name, armed_name, n - 1) == 0;
    return strcmp(name, armed_name) == 0;
}

bool shmemi_fault_hit(const char *name, bool can_fail)
{
    /* SYNC fault-armed: acquire, pairs with release in shmemi_fault_arm() */
    if (!atomic_load_explicit(&armed, memory_order_acquire) || !name_matches(name))
        return false;
    if (atomic_fetch_add_explicit(&passages, 1, memory_order_relaxed) + 1 != armed_n)
        return false;
    if (armed_action == SHMEMI_FAULT_KILL)
        raise(SIGKILL);
    if (armed_action == SHMEMI_FAULT_CALL) {
        armed_call();
        return false;
    }
    return can_fail;
}

#endif
