/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stats.h"

#include <stddef.h>

static const shmemi_stat_info_t stat_info[] = {
#define STAT_INFO(name, unit, meaning) {#name, unit, meaning},
    SHMEMI_STATS_TABLE(STAT_INFO)
#undef STAT_INFO
};

const shmemi_stat_info_t *shmemi_stats_describe(unsigned which)
{
    return which < SHMEMI_STAT_COUNT ? &stat_info[which] : NULL;
}
