/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does it cost to attach to a running node server, the first mapping included?
 *
 * The floor beside it is a bare sequenced-packet socket: connect, receive a descriptor, map as many
 * bytes, touch as many pages as the attach does (counted as page faults), and close for the second
 * measurement. Both servers are processes of their own on the other processor; samples alternate.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "bench.h"
#include "node/client.h"
#include "shmem/server.h"

enum { SAMPLES = 3000, PAGE = 4096 };

static const char floor_address[] = "shmem-bench-floor";
static volatile char sink;

static void die(const char *what)
{
    fprintf(stderr, "attach_bench: %s: %s\n", what, shmem_error_detail()->text);
    exit(1);
}

static socklen_t floor_name(struct sockaddr_un *name)
{
    int n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "%s-%d", floor_address,
                     (int)getpgrp());
    name->sun_family = AF_UNIX;
    name->sun_path[0] = 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* ---- the floor ---- */

static void floor_serve(int ready)
{
    struct sockaddr_un name;
    socklen_t length = floor_name(&name);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int memory = memfd_create("floor", MFD_CLOEXEC);
    if (bind(listener, (struct sockaddr *)&name, length) || listen(listener, 64) ||
        ftruncate(memory, sizeof(shmemi_roster_t)) ||
        posix_fallocate(memory, 0, sizeof(shmemi_roster_t)) || write(ready, "x", 1) != 1)
        _exit(1);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        char byte = 1, control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {&byte, 1};
        struct msghdr header = {.msg_iov = &part,
                                .msg_iovlen = 1,
                                .msg_control = control,
                                .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &memory, sizeof memory);
        if (fd < 0 || sendmsg(fd, &header, MSG_NOSIGNAL) < 0)
            _exit(1);
        if (read(fd, &byte, 1) < 0) /* until the client closes */
            _exit(1);
        close(fd);
    }
}

static void floor_sample(int pages, double *attach, double *both)
{
    struct sockaddr_un name;
    socklen_t length = floor_name(&name);
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    int memory;
    double begin = bench_now_ns();
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&name, length) || recvmsg(fd, &header, MSG_CMSG_CLOEXEC) < 0)
        exit(1);
    memcpy(&memory, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof memory);
    char *p = mmap(NULL, sizeof(shmemi_roster_t), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    for (int i = 0; i < pages; i++)
        sink = p[i * PAGE];
    *attach = bench_now_ns() - begin;
    munmap(p, sizeof(shmemi_roster_t));
    close(memory);
    close(fd);
    *both = bench_now_ns() - begin;
}

/* ---- the library ---- */

static void shmem_serve(int ready)
{
    shmem_server_t server;
    if (shmem_server_create(&server, NULL))
        die("server");
    const char *address = shmem_server_address(server);
    size_t n = strlen(address) + 1;
    if (write(ready, address, n) != (ssize_t)n)
        _exit(1);
    _exit(shmem_server_run(server) ? 1 : 0);
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static void shmem_sample(const shmemi_settings_t *settings, double *attach, double *both,
                         long *pages)
{
    shmemi_client_t *client;
    long before = faults();
    double begin = bench_now_ns();
    if (shmemi_client_attach(settings, "bench", &client))
        die("attach");
    *attach = bench_now_ns() - begin;
    *pages = faults() - before;
    double middle = bench_now_ns();
    shmemi_client_detach(client);
    *both = *attach + bench_now_ns() - middle;
}

static pid_t start(void (*serve)(int), char *word, size_t room)
{
    int ends[2];
    if (pipe(ends))
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        bench_pin(1);
        serve(ends[1]);
    }
    if (read(ends[0], word, room) <= 0)
        exit(1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

int main(void)
{
    static double ours[SAMPLES], ours_both[SAMPLES], bare[SAMPLES], bare_both[SAMPLES];
    shmemi_settings_t settings;
    char word[2];
    setpgid(0, 0); /* names the floor's socket */
    if (shmemi_settings_load(&settings))
        die("settings");
    pid_t a = start(shmem_serve, settings.server, sizeof settings.server);
    pid_t b = start(floor_serve, word, sizeof word);
    bench_pin(0);
    long pages = 0;
    for (int i = -100; i < SAMPLES; i++) {
        int k = i < 0 ? 0 : i;
        shmem_sample(&settings, &ours[k], &ours_both[k], &pages);
        floor_sample((int)pages, &bare[k], &bare_both[k]);
    }
    kill(a, SIGKILL);
    kill(b, SIGKILL);
    waitpid(a, NULL, 0);
    waitpid(b, NULL, 0);
    bench_result_t r = bench_summary(ours, SAMPLES), f = bench_summary(bare, SAMPLES);
    bench_report("attach", "attach", "shmem", "ns", r);
    bench_report("attach", "attach", "bare socket", "ns", f);
    bench_report("attach", "attach and detach", "shmem", "ns", bench_summary(ours_both, SAMPLES));
    bench_report("attach", "attach and detach", "bare socket", "ns",
                 bench_summary(bare_both, SAMPLES));
    printf("{\"bench\":\"attach\",\"what\":\"pages touched\",\"who\":\"shmem\",\"value\":%ld}\n",
           pages);
    printf(
        "{\"bench\":\"attach\",\"what\":\"ratio to the floor\",\"who\":\"shmem\",\"value\":%.2f}\n",
        r.median / f.median);
    return 0;
}
