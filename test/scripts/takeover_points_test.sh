#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The test that kills the server at every point knows every point that the sources have.
. "$(dirname "$0")/lib.sh"
grep -rhoE 'SHMEMI_KILL_POINT\("node\.[a-z._]+"\)' "$SOURCE_DIR/src/node" | grep -oE 'node\.[a-z._]+' |
  grep -vE '^node\.(server|client|request)\.' | sort -u > "$scratch/there" # before the keeper; the client's own
grep -oE '"node\.[a-z._]+"' "$SOURCE_DIR/test/multi/server_takeover_kill_test.c" | tr -d '"' |
  sort -u > "$scratch/tested"
[ -s "$scratch/there" ] || fail "no kill points found"
diff "$scratch/there" "$scratch/tested" || fail "kill points of src/node (<) and of the takeover test (>) differ"
finish
