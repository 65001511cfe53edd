#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shmem-run: whole lines, tags, long lines, standard output and error apart, readers that go away.
. "$(dirname "$0")/lib.sh"

# 8 PEs write 400 lines each in fragments: every line arrives whole, each PE's in order
cat > "$scratch/fragments.py" <<'PY'
import os
rank = int(os.environ["SHMEM_RANK"])
for i in range(400):
    line = f"{rank}:{i}:" + chr(97 + rank) * (i * 7 % 300) + "\n"
    for at in range(0, len(line), 37):
        os.write(1, line[at:at + 37].encode())
PY
cat > "$scratch/verify.py" <<'PY'
import sys
tagged = sys.argv[1] == "tagged"
seen = {}
for line in sys.stdin:
    line = line.rstrip("\n")
    if tagged:
        tag, line = line.split(" ", 1)
    rank, i, rest = line.split(":")
    rank, i = int(rank), int(i)
    assert not tagged or tag == f"[{rank}]", line
    assert rest == chr(97 + rank) * (i * 7 % 300), line
    assert seen.get(rank, -1) == i - 1, (rank, i)
    seen[rank] = i
assert seen == {rank: 399 for rank in range(8)}, seen
PY
expect 0 "$run" -n 8 python3 "$scratch/fragments.py"
python3 "$scratch/verify.py" plain < "$scratch/out" || fail "lines are not whole"
expect 0 "$run" -n 8 --tag python3 "$scratch/fragments.py"
python3 "$scratch/verify.py" tagged < "$scratch/out" || fail "tagged lines are not whole"
# the same when standard output and error are one pipe, which fills up
"$run" -n 8 sh -c 'if [ $((SHMEM_RANK % 2)) = 0 ]; then exec python3 "$0" >&2; fi; exec python3 "$0"' \
  "$scratch/fragments.py" 2>&1 | { sleep 0.5; cat; } | python3 "$scratch/verify.py" plain || fail "shared pipe"

# apart
expect 0 "$run" -n 2 --tag sh -c 'echo to-out; echo to-err >&2'
[ "$(sort "$scratch/out" | tr '\n' ' ')" = "[0] to-out [1] to-out " ] || fail "standard output"
[ "$(sort "$scratch/err" | tr '\n' ' ')" = "[0] to-err [1] to-err " ] || fail "standard error"

# a line of 1 MB without newline, while another PE writes: nothing is lost, memory is bounded
expect 0 "$run" -n 2 sh -c 'if [ $SHMEM_RANK = 0 ]; then head -c 1000000 /dev/zero | tr "\0" x; else
  for i in 1 2 3 4 5; do echo line $i; done; fi'
[ "$(tr -cd x < "$scratch/out" | wc -c)" = 1000000 ] || fail "bytes of the long line were lost"
[ "$(grep -c '^line [1-5]$' "$scratch/out")" = 5 ] || fail "lines beside the long one"

# unfinished last lines do not run into each other
expect 0 "$run" -n 3 sh -c 'printf end$SHMEM_RANK'
[ "$(sort "$scratch/out" | tr '\n' ' ')" = "end0 end1 end2 " ] || fail "last lines"

# one PE without tags: its bytes as they are
expect 0 "$run" -n 1 sh -c 'head -c 300000 "$0"; printf tail' "$run"
{ head -c 300000 "$run"; printf tail; } | cmp - "$scratch/out" || fail "bytes of a single PE were changed"

# the reader goes away: the job ends, as any other writer to a closed pipe
start=$SECONDS
{ timeout 60 "$run" -n 4 sh -c 'while :; do echo y; done; : '$mark; echo $? > "$scratch/code"; } 2> "$scratch/err" | head -n 2 > /dev/null
[ "$(cat "$scratch/code")" = 141 ] || fail "exit code $(cat "$scratch/code") after the reader went away"
[ $((SECONDS - start)) -lt 10 ] || fail "the job did not end when its reader went away"
until_true 2 none_marked || fail "PEs were left"

# a full disk is said, not swallowed
timeout 60 "$run" -n 2 echo text > /dev/full 2> "$scratch/err"
[ $? = 125 ] || fail "a full disk passed for success"
says err 'cannot write output: No space left on device'

# no standard output at all, and a slow reader that must not keep a signal from being acted on
expect 0 bash -c '"$0" -n 2 true >&- 2>&- <&-' "$run"
"$run" -n 2 sh -c 'while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done; : '$mark 2> /dev/null | sleep 3 &
until_true 5 pgrep -f -- "-n 2 sh -c while.*$mark" > /dev/null || fail "did not start"
sleep 0.5
launcher=$(pgrep -of -- "shmem-run -n 2 sh -c while.*$mark")
kill -TERM "$launcher"
until_true 2 none_marked || fail "a full pipe kept SIGTERM from being acted on"
wait

# output that a background child of a PE holds open does not keep the job alive
start=$SECONDS
expect 0 "$run" -n 2 sh -c 'setsid sleep 9 & echo done'
[ $((SECONDS - start)) -lt 7 ] || fail "waited for a background process"
finish
