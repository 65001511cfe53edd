#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nothing is left in /dev/shm, /tmp, the run directory or as a socket or process: after a normal end,
# signals, and kills; and a /dev/shm of 64 KiB is enough.
# In a network namespace of its own, where that is allowed: there, abstract sockets are ours alone.
if [ -z "${NOTHING_LEFT_INSIDE:-}" ]; then
  export NOTHING_LEFT_INSIDE=shared
  if [ "$(id -u)" = 0 ] && unshare -n true 2> /dev/null; then
    NOTHING_LEFT_INSIDE=own exec unshare -n "$0"
  elif unshare -rn true 2> /dev/null; then
    NOTHING_LEFT_INSIDE=own exec unshare -rn "$0"
  fi
fi
. "$(dirname "$0")/lib.sh"
hello=$BUILD_DIR/examples/hello digits=$BUILD_DIR/examples/digits data=$SOURCE_DIR/examples/data/digits.csv

places="/dev/shm /tmp /var/tmp /run ${XDG_RUNTIME_DIR:-/run}"
state() {
  # shellcheck disable=SC2086
  find $places -xdev \( -name 'systemd*' -o -path "$scratch" \) -prune -o -iname '*shmem*' -print 2> /dev/null | sort -u
  ls /dev/shm
  awk '$NF ~ /^@shmem/ { print $NF }' /proc/self/net/unix | sort -u
  [ $NOTHING_LEFT_INSIDE = shared ] || pgrep -a --ns $$ --nslist net '^shmem'
}
clean() { # description; a private server takes a moment, other tests come and go: look for a while
  local new
  for _ in $(seq 100); do
    new=$(comm -13 "$scratch/before" <(state | sort))
    [ -n "$new" ] || return 0
    sleep 0.1
  done
  fail "after $1 this is left: $new"
}

state | sort > "$scratch/before"

# alone (with a private server) and as jobs
expect 0 "$hello"
expect 0 "$run" -n 4 "$hello"
clean "normal ends"

long_job() {
  env --default-signal=INT,QUIT "$run" -n 3 "$digits" "$data" 100000 > "$scratch/out" 2>&1 &
  launcher=$!
  until_true 20 grep -q 'images to learn from' "$scratch/out" || { cat "$scratch/out"; fail "the job did not start"; }
  sleep 0.3
}
not_running() { [ "$(pgrep -cf -- "^$digits $data 100000")" = 0 ]; }
for signal in INT TERM HUP KILL; do
  long_job
  kill -$signal $launcher
  wait $launcher 2> /dev/null
  until_true 3 not_running || fail "PEs survived SIG$signal"
  clean "SIG$signal to shmem-run"
done
long_job
pgrep -f -- "^$digits $data 100000" | while read -r pid; do kill -KILL "$pid"; done
wait $launcher
clean "SIGKILL of all PEs"

# a program on its own is killed: its private server goes with it
"$digits" "$data" 100000 > "$scratch/out" 2>&1 &
alone=$!
sleep 1
kill -KILL $alone
wait $alone 2> /dev/null
clean "SIGKILL of a program on its own"

# server, keeper and program of a private server are killed, in several orders
private() { pgrep --ns $$ --nslist net -x "$1"; } # shmemd or shmem-keeper
private_is_there() { private shmemd && private shmem-keeper; } > /dev/null
kill_named() { private "$1" | xargs -r kill -KILL; }
kills() { # what is killed in turn, then the program
  local what
  "$digits" "$data" 100000 > "$scratch/out" 2>&1 &
  alone=$!
  until_true 20 private_is_there || fail "no private server with its keeper"
  for what in "$@"; do
    kill_named "$what"
    until_true 20 private_is_there || fail "nobody replaces a killed $what"
  done
  kill -KILL $alone
  wait $alone 2> /dev/null
  clean "SIGKILL of $*, and a program on its own"
}
if [ $NOTHING_LEFT_INSIDE = own ]; then
  kills shmemd
  kills shmem-keeper
  kills shmemd shmem-keeper shmemd shmemd shmem-keeper
  expect 0 "$hello"
  "$digits" "$data" 100000 > "$scratch/out" 2>&1 &
  alone=$!
  until_true 20 private_is_there || fail "no private server with its keeper"
  private shmemd | xargs kill -STOP
  kill_named shmem-keeper
  kill_named shmemd
  kill -KILL $alone
  wait $alone 2> /dev/null
  clean "SIGKILL of all at once"
else
  note_skip "no network namespaces here: private servers were not killed"
fi

# a /dev/shm that holds next to nothing: in a mount namespace, or it is said
tiny='mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
if [ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null; then
  expect 0 unshare -m sh -c "$tiny" tiny "$run" -n 4 "$hello"
  expect 0 unshare -m sh -c "$tiny" tiny "$run" -n 4 "$digits" "$data" 2
  expect 0 unshare -m sh -c "$tiny" tiny "$hello"
elif unshare -rm true 2> /dev/null; then
  expect 0 unshare -rm sh -c "$tiny" tiny "$run" -n 4 "$hello"
else
  note_skip "no mount namespaces here: a tiny /dev/shm was not tried"
fi
clean "jobs with a tiny /dev/shm"
finish
