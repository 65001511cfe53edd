/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmem-plan: places buffers so that those which are never live together share memory. Reads a
 * table, writes it with offsets, draws it. Exit code 1 when the plan does not fit.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <shmem/plan.h>
#include <shmem/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drawing.h"
#include "table.h"

static const char help_text[] =
    "usage: shmem-plan [--capacity N] [--time-limit S] [--svg FILE] FILE\n"
    "\n"
    "Reads a table of buffers (CSV with the columns lower, upper, size and perhaps alignment and\n"
    "offset; FILE -: standard input) and prints it with an offset for each, such that buffers "
    "that\n"
    "are live at the same time do not overlap and little memory is needed. A buffer is live from\n"
    "lower on, and no longer at upper. A summary goes to standard error.\n"
    "\n"
    "      --capacity N     bytes that there are; stop when the plan fits\n"
    "      --time-limit S   seconds to search for a better plan (default 10; 0: none)\n"
    "      --svg FILE       draw the plan, time to the right, addresses upwards\n"
    "      --help           this text\n"
    "      --version        the version\n"
    "\n"
    "Exit code: 0; 1 when the plan does not fit; 2 for a wrong command line or table; 3 when the\n"
    "output cannot be written or memory is short.\n";

enum { EXIT_NO_FIT = 1, EXIT_USAGE = 2, EXIT_OUTPUT = 3 };

typedef struct options {
    const char *input, *svg;
    shmem_plan_params_t params;
} options_t;

/* ---- command line ---- */

static int parse_number(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno || *end || *text < '0' || *text > '9' || *value == 0 ? -1 : 0;
}

static int parse_seconds(const char *text, int64_t *ns)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds >= 0) || seconds > 1e9)
        return -1;
    *ns = (int64_t)(seconds * 1e9);
    return 0;
}

/* One option. Returns 1 to go on, 0 to end well, -1 after a complaint. */
static int take_option(options_t *options, int option, const char *value)
{
    switch (option) {
    case 'c':
        if (parse_number(value, &options->params.capacity) == 0)
            return 1;
        fprintf(stderr, "shmem-plan: --capacity '%s' is no number of bytes above 0\n", value);
        return -1;
    case 't':
        if (parse_seconds(value, &options->params.time_limit) == 0)
            return 1;
        fprintf(stderr, "shmem-plan: --time-limit '%s' is no number of seconds\n", value);
        return -1;
    case 's':
        options->svg = value;
        if (strcmp(value, "-") != 0)
            return 1;
        fputs("shmem-plan: --svg wants the name of a file: standard output gets the table\n",
              stderr);
        return -1;
    case 'h':
        fputs(help_text, stdout);
        return 0;
    case 'v':
        printf("shmem-plan %s (library %s)\n", SHMEM_VERSION_TEXT, shmem_version());
        return 0;
    default:
        return -1;
    }
}

/* Returns as take_option(). */
static int parse_options(options_t *options, int argc, char **argv)
{
    static const struct option known[] = {
        {"capacity", required_argument, NULL, 'c'}, {"time-limit", required_argument, NULL, 't'},
        {"svg", required_argument, NULL, 's'},      {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},        {NULL, 0, NULL, 0}};
    int option, go_on = 1;
    while (go_on == 1 && (option = getopt_long(argc, argv, "", known, NULL)) != -1)
        go_on = take_option(options, option, optarg);
    if (go_on != 1)
        return go_on;
    if (argc - optind != 1) {
        fputs("shmem-plan: name one table, or - for standard input; see --help\n", stderr);
        return -1;
    }
    options->input = argv[optind];
    return 1;
}

/* ---- work ---- */

static int read_table(table_t *table, const char *name)
{
    int is_stdin = strcmp(name, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(name, "r");
    if (!file) {
        fprintf(stderr, "shmem-plan: cannot open %s: %s\n", name, strerror(errno));
        return -1;
    }
    int bad = table_read(table, file, is_stdin ? "standard input" : name);
    if (!is_stdin)
        fclose(file);
    return bad;
}

/* Says why the library refused the table, and which lines it is about: the first buffer, or the
 * first two, that it refuses alone, too. */
static void explain(const table_t *table)
{
    const shmem_plan_buffer_t *b = table->buffers;
    uint64_t offsets[2];
    fprintf(stderr, "shmem-plan: %s\n", shmem_error_detail()->text);
    for (size_t i = 0; i < table->count; i++)
        if (shmem_plan_solve(&b[i], 1, NULL, offsets, NULL)) {
            fprintf(stderr, "shmem-plan: that is line %zu\n", table->lines[i]);
            return;
        }
    for (size_t i = 0; i < table->count; i++)
        for (size_t j = i + 1; b[i].is_fixed && j < table->count; j++) {
            shmem_plan_buffer_t two[] = {b[i], b[j]};
            if (b[j].is_fixed && shmem_plan_solve(two, 2, NULL, offsets, NULL)) {
                fprintf(stderr, "shmem-plan: those are lines %zu and %zu\n", table->lines[i],
                        table->lines[j]);
                return;
            }
        }
}

static int draw(const table_t *table, const uint64_t *offsets, const shmem_plan_result_t *result,
                const options_t *options)
{
    FILE *file = fopen(options->svg, "w");
    int bad = !file;
    if (file) {
        drawing_write(table, offsets, result, options->params.capacity, file);
        bad = ferror(file) != 0;
        bad = fclose(file) != 0 || bad;
    }
    if (bad)
        fprintf(stderr, "shmem-plan: cannot write %s: %s\n", options->svg, strerror(errno));
    return bad ? EXIT_OUTPUT : 0;
}

static int print(const table_t *table, const uint64_t *offsets, const shmem_plan_result_t *result,
                 const options_t *options)
{
    table_write(table, offsets, stdout);
    if (fflush(stdout) || ferror(stdout)) {
        perror("shmem-plan: cannot write output");
        return EXIT_OUTPUT;
    }
    if (options->svg && draw(table, offsets, result, options))
        return EXIT_OUTPUT;
    fprintf(stderr, "%zu buffers, peak %" PRIu64 ", lower bound %" PRIu64 "%s\n", table->count,
            result->peak, result->lower_bound, result->is_optimal ? ": optimal" : "");
    if (!result->fits)
        fprintf(stderr, "shmem-plan: it does not fit into %" PRIu64 "%s\n",
                options->params.capacity,
                result->lower_bound > options->params.capacity ? "; no plan does" : "");
    return result->fits ? 0 : EXIT_NO_FIT;
}

static int plan(const table_t *table, const options_t *options)
{
    shmem_plan_result_t result = {.size = sizeof result};
    uint64_t *offsets = calloc(table->count + 1, sizeof *offsets);
    if (!offsets) {
        fputs("shmem-plan: out of memory\n", stderr);
        return EXIT_OUTPUT;
    }
    int code = EXIT_OUTPUT;
    shmem_status_t status =
        shmem_plan_solve(table->buffers, table->count, &options->params, offsets, &result);
    if (status == SHMEM_OK) {
        code = print(table, offsets, &result, options);
    } else {
        explain(table);
        code = status == SHMEM_ERR_NOMEM ? EXIT_OUTPUT : EXIT_USAGE;
    }
    free(offsets);
    return code;
}

int main(int argc, char **argv)
{
    options_t options = {.params = SHMEM_PLAN_PARAMS_INIT};
    table_t table;
    options.params.time_limit = INT64_C(10000000000);
    int go_on = parse_options(&options, argc, argv);
    if (go_on <= 0)
        return go_on < 0 ? EXIT_USAGE : fflush(stdout) ? EXIT_OUTPUT : 0;
    int code = read_table(&table, options.input) ? EXIT_USAGE : plan(&table, &options);
    table_free(&table);
    return code;
}
