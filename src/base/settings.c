/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of SHMEM_* settings. Invariant: every default in the table parses (tested). */
#include "base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "base/util.h"

#define LAYER "base"

typedef enum kind { SIZE, NUMBER, DURATION, BOOL, CHOICE, TEXT } kind_t;

typedef struct setting {
    const char *name;
    kind_t kind;
    int64_t min, max;
    const char *choices;
    const char *default_value;
    const char *meaning;
    size_t offset;
} setting_t;

static const setting_t table[] = {
#define SETTING_ENTRY(field, name, kind, min, max, choices, value, meaning)                        \
    {name, kind, min, max, choices, value, meaning, offsetof(shmemi_settings_t, field)},
    SHMEMI_SETTINGS_TABLE(SETTING_ENTRY)
#undef SETTING_ENTRY
};

static const char *const kind_names[] = {"size",      "number", "duration",
                                         "yes or no", "choice", "text"};

static const char *const kind_help[] = {
    "a whole number of bytes, with K, M, G or T if wanted, such as 512M (write 1536M for 1.5G)",
    "a whole number",
    "a whole number with a unit ns, us, ms or s, such as 50us",
    "yes or no",
    "",
    "text that is not empty"};

static shmem_status_t bad_value(const setting_t *s, const char *value)
{
    if (s->kind == CHOICE)
        return shmemi_fail(SHMEM_ERR_SETTING, LAYER, "%s is '%s', must be one of: %s", s->name,
                           value, s->choices);
    return shmemi_fail(SHMEM_ERR_SETTING, LAYER, "%s is '%s', must be %s%s%s", s->name, value,
                       kind_help[s->kind], *s->choices ? ", from " : "", s->choices);
}

/* Digits up to *end; false when there are none or they overflow. */
static bool parse_digits(const char *text, const char **end, int64_t *out)
{
    int64_t n = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *p - '0', &n))
            return false;
    *end = p;
    *out = n;
    return p != text;
}

static bool unit_factor(kind_t kind, const char *unit, int64_t *factor)
{
    static const struct {
        kind_t kind;
        const char *unit;
        int64_t factor;
    } units[] = {
        {SIZE, "", 1},
        {SIZE, "K", 1 << 10},
        {SIZE, "M", 1 << 20},
        {SIZE, "G", 1 << 30},
        {SIZE, "T", 1LL << 40},
        {NUMBER, "", 1},
        {DURATION, "ns", 1},
        {DURATION, "us", 1000},
        {DURATION, "ms", 1000000},
        {DURATION, "s", 1000000000},
    };
    for (size_t i = 0; i < SHMEMI_COUNT(units); i++)
        if (units[i].kind == kind && strcmp(units[i].unit, unit) == 0) {
            *factor = units[i].factor;
            return true;
        }
    return false;
}

static bool parse_scaled(const setting_t *s, const char *text, int64_t *out)
{
    const char *unit;
    int64_t n, factor;
    if (!parse_digits(text, &unit, &n) || !unit_factor(s->kind, unit, &factor))
        return false;
    if (__builtin_mul_overflow(n, factor, &n))
        return false;
    if (s->kind == SIZE ? n == 0 : (n < s->min || n > s->max))
        return false;
    *out = n;
    return true;
}

static bool parse_choice(const char *choices, const char *text, int64_t *out)
{
    size_t length = strlen(text);
    int64_t index = 0;
    for (const char *p = choices; p; index++) {
        const char *comma = strchr(p, ',');
        size_t n = comma ? (size_t)(comma - p) : strlen(p);
        if (n == length && memcmp(p, text, n) == 0) {
            *out = index;
            return true;
        }
        p = comma ? comma + 2 : NULL;
    }
    return false;
}

static bool parse(const setting_t *s, const char *text, void *field)
{
    int64_t *number = field;
    switch (s->kind) {
    case TEXT:
        if (!*text || strlen(text) >= SHMEMI_TEXT_MAX)
            return false;
        strcpy(field, text);
        return true;
    case CHOICE:
        return parse_choice(s->choices, text, number);
    case BOOL:
        return parse_choice("no, yes", text, number);
    default:
        return parse_scaled(s, text, number);
    }
}

static shmem_status_t load_one(const setting_t *s, shmemi_settings_t *settings)
{
    const char *value = getenv(s->name);
    void *field = (char *)settings + s->offset;
    if (value)
        return parse(s, value, field) ? SHMEM_OK : bad_value(s, value);
    if (*s->default_value && !parse(s, s->default_value, field))
        return bad_value(s, s->default_value);
    return SHMEM_OK;
}

shmem_status_t shmemi_settings_load(shmemi_settings_t *settings)
{
    shmemi_settings_t fresh;
    memset(&fresh, 0, sizeof fresh);
    for (size_t i = 0; i < SHMEMI_COUNT(table); i++) {
        shmem_status_t status = load_one(&table[i], &fresh);
        if (status)
            return status;
    }
    if (fresh.debug && !shmemi_settings_is_set("SHMEM_LOG"))
        fresh.log = SHMEM_LOG_WARN;
    shmemi_log_set_default_level((int)fresh.log);
    *settings = fresh;
    return SHMEM_OK;
}

int shmemi_settings_is_set(const char *name)
{
    return getenv(name) != NULL;
}

size_t shmem_setting_count(void)
{
    return SHMEMI_COUNT(table);
}

shmem_status_t shmem_setting_describe(size_t index, shmem_setting_info_t *info)
{
    if (index >= SHMEMI_COUNT(table) || !info)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "setting %zu asked for, there are settings 0 to %zu", index,
                           SHMEMI_COUNT(table) - 1);
    const setting_t *s = &table[index];
    *info = (shmem_setting_info_t){s->name, kind_names[s->kind], s->choices, s->default_value,
                                   s->meaning};
    return SHMEM_OK;
}

shmem_status_t shmem_setting_value(size_t index, char *buffer, size_t bytes, int *is_set)
{
    if (index >= SHMEMI_COUNT(table) || !buffer || !bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "setting %zu asked for with a buffer of %zu "
                           "bytes, there are settings 0 to %zu",
                           index, bytes, SHMEMI_COUNT(table) - 1);
    const setting_t *s = &table[index];
    const char *value = getenv(s->name);
    if (is_set)
        *is_set = value != NULL;
    snprintf(buffer, bytes, "%s", value ? value : s->default_value);
    shmemi_settings_t scratch;
    return load_one(s, &scratch);
}
