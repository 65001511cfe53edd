#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shmem-info: text, JSON, the page of the settings, bad settings.
. "$(dirname "$0")/lib.sh"
info=$BUILD_DIR/bin/shmem-info

expect 0 "$info"
for section in Topology Pages Limits Kernel 'Node servers' Settings Advice; do says out "^$section\$"; done
says out '^  node 0 '
says out 'SHMEM_SPIN +50us +\(default\)'

cat > "$scratch/look.py" <<'PY'
import json
import os
import sys
info = json.load(open(sys.argv[1]))
topology = info["topology"]
nodes = len(topology["nodes"])
assert nodes >= 1 and topology["processors"] >= 1
assert topology["processors"] == len(os.sched_getaffinity(0)), topology["processors"]
for name in ("latency_ns", "bandwidth_gbs"):
    matrix = topology[name]
    assert len(matrix) == nodes and all(len(row) == nodes for row in matrix)
    assert all(x > 0 for row in matrix for x in row)
total = sum(node["total_bytes"] for node in topology["nodes"])
here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
assert 0.8 * here < total < 1.3 * here, (total, here)
assert info["huge_pages"]["page_bytes"] == os.sysconf("SC_PAGE_SIZE")
settings = {s["name"]: s for s in info["settings"]}
assert settings["SHMEM_SPIN"]["value"] == "7us" and settings["SHMEM_SPIN"]["source"] == "environment"
assert settings["SHMEM_LOG"]["source"] == "default"
assert info["kernel"]["release"] == os.uname().release
PY
expect 0 env SHMEM_SPIN=7us "$info" --json
python3 "$scratch/look.py" "$scratch/out" || fail "the JSON output"

# names that others choose neither steer the terminal nor spoil the JSON
cat > "$scratch/evil.py" <<'PY'
import json
import os
import socket
import subprocess
import sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
name = b"\0shmem\x1b[31m\xff\x07-%d" % os.getpid()
s.bind(name)
s.listen(1)
shown = b"@shmem?[31m??-%d" % os.getpid()
text = subprocess.run([sys.argv[1]], stdout=subprocess.PIPE).stdout
assert shown in text and not any(b < 32 and b != 10 for b in text), text
env = dict(os.environ, SHMEM_SERVER="@x\udcff\x1b")
out = subprocess.run([sys.argv[1], "--json"], env=env, stdout=subprocess.PIPE).stdout
servers = json.loads(out)["servers"]
assert shown.decode() in servers["listening"] and servers["address"] == "@x??", servers
PY
python3 "$scratch/evil.py" "$info" || fail "names of others"

# measured and kept: in a cache of its own, the user's stays as it is
export XDG_CACHE_HOME=$scratch/cache
expect 0 "$info" --json
python3 -c 'import json,sys; t = json.load(open(sys.argv[1]))["topology"]
assert t["latency_source"] != "measured" and t["latency_spread"][0][0] is None' "$scratch/out" || fail "measured before it was"
expect 0 "$info" --measure
says out '^  latency in ns \(measured\)$'
says out '^  bandwidth in GB/s \(measured\)$'
says out '^    from   0 +[0-9]+ \+- *[0-9]+%'
says out "^Saved for this user's programs: $XDG_CACHE_HOME/shmem/topology-[0-9a-f]{16}\$"
expect 0 "$info" --json
python3 -c 'import json,sys; t = json.load(open(sys.argv[1]))["topology"]
assert t["latency_source"] == t["bandwidth_source"] == "measured"
assert t["latency_spread"][0][0] >= 0 and 0.1 < t["latency_ns"][0][0] < 1e5 and 0.001 < t["bandwidth_gbs"][0][0] < 1e4' \
  "$scratch/out" || fail "the measured topology in JSON"
expect 0 env -u XDG_CACHE_HOME HOME= "$info" --measure --json
python3 -c 'import json,sys; t = json.load(open(sys.argv[1]))
assert t["latency_source"] == "measured" and "HOME" in t["not_saved"] and "saved" not in t' "$scratch/out" || fail "no home"
unset XDG_CACHE_HOME

# bad settings: exit code 1, all of them named, text and JSON
expect 1 env SHMEM_SPIN=50 SHMEM_RANK=-1 SHMEM_HUGE_PAGES= "$info"
[ "$(grep -c '^    BAD: ' "$scratch/out")" = 3 ] || fail "not every bad setting is named"
says err '3 settings have a bad value'
expect 1 env SHMEM_SIZE=20kk "$info" --json
python3 -c 'import json,sys; s = {x["name"]: x for x in json.load(open(sys.argv[1]))["settings"]}
assert "20kk" in s["SHMEM_SIZE"]["error"]' "$scratch/out" || fail "a bad setting in JSON"
expect 1 env SHMEM_JOB=$'\xff\xfe' SHMEM_LOG=loud "$info" --json
python3 -m json.tool "$scratch/out" > /dev/null || fail "invalid JSON for a setting that is no text"

# a variable that looks like a setting
expect 0 env SHMEM_SPINN=50us SHMEM_SPIN=50us "$info"
says out '^  SHMEM_SPINN +is no setting of this library'
expect 0 env SHMEM_SPINN=50us "$info" --json
python3 -c 'import json,sys; x = json.load(open(sys.argv[1]))["unknown_settings"]
assert "SHMEM_SPINN" in x and "SHMEM_SPIN" not in x and "SHMEM_SHMEMD" not in x, x' "$scratch/out" || fail "unknown settings in JSON"

# a server: reachable or not
expect 0 env SHMEM_SERVER=@shmem-nobody-$mark "$info"
says out 'not reachable, Connection refused'
expect 0 env SHMEM_SERVER=/nowhere/at/all "$info"
says out 'not reachable, No such file'
expect 0 "$run" -n 1 "$info"
says out 'SHMEM_SERVER +@shmem[^ ]*: reachable'

# the page of the settings has a row for each, and is what docs/ holds
expect 0 "$info" --settings-doc
cmp "$scratch/out" "$SOURCE_DIR/docs/settings.md" || fail "docs/settings.md is out of date"
[ "$(grep -c '^| `SHMEM_' "$scratch/out")" = "$("$info" --json | grep -c '"meaning"')" ] || fail "settings are missing"

expect 0 "$info" --version
expect 0 "$info" --help
expect 2 "$info" --unknown
expect 2 "$info" extra
timeout 20 "$info" > /dev/full 2> "$scratch/err"
[ $? = 3 ] || fail "a full disk passed for success"

# every option of a program is in its manual page
for program in shmem-run shmem-info shmemd; do
  [ -x "$BUILD_DIR/bin/$program" ] || { note_skip "$program is not built"; continue; }
  page=$SOURCE_DIR/docs/man/$program.1
  for option in $("$BUILD_DIR/bin/$program" --help | grep -oE '(^|[ ,])--[a-z-]+' | tr -d ' ,' | sort -u); do
    grep -qF -- "$(sed 's/-/\\-/g' <<< "$option")" "$page" || fail "$option is not in $page"
  done
done
finish
