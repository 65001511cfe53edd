#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The programs in README.md and in the guide compile without a warning and print what is written there;
# the errors in the guide's table are those that the library gives.
. "$(dirname "$0")/lib.sh"
guide=$SOURCE_DIR/docs/guide/first-program.md
flags=(-std=c11 -Wall -Wextra -Werror -I"$SOURCE_DIR/include" -L"$BUILD_DIR/lib" -Wl,-rpath,"$BUILD_DIR/lib")
[ -z "${SHMEM_SANITIZER:-}" ] || flags+=("-fsanitize=$SHMEM_SANITIZER")

block() { # file, pattern of the line before it: the next block
  awk -v pattern="$2" '$0 ~ pattern { wanted = 1 } /^```/ { if (inside) exit; if (wanted) { inside = 1; next } } inside' "$1"
}
build() { "${CC:-cc}" "$scratch/$1.c" "${flags[@]}" -lshmem -o "$scratch/$1" || fail "$1.c does not compile"; }

block "$SOURCE_DIR/README.md" '^## A first program' > "$scratch/first.c"
build first
expect 0 "$run" -n 4 "$scratch/first"
[ "$(sort "$scratch/out" | head -1)" = "PE 0 of 4 was written to by PE 3" ] || fail "the program of README.md"
[ "$(wc -l < "$scratch/out")" = 4 ] || fail "the program of README.md"
# it tells what is wrong instead of crashing, and is C++ as well
expect 1 env SHMEM_SERVER=@$mark "$scratch/first"
says err 'where SHMEM_SERVER'
"${CXX:-c++}" -x c++ "$scratch/first.c" "${flags[@]:1}" -lshmem -o "$scratch/first-cpp" || fail "README's program is no C++"
expect 0 "$run" -n 2 "$scratch/first-cpp"

block "$guide" 'file: addup.c' > "$scratch/addup.c"
build addup
block "$guide" 'output: shmem-run -n 4 ./addup' | sort > "$scratch/wanted"
expect 0 "$run" -n 4 "$scratch/addup"
sort "$scratch/out" | diff "$scratch/wanted" - || fail "the guide's program prints something else"
expect 0 "$scratch/addup"
says out '^PE 0 of 1: the sum is 1$'

pools=$SOURCE_DIR/docs/guide/pools.md
block "$pools" 'file: tenants.c' > "$scratch/tenants.c"
build tenants
expect 0 "$scratch/tenants"
block "$pools" 'output: ./tenants' | diff "$scratch/out" - || fail "the program of pools.md prints something else"
sed -n 's/^| `\(SHMEM_ERR_[A-Z_]*\)`.*/\1/p' "$pools" | while read -r code; do
  grep -q "X($code," "$SOURCE_DIR/include/shmem/status.h" || fail "there is no $code"
done || exit 1

# what a debug pool says of the mistakes, but for addresses
same() { sed -E 's/0x[0-9a-f]+/0x/g; s/process [0-9]+/process N/g' "$1"; }
block "$pools" 'file: mistakes.c' > "$scratch/mistakes.c"
build mistakes
expect 0 env SHMEM_DEBUG=yes "$scratch/mistakes"
block "$pools" 'output: SHMEM_DEBUG=yes ./mistakes' > "$scratch/wanted"
diff <(same "$scratch/wanted") <(same "$scratch/err") || fail "debug pools say something else than pools.md"
expect 0 env SHMEM_DEBUG=yes SHMEM_LOG=off "$scratch/mistakes"
silent err

# the table: each error with a sentence that contains the words that the guide promises
says_guide() { # status name, words: in the library's answer and in the guide
  grep -qF "$2" "$guide" || fail "the guide does not say '$2'"
  says err "$1.*$2"
}
cat > "$scratch/wrong.c" <<'C'
#include <shmem/shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static int tell(shmem_status_t status)
{
    fprintf(stderr, "%s: %s\n", shmem_status_name(status), shmem_error_detail()->text);
    return status ? 1 : 0;
}
int main(int argc, char **argv)
{
    shmem_context_t ctx;
    shmem_memory_t mem;
    char byte = 0;
    if (shmem_init(&ctx))
        return tell(shmem_error_detail()->status);
    int what = argc > 1 ? argv[1][0] : 0, rank = shmem_context_rank(ctx), code = 0;
    if (what == 'm')
        code = tell(shmem_memory_create(ctx, &mem, rank ? 200 : 100));
    else if (what == 'n')
        code = tell(shmem_memory_create(ctx, &mem, (size_t)1 << 43));
    else if (what == 'd' && rank == 1)
        raise(SIGKILL);
    else if (what == 'd')
        code = tell(shmem_barrier(ctx));
    else if (shmem_memory_create(ctx, &mem, 100))
        code = 99;
    else if (what == 's')
        code = tell(shmem_memory_put(mem, 0, 0, &byte, 1));
    else if (what == 'o' && shmem_memory_map(mem))
        code = tell(shmem_memory_put(mem, 0, 95, "0123456789", 10));
    shmem_finalize(ctx);
    return code;
}
C
build wrong
wrong=$scratch/wrong
expect 1 env SHMEM_SERVER=@$mark "$wrong"
says_guide SHMEM_ERR_NO_SERVER 'where SHMEM_SERVER'
# a private server of another test may be there to answer
timeout 20 env -u SHMEM_SERVER SHMEM_SHMEMD=/none "$wrong" 2> "$scratch/err" ||
  says_guide SHMEM_ERR_NO_SERVER 'the program to start one was not found; tried'
expect 1 env SHMEM_SPIN=5 "$wrong"
says_guide SHMEM_ERR_SETTING "SHMEM_SPIN is '5', must be a whole number with a unit"
expect 1 env SHMEM_SIZE=2 "$wrong"
says_guide SHMEM_ERR_INVALID 'PE 0 of 2 has no job name'
expect 1 env SHMEM_SIZE=2 SHMEM_JOB=$mark SHMEM_INIT_TIMEOUT=200ms "$wrong"
says_guide SHMEM_ERR_TIMEOUT 'of 2 PEs these have not joined in time: 1'
expect 1 "$run" -n 2 env SHMEM_RANK=0 SHMEM_INIT_TIMEOUT=1s "$wrong"
says_guide SHMEM_ERR_MISMATCH 'is taken'
expect 1 "$run" -n 2 "$wrong" m
says err 'SHMEM_ERR_MISMATCH.*PE 0 called shmem_memory_create\(100 bytes\), PE 1 shmem_memory_create\(200 bytes\)'
expect 1 "$run" -n 1 "$wrong" s
says_guide SHMEM_ERR_STATE 'is not mapped here: call shmem_memory_map'
expect 1 "$run" -n 1 "$wrong" o
says err 'SHMEM_ERR_OVERFLOW.*bytes 95 to 95 \+ 10 lie outside of a part of 100 bytes'
expect 1 "$run" -n 1 "$wrong" n
says err 'SHMEM_ERR_(NOMEM.*asked for|OVERFLOW)'
expect 0 "$run" -n 3 sh -c 'trap "" TERM; "$0" d; exit 0' "$wrong"
says err 'SHMEM_ERR_PEER_DEAD: PE 1 of 3'
finish
