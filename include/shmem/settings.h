/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SHMEM_* environment settings, as the library reads them when a context is made.
 *
 * Threads: callable from any thread; the environment must not be changed meanwhile.
 */
#ifndef SHMEM_SETTINGS_H
#define SHMEM_SETTINGS_H

#include <shmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shmem_setting_info {
    const char *name;          /* "SHMEM_HUGE_PAGES" */
    const char *kind;          /* "size", "number", "duration", "yes or no", "choice", "text" */
    const char *choices;       /* "auto, required, off", a range such as "1 to 4096", or "" */
    const char *default_value; /* as one would write it; "" means unset */
    const char *meaning;       /* one sentence */
} shmem_setting_info_t;

/* Number of settings. */
SHMEM_API size_t shmem_setting_count(void);

/* Describe setting number `index` (0-based). Static strings. SHMEM_ERR_INVALID: no such index. */
SHMEM_API shmem_status_t shmem_setting_describe(size_t index, shmem_setting_info_t *info);

/*
 * The value in force for setting `index`, as text, into buffer[bytes], always terminated; *is_set
 * (may be NULL) tells whether the environment set it.
 * Errors: SHMEM_ERR_INVALID (no such index, no buffer); SHMEM_ERR_SETTING (the environment holds a
 * bad value; the detail says what is wrong and what would be right; the buffer then holds it).
 */
SHMEM_API shmem_status_t shmem_setting_value(size_t index, char *buffer, size_t bytes, int *is_set);

#ifdef __cplusplus
}
#endif
#endif
