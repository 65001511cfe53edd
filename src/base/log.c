/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sink per process. The program sets it before it uses the library from several threads; the
 * default level of SHMEM_LOG may be set by several threads at once, always to the same value.
 *
 *   Invariant  log_level > 0 implies that log_sink can be called
 */
#include "base/log.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

static _Atomic(shmem_log_sink_t) log_sink;
static void *_Atomic log_user;
static atomic_int log_level;
static atomic_bool log_is_explicit; /* the program chose: SHMEM_LOG no longer matters */

static void sink_stderr(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    (void)user;
    fprintf(stderr, "shmem %s [%s]: %s\n", names[level], layer, text);
}

static void log_route(shmem_log_sink_t sink, void *user, int level)
{
    atomic_store_explicit(&log_sink, sink, memory_order_relaxed);
    atomic_store_explicit(&log_user, user, memory_order_relaxed);
    /* SYNC log-level: release, pairs with acquire in shmemi_vlog() */
    atomic_store_explicit(&log_level, sink ? level : 0, memory_order_release);
}

void shmem_log_set_sink(shmem_log_sink_t sink, void *user, shmem_log_level_t level)
{
    atomic_store_explicit(&log_is_explicit, true, memory_order_relaxed);
    log_route(sink, user, (int)level);
}

void shmemi_log_set_default_level(int level)
{
    if (!atomic_load_explicit(&log_is_explicit, memory_order_relaxed))
        log_route(level > 0 ? sink_stderr : NULL, NULL, level);
}

void shmemi_vlog(shmem_log_level_t level, const char *layer, const char *format, va_list args)
{
    /* SYNC log-level: acquire, pairs with release in log_route() */
    if ((int)level > atomic_load_explicit(&log_level, memory_order_acquire))
        return;
    shmem_log_sink_t sink = atomic_load_explicit(&log_sink, memory_order_relaxed);
    if (!sink)
        return;
    char text[640];
    vsnprintf(text, sizeof text, format, args);
    sink(atomic_load_explicit(&log_user, memory_order_relaxed), level, layer, text);
}

void shmemi_log(shmem_log_level_t level, const char *layer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    shmemi_vlog(level, layer, format, args);
    va_end(args);
}
