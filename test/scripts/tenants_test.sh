#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example of tenants: quotas, growth, results that outlive their makers, the end of the pool.
. "$(dirname "$0")/lib.sh"
tenants=$BUILD_DIR/examples/tenants
[ -x "$tenants" ] || fail "examples/tenants is not built"
unset SHMEM_RANK SHMEM_SIZE SHMEM_JOB SHMEM_TASK
export SHMEM_SERVER=@shmem-$mark
"$BUILD_DIR/bin/shmemd" --address "$SHMEM_SERVER" > "$scratch/server" 2>&1 &
server=$!
listens() { [ -s "$scratch/server" ]; }
until_true 10 listens || fail "no server"

expect 2 "$tenants"
expect 1 "$tenants" fetch
says err 'SHMEM_ERR_NOT_FOUND: .*tenants-example'
"$tenants" serve > "$scratch/served" 2> "$scratch/serve-err" &
service=$!
ready() { grep -q ready "$scratch/served"; }
until_true 10 ready || { cat "$scratch/serve-err"; fail "no service"; }
expect 0 "$tenants" fetch
says out '^nothing there$'
expect 0 "$tenants" publish
for i in 1 2 3; do
  expect 0 env SHMEM_LOG=warn "$tenants" fill # what it had is back each time
  says out '^batch has 16 MiB and is refused more$'
  says err 'is closed with 16 blocks, 16777216 bytes'
done
expect 0 "$tenants" fetch # its maker is gone, and was so while the pool was full
says out '^fetched: forty-two$'
expect 0 "$tenants" stop
wait $service || { cat "$scratch/serve-err"; fail "the service"; }
[ "$(tail -1 "$scratch/served")" = "grown: yes, shrunk: yes" ] || { cat "$scratch/served"; fail "size"; }
expect 1 "$tenants" fetch
says err 'SHMEM_ERR_NOT_FOUND: '
kill $server
finish
