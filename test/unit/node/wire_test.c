/* SPDX-License-Identifier: Apache-2.0 */
/* The wire format: every message made is accepted, every damage is noticed. */
#include "harness.h"
#include "node/wire.h"

static const shmemi_wire_type_t types[] = {
#define TEST_TYPE(name, value, body) SHMEMI_WIRE_##name,
    SHMEMI_WIRE_TABLE(TEST_TYPE)
#undef TEST_TYPE
};
enum { TYPES = sizeof types / sizeof types[0] };

static void made_messages_pass(void)
{
    shmemi_wire_message_t m;
    for (size_t i = 0; i < TYPES; i++) {
        memset(&m, 0xee, sizeof m);
        shmemi_wire_begin(&m, types[i], 77);
        CHECK_EQ(m.header.sequence, 77);
        CHECK_EQ(m.header.type, types[i]);
        CHECK(m.header.bytes >= 16 && m.header.bytes <= SHMEMI_WIRE_MAX);
        for (size_t b = 16; b < m.header.bytes; b++)
            CHECK_EQ(m.bytes[b], 0);
        CHECK_OK(shmemi_wire_check(&m, m.header.bytes));
        CHECK(strcmp(shmemi_wire_type_name(types[i]), "unknown") != 0);
    }
    CHECK_STR(shmemi_wire_type_name(999), "unknown");
}

static void wrong_lengths(void)
{
    shmemi_wire_message_t m;
    for (size_t i = 0; i < TYPES; i++)
        for (size_t got = 0; got <= SHMEMI_WIRE_MAX; got++) {
            shmemi_wire_begin(&m, types[i], 1);
            if (got == m.header.bytes)
                continue;
            CHECK_STATUS(shmemi_wire_check(&m, got), SHMEM_ERR_PROTOCOL);
            m.header.bytes = (uint32_t)got; /* a consistent lie */
            CHECK_STATUS(shmemi_wire_check(&m, got), SHMEM_ERR_PROTOCOL);
        }
}

static void wrong_headers(void)
{
    shmemi_wire_message_t m;
    shmemi_wire_begin(&m, SHMEMI_WIRE_HELLO, 1);
    m.header.magic ^= 1;
    CHECK_STATUS(shmemi_wire_check(&m, m.header.bytes), SHMEM_ERR_PROTOCOL);
    shmemi_wire_begin(&m, SHMEMI_WIRE_HELLO, 1);
    m.header.version = SHMEMI_WIRE_VERSION + 1;
    CHECK_STATUS(shmemi_wire_check(&m, m.header.bytes), SHMEM_ERR_VERSION);
    CHECK(strstr(shmem_error_detail()->text, "version 3 met version 4"));
    shmemi_wire_begin(&m, SHMEMI_WIRE_HELLO, 1);
    m.header.type = 4711;
    CHECK_STATUS(shmemi_wire_check(&m, m.header.bytes), SHMEM_ERR_PROTOCOL);
    /* an error of any version is understood */
    shmemi_wire_error(&m, 3, SHMEM_ERR_VERSION, "too old");
    m.header.version = 9;
    CHECK_OK(shmemi_wire_check(&m, m.header.bytes));
}

static void error_texts(void)
{
    shmemi_wire_message_t m;
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    shmemi_wire_error(&m, 3, SHMEM_ERR_LIMIT, text);
    CHECK_EQ(m.error.text_bytes, SHMEMI_WIRE_TEXT - 1);
    CHECK_EQ(strlen(m.error.text), SHMEMI_WIRE_TEXT - 1);
    CHECK_EQ(m.error.status, SHMEM_ERR_LIMIT);
}

static void name_fields(void)
{
    char field[8] = "abc", name[8];
    CHECK(shmemi_wire_name(field, 8, 3, name));
    CHECK_STR(name, "abc");
    CHECK(!shmemi_wire_name(field, 8, 4, name)); /* a NUL inside */
    CHECK(!shmemi_wire_name(field, 8, 2, name)); /* something after it */
    CHECK(!shmemi_wire_name(field, 8, 8, name));
    CHECK(!shmemi_wire_name(field, 8, UINT32_MAX, name));
    memset(field, 'x', 8);
    CHECK(!shmemi_wire_name(field, 8, 7, name));
    memset(field, 0, 8);
    CHECK(shmemi_wire_name(field, 8, 0, name));
    CHECK_STR(name, "");
}

static void segment_names(void)
{
    char longest[SHMEMI_WIRE_NAME + 1];
    static const char *const good[] = {"a", "job/1/heap", "..a", "a..", "a/...", "~", "x:y#1", "/"};
    static const char *const bad[] = {"",    "..",  "a/..", "../a", "a/../b",
                                      "a b", "a\n", "\x7f", "ä"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK(shmemi_wire_name_is_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!shmemi_wire_name_is_valid(bad[i]));
    memset(longest, 'x', sizeof longest);
    longest[SHMEMI_WIRE_NAME - 1] = 0;
    CHECK(shmemi_wire_name_is_valid(longest));
    longest[SHMEMI_WIRE_NAME - 1] = 'x';
    longest[SHMEMI_WIRE_NAME] = 0;
    CHECK(!shmemi_wire_name_is_valid(longest));
}

int main(void)
{
    RUN(made_messages_pass);
    RUN(wrong_lengths);
    RUN(wrong_headers);
    RUN(error_texts);
    RUN(name_fields);
    RUN(segment_names);
    return harness_end();
}
