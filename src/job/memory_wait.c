/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a word of the own part. Puts and signals through the library ring the PE's bell;
 * stores made behind its back are found at the end of the wait's slice. */
#include "shmem/comm.h"

#include "base/status.h"
#include "job/memory.h"
#include "job/peers.h"
#include "xport/direct.h"

#define LAYER "job"

typedef struct word {
    shmem_context_t context;
    const char *address;
    shmem_compare_t compare;
    uint64_t value, seen;
    uint32_t deaths;
} word_t;

static bool word_ready(void *arg)
{
    word_t *word = arg;
    uint64_t seen = word->seen = shmemi_direct_load(word->address);
    switch (word->compare) {
    case SHMEM_COMPARE_EQ:
        return seen == word->value;
    case SHMEM_COMPARE_NE:
        return seen != word->value;
    case SHMEM_COMPARE_GT:
        return seen > word->value;
    case SHMEM_COMPARE_GE:
        return seen >= word->value;
    case SHMEM_COMPARE_LT:
        return seen < word->value;
    default:
        return seen <= word->value;
    }
}

static shmem_status_t word_alive(void *arg)
{
    word_t *word = arg;
    return shmemi_peers_check(word->context, &word->deaths);
}

static shmem_status_t arguments_check(shmem_memory_t memory, size_t offset, shmem_compare_t compare)
{
    char words[SHMEMI_MEMORY_WORDS];
    shmem_status_t status = shmemi_memory_check(memory);
    if (status)
        return status;
    if (!shmemi_self(memory->context->actor))
        return shmem_error_detail()->status;
    if (!shmemi_memory_is_mapped(memory))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "symmetric memory %s is not mapped here: call shmem_memory_map()",
                           shmemi_memory_words(memory->id, words, sizeof words));
    if (offset % sizeof(uint64_t) || (unsigned)compare > SHMEM_COMPARE_LE)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "wait on offset %zu with comparison %d: offsets are multiples of 8, "
                           "comparisons 0 to %d",
                           offset, (int)compare, SHMEM_COMPARE_LE);
    if (!shmemi_range_inside(offset, sizeof(uint64_t), memory->bytes))
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "the word at offset %zu lies outside of a part of %zu bytes", offset,
                           memory->bytes);
    return SHMEM_OK;
}

static shmem_status_t timed_out(const word_t *word, size_t offset)
{
    static const char *const signs[] = {"==", "!=", ">", ">=", "<", "<="};
    return shmemi_quiet(SHMEM_ERR_TIMEOUT, LAYER,
                        "PE %d waited for the word at offset %zu of its part to be %s %llu; at the "
                        "end of the time given it is %llu",
                        word->context->rank, offset, signs[word->compare],
                        (unsigned long long)word->value, (unsigned long long)word->seen);
}

shmem_status_t shmem_memory_wait(shmem_memory_t memory, size_t offset, shmem_compare_t compare,
                                 uint64_t value, int64_t timeout, uint64_t *seen)
{
    shmem_status_t status = arguments_check(memory, offset, compare);
    if (status)
        return status;
    shmem_context_t c = memory->context;
    word_t word = {.context = c,
                   .address = shmemi_memory_part(memory, c->rank) + offset,
                   .compare = compare,
                   .value = value};
    /* the first look at the peers finds also those that died before */
    word.deaths = atomic_load_explicit(&c->actor->roster->deaths, memory_order_relaxed) - 1;
    shmemi_wait_t wait = {.ready = word_ready,
                          .alive = word_alive,
                          .arg = &word,
                          .kind = SHMEMI_WAIT_BELL,
                          .object = word.address};
    if (!word_ready(&word))
        status = shmemi_wait_until(c->actor, &c->pes[c->rank].bell, &wait,
                                   timeout < 0 ? SHMEMI_FOREVER : shmemi_deadline_in(timeout));
    if (status == SHMEM_ERR_TIMEOUT)
        return timed_out(&word, offset);
    if (!status && seen)
        *seen = word.seen;
    return status;
}
