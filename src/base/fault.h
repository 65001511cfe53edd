/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named fault points. A test arms one by name; the n-th passage then fails or kills the process.
 *
 *     if (SHMEMI_FAULT("memory.pool.map"))              // may be told to fail
 *         return shmemi_fail(SHMEM_ERR_INJECTED, ...);
 *     SHMEMI_KILL_POINT("memory.buddy.split.linked");   // may only kill (SIGKILL)
 *
 * They exist where SHMEMI_FAULT_POINTS is 1: in the libraries that the tests link. In libshmem.so
 * they are nothing. The armed point is process-wide and inherited by fork; it can also be set from
 * outside with SHMEMI_FAULT=name:fail|kill:n in the environment (test builds only).
 */
#ifndef SHMEMI_BASE_FAULT_H
#define SHMEMI_BASE_FAULT_H

#include <stdbool.h>

#ifndef SHMEMI_FAULT_POINTS
#define SHMEMI_FAULT_POINTS 0
#endif

typedef enum shmemi_fault_action {
    SHMEMI_FAULT_FAIL,
    SHMEMI_FAULT_KILL,
    SHMEMI_FAULT_CALL /* what others do at that instant */
} shmemi_fault_action_t;

#if SHMEMI_FAULT_POINTS
/* Arm `name` (a prefix ending in '*' matches many points) to act at its n-th passage, n >= 1.
 * Earlier arming is replaced. */
void shmemi_fault_arm(const char *name, shmemi_fault_action_t action, unsigned n);
/* The same, but it calls `call` there, once. */
void shmemi_fault_arm_call(const char *name, void (*call)(void), unsigned n);
void shmemi_fault_disarm(void);
/* Passages of the armed point since it was armed: 0 shows that a test missed its point. */
unsigned shmemi_fault_passages(void);
bool shmemi_fault_hit(const char *name, bool can_fail);
#define SHMEMI_FAULT(name)      shmemi_fault_hit(name, true)
#define SHMEMI_KILL_POINT(name) ((void)shmemi_fault_hit(name, false))
#else
#define SHMEMI_FAULT(name)      false
#define SHMEMI_KILL_POINT(name) ((void)0)
#endif

#endif
