#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/layers: one program fills a region that grows, others read it; also another user, where
# the server is for all.
. "$(dirname "$0")/lib.sh"
layers=$BUILD_DIR/examples/layers
[ -x "$layers" ] || fail "examples/layers is not built"
unset SHMEM_RANK SHMEM_SIZE SHMEM_JOB
export SHMEM_SERVER=@shmem-$mark
options=()
[ "$(id -u)" != 0 ] || options=(--all-users)
"$BUILD_DIR/bin/shmemd" --address "$SHMEM_SERVER" "${options[@]}" > "$scratch/server" 2>&1 &
server=$!
filled() { [ -s "$1" ]; }
until_true 10 filled "$scratch/server" || fail "no server"

expect 2 "$layers"
expect 2 "$layers" load 0
expect 1 "$layers" read
says err 'SHMEM_ERR_NOT_FOUND: .*layers-example'
mkfifo "$scratch/input"
"$layers" load 20 < "$scratch/input" > "$scratch/loaded" 2> "$scratch/loader-err" &
loader=$!
exec 9> "$scratch/input"
until_true 10 filled "$scratch/loaded" || { cat "$scratch/loader-err"; fail "not loaded"; }
expect 1 "$layers" load 1
says err 'SHMEM_ERR_EXISTS: '
expect 0 "$layers" read
says out '^20 layers, sum 1000000$'
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
  # another user may not be allowed to reach the build folder
  cp "$layers" "$BUILD_DIR/lib/libshmem.so.0" "$scratch" && chmod 755 "$scratch"
  expect 0 env LD_LIBRARY_PATH="$scratch" setpriv --reuid 65534 --regid 65534 --clear-groups \
    "$scratch/layers" read
  says out '^20 layers, sum 1000000$'
fi
exec 9>&-
wait $loader || { cat "$scratch/loader-err"; fail "the loader"; }
expect 1 "$layers" read
says err 'SHMEM_ERR_NOT_FOUND: '
kill $server
finish
