/* SPDX-License-Identifier: Apache-2.0 */
/* Pumping terminal input. In the background the terminal is left alone: reading would stop us. */
#include "input.h"

#include <errno.h>
#include <unistd.h>

void run_input_close(run_input_t *input)
{
    if (input->fd >= 0)
        close(input->fd);
    input->fd = -1;
}

void run_input_poll(const run_input_t *input, struct pollfd polls[2])
{
    polls[0] = polls[1] = (struct pollfd){-1, 0, 0};
    if (input->fd < 0)
        return;
    polls[1] = (struct pollfd){input->fd, POLLOUT, 0};
    if (input->start != input->end)
        return;
    polls[1].events = 0; /* only to see that rank 0 closed its end */
    if (tcgetpgrp(STDIN_FILENO) == getpgrp())
        polls[0] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
}

void run_input_move(run_input_t *input, const struct pollfd polls[2])
{
    if (input->fd < 0)
        return;
    if (polls[1].revents & (POLLERR | POLLNVAL)) {
        run_input_close(input);
        return;
    }
    if (polls[0].revents) {
        ssize_t n = read(STDIN_FILENO, input->data, sizeof input->data);
        input->start = 0;
        input->end = n > 0 ? (size_t)n : 0;
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
            run_input_close(input); /* end of input is passed on */
    } else if (polls[1].revents & POLLOUT) {
        ssize_t n = write(input->fd, input->data + input->start, input->end - input->start);
        if (n > 0)
            input->start += (size_t)n;
    }
}
