# SPDX-License-Identifier: Apache-2.0
# What the script tests share. A test sources this file; it runs with BUILD_DIR and SOURCE_DIR set.
# shellcheck shell=bash
set -u
: "${BUILD_DIR:?}" "${SOURCE_DIR:?}"
run=$BUILD_DIR/bin/shmem-run
scratch=$(mktemp -d) || exit 1
mark=shmem-test-$$-$RANDOM # an argument by which the processes of this test are found
# a failing test leaves no job behind either
trap 'kill -KILL $(jobs -p) 2> /dev/null; rm -rf "$scratch"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }

skip() { echo "SKIPPED $(basename "$0" .sh): $*"; exit 77; }

note_skip() { echo "SKIPPED $(basename "$0" .sh): $*"; skipped=yes; }
skipped=no

# End of a test with parts that could not run.
finish() { [ $skipped = no ] || exit 77; exit 0; }

# expect CODE command...: runs it with output in $scratch/out and $scratch/err.
expect() {
  local wanted=$1 code
  shift
  timeout 60 "$@" > "$scratch/out" 2> "$scratch/err"
  code=$?
  [ $code = "$wanted" ] || {
    head -c 2000 "$scratch/out" "$scratch/err" >&2
    fail "exit code $code, expected $wanted: $*"
  }
}

# says FILE PATTERN: the file (out or err) has a line that matches.
says() { grep -Eq -- "$2" "$scratch/$1" || { head -c 2000 "$scratch/$1" >&2; fail "no '$2' in std$1"; }; }

silent() { [ ! -s "$scratch/$1" ] || { head -c 2000 "$scratch/$1" >&2; fail "std$1 is not empty"; }; }

# until SECONDS command...: waits for the command to succeed.
until_true() {
  local left=$(($1 * 20))
  shift
  while ! "$@"; do
    left=$((left - 1))
    [ $left -gt 0 ] || return 1
    sleep 0.05
  done
}

# Processes with this test's mark in their command line, other than this script.
marked() { pgrep -f -- "$mark" | grep -vx $$; }
none_marked() { ! marked > /dev/null; }
