/* SPDX-License-Identifier: Apache-2.0 */
/* The log sink: the only way in which the library says anything by itself. */
#ifndef SHMEMI_BASE_LOG_H
#define SHMEMI_BASE_LOG_H

#include <stdarg.h>

#include "shmem/status.h"

void shmemi_log(shmem_log_level_t level, const char *layer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void shmemi_vlog(shmem_log_level_t level, const char *layer, const char *format, va_list args);

/* Where SHMEM_LOG's level (0: off) takes effect if no sink was set by the program. */
void shmemi_log_set_default_level(int level);

#endif
