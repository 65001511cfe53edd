#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shmem-run: exit codes, the first failure, time limits, errors of the command line.
. "$(dirname "$0")/lib.sh"

# success, and what each PE is told
expect 0 "$run" -n 3 sh -c 'echo "$SHMEM_RANK/$SHMEM_SIZE $SHMEM_SERVER $SHMEM_JOB"'
[ "$(cut -d' ' -f1 "$scratch/out" | sort | tr '\n' ' ')" = "0/3 1/3 2/3 " ] || fail "ranks"
[ "$(cut -d' ' -f2- "$scratch/out" | sort -u | wc -l)" = 1 ] || fail "server and job differ"
says out '^0/3 @shmem.* [0-9a-f]{32}$'
silent err
first=$(cut -d' ' -f3 "$scratch/out" | head -1)
expect 0 "$run" -n 1 sh -c 'echo $SHMEM_JOB'
[ "$(cat "$scratch/out")" != "$first" ] || fail "two jobs have the same name"

# the first failure decides, the others are ended
expect 3 "$run" -n 4 sh -c 'test "$SHMEM_RANK" = 2 && exit 3; sleep 100; : '$mark
says err 'rank 2 \(process [0-9]+\) ended with exit code 3; ending the other 3'
until_true 2 none_marked || fail "PEs were left"
expect 137 "$run" -n 3 sh -c 'test "$SHMEM_RANK" = 1 && kill -KILL $$; sleep 100; : '$mark
says err 'rank 1 \(process [0-9]+\) was killed by signal 9 \(Killed\)'
expect 134 "$run" -n 2 sh -c 'ulimit -c 0; test "$SHMEM_RANK" = 0 && kill -ABRT $$; sleep 100'
says err 'rank 0 .* signal 6'
expect 255 "$run" -n 2 sh -c 'exit 255'

# a PE that ignores SIGTERM is killed after the grace time; one that acts on it may finish
start=$SECONDS
expect 4 "$run" -n 2 --grace 300ms sh -c 'trap "" TERM; test "$SHMEM_RANK" = 1 && exit 4
  sleep 100; sleep 100; : '$mark
[ $((SECONDS - start)) -lt 5 ] || fail "the grace time was not kept"
until_true 2 none_marked || fail "PEs were left after the grace time"
expect 5 "$run" -n 2 --grace 20s sh -c 'trap "echo saved; exit 0" TERM
  test "$SHMEM_RANK" = 1 && { sleep 0.3; exit 5; }; while :; do sleep 0.05; done'
says out '^saved$'

# time limit
expect 124 "$run" -n 2 --timeout 200ms sh -c 'sleep 100; : '$mark
says err 'time is up'
expect 0 "$run" -n 2 --timeout 50s true
until_true 2 none_marked || fail "PEs were left after the time limit"

# what cannot be run
expect 127 "$run" -n 3 shmem-no-such-program
says err "no program 'shmem-no-such-program' on PATH"
[ "$(wc -l < "$scratch/err")" = 1 ] || fail "said more than once"
expect 127 "$run" -n 2 ./shmem-no-such-program
expect 126 "$run" -n 2 /
expect 126 "$run" -n 2 "$SOURCE_DIR/README.md"

# the command line
for bad in "-n 0 true" "-n -1 true" "-n 4096 true" "-n 2x true" "-n '' true" "-n 99999999999999999999 true" \
  "true" "-n 2" "-x -n 2 true" "--unknown -n 2 true" "-n 2 --timeout 0 true" "-n 2 --timeout 1.5s true" \
  "-n 2 --timeout -3s true" "-n 2 --grace 5x true" "-n"; do
  eval "expect 125 \"$run\" $bad"
  says err '^shmem-run: '
  silent out
done
expect 125 "$run" -n 5000 true
says err '1 to 4095'
expect 0 "$run" --help
says out '^usage: shmem-run -n N'
expect 0 "$run" --version
says out '^shmem-run [0-9]+\.[0-9]+\.[0-9]+'
expect 0 "$run" -n 1 sh -c 'echo "$0 $1"' --tag -n
says out '^--tag -n$'

# a bad setting is reported once, before anything runs
expect 125 env SHMEM_SPIN=abc "$run" -n 4 echo ran
says err "SHMEM_SPIN is 'abc'"
[ "$(wc -l < "$scratch/err")" = 1 ] || fail "a bad setting was reported more than once"
silent out

# who is who, where asked for
expect 0 "$run" -n 2 --verbose true
says err 'rank 1 is process [0-9]+$'
says err 'rank 0 \(process [0-9]+\) ended with exit code 0$'

# binding: each PE to one processor, in turn
expect 0 "$run" -n 4 --bind sh -c 'grep Cpus_allowed_list /proc/self/status'
if grep -Eq '[-,]' <(cut -f2 "$scratch/out"); then fail "a PE is bound to several processors"; fi
processors=$(nproc)
[ "$(sort -u "$scratch/out" | wc -l)" = $((processors < 4 ? processors : 4)) ] || fail "binding is not in turn"

# nothing of ours is open in a PE
expect 0 "$run" -n 2 sh -c 'ls -l /proc/self/fd' 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
if grep -Eq 'socket|signalfd|eventfd|memfd|pidfd' "$scratch/out"; then
  cat "$scratch/out"
  fail "descriptors of shmem-run are open in a PE"
fi
# what the caller had blocked, ignored or limited is as it was (but for the C library's own signals 32 and
# 33, which a sanitizer's run-time changes)
inherited='for set in SigBlk SigIgn; do
  mask=$(sed -n "s/^$set:[[:space:]]*/0x/p" /proc/self/status)
  printf "%s %x\n" "$set" $((mask & ~0x180000000))
done; ulimit -Sn; umask'
expect 0 "$run" -n 2 bash -c "$inherited"
sort -u "$scratch/out" > "$scratch/there"
bash -c "$inherited" | sort -u > "$scratch/here"
diff "$scratch/here" "$scratch/there" || fail "a PE inherits something else than the caller has"
finish
