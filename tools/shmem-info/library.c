/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that the library knows: topology, settings, servers. */
#include <errno.h>
#include <fcntl.h>
#include <shmem/settings.h>
#include <shmem/topology.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "info.h"

/* ---- topology ---- */

static json_t *matrix(shmem_topology_t topology, double (*cell)(shmem_topology_t, int, int))
{
    int n = shmem_topology_nodes(topology);
    json_t *rows = json_array();
    for (int from = 0; from < n; from++) {
        json_t *row = json_array();
        for (int to = 0; to < n; to++)
            json_array_append_new(row, json_real(cell(topology, from, to)));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* null where a pair was not measured */
static json_t *spreads(shmem_topology_t topology, double (*cell)(shmem_topology_t, int, int))
{
    size_t from, to;
    json_t *row, *value, *rows = matrix(topology, cell);
    json_array_foreach(rows, from, row)
    {
        json_array_foreach(row, to, value)
        {
            if (json_real_value(value) < 0)
                json_array_set_new(row, to, json_null());
        }
    }
    return rows;
}

static json_t *nodes(shmem_topology_t topology)
{
    json_t *list = json_array();
    for (int i = 0; i < shmem_topology_nodes(topology); i++) {
        shmem_topology_node_t node;
        if (shmem_topology_node(topology, i, &node))
            continue;
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:i, s:I, s:I}", "node", i, "system_number",
                                        node.os_index, "processors", node.processors, "total_bytes",
                                        (json_int_t)node.total_bytes, "free_bytes",
                                        (json_int_t)node.free_bytes));
    }
    return list;
}

static json_t *describe(shmem_topology_t t)
{
    json_t *caches = json_array();
    for (int level = 1; level <= 3; level++)
        json_array_append_new(caches, json_integer((json_int_t)shmem_topology_cache(t, level)));
    return json_pack("{s:i, s:o, s:o, s:o, s:s, s:o, s:o, s:s, s:o}", "processors",
                     shmem_topology_processors(t), "cache_bytes", caches, "nodes", nodes(t),
                     "latency_ns", matrix(t, shmem_topology_latency), "latency_source",
                     shmem_topology_source_name(shmem_topology_latency_source(t)), "latency_spread",
                     spreads(t, shmem_topology_latency_spread), "bandwidth_gbs",
                     matrix(t, shmem_topology_bandwidth), "bandwidth_source",
                     shmem_topology_source_name(shmem_topology_bandwidth_source(t)),
                     "bandwidth_spread", spreads(t, shmem_topology_bandwidth_spread));
}

static json_t *failure(void)
{
    return json_pack("{s:s}", "error", shmem_error_detail()->text);
}

json_t *info_topology(void)
{
    shmem_topology_t topology;
    if (shmem_topology_create(&topology))
        return failure();
    json_t *result = describe(topology);
    shmem_topology_destroy(topology);
    return result;
}

json_t *info_measured_topology(void)
{
    shmem_topology_t topology;
    char path[4200];
    if (shmem_topology_measure(NULL, &topology))
        return failure();
    json_t *result = describe(topology);
    if (shmem_topology_save(topology, path, sizeof path) == SHMEM_OK)
        json_object_set_new(result, "saved", json_string(path));
    else
        json_object_set_new(result, "not_saved", json_string(shmem_error_detail()->text));
    shmem_topology_destroy(topology);
    return result;
}

/* ---- settings ---- */

json_t *info_settings(int *bad)
{
    json_t *list = json_array();
    *bad = 0;
    for (size_t i = 0; i < shmem_setting_count(); i++) {
        shmem_setting_info_t info;
        char value[512];
        int is_set = 0;
        if (shmem_setting_describe(i, &info))
            continue;
        shmem_status_t status = shmem_setting_value(i, value, sizeof value, &is_set);
        json_t *entry =
            json_pack("{s:s, s:s, s:s, s:s}", "name", info.name, "value", value, "source",
                      is_set ? "environment" : "default", "meaning", info.meaning);
        if (!entry) /* bytes that are no text */
            entry = json_pack("{s:s, s:s, s:s, s:s}", "name", info.name, "value", "(not UTF-8)",
                              "source", "environment", "meaning", info.meaning);
        if (status) {
            const char *text = shmem_error_detail()->text;
            json_t *error = json_string(text);
            json_object_set_new(entry, "error", error ? error : json_string("bad value"));
            ++*bad;
        }
        json_array_append_new(list, entry);
    }
    return list;
}

extern char **environ;

static bool is_setting(const char *name, size_t n)
{
    for (size_t i = 0; i < shmem_setting_count(); i++) {
        shmem_setting_info_t info;
        if (shmem_setting_describe(i, &info) == SHMEM_OK && strlen(info.name) == n &&
            strncmp(info.name, name, n) == 0)
            return true;
    }
    return false;
}

json_t *info_unknown_settings(void)
{
    json_t *list = json_array();
    for (char **variable = environ; variable && *variable; variable++) {
        size_t n = strcspn(*variable, "=");
        if (strncmp(*variable, "SHMEM_", 6) == 0 && !is_setting(*variable, n)) /* not if no text */
            json_array_append_new(list, json_stringn(*variable, n));
    }
    return list;
}

/* Does somebody listen at the address? 0 yes, else an errno. */
static int try_connect(const char *address)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(address);
    if (n >= sizeof a.sun_path)
        return ENAMETOOLONG;
    memcpy(a.sun_path, address, n);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
    if (*address == '@') {
        a.sun_path[0] = '\0';
        length--;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    int error = connect(fd, (struct sockaddr *)&a, length) ? errno : 0;
    close(fd);
    return error == EAGAIN ? 0 : error; /* its queue is full: it listens */
}

/* What others have chosen, as text: no byte of it steers a terminal or spoils the JSON. */
static json_t *visible(const char *bytes)
{
    char text[256];
    size_t n = 0;
    for (; bytes[n] && n + 1 < sizeof text; n++)
        text[n] = bytes[n] < ' ' || bytes[n] > '~' ? '?' : bytes[n];
    return json_stringn(text, n);
}

/* Node servers with an abstract address: listening sockets of this network namespace. */
static json_t *listening(void)
{
    json_t *list = json_array();
    FILE *file = fopen("/proc/net/unix", "re");
    char line[512], path[256];
    while (file && fgets(line, sizeof line, file)) {
        unsigned long flags;
        if (sscanf(line, "%*s %*s %*s %lx %*s %*s %*s %255s", &flags, path) == 2 &&
            (flags & 0x10000) && strncmp(path, "@shmem", 6) == 0)
            json_array_append_new(list, visible(path));
    }
    if (file)
        fclose(file);
    return list;
}

json_t *info_servers(void)
{
    const char *address = getenv("SHMEM_SERVER");
    json_t *result = json_pack("{s:o}", "listening", listening());
    if (address && *address) {
        int error = try_connect(address);
        json_object_set_new(result, "address", visible(address));
        json_object_set_new(result, "reachable", json_boolean(error == 0));
        if (error)
            json_object_set_new(result, "error", json_string(strerror(error)));
    }
    return result;
}

static void table_cell(const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            putchar('\\');
        putchar(*text);
    }
}

int info_settings_doc(void)
{
    puts("# Settings\n\n"
         "Environment variables that the library reads when a context is made. `shmem-info` shows "
         "the\n"
         "values in force. A bad value is an error that names it; nothing is guessed.\n\n"
         "This page is written by `shmem-info --settings-doc`.\n\n"
         "| setting | kind | values | default | meaning |\n|---|---|---|---|---|");
    for (size_t i = 0; i < shmem_setting_count(); i++) {
        shmem_setting_info_t info;
        if (shmem_setting_describe(i, &info))
            return -1;
        printf("| `%s` | %s | ", info.name, info.kind);
        table_cell(info.choices);
        printf(" | ");
        if (*info.default_value)
            printf("`%s`", info.default_value);
        printf(" | ");
        table_cell(info.meaning);
        puts(" |");
    }
    puts("\nKinds: a *size* is a whole number of bytes with K, M, G or T (powers of 1024) if "
         "wanted, such as\n"
         "`512M` (write `1536M` for 1.5G); a *duration* is a whole number with a unit `ns`, `us`, "
         "`ms` or `s`, such\n"
         "as `50us`; *yes or no* is one of these two words.");
    return fflush(stdout) ? -1 : 0;
}
