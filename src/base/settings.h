/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: one table drives the struct, the parser, `shmem-info` and docs/settings.md.
 *
 * Kinds: SIZE bytes with optional suffix K M G T (powers of 1024); NUMBER a whole number; DURATION
 * with a unit ns us ms s; BOOL yes or no; CHOICE one of a list; TEXT anything not empty. Whole
 * numbers only: "1.5G" is an error that says to write 1536M. A bad value is an error that names
 * setting, value and what would be right; nothing is guessed.
 */
#ifndef SHMEMI_BASE_SETTINGS_H
#define SHMEMI_BASE_SETTINGS_H

#include <stdint.h>

#include "shmem/settings.h"

/* X(field, "NAME", KIND, min, max, "choices", "default", "meaning") */
#define SHMEMI_SETTINGS_TABLE(X)                                                                   \
    X(log, "SHMEM_LOG", CHOICE, 0, 0, "off, error, warn, info, debug", "off",                      \
      "How much the library says on standard error when the program set no log sink. Unset with "  \
      "SHMEM_DEBUG=yes: warn.")                                                                    \
    X(server, "SHMEM_SERVER", TEXT, 0, 0, "", "",                                                  \
      "Socket of the node server: a path, or @name in the abstract namespace. Unset: the user's "  \
      "own private server, started when needed.")                                                  \
    X(shmemd, "SHMEM_SHMEMD", TEXT, 0, 0, "", "",                                                  \
      "The shmemd program to start as private server. Unset: the one in bin beside the library's " \
      "folder, else the one on PATH.")                                                             \
    X(job, "SHMEM_JOB", TEXT, 0, 0, "", "",                                                        \
      "Name of the job that this process belongs to; set by the launcher.")                        \
    X(rank, "SHMEM_RANK", NUMBER, 0, 4094, "0 to 4094", "0",                                       \
      "Rank of this process in its job; set by the launcher.")                                     \
    X(size, "SHMEM_SIZE", NUMBER, 1, 4095, "1 to 4095", "1",                                       \
      "Number of processes in the job; set by the launcher.")                                      \
    X(init_timeout, "SHMEM_INIT_TIMEOUT", DURATION, 0, INT64_MAX, "", "60s",                       \
      "How long the start of a job waits for all of its processes.")                               \
    X(huge_pages, "SHMEM_HUGE_PAGES", CHOICE, 0, 0, "auto, required, off", "auto",                 \
      "Whether segments of 2 MiB and more use huge pages: where possible, or fail, or never.")     \
    X(lock_pages, "SHMEM_LOCK_PAGES", BOOL, 0, 0, "", "no",                                        \
      "Whether segments are locked in memory (mlock); a refusal is logged, not fatal.")            \
    X(spin, "SHMEM_SPIN", DURATION, 0, 1000000000, "0s to 1s", "50us",                             \
      "How long a wait polls before it sleeps in the kernel.")                                     \
    X(fill_threads, "SHMEM_FILL_THREADS", NUMBER, 0, 1024, "0 to 1024", "0",                       \
      "Threads that fill a new segment; 0: one for each processor that the caller may use.")       \
    X(task, "SHMEM_TASK", TEXT, 0, 0, "", "",                                                      \
      "Task that memory from pools is charged to, unless the program says another (1 to 47 "       \
      "bytes). Unset: none.")                                                                      \
    X(debug, "SHMEM_DEBUG", BOOL, 0, 0, "", "no",                                                  \
      "Whether pools that are created have guard bytes and traces of who allocated what where.")   \
    X(stats, "SHMEM_STATS", BOOL, 0, 0, "", "no",                                                  \
      "Whether the counters of the process are logged when its context ends (level info).")

enum { SHMEMI_TEXT_MAX = 256 };

/* C type of a field by kind: numbers (also choices as index into their list, booleans as 0 or 1,
 * durations in nanoseconds), or text. */
#define SHMEMI_SETTING_FIELD_SIZE(field)     int64_t field;
#define SHMEMI_SETTING_FIELD_NUMBER(field)   int64_t field;
#define SHMEMI_SETTING_FIELD_DURATION(field) int64_t field;
#define SHMEMI_SETTING_FIELD_BOOL(field)     int64_t field;
#define SHMEMI_SETTING_FIELD_CHOICE(field)   int64_t field;
#define SHMEMI_SETTING_FIELD_TEXT(field)     char field[SHMEMI_TEXT_MAX];

typedef struct shmemi_settings {
#define SHMEMI_SETTING_MEMBER(field, name, kind, min, max, choices, value, meaning)                \
    SHMEMI_SETTING_FIELD_##kind(field)
    SHMEMI_SETTINGS_TABLE(SHMEMI_SETTING_MEMBER)
#undef SHMEMI_SETTING_MEMBER
} shmemi_settings_t;

/* Order of the choices above. */
enum { SHMEMI_HUGE_AUTO, SHMEMI_HUGE_REQUIRED, SHMEMI_HUGE_OFF };

/* Read all settings from the environment. SHMEM_ERR_SETTING: the first bad one, named in the
 * detail; *settings is untouched then. Applies SHMEM_LOG as the default log level
 * (not set, but debug: warn, since what debug pools find is told there). */
shmem_status_t shmemi_settings_load(shmemi_settings_t *settings);

/* Was setting `name` given in the environment? */
int shmemi_settings_is_set(const char *name);

#endif
