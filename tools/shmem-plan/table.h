/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of buffers: CSV with a header. Columns, in any order: lower, upper, size; if present
 * alignment and offset (an offset given is fixed, an empty one is free). Others, such as id, are
 * kept as they are.
 */
#ifndef PLAN_TABLE_H
#define PLAN_TABLE_H

#include <shmem/plan.h>
#include <stdio.h>

enum { TABLE_LOWER, TABLE_UPPER, TABLE_SIZE, TABLE_ALIGNMENT, TABLE_OFFSET, TABLE_ID, TABLE_KNOWN };

typedef struct table {
    char *header, **rows; /* lines without their ends */
    size_t *lines;        /* number of each row's line, from 1 */
    shmem_plan_buffer_t *buffers;
    size_t count, room;
    size_t columns;
    int column[TABLE_KNOWN]; /* where a known column is, or -1 */
} table_t;

/* Reads it; complains on standard error, naming `name` and the line. Returns 0, or -1. */
int table_read(table_t *table, FILE *file, const char *name);
/* Writes the rows with their offsets: in the column of that name, else in a new last one. */
void table_write(const table_t *table, const uint64_t *offsets, FILE *file);
/* The text of a row's id, or of its line number without such a column; into buffer[bytes]. */
void table_id(const table_t *table, size_t row, char *buffer, size_t bytes);
void table_free(table_t *table);

#endif
