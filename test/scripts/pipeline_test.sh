#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example of planned memory in a pipeline: any number of stages and micro-batches, same gradients, less memory.
. "$(dirname "$0")/lib.sh"
pipeline=$BUILD_DIR/examples/pipeline
[ -x "$pipeline" ] || fail "examples/pipeline is not built"

for n in 1 2 4 5; do
  expect 0 "$run" -n $n "$pipeline" $((3 * n + 1))
  silent err
  [ "$(grep -c '^stage .* gradients identical$' "$scratch/out")" = $n ] || { cat "$scratch/out"; fail "gradients, $n stages"; }
  says out '^all stages: [0-9]+ bytes apart, [0-9]+ planned: '
done

# what is planned is the least possible, and does not grow with the number of micro-batches
for batches in 8 16 64; do
  expect 0 "$run" -n 4 "$pipeline" $batches
  sed -n 's/.*planned \([0-9]*\) (lower bound \([0-9]*\)).*/\1 \2/p' "$scratch/out" | awk '$1 != $2 { exit 1 }' || fail "not optimal"
  sed -n 's/^all stages: .*apart, \([0-9]*\) planned.*/\1/p' "$scratch/out" >> "$scratch/planned"
done
[ "$(sort -u "$scratch/planned" | wc -l)" = 1 ] || fail "the planned memory grows: $(xargs < "$scratch/planned")"
expect 2 "$run" -n 1 "$pipeline" 0
finish
