/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What client and server say to each other: one request, one answer, each a single message of a
 * sequenced-packet socket. docs/protocol.md is the reader's version of this file.
 *
 *   message = header | fixed body of its type        header.bytes == length of the message
 *
 * Invariants: all numbers are little-endian; sizes are pinned; the header and the error answer keep
 * their layout in every version, so that two versions can tell each other why they part; fields
 * that mean nothing are zero, and a receiver insists on it. An answer carries the request's
 * sequence number. What it does not do: sockets (os/socket.h), meaning of the requests (server,
 * client).
 */
#ifndef SHMEMI_NODE_WIRE_H
#define SHMEMI_NODE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "shmem/status.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little-endian");

#define SHMEMI_WIRE_MAGIC 0x574d4853u /* "SHMW" */
enum {
    SHMEMI_WIRE_VERSION = 3,
    SHMEMI_WIRE_MAX = 1024, /* longest message */
    SHMEMI_WIRE_NAME = 128, /* longest segment name with its NUL */
    SHMEMI_WIRE_TEXT = 488, /* longest error sentence with its NUL */
    SHMEMI_WIRE_LISTED = 5  /* entries of a list in one answer */
};

/* X(name, value, struct that follows). Requests are below 0x8000, answers above. Append only. */
#define SHMEMI_WIRE_TABLE(X)                                                                       \
    X(HELLO, 1, shmemi_wire_hello_t)                                                               \
    X(GOODBYE, 2, shmemi_wire_plain_t)                                                             \
    X(SEGMENT_CREATE, 3, shmemi_wire_create_t)                                                     \
    X(SEGMENT_OPEN, 4, shmemi_wire_open_t)                                                         \
    X(SEGMENT_CLOSE, 5, shmemi_wire_close_t)                                                       \
    X(STATUS, 6, shmemi_wire_plain_t)                                                              \
    X(GROW_ROSTER, 7, shmemi_wire_plain_t)                                                         \
    X(SEGMENT_UNLINK, 8, shmemi_wire_unlink_t)                                                     \
    X(SEGMENT_LIST, 9, shmemi_wire_list_t)                                                         \
    X(SEGMENT_GROW, 10, shmemi_wire_grow_t)                                                        \
    X(WELCOME, 0x8001, shmemi_wire_welcome_t)                                                      \
    X(DONE, 0x8002, shmemi_wire_plain_t)                                                           \
    X(SEGMENT, 0x8003, shmemi_wire_segment_t)                                                      \
    X(HELLO_AGAIN, 0x8004, shmemi_wire_plain_t)                                                    \
    X(COUNTS, 0x8006, shmemi_wire_counts_t)                                                        \
    X(GROWN, 0x8007, shmemi_wire_grown_t)                                                          \
    X(ENTRIES, 0x8008, shmemi_wire_entries_t)                                                      \
    X(ERROR, 0xffff, shmemi_wire_error_t)

typedef enum shmemi_wire_type {
#define SHMEMI_WIRE_ENUM(name, value, body) SHMEMI_WIRE_##name = value,
    SHMEMI_WIRE_TABLE(SHMEMI_WIRE_ENUM)
#undef SHMEMI_WIRE_ENUM
} shmemi_wire_type_t;

typedef struct shmemi_wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t bytes; /* of the whole message */
    uint32_t sequence;
} shmemi_wire_header_t;
SHMEMI_PIN_SIZE(shmemi_wire_header_t, 16);

typedef struct shmemi_wire_plain {
    shmemi_wire_header_t header;
} shmemi_wire_plain_t;
SHMEMI_PIN_SIZE(shmemi_wire_plain_t, 16);

enum {
    SHMEMI_HELLO_MEMBARRIER = 1, /* the client's process is registered for membarrier */
    SHMEMI_HELLO_FLAGS = 1       /* all flags there are */
};

typedef struct shmemi_wire_hello {
    shmemi_wire_header_t header;
    uint32_t layout; /* shmemi_wire_layout() */
    uint32_t flags;
    uint64_t space_base, space_bytes;
    char name[32]; /* shown by tools; terminated */
} shmemi_wire_hello_t;
SHMEMI_PIN_SIZE(shmemi_wire_hello_t, 72);

typedef struct shmemi_wire_welcome { /* with the roster's descriptor */
    shmemi_wire_header_t header;
    uint32_t slot, epoch;
    uint64_t roster_offset, roster_bytes;
} shmemi_wire_welcome_t;
SHMEMI_PIN_SIZE(shmemi_wire_welcome_t, 40);

enum {
    SHMEMI_CREATE_RESERVE = 1, /* the first `bytes` are reserved before the answer */
    SHMEMI_CREATE_OPEN = 2,    /* open an existing one of that name and size */
    SHMEMI_CREATE_FLAGS = 3    /* all flags there are */
};

typedef struct shmemi_wire_create {
    shmemi_wire_header_t header;
    uint64_t bytes;
    uint64_t limit; /* of its file: address space; 0: `bytes` */
    uint32_t kind;  /* shmemi_segment_kind_t */
    uint32_t huge;  /* SHMEMI_HUGE_* */
    uint32_t flags;
    uint32_t access;     /* SHMEM_ACCESS_*: what others than the creator's user may do */
    int32_t node;        /* the system's number of the NUMA node that gives its memory; -1: any */
    uint32_t name_bytes; /* without the NUL; 0: anonymous */
    char name[SHMEMI_WIRE_NAME];
} shmemi_wire_create_t;
SHMEMI_PIN_SIZE(shmemi_wire_create_t, 184);

typedef struct shmemi_wire_open {
    shmemi_wire_header_t header;
    uint32_t name_bytes;
    uint32_t rights; /* SHMEMI_RIGHTS_*: what the descriptor shall allow */
    char name[SHMEMI_WIRE_NAME];
} shmemi_wire_open_t;
SHMEMI_PIN_SIZE(shmemi_wire_open_t, 152);

typedef struct shmemi_wire_unlink {
    shmemi_wire_header_t header;
    uint64_t id; /* only if it is this segment's name; 0: whosever it is */
    uint32_t name_bytes;
    uint32_t zero;
    char name[SHMEMI_WIRE_NAME];
} shmemi_wire_unlink_t;
SHMEMI_PIN_SIZE(shmemi_wire_unlink_t, 160);

typedef struct shmemi_wire_grow {
    shmemi_wire_header_t header;
    uint64_t id;
    uint64_t bytes;
} shmemi_wire_grow_t;
SHMEMI_PIN_SIZE(shmemi_wire_grow_t, 32);

typedef struct shmemi_wire_list {
    shmemi_wire_header_t header;
    uint64_t cursor; /* 0: from the beginning; else as the last answer said */
    uint32_t prefix_bytes;
    uint32_t zero;
    char prefix[SHMEMI_WIRE_NAME]; /* of the names wanted; may be empty */
} shmemi_wire_list_t;
SHMEMI_PIN_SIZE(shmemi_wire_list_t, 160);

typedef struct shmemi_wire_segment { /* with the segment's descriptor */
    shmemi_wire_header_t header;
    uint64_t id, offset;
    uint64_t bytes;      /* of its file */
    uint64_t first;      /* `bytes` of the request that created it, or to which it has grown */
    uint64_t page_bytes; /* see os/segment.h */
    uint32_t created;    /* 1: by this request */
    uint32_t kind;
    uint32_t uid, gid; /* of its creator */
    uint32_t access;
    uint32_t rights; /* SHMEMI_RIGHTS_*, of the descriptor */
} shmemi_wire_segment_t;
SHMEMI_PIN_SIZE(shmemi_wire_segment_t, 80);

typedef struct shmemi_wire_close {
    shmemi_wire_header_t header;
    uint64_t id;
} shmemi_wire_close_t;
SHMEMI_PIN_SIZE(shmemi_wire_close_t, 24);

typedef struct shmemi_wire_counts {
    shmemi_wire_header_t header;
    uint64_t clients;  /* attached, suspects included */
    uint64_t suspects; /* connection gone, process alive */
    uint64_t segments, segment_bytes;
    uint64_t deaths;           /* clients that ended without a goodbye */
    uint64_t reclaimed_blocks; /* pool blocks given back for them */
    uint64_t thread_limit;     /* rows of the roster that may be used */
} shmemi_wire_counts_t;
SHMEMI_PIN_SIZE(shmemi_wire_counts_t, 72);

typedef struct shmemi_wire_grown {
    shmemi_wire_header_t header;
    uint64_t thread_limit;
} shmemi_wire_grown_t;
SHMEMI_PIN_SIZE(shmemi_wire_grown_t, 24);

typedef struct shmemi_wire_entry {
    uint64_t bytes, first; /* as in SEGMENT */
    uint32_t kind;
    uint32_t uid, gid, access;
    uint32_t users; /* clients that have it open */
    uint32_t zero;
    char name[SHMEMI_WIRE_NAME];
} shmemi_wire_entry_t;
SHMEMI_PIN_SIZE(shmemi_wire_entry_t, 168);

typedef struct shmemi_wire_entries {
    shmemi_wire_header_t header;
    uint64_t cursor; /* to go on with; 0: that was all */
    uint32_t count;
    uint32_t zero;
    shmemi_wire_entry_t entries[SHMEMI_WIRE_LISTED];
} shmemi_wire_entries_t;
SHMEMI_PIN_SIZE(shmemi_wire_entries_t, 872);

typedef struct shmemi_wire_error {
    shmemi_wire_header_t header;
    int32_t status; /* shmem_status_t, negative */
    uint32_t text_bytes;
    char text[SHMEMI_WIRE_TEXT];
} shmemi_wire_error_t;
SHMEMI_PIN_SIZE(shmemi_wire_error_t, 512);

/* Any message; receive into this. */
typedef union shmemi_wire_message {
    shmemi_wire_header_t header;
    shmemi_wire_hello_t hello;
    shmemi_wire_welcome_t welcome;
    shmemi_wire_create_t create;
    shmemi_wire_open_t open;
    shmemi_wire_segment_t segment;
    shmemi_wire_close_t close;
    shmemi_wire_counts_t counts;
    shmemi_wire_grown_t grown;
    shmemi_wire_unlink_t unlink;
    shmemi_wire_list_t list;
    shmemi_wire_grow_t grow;
    shmemi_wire_entries_t entries;
    shmemi_wire_error_t error;
    unsigned char bytes[SHMEMI_WIRE_MAX];
} shmemi_wire_message_t;

/* Zero the body of a message of `type` and fill its header. */
void shmemi_wire_begin(shmemi_wire_message_t *message, shmemi_wire_type_t type, uint32_t sequence);

/* Make `message` the error answer. The text is cut to fit. */
void shmemi_wire_error(shmemi_wire_message_t *message, uint32_t sequence, shmem_status_t status,
                       const char *text);

/* Hash over the layouts of all that server and clients share in memory: roster and pools. Builds in
 * which it differs refuse each other. */
uint32_t shmemi_wire_layout(void);

/*
 * Is `message`, of which `got` bytes arrived, well formed? Checks magic, version, type, length. A
 * VERSION or PROTOCOL error is recorded without logging; the text says what was found.
 */
shmem_status_t shmemi_wire_check(const shmemi_wire_message_t *message, size_t got);

/* Copy a name field: `name_bytes` < `room`, no NUL inside, zeros after it. False: broken. */
bool shmemi_wire_name(const char *field, size_t room, uint32_t name_bytes, char *name);

/* The rule for segment names: 1 to 127 visible ASCII characters, no ".." between slashes. */
bool shmemi_wire_name_is_valid(const char *name);

/* "SEGMENT_CREATE"; "unknown" for other numbers. */
const char *shmemi_wire_type_name(unsigned type);

#endif
