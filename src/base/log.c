/* SPDX-License-Identifier: Apache-2.0 */
/* One sink per process; set before the library is used by several threads. */
#include "base/log.h"

#include <stdio.h>

static shmem_log_sink_t log_sink;
static void *log_user;
static int log_level;
static int log_is_explicit; /* the program chose: SHMEM_LOG no longer matters */

static void sink_stderr(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    (void)user;
    fprintf(stderr, "shmem %s [%s]: %s\n", names[level], layer, text);
}

void shmem_log_set_sink(shmem_log_sink_t sink, void *user, shmem_log_level_t level)
{
    log_is_explicit = 1;
    log_sink = sink;
    log_user = user;
    log_level = sink ? (int)level : 0;
}

void shmemi_log_set_default_level(int level)
{
    if (log_is_explicit)
        return;
    log_level = level;
    log_sink = level > 0 ? sink_stderr : NULL;
}

void shmemi_vlog(shmem_log_level_t level, const char *layer, const char *format, va_list args)
{
    if ((int)level > log_level || !log_sink)
        return;
    char text[640];
    vsnprintf(text, sizeof text, format, args);
    log_sink(log_user, level, layer, text);
}

void shmemi_log(shmem_log_level_t level, const char *layer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    shmemi_vlog(level, layer, format, args);
    va_end(args);
}
