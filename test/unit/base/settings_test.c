/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: defaults parse, bad values are errors that say what would be right. */
#include <stdlib.h>

#include "base/settings.h"
#include "harness.h"

static void refuse(const char *name, const char *value)
{
    shmemi_settings_t settings;
    memset(&settings, 0x5a, sizeof settings);
    shmemi_settings_t before = settings;
    setenv(name, value, 1);
    CHECK_STATUS(shmemi_settings_load(&settings), SHMEM_ERR_SETTING);
    CHECK(memcmp(&before, &settings, sizeof settings) == 0);
    CHECK(strstr(shmem_error_detail()->text, name) != NULL);
    unsetenv(name);
}

static int64_t accept_spin(const char *value)
{
    shmemi_settings_t settings;
    setenv("SHMEM_SPIN", value, 1);
    CHECK_OK(shmemi_settings_load(&settings));
    unsetenv("SHMEM_SPIN");
    return settings.spin;
}

static void defaults_parse(void)
{
    shmemi_settings_t settings;
    CHECK_OK(shmemi_settings_load(&settings));
    CHECK_EQ(settings.size, 1);
    CHECK_EQ(settings.spin, 50000);
    CHECK_EQ(settings.init_timeout, 60000000000LL);
    CHECK_EQ(settings.huge_pages, SHMEMI_HUGE_AUTO);
    CHECK_STR(settings.server, "");
}

static void durations(void)
{
    CHECK_EQ(accept_spin("0us"), 0);
    CHECK_EQ(accept_spin("7ns"), 7);
    CHECK_EQ(accept_spin("3ms"), 3000000);
    static const char *const bad[] = {"",   "-1",  "50",    "50 us", "1.5us",
                                      "us", "50m", "50us ", "2000s", "99999999999999999999ns"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse("SHMEM_SPIN", bad[i]);
}

static void numbers(void)
{
    static const char *const bad[] = {"", "-1", "20kk", "1.5G", "0x10", "65537", " 4", "4 ", "+4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse("SHMEM_SIZE", bad[i]);
    refuse("SHMEM_SIZE", "0");
    CHECK(strstr(shmem_error_detail()->text, "a whole number, from 1 to 4095") != NULL);
}

static void choices_and_booleans(void)
{
    static const char *const bad[] = {"", "of", "offf", "off,", "Auto", "auto, required"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse("SHMEM_HUGE_PAGES", bad[i]);
    refuse("SHMEM_LOCK_PAGES", "1");
    refuse("SHMEM_LOCK_PAGES", "");
    setenv("SHMEM_HUGE_PAGES", "off", 1);
    setenv("SHMEM_LOCK_PAGES", "yes", 1);
    shmemi_settings_t settings;
    CHECK_OK(shmemi_settings_load(&settings));
    CHECK_EQ(settings.huge_pages, SHMEMI_HUGE_OFF);
    CHECK_EQ(settings.lock_pages, 1);
    unsetenv("SHMEM_HUGE_PAGES");
    unsetenv("SHMEM_LOCK_PAGES");
}

static int64_t log_level(const char *debug, const char *log)
{
    shmemi_settings_t settings;
    setenv("SHMEM_DEBUG", debug, 1);
    if (log)
        setenv("SHMEM_LOG", log, 1);
    CHECK_OK(shmemi_settings_load(&settings));
    unsetenv("SHMEM_DEBUG");
    unsetenv("SHMEM_LOG");
    return settings.log;
}

/* What debug pools find is seen without a second setting, unless that says otherwise. */
static void debug_speaks(void)
{
    CHECK_EQ(log_level("no", NULL), 0);
    CHECK_EQ(log_level("yes", NULL), SHMEM_LOG_WARN);
    CHECK_EQ(log_level("yes", "off"), 0);
    CHECK_EQ(log_level("yes", "error"), SHMEM_LOG_ERROR);
    CHECK_EQ(log_level("yes", "debug"), SHMEM_LOG_DEBUG);
}

static void texts(void)
{
    refuse("SHMEM_SERVER", "");
    char longest[SHMEMI_TEXT_MAX + 1];
    memset(longest, 'x', sizeof longest);
    longest[SHMEMI_TEXT_MAX] = 0;
    refuse("SHMEM_SERVER", longest);
}

static void public_description(void)
{
    shmem_setting_info_t info;
    char value[16];
    int is_set = 5;
    for (size_t i = 0; i < shmem_setting_count(); i++) {
        CHECK_OK(shmem_setting_describe(i, &info));
        CHECK(info.name && info.meaning && *info.meaning);
        CHECK_OK(shmem_setting_value(i, value, sizeof value, &is_set));
        CHECK_EQ(is_set, 0);
    }
    CHECK_STATUS(shmem_setting_describe(shmem_setting_count(), &info), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_setting_value(0, NULL, 3, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_setting_value(SIZE_MAX, value, 3, NULL), SHMEM_ERR_INVALID);
    setenv("SHMEM_LOG", "loud", 1);
    CHECK_STATUS(shmem_setting_value(0, value, sizeof value, &is_set), SHMEM_ERR_SETTING);
    CHECK_STR(value, "loud");
    CHECK_EQ(is_set, 1);
    unsetenv("SHMEM_LOG");
}

/* The tests' own environment must not speak here. */
static void clear_environment(void)
{
    shmem_setting_info_t info;
    for (size_t i = 0; i < shmem_setting_count(); i++) {
        CHECK_OK(shmem_setting_describe(i, &info));
        unsetenv(info.name);
    }
}

int main(void)
{
    clear_environment();
    RUN(defaults_parse);
    RUN(durations);
    RUN(numbers);
    RUN(choices_and_booleans);
    RUN(texts);
    RUN(public_description);
    RUN(debug_speaks);
    return harness_end();
}
