/* SPDX-License-Identifier: Apache-2.0 */
/* Status table and the thread's detail. Invariant: detail.text points at this thread's buffer. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { DETAIL_BYTES = 512 };

typedef struct status_entry {
    shmem_status_t status;
    const char *name;
    const char *text;
} status_entry_t;

static const status_entry_t status_table[] = {
#define STATUS_ENTRY(code, value, text, python) {code, #code, text},
    SHMEM_STATUS_TABLE(STATUS_ENTRY)
#undef STATUS_ENTRY
};

static _Thread_local char detail_text[DETAIL_BYTES];
static _Thread_local shmem_error_detail_t detail = {SHMEM_OK, 0, "", ""};

static const status_entry_t *status_find(shmem_status_t status)
{
    for (size_t i = 0; i < sizeof status_table / sizeof status_table[0]; i++)
        if (status_table[i].status == status)
            return &status_table[i];
    return NULL;
}

const char *shmem_strerror(shmem_status_t status)
{
    const status_entry_t *entry = status_find(status);
    return entry ? entry->text : "unknown status";
}

const char *shmem_status_name(shmem_status_t status)
{
    const status_entry_t *entry = status_find(status);
    return entry ? entry->name : "unknown";
}

const shmem_error_detail_t *shmem_error_detail(void)
{
    return &detail;
}

static void detail_record(shmem_status_t status, int error, const char *layer, const char *format,
                          va_list args)
{
    char text[DETAIL_BYTES]; /* the arguments may point into the old text */
    vsnprintf(text, sizeof text, format, args);
    if (error) {
        size_t used = strlen(text);
        char reason[96];
        snprintf(text + used, sizeof text - used, ": %s", strerror_r(error, reason, sizeof reason));
    }
    memcpy(detail_text, text, sizeof text);
    detail = (shmem_error_detail_t){status, error, layer, detail_text};
}

shmem_status_t shmemi_fail(shmem_status_t status, const char *layer, const char *format, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, format);
    detail_record(status, 0, layer, format, args);
    va_end(args);
    shmemi_log(SHMEM_LOG_ERROR, layer, "%s: %s", shmem_status_name(status), detail_text);
    errno = saved;
    return status;
}

static shmem_status_t status_from_errno(int error)
{
    switch (error) {
    case ENOMEM:
    case ENOSPC:
        return SHMEM_ERR_NOMEM;
    case EACCES:
    case EPERM:
        return SHMEM_ERR_ACCESS;
    case EMFILE:
    case ENFILE:
    case EFBIG:
        return SHMEM_ERR_LIMIT;
    default:
        return SHMEM_ERR_SYSTEM;
    }
}

shmem_status_t shmemi_fail_errno(const char *layer, const char *format, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, format);
    detail_record(status_from_errno(saved), saved, layer, format, args);
    va_end(args);
    shmemi_log(SHMEM_LOG_ERROR, layer, "%s: %s", shmem_status_name(detail.status), detail_text);
    errno = saved;
    return detail.status;
}

shmem_status_t shmemi_quiet(shmem_status_t status, const char *layer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    detail_record(status, 0, layer, format, args);
    va_end(args);
    return status;
}
