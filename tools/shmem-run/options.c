/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of the command line: whole numbers, durations with a unit, nothing guessed. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <shmem/version.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_TAG = 256, OPTION_BIND, OPTION_TIMEOUT, OPTION_GRACE, OPTION_HELP, OPTION_VERSION };

static const struct option long_options[] = {{"pes", required_argument, NULL, 'n'},
                                             {"tag", no_argument, NULL, OPTION_TAG},
                                             {"bind", no_argument, NULL, OPTION_BIND},
                                             {"timeout", required_argument, NULL, OPTION_TIMEOUT},
                                             {"grace", required_argument, NULL, OPTION_GRACE},
                                             {"verbose", no_argument, NULL, 'v'},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {"version", no_argument, NULL, OPTION_VERSION},
                                             {NULL, 0, NULL, 0}};

static const char help_text[] =
    "usage: shmem-run -n N [options] program [arguments]\n"
    "\n"
    "Runs N copies of a program on this machine as one job: each is a processing element (PE)\n"
    "with a rank from 0 to N - 1, and shmem_init() joins them.\n"
    "\n"
    "  -n, --pes N      number of PEs, 1 to 4095\n"
    "      --tag        put [rank] before each line of output\n"
    "      --bind       bind each PE to a processor core, in turn over those allowed\n"
    "      --timeout T  end the job after T, such as 90s, 500ms, 10m; exit code 124\n"
    "      --grace T    time between SIGTERM and SIGKILL when the job is ended (2s)\n"
    "  -v, --verbose    say which process is which rank, and how each one ended\n"
    "      --help       this text\n"
    "      --version    the version\n"
    "\n"
    "Exit code: 0 when all PEs end with 0, else that of the first to fail (128 + the number of\n"
    "the signal if it was killed); the others are then ended. 124 time is up, 125 shmem-run "
    "itself\n"
    "failed, 126 the program cannot be run, 127 it was not found.\n"
    "\n"
    "Standard input goes to rank 0. See shmem-run(1) for signals and output.\n";

static int usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("shmem-run: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\nTry 'shmem-run --help'.\n", stderr);
    va_end(args);
    return RUN_EXIT_FAILED;
}

/* A whole number of decimal digits; false for anything else, also for one that overflows. */
static bool parse_digits(const char *text, const char **end, int64_t *out)
{
    if (*text < '0' || *text > '9')
        return false;
    char *stop;
    errno = 0;
    intmax_t n = strtoimax(text, &stop, 10);
    if (errno)
        return false;
    *end = stop;
    *out = n;
    return true;
}

static bool parse_duration(const char *text, int64_t *ns)
{
    static const struct {
        const char *unit;
        int64_t ns;
    } units[] = {{"", 1000000000},  {"ns", 1},          {"us", 1000},        {"ms", 1000000},
                 {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000}};
    const char *unit;
    int64_t n;
    if (!parse_digits(text, &unit, &n))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(units[i].unit, unit) == 0)
            return !__builtin_mul_overflow(n, units[i].ns, ns);
    return false;
}

static int set_pes(run_options_t *options, const char *text)
{
    const char *end;
    int64_t n;
    if (!parse_digits(text, &end, &n) || *end || n < 1 || n > RUN_PES_MAX)
        return usage_error("-n %s: the number of PEs must be a whole number from 1 to %d", text,
                           RUN_PES_MAX);
    options->pes = (int)n;
    return -1;
}

static int set_duration(const char *name, int64_t *field, const char *text, int64_t least)
{
    int64_t ns;
    if (!parse_duration(text, &ns) || ns < least)
        return usage_error(
            "%s %s: must be a whole number with a unit ns, us, ms, s, m or h, such as "
            "90s%s",
            name, text, least ? ", and more than 0" : "");
    *field = ns;
    return -1;
}

static int set_option(run_options_t *options, int option, char **argv)
{
    switch (option) {
    case 'n':
        return set_pes(options, optarg);
    case OPTION_TAG:
        options->tag = true;
        return -1;
    case OPTION_BIND:
        options->bind = true;
        return -1;
    case OPTION_TIMEOUT:
        return set_duration("--timeout", &options->timeout_ns, optarg, 1);
    case OPTION_GRACE:
        return set_duration("--grace", &options->grace_ns, optarg, 0);
    case 'v':
        options->verbose = true;
        return -1;
    case OPTION_HELP:
        fputs(help_text, stdout);
        return fflush(stdout) ? RUN_EXIT_FAILED : 0;
    case OPTION_VERSION:
        printf("shmem-run %s (library %s)\n", SHMEM_VERSION_TEXT, shmem_version());
        return fflush(stdout) ? RUN_EXIT_FAILED : 0;
    case ':':
        return usage_error("option '%s' needs a value", argv[optind - 1]);
    default:
        if (optopt && optopt < 256)
            return usage_error("unknown option '-%c'", optopt);
        return usage_error("unknown or ambiguous option '%s'", argv[optind - 1]);
    }
}

int run_options_parse(int argc, char **argv, run_options_t *options)
{
    *options = (run_options_t){.grace_ns = 2000000000};
    opterr = 0;
    int option;
    while ((option = getopt_long(argc, argv, "+:n:v", long_options, NULL)) != -1) {
        int code = set_option(options, option, argv);
        if (code >= 0)
            return code;
    }
    if (!options->pes)
        return usage_error("how many PEs? Give -n N");
    if (optind == argc)
        return usage_error("no program to run");
    options->argv = argv + optind;
    return -1;
}
