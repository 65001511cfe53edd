/* SPDX-License-Identifier: Apache-2.0 */
/* The gathered facts as text. */
#include <stdio.h>
#include <string.h>

#include "info.h"

static const json_t *get(const json_t *object, const char *key)
{
    return json_object_get(object, key);
}

static const char *text(const json_t *object, const char *key)
{
    const json_t *value = get(object, key);
    if (json_is_true(value))
        return "yes";
    if (json_is_false(value))
        return "no";
    return json_is_string(value) ? json_string_value(value) : "unknown";
}

/* "1.5 GiB" into one of four buffers in turn. */
static const char *size(const json_t *value, const char *if_null)
{
    static char buffers[4][32];
    static unsigned next;
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char *buffer = buffers[next++ % 4];
    if (!json_is_integer(value))
        return if_null;
    double n = (double)json_integer_value(value);
    size_t unit = 0;
    for (; n >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        n /= 1024;
    snprintf(buffer, sizeof buffers[0], n < 10 && unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
    return buffer;
}

static const char *count(const json_t *value, const char *if_null)
{
    static char buffers[4][32];
    static unsigned next;
    char *buffer = buffers[next++ % 4];
    if (!json_is_integer(value))
        return if_null;
    snprintf(buffer, sizeof buffers[0], "%lld", (long long)json_integer_value(value));
    return buffer;
}

/* The numbers of node to node; where they were measured with how far repeats lay apart. */
static void print_matrix(const json_t *topology, const char *title, const char *key,
                         const char *format)
{
    char name[32];
    size_t from, to;
    const json_t *rows = get(topology, key), *spreads;
    json_t *row, *cell;
    int width = (int)strcspn(key, "_");
    snprintf(name, sizeof name, "%.*s_source", width, key);
    printf("  %s (%s)\n     to node", title, text(topology, name));
    snprintf(name, sizeof name, "%.*s_spread", width, key);
    spreads = get(topology, name);
    for (to = 0; to < json_array_size(rows); to++)
        printf(" %7zu%6s", to, "");
    putchar('\n');
    json_array_foreach((json_t *)rows, from, row)
    {
        printf("    from %3zu", from);
        json_array_foreach(row, to, cell)
        {
            const json_t *spread = json_array_get(json_array_get(spreads, from), to);
            printf(format, json_number_value(cell));
            if (json_is_number(spread))
                printf(" +-%2.0f%%", 100 * json_number_value(spread));
            else
                printf("%6s", "");
        }
        putchar('\n');
    }
}

static void print_topology(const json_t *topology)
{
    size_t i;
    json_t *node;
    puts("Topology");
    if (get(topology, "error")) {
        printf("  not detected: %s\n", text(topology, "error"));
        return;
    }
    const json_t *caches = get(topology, "cache_bytes");
    printf("  processors usable  %s\n", count(get(topology, "processors"), "unknown"));
    printf("  caches             L1 %s, L2 %s, L3 %s\n", size(json_array_get(caches, 0), "unknown"),
           size(json_array_get(caches, 1), "unknown"), size(json_array_get(caches, 2), "unknown"));
    json_array_foreach(get(topology, "nodes"), i, node)
        printf("  node %-3s           system's number %s, %s processors, %s, %s free\n",
               count(get(node, "node"), "?"), count(get(node, "system_number"), "?"),
               count(get(node, "processors"), "?"), size(get(node, "total_bytes"), "?"),
               size(get(node, "free_bytes"), "?"));
    print_matrix(topology, "latency in ns", "latency_ns", " %7.0f");
    print_matrix(topology, "bandwidth in GB/s", "bandwidth_gbs", " %7.1f");
}

void info_print_measured(const json_t *topology)
{
    print_topology(topology);
    if (get(topology, "error"))
        return;
    puts(
        "\nMedians; +- is the width of the middle half of the repeats. What cannot be measured "
        "follows from\nwhat the firmware says. Measure again on an idle machine where they lie far "
        "apart.");
    if (get(topology, "saved"))
        printf("Saved for this user's programs: %s\n", text(topology, "saved"));
    else
        printf("Not saved: %s\n", text(topology, "not_saved"));
}

static void print_huge_pages(const json_t *huge)
{
    size_t i;
    json_t *pool;
    puts("Pages");
    printf("  page               %s\n", size(get(huge, "page_bytes"), "unknown"));
    printf("  transparent huge   %s (shared memory: %s), %s\n", text(huge, "transparent"),
           text(huge, "transparent_shared"), size(get(huge, "transparent_bytes"), "size unknown"));
    json_array_foreach(get(huge, "pools"), i, pool)
        printf("  reserved huge      %s: %s, %s free\n", size(get(pool, "page_bytes"), "?"),
               count(get(pool, "total"), "?"), count(get(pool, "free"), "?"));
}

static void print_limits(const json_t *limits)
{
    const json_t *locked = get(limits, "locked_bytes"), *files = get(limits, "files");
    puts("Limits");
    printf("  locked memory      %s, at most %s\n", size(get(locked, "soft"), "unlimited"),
           size(get(locked, "hard"), "unlimited"));
    printf("  open files         %s, at most %s\n", count(get(files, "soft"), "unlimited"),
           count(get(files, "hard"), "unlimited"));
    printf("  processes          %s\n", count(get(get(limits, "processes"), "soft"), "unlimited"));
    printf("  memory available   %s\n", size(get(limits, "memory_available"), "unknown"));
    printf("  control group      at most %s, used %s\n",
           size(get(limits, "cgroup_memory_max"), "unlimited"),
           size(get(limits, "cgroup_memory_current"), "unknown"));
}

static void print_kernel(const json_t *kernel)
{
    puts("Kernel");
    printf("  release            %s %s %s\n", text(kernel, "system"), text(kernel, "release"),
           text(kernel, "machine"));
    printf("  membarrier         %s\n", text(kernel, "membarrier"));
    printf("  pidfd              %s\n", text(kernel, "pidfd"));
    printf("  NUMA calls         %s\n", text(kernel, "numa_calls"));
    printf("  seccomp filter     %s\n", text(kernel, "seccomp"));
}

static void print_servers(const json_t *servers)
{
    size_t i;
    json_t *address;
    puts("Node servers");
    if (get(servers, "address"))
        printf("  SHMEM_SERVER       %s: %s%s%s\n", text(servers, "address"),
               json_is_true(get(servers, "reachable")) ? "reachable" : "not reachable",
               get(servers, "error") ? ", " : "",
               get(servers, "error") ? text(servers, "error") : "");
    else
        puts("  SHMEM_SERVER       not set: a private server is started when needed");
    json_array_foreach(get(servers, "listening"), i, address)
        printf("  listening          %s\n", json_string_value(address));
}

static void print_settings(const json_t *settings, const json_t *unknown)
{
    size_t i;
    json_t *s;
    puts("Settings");
    json_array_foreach((json_t *)settings, i, s)
    {
        const char *value = text(s, "value");
        printf("  %-18s %-12s (%s)\n", text(s, "name"), *value ? value : "-", text(s, "source"));
        if (get(s, "error"))
            printf("    BAD: %s\n", text(s, "error"));
    }
    json_array_foreach((json_t *)unknown, i, s)
        printf("  %-18s is no setting of this library: misspelt?\n", json_string_value(s));
}

static void print_advice(const json_t *advice)
{
    size_t i;
    json_t *a;
    puts("Advice");
    if (!json_array_size(advice))
        puts("  nothing is missing");
    json_array_foreach((json_t *)advice, i, a)
        printf("  - %s.\n    %s\n", text(a, "what"), text(a, "do"));
}

void info_print(const json_t *all)
{
    const json_t *versions = get(all, "versions");
    printf("shmem-info %s, library %s\n\n", text(versions, "tool"), text(versions, "library"));
    print_topology(get(all, "topology"));
    putchar('\n');
    print_huge_pages(get(all, "huge_pages"));
    putchar('\n');
    print_limits(get(all, "limits"));
    putchar('\n');
    print_kernel(get(all, "kernel"));
    putchar('\n');
    print_servers(get(all, "servers"));
    putchar('\n');
    print_settings(get(all, "settings"), get(all, "unknown_settings"));
    putchar('\n');
    print_advice(get(all, "advice"));
}
