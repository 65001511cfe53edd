#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo tells its story, and the numbers in it are true.
. "$(dirname "$0")/lib.sh"

expect 0 "$SOURCE_DIR/scripts/demo" "$BUILD_DIR"
says out 'PE 3 got: hello from PE 2 of 4'
says out 'parameters bit-identical on all 4 PEs'
says out 'All is well'
silent err

digits=$BUILD_DIR/examples/digits data=$SOURCE_DIR/examples/data/digits.csv
result() { sed -n "s/^result .*\\b$1 \\([^ ]*\\).*/\\1/p" "$scratch/out"; }

# any number of PEs learns from the same batches; a job is repeatable to the bit
for pes in 1 2 3 7; do
  expect 0 "$run" -n $pes "$digits" "$data" 5
  echo "$pes $(result loss) $(result accuracy)" >> "$scratch/losses"
done
awk 'NR == 1 { loss = $2; accuracy = $3 }
  { d = ($2 - loss) / loss; p = $3 - accuracy
    if (d > 1e-3 || d < -1e-3 || p > 0.5 || p < -0.5) { print "differs:", $0; bad = 1 } }
  END { exit bad || NR != 4 }' "$scratch/losses" || fail "the result depends on the number of PEs"
expect 0 "$run" -n 3 "$digits" "$data" 3
first=$(result hash)
expect 0 "$run" -n 3 "$digits" "$data" 3
[ "$(result hash)" = "$first" ] || fail "two runs end with other bits"

# without a launcher it is a job of one
expect 0 "$digits" "$data" 1
says out '^result pes 1 '

# errors reach everyone and the exit code
expect 1 "$run" -n 3 "$digits" "$scratch/none.csv"
says err 'cannot open'
head -c 5000 "$data" | sed '3s/,5,/,55,/' > "$scratch/bad.csv"
expect 1 "$run" -n 3 "$digits" "$scratch/bad.csv"
says err 'line 3'
expect 2 "$digits"

# the data is what its README says
[ "$(wc -l < "$data")" = 1797 ] || fail "not 1,797 images"
grep -q 'CC BY 4.0' "$SOURCE_DIR/examples/data/README.md" || fail "no licence of the data"
finish
