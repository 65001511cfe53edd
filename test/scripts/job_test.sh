#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs under shmem-run: more PEs than processors, users without rights, PEs that die or never join.
. "$(dirname "$0")/lib.sh"
hello=$BUILD_DIR/examples/hello digits=$BUILD_DIR/examples/digits data=$SOURCE_DIR/examples/data/digits.csv

# many more PEs than processors
expect 0 "$run" -n 16 "$hello"
[ "$(sort -u "$scratch/out" | grep -c '^PE [0-9]* got: hello from PE [0-9]* of 16$')" = 16 ] || fail "16 PEs"
expect 0 "$run" -n 16 --timeout 50s "$digits" "$data" 2
says out 'bit-identical on all 16 PEs'
expect 0 "$run" -n 4 --bind "$hello"

# one after the other and side by side: jobs do not know each other
for i in 1 2 3; do "$run" -n 3 "$hello" > "$scratch/job$i" 2>&1 & done
wait
[ "$(cat "$scratch"/job? | grep -c 'of 3$')" = 9 ] || fail "three jobs at once"

# a PE dies in the middle: the others do not hang, even where nobody ends them
"$run" -n 3 --timeout 40s --grace 20s sh -c 'trap "" TERM; "$0" "$1" 100000; echo "rank $SHMEM_RANK ended with $?"; exit 0' \
  "$digits" "$data" > "$scratch/out" 2> "$scratch/err" &
launcher=$!
victim() { pgrep -f -- "^$digits $data 100000" > "$scratch/pids" && [ "$(wc -l < "$scratch/pids")" = 3 ]; }
until_true 10 victim || fail "the PEs did not start"
sleep 0.5
start=$(date +%s%N)
kill -KILL "$(head -1 "$scratch/pids")"
wait $launcher
code=$?
elapsed=$((($(date +%s%N) - start) / 1000000))
[ $code = 0 ] || { cat "$scratch/err"; fail "exit code $code"; }
[ "$(grep -c 'ended with 1$' "$scratch/out")" = 2 ] || { cat "$scratch/out" "$scratch/err"; fail "survivors did not get an error"; }
[ "$(grep -c 'a peer died: .*PE [0-2]' "$scratch/err")" -ge 2 ] || { cat "$scratch/err"; fail "survivors do not name the dead PE"; }
[ $elapsed -lt 3000 ] || fail "survivors took $elapsed ms"
echo "survivors ended $elapsed ms after the death of a PE"

# one never joins, the others are children of a script: said, before their patience ends
timeout 60 "$run" -n 3 sh -c 'if [ $SHMEM_RANK = 1 ]; then exit 0; fi; SHMEM_INIT_TIMEOUT=3s "$0"; exit $?' "$hello" \
  > "$scratch/out" 2> "$scratch/err"
[ $? = 1 ] || fail "a job without one of its PEs succeeded"
says err 'rank 1 ended with exit code 0 without joining the job'
# and not said where nobody waits
expect 0 "$run" -n 3 sh -c 'if [ $SHMEM_RANK != 1 ]; then sleep 1.5; fi'
silent err
expect 0 "$run" -n 3 sh -c '"$0" && if [ $SHMEM_RANK != 1 ]; then sleep 1.5; fi' "$hello"
silent err

# as a user without rights, from a place that he can read
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
  cmake --install "$BUILD_DIR" --prefix "$scratch/tree" > /dev/null 2>&1 || fail "install"
  cp "$hello" "$digits" "$data" "$scratch/tree"
  chmod -R a+rX "$scratch"
  as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH="$PATH" HOME=/ LD_LIBRARY_PATH="$library" \
    ${SHMEM_SANITIZER:+ASAN_OPTIONS=detect_leaks=0} "$@"; }
  library=$(dirname "$(find "$scratch/tree" -name libshmem.so | head -1)")
  export -f as_nobody
  export library
  as_nobody "$scratch/tree/bin/shmem-run" -n 4 "$scratch/tree/hello" > "$scratch/out" 2>&1 || { cat "$scratch/out"; fail "unprivileged job"; }
  [ "$(grep -c 'of 4$' "$scratch/out")" = 4 ] || fail "unprivileged job"
  as_nobody "$scratch/tree/hello" > "$scratch/out" 2>&1 || { cat "$scratch/out"; fail "unprivileged, alone"; }
  # with little of everything
  as_nobody bash -c 'ulimit -l 64; ulimit -n 64; exec "$0" -n 4 "$1"' "$scratch/tree/bin/shmem-run" "$scratch/tree/hello" \
    > "$scratch/out" 2>&1 || { cat "$scratch/out"; fail "with 64 KiB of locked memory and 64 files"; }
else
  note_skip "not root: no other user to try"
fi
finish
