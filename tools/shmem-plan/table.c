/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing the table of buffers. Fields are plain: no quotes, no commas inside. */
#include "table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const known[TABLE_KNOWN] = {"lower",     "upper",  "size",
                                               "alignment", "offset", "id"};

/* ---- fields ---- */

/* Field number `column` of a line: its beginning and length (without blanks around it). */
static const char *field(const char *line, int column, size_t *length)
{
    while (column-- > 0)
        line = strchr(line, ',') + 1; /* the line has that many: see check_fields() */
    line += strspn(line, " \t");
    *length = strcspn(line, ",");
    while (*length > 0 && strchr(" \t", line[*length - 1]))
        --*length;
    return line;
}

static size_t count_fields(const char *line)
{
    size_t n = 1;
    for (; *line; line++)
        n += *line == ',';
    return n;
}

/* A whole decimal number, with a sign only where one is allowed. Returns 0, or -1. */
static int parse(const char *text, size_t length, int is_signed, uint64_t *value)
{
    char copy[32], *end;
    if (length == 0 || length >= sizeof copy)
        return -1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    int has_sign = is_signed && copy[0] == '-';
    if (strspn(copy + has_sign, "0123456789") != length - (size_t)has_sign ||
        copy[has_sign] == '\0')
        return -1;
    errno = 0;
    *value = is_signed ? (uint64_t)strtoll(copy, &end, 10) : strtoull(copy, &end, 10);
    return errno || *end ? -1 : 0;
}

/* ---- reading ---- */

static int complain(const char *name, size_t line, const char *what)
{
    fprintf(stderr, "shmem-plan: %s, line %zu: %s\n", name, line, what);
    return -1;
}

static int read_header(table_t *table, const char *name, size_t line)
{
    table->columns = count_fields(table->header);
    for (int k = 0; k < TABLE_KNOWN; k++)
        table->column[k] = -1;
    for (size_t i = 0; i < table->columns; i++) {
        size_t length;
        const char *text = field(table->header, (int)i, &length);
        for (int k = 0; k < TABLE_KNOWN; k++) {
            if (length != strlen(known[k]) || memcmp(text, known[k], length) != 0)
                continue;
            if (table->column[k] >= 0)
                return complain(name, line, "a column appears twice");
            table->column[k] = (int)i;
        }
    }
    if (table->column[TABLE_LOWER] < 0 || table->column[TABLE_UPPER] < 0 ||
        table->column[TABLE_SIZE] < 0)
        return complain(name, line, "the header must name the columns lower, upper and size");
    return 0;
}

/* One number of a row. An absent column, or an empty field of an optional one, leaves it alone. */
static int read_number(const table_t *table, const char *row, int which, uint64_t *value,
                       int *is_set)
{
    size_t length;
    *is_set = 0;
    if (table->column[which] < 0)
        return 0;
    const char *text = field(row, table->column[which], &length);
    if (length == 0 && (which == TABLE_ALIGNMENT || which == TABLE_OFFSET))
        return 0;
    *is_set = 1;
    return parse(text, length, which == TABLE_LOWER || which == TABLE_UPPER, value);
}

static int read_row(const table_t *table, const char *row, shmem_plan_buffer_t *buffer,
                    const char *name, size_t line)
{
    uint64_t values[TABLE_ID] = {0};
    int is_set = 0;
    char text[160];
    if (count_fields(row) != table->columns) {
        snprintf(text, sizeof text, "%zu fields; the header has %zu", count_fields(row),
                 table->columns);
        return complain(name, line, text);
    }
    for (int k = 0; k < TABLE_ID; k++)
        if (read_number(table, row, k, &values[k], &is_set)) {
            size_t length;
            const char *bad = field(row, table->column[k], &length);
            snprintf(text, sizeof text, "%s '%.*s' is no %s that fits in 64 bits", known[k],
                     (int)(length < 40 ? length : 40), bad,
                     k == TABLE_LOWER || k == TABLE_UPPER ? "number" : "number from 0 on");
            return complain(name, line, text);
        }
    *buffer = (shmem_plan_buffer_t){.bytes = values[TABLE_SIZE],
                                    .alignment = values[TABLE_ALIGNMENT],
                                    .first = (int64_t)values[TABLE_LOWER],
                                    .last = (int64_t)values[TABLE_UPPER],
                                    .is_fixed = is_set, /* by the last one, the offset */
                                    .offset = values[TABLE_OFFSET]};
    return 0;
}

static int grow(table_t *table)
{
    if (table->count < table->room)
        return 0;
    size_t room = table->room ? 2 * table->room : 256;
    char **rows = realloc(table->rows, room * sizeof *rows);
    table->rows = rows ? rows : table->rows;
    size_t *lines = realloc(table->lines, room * sizeof *lines);
    table->lines = lines ? lines : table->lines;
    shmem_plan_buffer_t *buffers = realloc(table->buffers, room * sizeof *buffers);
    table->buffers = buffers ? buffers : table->buffers;
    if (!rows || !lines || !buffers)
        return -1;
    table->room = room;
    return 0;
}

/* Takes one line, which becomes the table's. */
static int take(table_t *table, char *text, const char *name, size_t line)
{
    if (!table->header) {
        table->header = text;
        return read_header(table, name, line);
    }
    shmem_plan_buffer_t buffer;
    if (grow(table)) {
        free(text);
        return complain(name, line, "out of memory");
    }
    table->rows[table->count] = text;
    table->lines[table->count] = line;
    if (read_row(table, text, &buffer, name, line)) {
        table->count++; /* to be freed */
        return -1;
    }
    table->buffers[table->count++] = buffer;
    return 0;
}

int table_read(table_t *table, FILE *file, const char *name)
{
    char *text = NULL;
    size_t room = 0, line = 0;
    ssize_t length;
    int bad = 0;
    *table = (table_t){0};
    while (!bad && (length = getline(&text, &room, file)) >= 0) {
        line++;
        if (memchr(text, '\0', (size_t)length) || memchr(text, '"', (size_t)length)) {
            bad = complain(name, line, "quotes and NUL bytes are not understood");
            break;
        }
        text[strcspn(text, "\r\n")] = '\0';
        if (text[strspn(text, " \t")] == '\0')
            continue;
        bad = take(table, text, name, line);
        text = NULL;
        room = 0;
    }
    free(text);
    if (!bad && ferror(file))
        bad = complain(name, line + 1, strerror(errno));
    if (!bad && !table->header)
        bad = complain(name, 1, "there is no header");
    return bad;
}

void table_free(table_t *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->rows[i]);
    free(table->header);
    free(table->rows);
    free(table->lines);
    free(table->buffers);
    *table = (table_t){0};
}

/* ---- writing ---- */

void table_write(const table_t *table, const uint64_t *offsets, FILE *file)
{
    int column = table->column[TABLE_OFFSET];
    fprintf(file, column < 0 ? "%s,offset\n" : "%s\n", table->header);
    for (size_t i = 0; i < table->count; i++) {
        const char *row = table->rows[i];
        if (column < 0) {
            fprintf(file, "%s,%" PRIu64 "\n", row, offsets[i]);
            continue;
        }
        size_t length;
        const char *old = field(row, column, &length);
        fprintf(file, "%.*s%" PRIu64 "%s\n", (int)(old - row), row, offsets[i], old + length);
    }
}

void table_id(const table_t *table, size_t row, char *buffer, size_t bytes)
{
    if (table->column[TABLE_ID] < 0) {
        snprintf(buffer, bytes, "line %zu", table->lines[row]);
        return;
    }
    size_t length;
    const char *text = field(table->rows[row], table->column[TABLE_ID], &length);
    snprintf(buffer, bytes, "%.*s", (int)(length < bytes ? length : bytes), text);
}
