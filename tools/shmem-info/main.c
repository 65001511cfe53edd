/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmem-info: what the library sees on this machine, the settings in force, and what is missing.
 * Exit code 1 when a setting has a bad value.
 */
#include <getopt.h>
#include <shmem/version.h>
#include <stdio.h>
#include <stdlib.h>

#include "info.h"

static const char help_text[] =
    "usage: shmem-info [--measure] [--json]\n"
    "\n"
    "Says what the library sees on this machine: versions, NUMA nodes, distances, pages, limits,\n"
    "settings and where they come from, and what is slow or missing here.\n"
    "\n"
    "      --measure        measure latency and bandwidth between the nodes now (about 0.3 s for\n"
    "                       each two), print them and save them for this user's programs\n"
    "      --json           the same as one JSON object\n"
    "      --settings-doc   the page docs/settings.md\n"
    "      --help           this text\n"
    "      --version        the version\n"
    "\n"
    "Exit code: 0; 1 when a setting has a bad value; 2 for a wrong command line; 4 when nothing\n"
    "could be measured.\n";

enum { EXIT_BAD_SETTING = 1, EXIT_USAGE = 2, EXIT_OUTPUT = 3, EXIT_NOT_MEASURED = 4 };

/* What to show: bits. */
enum { SHOW_TEXT = 0, SHOW_JSON = 1, SHOW_MEASURED = 2, SHOW_SETTINGS_DOC = 4 };

static json_t *gather(int *bad)
{
    json_t *all =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "versions", info_versions(),
                  "topology", info_topology(), "huge_pages", info_huge_pages(), "limits",
                  info_limits(), "kernel", info_kernel(), "servers", info_servers(), "settings",
                  info_settings(bad), "unknown_settings", info_unknown_settings());
    if (all)
        json_object_set_new(all, "advice", info_advice(all));
    return all;
}

/* Print and drop `what` (NULL: out of memory). Returns 0 or the exit code. */
static int output(json_t *what, int form, void (*print)(const json_t *))
{
    if (!what) {
        fputs("shmem-info: out of memory\n", stderr);
        return EXIT_OUTPUT;
    }
    if (form & SHOW_JSON) {
        json_dumpf(what, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
    } else {
        print(what);
    }
    json_decref(what);
    return 0;
}

static int show_measured(int form)
{
    json_t *topology = info_measured_topology();
    const char *error = json_string_value(json_object_get(topology, "error"));
    if (error) {
        fprintf(stderr, "shmem-info: %s\n", error);
        json_decref(topology);
        return EXIT_NOT_MEASURED;
    }
    return output(topology, form, info_print_measured);
}

static int show(int form)
{
    int bad = 0, code = output(gather(&bad), form, info_print);
    if (code)
        return code;
    if (bad)
        fprintf(stderr, "shmem-info: %d setting%s a bad value\n", bad,
                bad == 1 ? " has" : "s have");
    return bad ? EXIT_BAD_SETTING : 0;
}

/* Returns what to show, or -1 after printing help or version (0) or a complaint (2) to *code. */
static int parse(int argc, char **argv, int *code)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},         {"measure", no_argument, NULL, 'm'},
        {"settings-doc", no_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},      {NULL, 0, NULL, 0}};
    int form = SHOW_TEXT, option;
    *code = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            form |= SHOW_JSON;
            break;
        case 'm':
            form |= SHOW_MEASURED;
            break;
        case 's':
            form |= SHOW_SETTINGS_DOC;
            break;
        case 'h':
            fputs(help_text, stdout);
            return -1;
        case 'v':
            printf("shmem-info %s (library %s)\n", SHMEM_VERSION_TEXT, shmem_version());
            return -1;
        default:
            *code = EXIT_USAGE;
            return -1;
        }
    }
    if (optind == argc)
        return form;
    fprintf(stderr, "shmem-info: unexpected argument '%s'\n", argv[optind]);
    *code = EXIT_USAGE;
    return -1;
}

int main(int argc, char **argv)
{
    int code, form = parse(argc, argv, &code);
    if (form >= 0 && form & SHOW_SETTINGS_DOC)
        code = info_settings_doc() ? EXIT_OUTPUT : 0;
    else if (form >= 0)
        code = form & SHOW_MEASURED ? show_measured(form) : show(form);
    if (fflush(stdout) || ferror(stdout)) {
        perror("shmem-info: cannot write output");
        return EXIT_OUTPUT;
    }
    return code;
}
