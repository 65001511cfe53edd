#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shmem-run: PEs that end with 0 but never joined, or did not leave, or did all as they should.
. "$(dirname "$0")/lib.sh"
flags=(-std=c11 -Wall -Wextra -Werror -I"$SOURCE_DIR/include" -L"$BUILD_DIR/lib" -Wl,-rpath,"$BUILD_DIR/lib")
[ -z "${SHMEM_SANITIZER:-}" ] || flags+=("-fsanitize=$SHMEM_SANITIZER")
cat > "$scratch/leave.c" <<'C'
#include <shmem/shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void leave(int signal) { (void)signal; _exit(0); }
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *rank = getenv("SHMEM_RANK");
    shmem_context_params_t alone = SHMEM_CONTEXT_PARAMS_INIT;
    shmem_context_t ctx = NULL;
    int is_one = rank && strcmp(rank, "1") == 0;
    alone.pes = 1;
    alone.job = rank;
    if (strcmp(what, "never") == 0 && is_one)
        return 0;
    if (strcmp(what, "alone") == 0 ? shmem_context_init_params(&ctx, &alone) : shmem_init(&ctx))
        return 10;
    if (strcmp(what, "alone") == 0)
        sleep(is_one ? 0 : 2);
    if (strcmp(what, "all") == 0 || (strcmp(what, "early") == 0 && is_one))
        return 0;
    if (strcmp(what, "signal") == 0) {
        signal(SIGTERM, leave);
        puts("ready");
        fflush(stdout);
        sleep(20);
    }
    if (strcmp(what, "early") == 0 && shmem_barrier(ctx))
        return 11;
    return shmem_finalize(ctx) ? 12 : 0;
}
C
"${CC:-cc}" "$scratch/leave.c" "${flags[@]}" -lshmem -o "$scratch/leave" || fail "the program does not compile"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # contexts are left behind on purpose

# never joined: the others are not left waiting for SHMEM_INIT_TIMEOUT
start=$SECONDS
expect 1 "$run" -n 3 "$scratch/leave" never
says err '^shmem-run: rank 1 ended with exit code 0 without joining the job; .*; ending the other 2$'
[ $((SECONDS - start)) -lt 10 ] || fail "the others waited"
[ "$(wc -l < "$scratch/err")" = 1 ] || fail "said more than that"

# joined, but did not leave: the cause is named, not those that failed because of it
for i in 1 2 3 4 5; do
  expect 1 "$run" -n 3 "$scratch/leave" early
  says err '^shmem-run: rank 1 \(process [0-9]+\) ended with exit code 0 but without shmem_finalize\(\)'
done
# also when nobody was harmed: the same program must not succeed by luck
for i in 1 2 3 4 5; do
  expect 1 "$run" -n 2 "$scratch/leave" all
  says err 'without shmem_finalize\(\)'
done

# nothing to say: a job of one, contexts of one's own, those that were told to go, and the good ones
expect 0 "$run" -n 1 "$scratch/leave" all
silent err
expect 0 "$run" -n 2 "$scratch/leave" alone
silent err
"$run" -n 2 "$scratch/leave" signal > "$scratch/out" 2> "$scratch/err" &
launcher=$!
both_ready() { [ "$(wc -l < "$scratch/out")" = 2 ]; }
until_true 10 both_ready || fail "the PEs did not start"
kill -TERM $launcher
wait $launcher
code=$?
[ $code = 0 ] || { cat "$scratch/err"; fail "exit code $code of PEs that end well when told to"; }
silent err
for i in 1 2 3 4 5; do
  expect 0 "$run" -n 4 "$scratch/leave"
  silent err
done
# what the server logs is still to be had
expect 0 env SHMEM_LOG=info "$run" -n 2 "$scratch/leave"
[ "$(grep -c 'shmem info \[node\]: client .* said goodbye$' "$scratch/err")" = 2 ] || fail "the server's log is gone"
finish
