#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The synchronization layer compiled for aarch64, its tests run by qemu-user: other atomic
# instructions, another compiler back end. (The memory order of the machine underneath stays
# what it is: what a weaker one may do is argued in docs/memory-model.md.)
set -eu
source_dir=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
tests="wait mutex mutex_death semaphore event barrier"

for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v "$tool" > /dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
[ -z "${SHMEM_SANITIZER:-}" ] || { echo "skipped: not for sanitizer builds"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source_dir"

compile() {
  aarch64-linux-gnu-gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror \
    -DSHMEMI_FAULT_POINTS=1 -Iinclude -Isrc -Itest/harness "$@"
}
for file in src/base/*.c src/os/{futex,barrier,identity}.c src/sync/*.c test/harness/harness.c; do
  compile -c "$file" -o "$work/$(echo "$file" | tr / _).o"
done
for name in $tests; do
  compile -static "test/unit/sync/${name}_test.c" "$work"/*.o -o "$work/$name" -lpthread
  echo "== $name"
  code=0
  timeout 60 qemu-aarch64 "$work/$name" || code=$?
  [ $code = 0 ] || [ $code = 77 ] || { echo "FAILED: $name ended with $code"; exit 1; }
done
