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
    "usage: shmem-info [--json]\n"
    "\n"
    "Says what the library sees on this machine: versions, NUMA nodes, distances, pages, limits,\n"
    "settings and where they come from, and what is slow or missing here.\n"
    "\n"
    "      --json           the same as one JSON object\n"
    "      --settings-doc   the page docs/settings.md\n"
    "      --help           this text\n"
    "      --version        the version\n"
    "\n"
    "Exit code: 0; 1 when a setting has a bad value; 2 for a wrong command line.\n";

enum { EXIT_BAD_SETTING = 1, EXIT_USAGE = 2, EXIT_OUTPUT = 3 };

enum { SHOW_TEXT, SHOW_JSON, SHOW_SETTINGS_DOC };

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

static int show(int form)
{
    int bad = 0;
    json_t *all = gather(&bad);
    if (!all) {
        fputs("shmem-info: out of memory\n", stderr);
        return EXIT_OUTPUT;
    }
    if (form == SHOW_JSON) {
        json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
    } else {
        info_print(all);
    }
    json_decref(all);
    if (bad)
        fprintf(stderr, "shmem-info: %d setting%s a bad value\n", bad,
                bad == 1 ? " has" : "s have");
    return bad ? EXIT_BAD_SETTING : 0;
}

/* Returns what to show, or -1 after printing help or version (0) or a complaint (2) to *code. */
static int parse(int argc, char **argv, int *code)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"settings-doc", no_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'v'},
                                            {NULL, 0, NULL, 0}};
    int form = SHOW_TEXT, option;
    *code = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            form = SHOW_JSON;
            break;
        case 's':
            form = SHOW_SETTINGS_DOC;
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
    if (form == SHOW_SETTINGS_DOC)
        code = info_settings_doc() ? EXIT_OUTPUT : 0;
    else if (form >= 0)
        code = show(form);
    if (fflush(stdout) || ferror(stdout)) {
        perror("shmem-info: cannot write output");
        return EXIT_OUTPUT;
    }
    return code;
}
