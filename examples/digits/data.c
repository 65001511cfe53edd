/* SPDX-License-Identifier: Apache-2.0 */
/* Reading digits.csv: lines of 64 pixels from 0 to 16 and a label. */
#include "data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 1 << 20, PIXEL_MAX = 16 };

static bool parse_number(const char **text, char after, long max, long *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    *out = strtol(*text, &end, 10);
    if (*out > max || *end != after)
        return false;
    *text = end + 1;
    return true;
}

static bool parse_line(const char *text, digits_image_t *image)
{
    long n;
    for (int i = 0; i < DIGITS_PIXELS; i++) {
        if (!parse_number(&text, ',', PIXEL_MAX, &n))
            return false;
        image->pixels[i] = (float)n / PIXEL_MAX;
    }
    if (!parse_number(&text, '\n', DIGITS_CLASSES - 1, &n))
        return false;
    image->label = (int32_t)n;
    return true;
}

static bool grow(digits_image_t **images, int32_t count)
{
    if (count & (count - 1)) /* only at powers of two */
        return true;
    size_t room = count ? 2 * (size_t)count : 1;
    digits_image_t *more = realloc(*images, room * sizeof **images);
    if (more)
        *images = more;
    return more != NULL;
}

bool digits_read(const char *path, digits_image_t **images, int32_t *count)
{
    char line[1024];
    digits_image_t *all = NULL;
    int32_t n = 0;
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "digits: cannot open %s: %s\n", path, strerror(errno));
        return false;
    }
    while (n < LINES_MAX && fgets(line, sizeof line, file)) {
        if (!grow(&all, n) || !parse_line(line, &all[n])) {
            fprintf(stderr,
                    "digits: %s, line %d: expected 64 pixels (0 to 16) and a label (0 to 9)\n",
                    path, n + 1);
            goto bad;
        }
        all[n].number = n;
        n++;
    }
    if (n < DIGITS_HELD_OUT) {
        fprintf(stderr, "digits: %s holds %d images, too few\n", path, n);
        goto bad;
    }
    fclose(file);
    *images = all;
    *count = n;
    return true;
bad:
    fclose(file);
    free(all);
    return false;
}
