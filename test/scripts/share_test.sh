#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program of docs/guide/services.md does what is written there, and misuse gets the errors of its table.
. "$(dirname "$0")/lib.sh"
share=$BUILD_DIR/examples/share guide=$SOURCE_DIR/docs/guide/services.md
[ -x "$share" ] || fail "examples/share is not built"
unset SHMEM_RANK SHMEM_SIZE SHMEM_JOB
export SHMEM_SERVER=@shmem-$mark
"$BUILD_DIR/bin/shmemd" --address "$SHMEM_SERVER" > "$scratch/server" 2>&1 &
server=$!
listens() { [ -s "$scratch/server" ]; }
until_true 10 listens || fail "no server"

expect 1 "$share" join 0x1000
says err 'SHMEM_ERR_NOT_FOUND: .*share-example'
"$share" create > "$scratch/created" 2> "$scratch/creator-err" &
creator=$!
printed() { [ -s "$scratch/created" ]; }
until_true 10 printed || { cat "$scratch/creator-err"; fail "no address"; }
address=$(head -1 "$scratch/created")

expect 1 "$share" create
says err 'SHMEM_ERR_EXISTS: '
for i in 1 2; do
  expect 0 "$share" join "$address"
  says out "^visit $i\$"
done
expect 137 "$share" crash "$address"
expect 0 "$share" join "$address"
diff - "$scratch/out" <<< $'the last holder died; repaired at 3 visits\nvisit 4' || fail "after a death"
for line in 'visit 1' 'visit 2' 'the last holder died; repaired at 3 visits' 'visit 4'; do
  grep -qxF "    $line" "$guide" || fail "the guide does not show '$line'"
done

# what comes from outside is checked
expect 1 "$share" join "$(printf '%#x' $((address + 128)))"
says err 'SHMEM_ERR_(DOUBLE_FREE|INTERIOR_POINTER): '
expect 1 "$share" join 0x1000
says err 'SHMEM_ERR_FOREIGN_POINTER: '
expect 2 "$share"
expect 2 "$share" join

# many at once: no visit is lost
for i in 1 2 3 4 5 6 7 8; do "$share" join "$address" > "$scratch/visit$i" 2>&1 & visits[i]=$!; done
for i in 1 2 3 4 5 6 7 8; do wait "${visits[i]}" || { cat "$scratch/visit$i"; fail "visitor $i"; }; done
expect 0 "$share" end "$address"
wait $creator || { cat "$scratch/creator-err"; fail "the creator"; }
[ "$(tail -1 "$scratch/created")" = "12 visits" ] || { cat "$scratch/created"; fail "visits were lost"; }
expect 1 "$share" join "$address"
says err 'SHMEM_ERR_NOT_FOUND: '
kill $server

# each code of the table is one
sed -n 's/^| `\(SHMEM_ERR_[A-Z_]*\)`.*/\1/p' "$guide" > "$scratch/codes"
[ "$(wc -l < "$scratch/codes")" -gt 15 ] || fail "the table of errors"
while read -r code; do
  grep -q "X($code," "$SOURCE_DIR/include/shmem/status.h" || fail "there is no $code"
done < "$scratch/codes"
finish
