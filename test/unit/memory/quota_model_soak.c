/* SPDX-License-Identifier: Apache-2.0 */
/* Millions of steps of the random test. The program is that of the default suite. */
#define POOL_SOAK 50
#include "quota_model_test.c"
