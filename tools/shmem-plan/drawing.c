/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drawing: a rectangle for each buffer, with a tool tip that tells its numbers and its id where
 * there is room; axes; lines for peak, lower bound and capacity with a legend.
 */
#include "drawing.h"

#include <inttypes.h>
#include <string.h>

enum { LEFT = 110, TOP = 70, WIDTH = 1000, HEIGHT = 600, RIGHT = 30, BOTTOM = 60, TICKS = 8 };

typedef struct scale {
    double first, duration; /* time */
    double bytes;           /* height of the drawing */
} scale_t;

static double x_of(const scale_t *scale, int64_t time)
{
    return LEFT + ((double)time - scale->first) / scale->duration * WIDTH;
}

static double y_of(const scale_t *scale, double address)
{
    return TOP + HEIGHT - address / scale->bytes * HEIGHT;
}

static scale_t scale_of(const table_t *table, const shmem_plan_result_t *result, uint64_t capacity)
{
    double first = 0, last = 1, most = (double)(capacity > result->peak ? capacity : result->peak);
    for (size_t i = 0; i < table->count; i++) {
        const shmem_plan_buffer_t *b = &table->buffers[i];
        first = i == 0 || (double)b->first < first ? (double)b->first : first;
        last = i == 0 || (double)b->last > last ? (double)b->last : last;
    }
    return (scale_t){first, last > first ? last - first : 1, most > 0 ? 1.02 * most : 1};
}

/* Text with the characters that mean something in XML written out; control characters become '?'.
 */
static void write_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '>')
            fputs("&gt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc((unsigned char)*text < 32 || (unsigned char)*text > 126 ? '?' : *text, file);
    }
}

static void write_buffer(const table_t *table, size_t i, uint64_t offset, const scale_t *scale,
                         FILE *file)
{
    const shmem_plan_buffer_t *b = &table->buffers[i];
    double x = x_of(scale, b->first), y = y_of(scale, (double)offset + (double)b->bytes);
    double width = x_of(scale, b->last) - x, height = y_of(scale, (double)offset) - y;
    char id[64];
    if (b->bytes == 0 || b->first == b->last)
        return;
    table_id(table, i, id, sizeof id);
    fprintf(file, "<g><title>");
    write_escaped(file, id);
    fprintf(file,
            ": %" PRIu64 " bytes at %" PRIu64 ", live from %" PRId64 " to %" PRId64 "%s</title>",
            b->bytes, offset, b->first, b->last, b->is_fixed ? ", fixed" : "");
    fprintf(file,
            "<rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='hsl(%zu,%d%%,%d%%)' "
            "class='b%s'/>",
            x, y, width, height, i * 137 % 360, 45 + (int)(i % 3) * 10, 70 + (int)(i % 2) * 8,
            b->is_fixed ? " f" : "");
    if (height >= 10 && width >= 7.0 * (double)strlen(id)) {
        fprintf(file, "<text x='%.2f' y='%.2f' class='i'>", x + width / 2, y + height / 2 + 3);
        write_escaped(file, id);
        fputs("</text>", file);
    }
    fputs("</g>\n", file);
}

/* The smallest of 1, 2 and 5 times a power of ten that gives at most TICKS steps: whole, as times
 * and addresses are. */
static double step_of(double length)
{
    double power = 1;
    while (10 * power * TICKS < length)
        power *= 10;
    for (int i = 0; i < 3; i++) {
        static const int factors[] = {1, 2, 5};
        if (factors[i] * power * TICKS >= length)
            return factors[i] * power;
    }
    return 10 * power;
}

/* The same in powers of two, which is what sizes of memory are. */
static double byte_step_of(double bytes)
{
    double step = 1;
    while (step * TICKS < bytes)
        step *= 2;
    return step;
}

/* "12", "384 KiB": what is a multiple of the unit. */
static void write_bytes(double bytes, double step, FILE *file)
{
    static const char *const units[] = {"", " KiB", " MiB", " GiB", " TiB"};
    int unit = 0;
    for (; step >= 1024 && unit < 4; unit++, step /= 1024)
        bytes /= 1024;
    fprintf(file, "%.0f%s", bytes, units[unit]);
}

static void write_time_axis(const scale_t *scale, FILE *file)
{
    double step = step_of(scale->duration), last = scale->first + scale->duration;
    double begin = step * (double)(int64_t)(scale->first / step);
    for (int i = 0; i <= TICKS + 1;
         i++) { /* counted: adding 1 to a large time may change nothing */
        double time = begin + i * step;
        double x = LEFT + (time - scale->first) / scale->duration * WIDTH;
        const char *side = x > LEFT + 0.9 * WIDTH ? "e" : "m"; /* stays inside of the picture */
        if (time >= scale->first && time <= last)
            fprintf(file,
                    "<path d='M%.1f %d v5' class='a'/><text x='%.1f' y='%d' class='%s'>%.0f"
                    "</text>\n",
                    x, TOP + HEIGHT, x, TOP + HEIGHT + 18, side, time);
    }
}

static void write_address_axis(const scale_t *scale, FILE *file)
{
    double step = byte_step_of(scale->bytes);
    for (double bytes = 0; bytes <= scale->bytes; bytes += step) {
        double y = y_of(scale, bytes);
        fprintf(file, "<path d='M%d %.1f h-5' class='a'/><text x='%d' y='%.1f' class='e'>", LEFT, y,
                LEFT - 8, y + 4);
        write_bytes(bytes, step, file);
        fputs("</text>\n", file);
    }
}

static void write_axes(const scale_t *scale, FILE *file)
{
    write_time_axis(scale, file);
    write_address_axis(scale, file);
    fprintf(file,
            "<rect x='%d' y='%d' width='%d' height='%d' class='a'/>"
            "<text x='%d' y='%d' class='m'>time</text>"
            "<text x='20' y='%d' class='m' transform='rotate(-90 20 %d)'>address (bytes)</text>\n",
            LEFT, TOP, WIDTH, HEIGHT, LEFT + WIDTH / 2, TOP + HEIGHT + 42, TOP + HEIGHT / 2,
            TOP + HEIGHT / 2);
}

/* A level across the drawing, and its entry in the legend. */
static void write_level(const scale_t *scale, const char *name, const char *style, uint64_t bytes,
                        int entry, FILE *file)
{
    double y = y_of(scale, (double)bytes);
    int x = LEFT + entry * 300;
    fprintf(file,
            "<path d='M%d %.2f h%d' class='l %s'/><path d='M%d 46 h30' class='l %s'/>"
            "<text x='%d' y='50'>%s: %" PRIu64 "</text>\n",
            LEFT, y, WIDTH, style, x, style, x + 36, name, bytes);
}

void drawing_write(const table_t *table, const uint64_t *offsets, const shmem_plan_result_t *result,
                   uint64_t capacity, FILE *file)
{
    scale_t scale = scale_of(table, result, capacity);
    fprintf(file,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' "
            "font-size='12'>\n<style>.b{stroke:#444;stroke-width:.4}.f{stroke-width:2}"
            ".a{fill:none;stroke:#000}.m,.i{text-anchor:middle}.i{font-size:9px}.e{text-anchor:end}"
            ".l{fill:none;stroke-width:1.5}.p{stroke:#06c}.o{stroke:#080;stroke-dasharray:2 3}"
            ".c{stroke:#c00;stroke-dasharray:8 4}</style>\n"
            "<rect width='100%%' height='100%%' fill='#fff'/>\n"
            "<text x='%d' y='24' font-size='16'>%zu buffers%s%s</text>\n",
            LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM, LEFT, table->count,
            result->is_optimal ? ", proved optimal" : "", result->fits ? "" : ", does not fit");
    for (size_t i = 0; i < table->count; i++)
        write_buffer(table, i, offsets[i], &scale, file);
    write_axes(&scale, file);
    write_level(&scale, "peak", "p", result->peak, 0, file);
    write_level(&scale, "lower bound", "o", result->lower_bound, 1, file);
    if (capacity)
        write_level(&scale, "capacity", "c", capacity, 2, file);
    fputs("</svg>\n", file);
}
