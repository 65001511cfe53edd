/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmem-run: runs N copies of a program as one job on this machine.
 *
 * The job's node server is a thread of this process, at an abstract address of its own; it and the
 * processes of the job end with this process, however that ends, and leave nothing behind.
 * It does not start jobs on other machines.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <shmem/settings.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "job.h"

typedef struct server_thread {
    shmem_server_t server;
    int ends;
    pthread_t thread;
} server_thread_t;

static int say_failure(const char *what)
{
    fprintf(stderr, "shmem-run: cannot %s: %s\n", what, strerror(errno));
    return RUN_EXIT_FAILED;
}

static int say_library_failure(const char *what, shmem_status_t status)
{
    fprintf(stderr, "shmem-run: cannot %s: %s (%s)\n", what, shmem_error_detail()->text,
            shmem_status_name(status));
    return RUN_EXIT_FAILED;
}

/* A bad SHMEM_* setting would be reported by each PE; say it once. */
static int check_settings(void)
{
    int code = 0;
    for (size_t i = 0; i < shmem_setting_count(); i++) {
        shmem_setting_info_t info;
        char value[512];
        if (shmem_setting_describe(i, &info) || strcmp(info.name, "SHMEM_SERVER") == 0 ||
            strcmp(info.name, "SHMEM_JOB") == 0 || strcmp(info.name, "SHMEM_RANK") == 0 ||
            strcmp(info.name, "SHMEM_SIZE") == 0)
            continue; /* those that we set ourselves */
        if (shmem_setting_value(i, value, sizeof value, NULL)) {
            fprintf(stderr, "shmem-run: %s\n", shmem_error_detail()->text);
            code = RUN_EXIT_FAILED;
        }
    }
    return code;
}

/* Descriptors 0 to 2 exist, so that no pipe of ours gets such a number. */
static int check_stdio(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd < 0)
        return say_failure("open /dev/null");
    close(fd);
    return 0;
}

static void raise_limit(int resource, struct rlimit limit)
{
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
}

/* Remember what children shall inherit, then set up our own signals and limits. */
static int prepare_process(run_job_t *job)
{
    run_inherit_t *inherit = &job->launch.inherit;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    sigset_t set;
    run_job_signals(&set);
    if (sigaction(SIGPIPE, &ignore, &inherit->pipe_action) ||
        sigaction(SIGXFSZ, &ignore, &inherit->size_action) || sigaction(SIGCHLD, &standard, NULL) ||
        sigprocmask(SIG_BLOCK, &set, &inherit->mask) || getrlimit(RLIMIT_NOFILE, &inherit->files) ||
        getrlimit(RLIMIT_FSIZE, &inherit->file_size))
        return say_failure("set up signals");
    raise_limit(RLIMIT_NOFILE, inherit->files);
    raise_limit(RLIMIT_FSIZE, inherit->file_size);
    job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    job->server_ends = eventfd(0, EFD_CLOEXEC);
    if (job->signals < 0 || job->server_ends < 0)
        return say_failure("set up signals");
    return 0;
}

static void *serve(void *arg)
{
    server_thread_t *t = arg;
    shmem_server_run(t->server);
    uint64_t one = 1;
    return write(t->ends, &one, sizeof one) < 0 ? arg : NULL;
}

static void random_name(char text[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        memset(bytes, 0, sizeof bytes); /* unique among jobs of this server all the same */
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* The PEs are started before the server's thread, so that forking is safe; what they ask meanwhile
 * waits in the socket. */
static int run(run_job_t *job)
{
    char name[33];
    random_name(name);
    job->launch.options = job->options;
    job->launch.server = shmem_server_address(job->server);
    job->launch.job = name;
    job->launch.output = &job->output;
    int code = run_launch_start(&job->launch);
    for (int rank = 0; rank < job->options->pes; rank++)
        job->living += job->launch.pes[rank].pid != 0;
    server_thread_t server = {job->server, job->server_ends, 0};
    bool serving = false;
    if (!code) {
        errno = pthread_create(&server.thread, NULL, serve, &server);
        serving = errno == 0;
        if (!serving) {
            run_output_say(&job->output, "cannot start a thread: %s", strerror(errno));
            code = RUN_EXIT_FAILED;
        }
    }
    if (code)
        run_job_fail(job, code);
    if (job->options->timeout_ns)
        job->deadline = run_now() + job->options->timeout_ns;
    code = run_job_loop(job);
    run_launch_end(&job->launch);
    if (serving) {
        shmem_server_stop(job->server);
        pthread_join(server.thread, NULL);
    }
    return code;
}

static int run_with_server(run_job_t *job)
{
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    if (run_joins_init(&job->joins))
        return say_failure("create an event descriptor");
    params.observer = run_joins_event;
    params.observer_user = &job->joins;
    shmem_status_t status = shmem_server_create(&job->server, &params);
    if (status) {
        run_joins_fini(&job->joins);
        return say_library_failure("start the node server", status);
    }
    job->launch.pes = calloc((size_t)job->options->pes, sizeof *job->launch.pes);
    int code = job->launch.pes ? 0 : say_failure("start the job");
    if (job->launch.pes) {
        run_output_init(&job->output);
        code = run(job);
        for (int rank = 0; rank < job->options->pes; rank++) {
            run_stream_fini(&job->launch.pes[rank].out);
            run_stream_fini(&job->launch.pes[rank].err);
        }
        run_output_fini(&job->output);
    }
    free(job->launch.pes);
    shmem_server_destroy(job->server);
    run_joins_fini(&job->joins);
    return code;
}

int main(int argc, char **argv)
{
    run_options_t options;
    if (check_stdio())
        return RUN_EXIT_FAILED;
    int code = run_options_parse(argc, argv, &options);
    if (code >= 0)
        return code;
    run_job_t job = {.options = &options};
    code = check_settings();
    if (!code)
        code = prepare_process(&job);
    return code ? code : run_with_server(&job);
}
