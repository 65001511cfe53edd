#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shmem-run: standard input goes to rank 0; on a terminal, too, where Ctrl-C reaches every PE once.
. "$(dirname "$0")/lib.sh"

seq 1000 > "$scratch/numbers"
expect 0 "$run" -n 3 --tag wc -l < "$scratch/numbers"
[ "$(sort "$scratch/out" | tr '\n' ' ')" = "[0] 1000 [1] 0 [2] 0 " ] || fail "input of a file"
seq 100000 | timeout 60 "$run" -n 2 --tag wc -l > "$scratch/out" || fail "input of a pipe"
[ "$(sort "$scratch/out" | tr '\n' ' ')" = "[0] 100000 [1] 0 " ] || fail "input of a pipe: $(cat "$scratch/out")"

cat > "$scratch/terminal.py" <<'PY'
"""Runs a job on a pseudo terminal, types, and prints what came."""
import os
import pty
import select
import signal
import sys
import time

run, mode = sys.argv[1:3]
script = {
    "lines": ["-n", "3", "--tag", "sh", "-c", "while read x; do echo got $x; done; echo end"],
    "interrupt": ["-n", "3", "--tag", "sh", "-c",
                  "trap 'echo int' INT; trap 'exit 0' CONT; echo ready; while :; do sleep 0.02; done"],
    "single": ["-n", "1", "sh", "-c", "test -t 0 && test -t 1 && echo terminal; read x; echo got $x; "
               "trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.02; done"],
}[mode]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(run, [run] + script)
text = b""


def read_until(wanted, count, seconds=10):
    global text
    end = time.monotonic() + seconds
    while text.count(wanted) < count:
        left = end - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            sys.exit(f"no {count} times {wanted} in {text}")
        text += os.read(terminal, 4096)


def rest():
    """What is there to read; a terminal whose other side is closed gives an error."""
    global text
    try:
        while select.select([terminal], [], [], 0.05)[0]:
            text += os.read(terminal, 4096)
    except OSError:
        time.sleep(0.05)


def finish(code):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        rest()
        if done:
            if os.waitstatus_to_exitcode(status) != code:
                sys.exit(f"ended with {status}, expected {code}; {text}")
            return
    sys.exit(f"does not end; {text}")


if mode == "lines":
    os.write(terminal, b"one\ntwo\n")
    read_until(b"[0] got two", 1)
    os.write(terminal, b"\x04")  # end of input
    read_until(b"] end", 3)
    finish(0)
elif mode == "interrupt":
    read_until(b"ready", 3)
    os.write(terminal, b"\x03")
    read_until(b"] int", 3)
    time.sleep(0.3)
    os.kill(pid, signal.SIGCONT)
    finish(0)
    if text.count(b"] int") != 3:
        sys.exit(f"Ctrl-C arrived {text.count(b'] int')} times at 3 PEs: {text}")
else:
    os.write(terminal, b"word\n")
    read_until(b"terminal", 1)
    read_until(b"got word", 1)
    read_until(b"ready", 1)
    os.write(terminal, b"\x03")
    finish(7)
    if text.count(b"int\r\n") != 1:
        sys.exit(f"Ctrl-C did not arrive once: {text}")
PY
for mode in lines interrupt single; do
  timeout 60 python3 "$scratch/terminal.py" "$run" $mode || fail "on a terminal: $mode"
done
finish
