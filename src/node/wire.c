/* SPDX-License-Identifier: Apache-2.0 */
/* Making and checking messages. Invariant: nothing beyond `got` bytes of a message is looked at. */
#include "node/wire.h"

#include <string.h>

#include "base/status.h"
#include "memory/layout.h"
#include "sync/roster.h"

#define LAYER "node"

typedef struct wire_entry {
    unsigned type;
    uint32_t bytes;
    const char *name;
} wire_entry_t;

static const wire_entry_t wire_table[] = {
#define WIRE_ENTRY(name, value, body) {value, sizeof(body), #name},
    SHMEMI_WIRE_TABLE(WIRE_ENTRY)
#undef WIRE_ENTRY
};

static const wire_entry_t *wire_find(unsigned type)
{
    for (size_t i = 0; i < SHMEMI_COUNT(wire_table); i++)
        if (wire_table[i].type == type)
            return &wire_table[i];
    return NULL;
}

const char *shmemi_wire_type_name(unsigned type)
{
    const wire_entry_t *entry = wire_find(type);
    return entry ? entry->name : "unknown";
}

void shmemi_wire_begin(shmemi_wire_message_t *message, shmemi_wire_type_t type, uint32_t sequence)
{
    const wire_entry_t *entry = wire_find(type);
    uint32_t bytes = entry ? entry->bytes : (uint32_t)sizeof(shmemi_wire_header_t);
    memset(message, 0, bytes);
    message->header = (shmemi_wire_header_t){SHMEMI_WIRE_MAGIC, SHMEMI_WIRE_VERSION, (uint16_t)type,
                                             bytes, sequence};
}

void shmemi_wire_error(shmemi_wire_message_t *message, uint32_t sequence, shmem_status_t status,
                       const char *text)
{
    shmemi_wire_begin(message, SHMEMI_WIRE_ERROR, sequence);
    size_t length = strnlen(text, SHMEMI_WIRE_TEXT - 1);
    message->error.status = status;
    message->error.text_bytes = (uint32_t)length;
    memcpy(message->error.text, text, length);
}

uint32_t shmemi_wire_layout(void)
{
    return shmemi_roster_layout() ^ shmemi_layout_hash();
}

shmem_status_t shmemi_wire_check(const shmemi_wire_message_t *message, size_t got)
{
    const shmemi_wire_header_t *header = &message->header;
    if (got < sizeof *header)
        return shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER,
                            "a message of %zu bytes, shorter than its header of %zu", got,
                            sizeof *header);
    if (header->magic != SHMEMI_WIRE_MAGIC)
        return shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER,
                            "a message begins with 0x%08x, not with 0x%08x: no shmem program",
                            header->magic, SHMEMI_WIRE_MAGIC);
    const wire_entry_t *entry = wire_find(header->type);
    bool is_error = header->type == SHMEMI_WIRE_ERROR; /* the same in all versions */
    if (header->version != SHMEMI_WIRE_VERSION && !is_error)
        return shmemi_quiet(SHMEM_ERR_VERSION, LAYER,
                            "protocol version %u met version %u: client and server come from "
                            "different releases of shmem; use the same one for both",
                            (unsigned)SHMEMI_WIRE_VERSION, header->version);
    if (!entry)
        return shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER, "a message of unknown type 0x%04x",
                            header->type);
    if (header->bytes != got || got != entry->bytes)
        return shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER,
                            "a %s message has %zu bytes and claims %u; it must have %u",
                            entry->name, got, header->bytes, entry->bytes);
    return SHMEM_OK;
}

bool shmemi_wire_name(const char *field, size_t room, uint32_t name_bytes, char *name)
{
    if (name_bytes >= room || memchr(field, 0, name_bytes))
        return false;
    for (size_t i = name_bytes; i < room; i++)
        if (field[i])
            return false;
    memcpy(name, field, room);
    return true;
}

bool shmemi_wire_name_is_valid(const char *name)
{
    size_t length = strnlen(name, SHMEMI_WIRE_NAME);
    if (length == 0 || length >= SHMEMI_WIRE_NAME)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] < 0x21 || name[i] > 0x7e)
            return false;
    for (const char *part = name;; part++) {
        size_t n = strcspn(part, "/");
        if (n == 2 && part[0] == '.' && part[1] == '.')
            return false;
        part += n;
        if (!*part)
            return true;
    }
}
