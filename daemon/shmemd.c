/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmemd: the node server as a program.
 *
 *     shmemd [--address A] [--all-users] [--private]
 *
 * It prints its address on standard output when it listens, and serves until SIGTERM or SIGINT (or,
 * with --private, until its last client has gone). SHMEM_LOG says how much it tells on standard
 * error.
 *
 * --detach is for the library, which starts private servers: the server goes on in a session of
 * its own with nothing inherited from the program that wanted it.
 * It tells the outcome through descriptor 3: "+" it listens; "=" another server does; "-" and a
 * sentence: it failed. What it does not do: anything that the library does not do.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <shmem/server.h>
#include <shmem/status.h>
#include <shmem/version.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_TAKEN = 3, READY_FD = 3 };

static shmem_server_t server;

typedef struct options {
    const char *address;
    int is_private, all_users, detach;
} options_t;

static const char help[] =
    "usage: shmemd [--address A] [--all-users] [--private] [--foreground]\n"
    "The node server of shmem: creates shared segments, and repairs what ended processes held.\n"
    "  --address A   listen at A: a path, or @name in the abstract socket namespace\n"
    "                (default: an abstract name of its own, which is printed)\n"
    "  --all-users   serve every user, not only the own one and root (wants root)\n"
    "  --private     end when the last client has gone\n"
    "  --foreground  stay in the foreground (the default)\n"
    "  --version     print the version\n"
    "  --help        print this text\n"
    "SHMEM_LOG=off|error|warn|info|debug tells how much is said on standard error.\n"
    "Exit codes: 0 ended as told, 1 failed, 2 wrong usage, 3 a server listens at A already.\n";

/* ---- options ---- */

/* Exit code, or -1: go on. */
static int parse(int argc, char **argv, options_t *options)
{
    static const struct option known[] = {
        {"address", required_argument, NULL, 'a'}, {"all-users", no_argument, NULL, 'u'},
        {"private", no_argument, NULL, 'p'},       {"foreground", no_argument, NULL, 'f'},
        {"detach", no_argument, NULL, 'd'},        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'a':
            options->address = optarg;
            break;
        case 'u':
            options->all_users = 1;
            break;
        case 'p':
            options->is_private = 1;
            break;
        case 'f':
            break;
        case 'd':
            options->detach = 1;
            break;
        case 'v':
            printf("shmemd %s\n", shmem_version());
            return 0;
        case 'h':
            fputs(help, stdout);
            return 0;
        default: /* getopt has named the option */
            fputs("Try 'shmemd --help'.\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind == argc)
        return -1;
    fprintf(stderr, "shmemd: unexpected argument '%s'. Try 'shmemd --help'.\n", argv[optind]);
    return EXIT_USAGE;
}

/* ---- detaching ---- */

static void close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0u, 0) == 0)
        return;
#endif
    struct rlimit limit;
    int end = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536 ? (int)limit.rlim_cur
                                                                              : 65536;
    for (int fd = first; fd < end; fd++)
        close(fd);
}

/* Signals as in a new login: exec keeps what was ignored and blocked. */
static void reset_signals(void)
{
    sigset_t none;
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL); /* refused for some: they have no other disposition */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A server serves everybody: the starter's processors and memory policy are not its own. */
static void reset_placement(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all); /* cut to what the cpuset allows */
#ifdef SYS_set_mempolicy
    syscall(SYS_set_mempolicy, 0, NULL, 0);
#endif
}

static void say_ready(const char *mark, const char *text)
{
    char word[256];
    int n = snprintf(word, sizeof word, "%s%s", mark, text);
    size_t length = n < (int)sizeof word ? (size_t)n : sizeof word - 1;
    if (write(READY_FD, word, length) < 0)
        return; /* the starter has gone: nobody wants to know */
}

/* The library has seen to it that this process is nobody's child and leads no group. */
static int detach(void)
{
    close_from(READY_FD + 1);
    fcntl(READY_FD, F_SETFD, FD_CLOEXEC);
    setsid();
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; null >= 0 && fd < READY_FD; fd++)
        if (fd != null)
            dup2(null, fd);
    if (null > READY_FD)
        close(null);
    umask(077);
    reset_signals();
    reset_placement();
    return chdir("/") == 0;
}

/* ---- serving ---- */

static void on_signal(int number)
{
    (void)number;
    shmem_server_stop(server);
}

static void take_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a segment too large is an error of its own, not the end of all */
}

/* A server serves everybody: two descriptors per client and one per segment, files as large as any
 * client's memory, and as long as they want it. So take what may be had, whatever limits the one
 * that started it had set for its own work. */
static void raise_limits(void)
{
    static const int limits[] = {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_CPU,    RLIMIT_AS,
                                 RLIMIT_DATA,   RLIMIT_NPROC, RLIMIT_MEMLOCK};
    struct rlimit limit;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (getrlimit(limits[i], &limit) == 0 && limit.rlim_cur != limit.rlim_max) {
            limit.rlim_cur = limit.rlim_max;
            setrlimit(limits[i], &limit);
        }
}

static int create_failed(const options_t *options, shmem_status_t status)
{
    const char *text = shmem_error_detail()->text;
    if (options->detach)
        say_ready(status == SHMEM_ERR_EXISTS ? "=" : "-", text);
    fprintf(stderr, "shmemd: %s\n", text);
    return status == SHMEM_ERR_EXISTS ? EXIT_TAKEN : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    options_t options = {0};
    int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    if (options.detach && !detach()) {
        say_ready("-", "it cannot go to the root directory");
        return EXIT_FAILED;
    }
    raise_limits();
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    params.address = options.address;
    params.exit_when_unused = options.is_private;
    params.all_users = options.all_users;
    params.takeover = 1;
    shmem_status_t status = shmem_server_create(&server, &params);
    if (status)
        return create_failed(&options, status);
    take_signals();
    if (options.detach) {
        say_ready("+", "");
        close(READY_FD);
    } else {
        printf("%s\n", shmem_server_address(server));
        fflush(stdout);
    }
    status = shmem_server_run(server);
    if (status)
        fprintf(stderr, "shmemd: %s\n", shmem_error_detail()->text);
    shmem_server_destroy(server);
    return status ? EXIT_FAILED : 0;
}
