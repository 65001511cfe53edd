/* SPDX-License-Identifier: Apache-2.0 */
/* Ten thousand hostile clients. The program is that of the default suite. */
#define POOL_SOAK 25
#include "pool_hostile_test.c"
