/* SPDX-License-Identifier: Apache-2.0 */
/* Images of handwritten digits, and how they are dealt out to the PEs. */
#ifndef DIGITS_DATA_H
#define DIGITS_DATA_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DIGITS_PIXELS = 64,
    DIGITS_CLASSES = 10,
    DIGITS_HELD_OUT = 6 /* every 6th image is held out for the test of accuracy */
};

typedef struct digits_image {
    float pixels[DIGITS_PIXELS]; /* 0 to 1 */
    int32_t label;
    int32_t number; /* of the line in the file, 0-based */
} digits_image_t;

/* Reads the file; *images is the caller's to free. On failure says why and returns false. */
bool digits_read(const char *path, digits_image_t **images, int32_t *count);

/* The PE that holds an image: dealt out like cards. */
static inline int digits_owner(int32_t number, int pes)
{
    return (int)(number % pes);
}

static inline bool digits_is_held_out(int32_t number)
{
    return number % DIGITS_HELD_OUT == DIGITS_HELD_OUT - 1;
}

#endif
