/* SPDX-License-Identifier: Apache-2.0 */
/* Kills at thousands of passages. The program is that of the default suite. */
#define POOL_SOAK 60
#include "pool_kill_test.c"
