/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the system layer share: counting what a process holds, refusing system calls.
 */
#ifndef SHMEM_TEST_OS_HELPERS_H
#define SHMEM_TEST_OS_HELPERS_H

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "harness.h"

/* Open descriptors of this process. */
static inline int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    CHECK(d != NULL);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 3; /* ".", ".." and the directory itself */
}

/* Lines of /proc/self/maps that contain `text`. */
static inline int count_maps(const char *text)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    fclose(f);
    return n;
}

/* The kernel answers these system calls with `error` from now on, in this process and its
 * children, as a container's seccomp profile does. */
static inline void refuse_calls(const int *calls, int n, int error)
{
    struct sock_filter code[32];
    int at = 0;
    CHECK(n < 14);
    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < n; i++) {
        code[at++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        code[at++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)at, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Does the text of the last error contain this? */
static inline void check_detail(const char *part)
{
    const char *text = shmem_error_detail()->text;
    if (!strstr(text, part))
        harness_fail(__FILE__, __LINE__, "the detail lacks '%s': %s", part, text);
}

#endif
