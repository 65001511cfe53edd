#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shmem-run: signals are passed on, and nothing survives it, however it ends.
. "$(dirname "$0")/lib.sh"
mkfifo "$scratch/ready"

# start PEs...: a job in the background whose PEs have said that they are ready; $launcher is its pid
start() { # number of PEs, script
  rm -f "$scratch/out" "$scratch/err"
  # a shell starts background commands with SIGINT and SIGQUIT ignored: undo that
  env --default-signal=INT,QUIT "$run" -n "$1" sh -c "$2; : $mark" > "$scratch/out" 2> "$scratch/err" &
  launcher=$!
  until_true 10 enough "$1" || fail "the PEs did not start"
}
enough() { [ "$(grep -cs ready "$scratch/out")" = "$1" ]; }
ended() { wait "$launcher"; code=$?; [ $code = "$1" ] || { cat "$scratch/err"; fail "exit code $code, expected $1"; }; }

# each signal arrives once at every PE
for signal in INT TERM HUP QUIT USR1 USR2; do
  start 3 "trap 'echo got' $signal; trap 'exit 0' CONT; echo ready; while :; do sleep 0.02; done"
  kill -$signal $launcher
  until_true 5 grep -q got "$scratch/out" || fail "SIG$signal did not arrive"
  sleep 0.2
  kill -CONT $launcher
  ended 0
  [ "$(grep -c got "$scratch/out")" = 3 ] || fail "SIG$signal arrived $(grep -c got "$scratch/out") times at 3 PEs"
done

# unhandled: the PEs die of it, and the exit code says so
start 3 'echo ready; sleep 100'
kill -INT $launcher
ended 130
start 3 'echo ready; sleep 100'
kill -TERM $launcher
ended 143
until_true 2 none_marked || fail "PEs were left"

# ignored by the PEs: the third time kills
start 2 "trap '' INT; echo ready; while :; do sleep 0.05; done"
kill -INT $launcher; sleep 0.1; kill -INT $launcher; sleep 0.1
kill -0 $launcher || fail "ended although the PEs ignore SIGINT"
kill -INT $launcher
ended 137
says err 'interrupted 3 times: killing 2 PEs'

# stop and continue
start 2 'echo ready; while :; do sleep 0.05; done'
pids=$(for p in $(marked); do [ "$(cat /proc/$p/comm)" = shmem-run-guard ] || echo $p; done)
kill -TSTP $launcher
all_in() { for p in $pids; do case $(ps -o stat= -p "$p") in $1*) ;; *) return 1 ;; esac; done; }
until_true 5 all_in T || { ps -o pid,stat,args -p "${pids//$'\n'/,}"; fail "not all processes stopped"; }
kill -CONT $launcher
until_true 5 all_in [SR] || fail "not all processes continue"
kill -TERM $launcher
ended 143

# a PE is killed from outside: named, the others ended
start 4 'echo ready $$ $SHMEM_RANK; sleep 100'
kill -KILL "$(sed -n 's/^ready \([0-9]*\) 2$/\1/p' "$scratch/out")"
ended 137
says err 'rank 2 .* killed by signal 9'
until_true 2 none_marked || fail "PEs were left"

# shmem-run is killed: PEs, their children (also those in another group or session of a PE that lives)
# and the guard are gone at once
start 3 'sleep 100 & echo ready; sleep 100'
group=$(ps -o pgid= -p "$(marked | grep -vx $launcher | head -1)" | tr -d ' ')
kill -KILL $launcher
gone() { [ -z "$(pgrep -g "$group")" ] && none_marked; }
until_true 2 gone || { pgrep -ag "$group"; fail "processes survived shmem-run"; }
wait $launcher 2> /dev/null
start 2 'exec setsid --wait sh -c "echo ready; exec sleep 100"'
kill -KILL $launcher
until_true 2 none_marked || fail "a PE in a session of its own survived shmem-run"
wait $launcher 2> /dev/null

# nor does anything stay after a normal end
start 2 'sleep 100 & echo ready'
ended 0
until_true 2 none_marked || fail "background children were left after a normal end"
finish
