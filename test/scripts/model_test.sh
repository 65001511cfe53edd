#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Models of sleeping and waking, checked exhaustively by spin: the protocols lose no wake-up, and
# each step that is left out loses one (so the models can see it).
set -eu
source_dir=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}

for tool in spin gcc; do
  command -v "$tool" > /dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$source_dir"/test/model/*.pml "$work"
cd "$work"

failed=0
# check MODEL right|wrong [-DOPTION...]
check() {
  local model=$1 expected=$2 result
  shift 2
  spin -a "$@" "$model.pml" > spin.log 2>&1 || { cat spin.log; exit 1; }
  gcc -O1 -w -DSAFETY -DCOLLAPSE -DMEMLIM=2048 -o pan pan.c
  ./pan -m200000 > pan.log 2>&1 || true
  if grep -q 'errors: 0' pan.log && ! grep -qE 'out of memory|max search depth too small|truncated' pan.log; then
    result=right
  elif grep -qE 'pan:.*(invalid end state|assertion violated)' pan.log; then
    result=wrong
  else
    cat pan.log
    exit 1
  fi
  printf '%s %s: %s (%s states)\n' "$model" "$*" "$result" \
    "$(awk '/states, stored/ { print $1; exit }' pan.log)"
  if [ "$result" != "$expected" ]; then
    echo "FAILED: expected $expected"
    cat pan.log
    failed=1
  fi
  rm -f pan* ./*.trail
}

check mutex right
check mutex wrong -DNO_HEAVY
check mutex wrong -DCLEAR_LATE
check mutex wrong -DNO_DEBT
check bell right
check bell wrong -DNO_HEAVY
check bell wrong -DCLEAR_LATE
check bell right -DONE
check bell wrong -DONE -DNO_HEAVY
check bell wrong -DONE -DCLEAR_BLIND
exit $failed
