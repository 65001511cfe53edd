/* SPDX-License-Identifier: Apache-2.0 */
/* Status table, the thread's detail, the log sink. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "harness.h"

static int sink_calls;
static char sink_text[700];
static shmem_log_level_t sink_level;

static void sink(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    CHECK(user == &sink_calls);
    CHECK_STR(layer, "test");
    sink_calls++;
    sink_level = level;
    snprintf(sink_text, sizeof sink_text, "%s", text);
}

static void every_code_has_a_name_and_a_text(void)
{
    int n = 0;
#define ONE(code, value, text, python)                                                             \
    CHECK_STR(shmem_status_name(code), #code);                                                     \
    CHECK_STR(shmem_strerror(code), text);                                                         \
    CHECK_EQ(code, -n);                                                                            \
    n++;
    SHMEM_STATUS_TABLE(ONE)
#undef ONE
    CHECK_STR(shmem_status_name((shmem_status_t)1), "unknown");
    CHECK_STR(shmem_strerror((shmem_status_t)-n), "unknown status");
}

static void failure_records_and_logs_once(void)
{
    shmem_log_set_sink(sink, &sink_calls, SHMEM_LOG_ERROR);
    sink_calls = 0;
    errno = EBADF;
    CHECK_STATUS(shmemi_fail(SHMEM_ERR_LIMIT, "test", "asked %d, found %d", 7, 3), SHMEM_ERR_LIMIT);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(sink_calls, 1);
    CHECK_EQ(sink_level, SHMEM_LOG_ERROR);
    CHECK_STR(sink_text, "SHMEM_ERR_LIMIT: asked 7, found 3");
    const shmem_error_detail_t *detail = shmem_error_detail();
    CHECK_EQ(detail->status, SHMEM_ERR_LIMIT);
    CHECK_EQ(detail->system_errno, 0);
    CHECK_STR(detail->layer, "test");
    CHECK_STR(detail->text, "asked 7, found 3");
    /* the arguments may be the old text itself */
    shmemi_fail(SHMEM_ERR_INVALID, "test", "again: %s", detail->text);
    CHECK_STR(shmem_error_detail()->text, "again: asked 7, found 3");
    shmem_log_set_sink(NULL, NULL, SHMEM_LOG_ERROR);
    shmemi_fail(SHMEM_ERR_INVALID, "test", "unheard");
    CHECK_EQ(sink_calls, 2);
}

static void errno_chooses_the_code(void)
{
    static const struct {
        int error;
        shmem_status_t status;
    } cases[] = {{ENOMEM, SHMEM_ERR_NOMEM}, {ENOSPC, SHMEM_ERR_NOMEM}, {EACCES, SHMEM_ERR_ACCESS},
                 {EPERM, SHMEM_ERR_ACCESS}, {EMFILE, SHMEM_ERR_LIMIT}, {ENFILE, SHMEM_ERR_LIMIT},
                 {EIO, SHMEM_ERR_SYSTEM}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        errno = cases[i].error;
        CHECK_STATUS(shmemi_fail_errno("test", "open"), cases[i].status);
        CHECK_EQ(errno, cases[i].error);
        CHECK_EQ(shmem_error_detail()->system_errno, cases[i].error);
        CHECK(strstr(shmem_error_detail()->text, strerror(cases[i].error)) != NULL);
    }
}

static void quiet_does_not_log(void)
{
    shmem_log_set_sink(sink, &sink_calls, SHMEM_LOG_DEBUG);
    sink_calls = 0;
    CHECK_STATUS(shmemi_quiet(SHMEM_ERR_BUSY, "test", "held by %d", 4), SHMEM_ERR_BUSY);
    CHECK_EQ(sink_calls, 0);
    CHECK_STR(shmem_error_detail()->text, "held by 4");
    shmem_log_set_sink(NULL, NULL, SHMEM_LOG_ERROR);
}

static void texts_are_cut_not_overrun(void)
{
    char big[2000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    errno = EIO;
    shmemi_fail_errno("test", "%s", big);
    CHECK(strlen(shmem_error_detail()->text) < 600);
}

static void *other_thread(void *arg)
{
    (void)arg;
    CHECK_EQ(shmem_error_detail()->status, SHMEM_OK);
    shmemi_quiet(SHMEM_ERR_TIMEOUT, "test", "theirs");
    return NULL;
}

static void details_belong_to_threads(void)
{
    shmemi_quiet(SHMEM_ERR_BUSY, "test", "mine");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_STR(shmem_error_detail()->text, "mine");
}

static void levels_filter(void)
{
    shmem_log_set_sink(sink, &sink_calls, SHMEM_LOG_WARN);
    sink_calls = 0;
    shmemi_log(SHMEM_LOG_INFO, "test", "no");
    CHECK_EQ(sink_calls, 0);
    shmemi_log(SHMEM_LOG_WARN, "test", "yes");
    CHECK_EQ(sink_calls, 1);
    shmemi_log_set_default_level(SHMEM_LOG_DEBUG); /* the program chose already */
    shmemi_log(SHMEM_LOG_DEBUG, "test", "no");
    CHECK_EQ(sink_calls, 1);
    shmem_log_set_sink(NULL, NULL, SHMEM_LOG_ERROR);
}

int main(void)
{
    RUN(every_code_has_a_name_and_a_text);
    RUN(failure_records_and_logs_once);
    RUN(errno_chooses_the_code);
    RUN(quiet_does_not_log);
    RUN(texts_are_cut_not_overrun);
    RUN(details_belong_to_threads);
    RUN(levels_filter);
    return harness_end();
}
