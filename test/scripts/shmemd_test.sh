#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shmemd as a program: options, exit codes, signals, a live and a stale address, nothing left.
. "$(dirname "$0")/lib.sh"
shmemd=$BUILD_DIR/bin/shmemd
servers=()
cleanup() {
  for pid in "${servers[@]}"; do kill_both 2> /dev/null; done
  pkill -KILL -f -- "$scratch/socket" # a successor that a failed test left
  rm -rf "$scratch"
}
trap cleanup EXIT

# serve ARGS...: starts one, waits for its address; pid in $pid, address in $address.
serve() {
  : > "$scratch/address"
  "$shmemd" "$@" > "$scratch/address" 2> "$scratch/log" &
  pid=$!
  servers+=("$pid")
  until_true 10 test -s "$scratch/address" || fail "shmemd $* printed no address"
  address=$(cat "$scratch/address")
}

ended() { # expected exit code
  wait "$pid"
  local code=$?
  [ $code = "$1" ] || fail "shmemd ended with $code, expected $1"
}

not_running() { ! [ -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"; }

# The server and its keeper at once: stopped, the server makes no other one.
kill_both() {
  kill -STOP $pid
  pkill -KILL -P $pid -x shmem-keeper
  kill -KILL $pid
  wait $pid 2> /dev/null
}

expect 0 "$shmemd" --version
says out '^shmemd [0-9]+\.[0-9]+\.[0-9]+$'
silent err
expect 0 "$shmemd" --help
says out '--address'
expect 2 "$shmemd" --nosuch
says err 'nosuch'
silent out
expect 2 "$shmemd" --address
expect 2 "$shmemd" surplus
says err "unexpected argument 'surplus'"
expect 1 "$shmemd" --address /nonexistent/directory/socket
says err 'shmemd: .*nonexistent'
expect 1 "$shmemd" --address "$scratch/../x"
SHMEM_LOG=loud expect 1 "$shmemd" --address "$scratch/bad"
says err 'SHMEM_LOG'
[ ! -e "$scratch/bad" ] || fail "a socket was left by a server that did not start"

for signal in TERM INT; do
  serve --address "$scratch/socket" --foreground
  [ "$address" = "$scratch/socket" ] || fail "address printed: $address"
  [ -S "$scratch/socket" ] || fail "no socket at $scratch/socket"
  [ "$(stat -c %a "$scratch/socket")" = 600 ] || fail "the socket is open to others"
  expect 3 "$shmemd" --address "$scratch/socket"
  says err 'listens'
  kill -$signal $pid
  # A background job of a script ignores SIGINT until the program takes it: shmemd does.
  ended 0
  [ ! -e "$scratch/socket" ] || fail "the socket is left after SIG$signal"
done

# killed: a successor goes on, which is stopped like the first one
serve --address "$scratch/socket"
keeper=$(pgrep -P $pid -x shmem-keeper) || fail "shmemd has no keeper"
kill -KILL $pid
wait $pid 2> /dev/null
SHMEM_SERVER=$scratch/socket expect 0 "$BUILD_DIR/examples/hello"
successor=$(pgrep -P "$keeper" -x shmemd) || fail "no successor of a killed shmemd"
expect 3 "$shmemd" --address "$scratch/socket"
says err 'listens'
kill -TERM "$successor"
until_true 10 not_running "$successor" || fail "the successor does not end by SIGTERM"
until_true 10 not_running "$keeper" || fail "the keeper does not end with its server"
[ ! -e "$scratch/socket" ] || fail "the socket is left by the successor"

# killed again and again while two PEs work: they end well, whatever they ask it for meanwhile
serve --address "$scratch/socket"
keeper=$(pgrep -P $pid -x shmem-keeper) || fail "shmemd has no keeper"
pes=()
for rank in 0 1; do
  SHMEM_SERVER=$scratch/socket SHMEM_JOB=$mark SHMEM_SIZE=2 SHMEM_RANK=$rank timeout 60 \
    "$BUILD_DIR/examples/digits" "$SOURCE_DIR/examples/data/digits.csv" 20 > "$scratch/pe$rank" 2>&1 &
  pes+=($!)
done
for _ in 1 2 3 4 5; do
  kill -KILL "$(pgrep -P "$keeper" -x shmemd || echo $pid)" 2> /dev/null
  sleep 0.1
done
for rank in 0 1; do
  wait "${pes[$rank]}" || { cat "$scratch/pe$rank"; fail "PE $rank failed beside a server that is killed"; }
done
wait $pid 2> /dev/null
pid=$(pgrep -P "$keeper" -x shmemd) || fail "no successor after five kills"
kill -TERM "$pid"
until_true 10 not_running "$keeper" || fail "the keeper does not end with its server"

# killed together with its keeper: a stale socket is left, which the next one takes over
serve --address "$scratch/socket"
kill_both
[ -S "$scratch/socket" ] || fail "who kills all leaves the socket: this test expects it"
serve --address "$scratch/socket"
kill -PIPE $pid # ignored
kill -TERM $pid
ended 0

serve # a name of its own
case $address in @shmem-*) ;; *) fail "own address is $address" ;; esac
grep -q "$address" /proc/net/unix || fail "$address is not in /proc/net/unix"
SHMEM_SERVER=$address expect 0 "$BUILD_DIR/examples/hello"
kill -TERM $pid
ended 0

serve --private --address "@$mark"
SHMEM_SERVER="@$mark" expect 0 "$BUILD_DIR/examples/hello"
ended 0 # by itself

if [ "$(id -u)" = 0 ]; then
  serve --all-users --address "$scratch/socket"
  [ "$(stat -c %a "$scratch/socket")" = 666 ] || fail "the socket is not open to all users"
  kill -TERM $pid
  ended 0
else
  expect 1 "$shmemd" --all-users
  says err 'must run as root'
fi

SHMEM_LOG=info serve
SHMEM_SERVER=$address expect 0 "$BUILD_DIR/examples/hello"
kill -TERM $pid
ended 0
grep -q 'said goodbye' "$scratch/log" || fail "SHMEM_LOG=info logs no clients"
finish
