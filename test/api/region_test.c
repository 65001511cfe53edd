/* SPDX-License-Identifier: Apache-2.0 */
/* Regions as a program uses them: rights, protection, growth, names, several contexts. */
#include <shmem/shmem.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

static shmem_context_t context;

static void begin(void)
{
    CHECK_OK(shmem_context_init(&context));
}

static void end(void)
{
    CHECK_OK(shmem_context_finalize(context));
}

/* Tests of other users and other runs may be at work. */
static const char *name_of(const char *what)
{
    static char name[64];
    snprintf(name, sizeof name, "test/%s-%d-%d", what, (int)getuid(), (int)getpid());
    return name;
}

static shmem_region_t make(const char *name, uint64_t bytes, uint64_t limit)
{
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t region = NULL;
    params.bytes = bytes;
    params.limit = limit;
    CHECK_OK(shmem_region_create(context, name, &params, &region));
    return region;
}

static shmem_region_t open_for(const char *name, shmem_mapping_t rights)
{
    shmem_region_t region = NULL;
    CHECK_OK(shmem_region_open(context, name, rights, &region));
    return region;
}

static char *map(shmem_region_t region, shmem_mapping_t rights)
{
    char *address = shmem_region_map(region, rights);
    if (!address)
        harness_fail(__FILE__, __LINE__, "map: %s", shmem_error_detail()->text);
    return address;
}

static void map_fails(shmem_region_t region, shmem_mapping_t rights, shmem_status_t expected)
{
    CHECK(!shmem_region_map(region, rights));
    CHECK_EQ(shmem_error_detail()->status, expected);
}

static shmem_region_info_t info_of(shmem_region_t region)
{
    shmem_region_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_region_info(region, &info));
    return info;
}

/* Does a process with these mappings end when it touches this? */
static bool faults(char *address, bool write)
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        if (write)
            *(volatile char *)address = 1;
        else
            (void)*(volatile char *)address;
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    /* a sanitizer makes an exit code of the signal */
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void life(void)
{
    begin();
    const char *name = name_of("life");
    shmem_region_t region = make(name, 10000, 0), other;
    shmem_region_info_t info = info_of(region);
    CHECK(info.bytes == 10000 && info.limit == 12288 && info.access == 0);
    CHECK(info.uid == geteuid() && info.gid == getegid());
    CHECK(info.rights == SHMEM_MAP_READ_WRITE && info.mapped == SHMEM_MAP_NONE);
    char *memory = map(region, SHMEM_MAP_READ_WRITE);
    CHECK(memory == info.address);
    for (int i = 0; i < 10000; i++)
        CHECK_EQ(memory[i], 0);
    memset(memory, 7, 10000);
    CHECK_EQ(info_of(region).mapped, SHMEM_MAP_READ_WRITE);
    CHECK_OK(shmem_region_unmap(region));
    CHECK(faults(memory, false));
    CHECK_EQ(map(region, SHMEM_MAP_READ)[9999], 7);
    CHECK(faults(memory, true));
    CHECK_STATUS(shmem_region_create(
                     context, name,
                     &(shmem_region_params_t){sizeof(shmem_region_params_t), 1, 0, 0, -1}, &other),
                 SHMEM_ERR_EXISTS);
    CHECK(strstr(shmem_error_detail()->text, name));
    shmem_region_close(region);
    CHECK_STATUS(shmem_region_open(context, name, SHMEM_MAP_READ, &other), SHMEM_ERR_NOT_FOUND);
    end();
}

static void bad_arguments(void)
{
    begin();
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t region = NULL;
    size_t count = 77;
    CHECK_STATUS(shmem_region_create(context, "x", &params, &region), SHMEM_ERR_INVALID);
    params.bytes = 4096;
    CHECK_STATUS(shmem_region_create(NULL, "x", &params, &region), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_create(context, "x", NULL, &region), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_create(context, "x", &params, NULL), SHMEM_ERR_INVALID);
    static const char *const bad[] = {
        "",    "..", "a/../b",
        "a b", "ä",  "0123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_STATUS(shmem_region_create(context, bad[i], &params, &region), SHMEM_ERR_INVALID);
        CHECK_STATUS(shmem_region_open(context, bad[i], SHMEM_MAP_READ, &region),
                     SHMEM_ERR_INVALID);
        CHECK_STATUS(shmem_region_destroy(context, bad[i]), SHMEM_ERR_INVALID);
    }
    params.limit = 4095;
    CHECK_STATUS(shmem_region_create(context, "x", &params, &region), SHMEM_ERR_INVALID);
    params.limit = UINT64_MAX;
    CHECK_STATUS(shmem_region_create(context, "x", &params, &region), SHMEM_ERR_OVERFLOW);
    params.bytes = UINT64_MAX;
    CHECK_STATUS(shmem_region_create(context, "x", &params, &region), SHMEM_ERR_OVERFLOW);
    params.bytes = 4096;
    params.limit = 0;
    static const uint32_t bits[] = {1, 0100, SHMEM_ACCESS_GROUP_WRITE, SHMEM_ACCESS_OTHER_WRITE,
                                    1u << 31};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        params.access = bits[i];
        CHECK_STATUS(shmem_region_create(context, "x", &params, &region), SHMEM_ERR_INVALID);
    }
    params.access = 0;
    params.node = 4711;
    CHECK_STATUS(shmem_region_create(context, "x", &params, &region), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_open(context, "x", SHMEM_MAP_NONE, &region), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_open(context, "x", (shmem_mapping_t)2, &region), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_list(context, NULL, 1, &count), SHMEM_ERR_INVALID);
    CHECK(region == NULL && count == 77);
    CHECK_STATUS(shmem_region_unmap(NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_resize(NULL, 1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_protect(NULL, 0, 4096, SHMEM_MAP_READ), SHMEM_ERR_INVALID);
    map_fails(NULL, SHMEM_MAP_READ, SHMEM_ERR_INVALID);
    shmem_region_close(NULL);
    end();
}

static void on_its_node(void)
{
    begin();
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t region;
    params.bytes = 1 << 20;
    params.limit = 1 << 24;
    params.node = 0;
    CHECK_OK(shmem_region_create(context, NULL, &params, &region));
    memset(map(region, SHMEM_MAP_READ_WRITE), 1, 1 << 20);
    CHECK_OK(shmem_region_resize(region, 1 << 24));
    shmem_region_close(region);
    end();
}

static void counted(void)
{
    begin();
    const char *name = name_of("counted");
    shmem_region_t region = make(name, 4096, 0);
    CHECK(open_for(name, SHMEM_MAP_READ_WRITE) == region); /* counted */
    shmem_region_t reader = open_for(name, SHMEM_MAP_READ);
    CHECK(reader != region && open_for(name, SHMEM_MAP_READ) == reader);
    CHECK(info_of(reader).address == info_of(region).address);
    shmem_region_close(region);
    map(region, SHMEM_MAP_READ_WRITE)[0] = 5;
    map(region, SHMEM_MAP_READ_WRITE);
    CHECK_OK(shmem_region_unmap(region));
    CHECK_EQ(map(region, SHMEM_MAP_READ_WRITE)[0], 5);
    map_fails(region, SHMEM_MAP_READ, SHMEM_ERR_STATE); /* the handle */
    map_fails(reader, SHMEM_MAP_READ, SHMEM_ERR_STATE); /* the process */
    CHECK_OK(shmem_region_unmap(region));
    CHECK_OK(shmem_region_unmap(region));
    CHECK_STATUS(shmem_region_unmap(region), SHMEM_ERR_STATE);
    CHECK_EQ(map(reader, SHMEM_MAP_READ)[0], 5);
    CHECK_EQ(map(region, SHMEM_MAP_READ)[0], 5); /* the same mapping, twice */
    shmem_region_close(region);
    CHECK_EQ(*(char *)info_of(reader).address, 5);
    shmem_region_close(reader);
    CHECK_EQ(info_of(reader).mapped, SHMEM_MAP_READ); /* one open is left */
    shmem_region_close(reader);
    end();
}

static void handles_that_are_closed(void)
{
    begin();
    shmem_region_t region = make(NULL, 4096, 8192);
    shmem_region_info_t info = {.size = sizeof info};
    char *memory = map(region, SHMEM_MAP_READ_WRITE);
    shmem_region_close(region);
    CHECK(faults(memory, false)); /* close unmaps */
    shmem_region_close(region);
    CHECK_STATUS(shmem_region_unmap(region), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_region_resize(region, 8192), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_region_info(region, &info), SHMEM_ERR_STATE);
    map_fails(region, SHMEM_MAP_READ, SHMEM_ERR_STATE);
    region = make(NULL, 4096, 0);
    memory = map(region, SHMEM_MAP_READ_WRITE);
    end(); /* closes it */
    CHECK(faults(memory, false));
    CHECK_STATUS(shmem_region_unmap(region), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_region_open(context, "x", SHMEM_MAP_READ, &region), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_region_destroy(context, "x"), SHMEM_ERR_STATE);
    shmem_region_close(region);
}

static void protection(void)
{
    begin();
    const char *name = name_of("protection");
    shmem_region_t region = make(name, 5 * 4096, 0);
    CHECK_STATUS(shmem_region_protect(region, 0, 4096, SHMEM_MAP_READ), SHMEM_ERR_STATE);
    char *memory = map(region, SHMEM_MAP_READ_WRITE);
    memset(memory, 3, 5 * 4096);
    CHECK_OK(shmem_region_protect(region, 4096, 8192, SHMEM_MAP_READ));
    CHECK_OK(shmem_region_protect(region, 8192, 4096, SHMEM_MAP_NONE));
    CHECK(!faults(memory + 4095, true) && faults(memory + 4096, true));
    CHECK(!faults(memory + 4096, false) && faults(memory + 8192, false));
    CHECK(!faults(memory + 12288, true));
    CHECK_OK(shmem_region_protect(region, 0, 5 * 4096, SHMEM_MAP_READ_WRITE));
    memset(memory, 4, 5 * 4096);
    CHECK_STATUS(shmem_region_protect(region, 1, 4096, SHMEM_MAP_READ), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_protect(region, 0, 100, SHMEM_MAP_READ), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_protect(region, 0, 0, SHMEM_MAP_READ), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_protect(region, 0, 4096, (shmem_mapping_t)2), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_protect(region, 4096, 5 * 4096, SHMEM_MAP_READ), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_region_protect(region, 4096, UINT64_MAX - 4095, SHMEM_MAP_READ),
                 SHMEM_ERR_OVERFLOW);
    shmem_region_close(region);
    end();
}

static void a_reader_only_reads(void)
{
    begin();
    const char *name = name_of("reader");
    shmem_region_t region = make(name, 8192, 16384), reader = open_for(name, SHMEM_MAP_READ);
    map_fails(reader, SHMEM_MAP_READ_WRITE, SHMEM_ERR_ACCESS);
    char *memory = map(reader, SHMEM_MAP_READ);
    CHECK_STATUS(shmem_region_protect(reader, 0, 4096, SHMEM_MAP_READ_WRITE), SHMEM_ERR_ACCESS);
    CHECK_STATUS(shmem_region_resize(reader, 16384), SHMEM_ERR_ACCESS);
    CHECK(faults(memory, true) && !faults(memory, false));
    /* the writer maps what the reader has mapped, and may make it writable */
    CHECK(map(region, SHMEM_MAP_READ) == memory);
    CHECK_OK(shmem_region_protect(region, 4096, 4096, SHMEM_MAP_READ_WRITE));
    memory[4096] = 9;
    CHECK(faults(memory, true));
    shmem_region_close(region);
    shmem_region_close(reader);
    end();
}

static void growth(void)
{
    begin();
    const char *name = name_of("growth");
    shmem_region_t region = make(name, 100, 20 << 20), reader = open_for(name, SHMEM_MAP_READ);
    char *memory = map(region, SHMEM_MAP_READ_WRITE);
    memset(memory, 1, 100);
    CHECK_OK(shmem_region_resize(region, 5000)); /* by the server's loop */
    CHECK_EQ(info_of(reader).bytes, 5000);
    memset(memory + 100, 2, 4900);
    CHECK_OK(shmem_region_resize(region, 16 << 20)); /* by a thread */
    CHECK_EQ(info_of(reader).bytes, 16 << 20);
    CHECK(memory[99] == 1 && memory[4999] == 2 && memory[5000] == 0);
    memset(memory, 3, 16 << 20);
    CHECK_OK(shmem_region_resize(region, 16 << 20));
    CHECK_STATUS(shmem_region_resize(region, (16 << 20) - 1), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_resize(region, 0), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_region_resize(region, (20 << 20) + 1), SHMEM_ERR_OVERFLOW);
    CHECK_STATUS(shmem_region_resize(region, UINT64_MAX), SHMEM_ERR_OVERFLOW);
    CHECK_OK(shmem_region_resize(region, 20 << 20));
    memset(memory, 4, 20 << 20);
    shmem_region_close(region);
    shmem_region_close(reader);
    end();
}

static void more_than_there_is(void)
{
    const uint64_t much = 90ull << 30;
    begin();
    if (sysconf(_SC_PHYS_PAGES) * 4096ull > much)
        SKIP("this machine has more than 90 GiB of memory");
    shmem_region_t region = make(NULL, 4096, much);
    CHECK_STATUS(shmem_region_resize(region, much), SHMEM_ERR_NOMEM);
    if (!strstr(shmem_error_detail()->text, "92159 MiB"))
        harness_fail(__FILE__, __LINE__, "%s", shmem_error_detail()->text);
    CHECK_EQ(info_of(region).bytes, 4096);
    CHECK_OK(shmem_region_resize(region, 1 << 20));
    memset(map(region, SHMEM_MAP_READ_WRITE), 1, 1 << 20);
    shmem_region_close(region);
    end();
}

static void destroyed_while_mapped(void)
{
    begin();
    const char *name = name_of("destroyed");
    shmem_region_t first = make(name, 4096, 8192), reader = open_for(name, SHMEM_MAP_READ), other;
    char *memory = map(first, SHMEM_MAP_READ_WRITE);
    memory[0] = 1;
    CHECK_OK(shmem_region_destroy(context, name));
    CHECK_STATUS(shmem_region_destroy(context, name), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmem_region_open(context, name, SHMEM_MAP_READ, &other), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmem_region_open(context, name, SHMEM_MAP_READ_WRITE, &other),
                 SHMEM_ERR_NOT_FOUND);
    shmem_region_t second = make(name, 4096, 0);
    CHECK(second != first && open_for(name, SHMEM_MAP_READ_WRITE) == second);
    char *fresh = map(second, SHMEM_MAP_READ_WRITE);
    CHECK(fresh != memory && fresh[0] == 0);
    CHECK_OK(shmem_region_resize(first, 8192)); /* who has it open goes on */
    memory[8191] = 2;
    CHECK_EQ(info_of(reader).bytes, 8192);
    shmem_region_close(first);
    shmem_region_close(reader);
    shmem_region_close(second);
    CHECK(open_for(name, SHMEM_MAP_READ_WRITE) == second);
    end();
}

static void listing(void)
{
    enum { REGIONS = 17 };
    begin();
    char name[64], wanted[32];
    snprintf(wanted, sizeof wanted, "list-%d-%d/", (int)getuid(), (int)getpid());
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    shmem_region_t region;
    params.access = SHMEM_ACCESS_GROUP_READ;
    params.limit = 1 << 20;
    for (int i = 0; i < REGIONS; i++) {
        snprintf(name, sizeof name, "%s%d", wanted, i);
        params.bytes = 1000 + (uint64_t)i;
        CHECK_OK(shmem_region_create(context, name, &params, &region));
    }
    CHECK_OK(shmem_region_resize(region, 5000));
    static shmem_region_entry_t entries[1000];
    size_t count, found = 0;
    unsigned seen = 0;
    CHECK_OK(shmem_region_list(context, entries, 1000, &count));
    CHECK(count >= REGIONS && count <= 1000);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(entries[i].name, wanted, strlen(wanted)) != 0)
            continue;
        int k = atoi(entries[i].name + strlen(wanted));
        seen |= 1u << k;
        found++;
        CHECK_EQ(entries[i].bytes, k == REGIONS - 1 ? 5000 : 1000 + k);
        CHECK(entries[i].limit == 1 << 20 && entries[i].users == 1);
        CHECK(entries[i].uid == geteuid() && entries[i].access == SHMEM_ACCESS_GROUP_READ);
    }
    CHECK(found == REGIONS && seen == (1u << REGIONS) - 1);
    CHECK_OK(shmem_region_list(context, NULL, 0, &count));
    CHECK(count >= REGIONS);
    strcpy(entries[2].name, "untouched");
    CHECK_OK(shmem_region_list(context, entries, 2, &count));
    CHECK(count >= REGIONS);
    CHECK_STR(entries[2].name, "untouched");
    end();
}

/* ---- several processes ---- */

static void reads_pointer(void *arg)
{
    CHECK_OK(shmem_context_init(&context));
    shmem_region_t region = open_for(arg, SHMEM_MAP_READ);
    char **memory = (char **)map(region, SHMEM_MAP_READ);
    CHECK_STR(*memory, "hello");
    CHECK_OK(shmem_context_finalize(context));
}

static void a_forked_child(void)
{
    shmem_region_t region = make(NULL, 4096, 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        shmem_region_t other;
        CHECK_STATUS(shmem_region_resize(region, 8192), SHMEM_ERR_STATE);
        CHECK_STATUS(shmem_region_open(context, "x", SHMEM_MAP_READ, &other), SHMEM_ERR_STATE);
        shmem_region_close(region); /* only its own copy */
        exit(0);
    }
    CHECK_EQ(harness_wait(pid, 20), 0);
    memset(map(region, SHMEM_MAP_READ_WRITE), 1, 4096);
}

static void between_processes(void)
{
    begin();
    char name[64];
    strcpy(name, name_of("pointer"));
    shmem_region_t region = make(name, 4096, 0);
    char *memory = map(region, SHMEM_MAP_READ_WRITE);
    strcpy(memory + 100, "hello");
    *(char **)memory = memory + 100;
    CHECK_EQ(harness_wait(harness_fork(reads_pointer, name), 20), 0);
    a_forked_child();
    end();
}

static void two_contexts(void)
{
    begin();
    const char *name = name_of("contexts");
    shmem_context_t first = context;
    shmem_region_t a = make(name, 4096, 0);
    map(a, SHMEM_MAP_READ_WRITE)[0] = 1;
    CHECK_OK(shmem_context_init(&context));
    shmem_region_t b = open_for(name, SHMEM_MAP_READ_WRITE);
    char *memory = map(b, SHMEM_MAP_READ_WRITE);
    CHECK(a != b && memory == info_of(a).address);
    shmem_region_close(a);
    memory[0] = 2; /* b's mapping stays */
    CHECK_OK(shmem_context_finalize(first));
    memory[1] = 3;
    end();
    CHECK(faults(memory, false));
}

int main(void)
{
    RUN(life);
    RUN(bad_arguments);
    RUN(on_its_node);
    RUN(counted);
    RUN(handles_that_are_closed);
    RUN(protection);
    RUN(a_reader_only_reads);
    RUN(growth);
    RUN(more_than_there_is);
    RUN(destroyed_while_mapped);
    RUN(listing);
    RUN(between_processes);
    RUN(two_contexts);
    return harness_end();
}
