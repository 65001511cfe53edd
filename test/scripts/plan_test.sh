#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shmem-plan: tables in and out, drawing, exit codes, bad tables.
. "$(dirname "$0")/lib.sh"
plan=$BUILD_DIR/bin/shmem-plan fixtures=$SOURCE_DIR/test/fixtures/minimalloc
[ -x "$plan" ] || fail "shmem-plan is not built"

# an independent check of what it prints: input columns kept, no overlap, peak as told
cat > "$scratch/check.py" <<'PY'
import csv
import re
import sys
import xml.dom.minidom
source, out, err, capacity = sys.argv[1:5]
rows = list(csv.DictReader(open(out, encoding="latin-1")))
given = list(csv.DictReader(open(source, encoding="latin-1")))
assert len(rows) == len(given)
for row, old in zip(rows, given):
    assert all(row[k] == v for k, v in old.items() if k != "offset" or v.strip()), (row, old)
boxes = [(int(r["lower"]), int(r["upper"]), int(r["offset"]), int(r["offset"]) + int(r["size"]))
         for r in rows]
for i, a in enumerate(boxes):
    assert int(rows[i].get("alignment") or 1) and a[2] % int(rows[i].get("alignment") or 1) == 0
    for b in boxes[:i]:
        assert a[0] == a[1] or b[0] == b[1] or a[0] >= b[1] or b[0] >= a[1] or a[2] >= b[3] or b[2] >= a[3], (a, b)
peak = max((b[3] for b in boxes if b[0] < b[1]), default=0)
told = re.search(r"(\d+) buffers, peak (\d+), lower bound (\d+)", open(err).read())
assert told and int(told[1]) == len(rows) and int(told[2]) == peak >= int(told[3])
assert not int(capacity) or peak <= int(capacity)
if len(sys.argv) > 5:
    svg = xml.dom.minidom.parse(sys.argv[5])
    drawn = [g for g in svg.getElementsByTagName("g")]
    assert len(drawn) == sum(1 for b in boxes if b[0] < b[1] and b[2] < b[3])
PY
check() { python3 "$scratch/check.py" "$1" "$scratch/out" "$scratch/err" "${@:2}" || fail "the plan of $1"; }

for name in C G; do
  file=$fixtures/$name.1048576.csv
  expect 0 "$plan" --capacity 1048576 --time-limit 30 --svg "$scratch/$name.svg" "$file"
  check "$file" 1048576 "$scratch/$name.svg"
done
grep -q 'capacity: 1048576' "$scratch/C.svg" || fail "no capacity in the drawing"

# standard input; a plan that does not fit is printed all the same
timeout 60 "$plan" --time-limit 0 --capacity 1048576 - < "$fixtures/C.1048576.csv" > "$scratch/out" 2> "$scratch/err"
[ $? = 1 ] || fail "the greedy plan of C fits?"
check "$fixtures/C.1048576.csv" 0
says err 'it does not fit into 1048576$'
expect 1 "$plan" --capacity 1000 "$fixtures/C.1048576.csv"
says err 'it does not fit into 1000; no plan does'

# columns in another order, blanks, empty lines, CRLF, alignment, fixed offsets, foreign columns, negative times
printf 'size, note ,upper,offset,id,alignment,lower\r\n100,a<b>&,5,,x,64,-5\r\n\r\n30, b ,9, 128 ,y,,0\r\n50,,7,,z,32,1\r\n8,,3,,"never",,3\n' |
  tr -d '"' > "$scratch/odd.csv"
expect 0 "$plan" --svg "$scratch/odd.svg" "$scratch/odd.csv"
tr -d '\r' < "$scratch/odd.csv" | grep -v '^$' | sed 's/, note ,/,note,/' > "$scratch/plain.csv"
sed -i 's/, note ,/,note,/' "$scratch/out"
check "$scratch/plain.csv" 0 "$scratch/odd.svg"
says out '^30, b ,9, 128 ,y,,0$'
says err 'optimal'
printf 'lower,upper,size\n' > "$scratch/empty.csv"
expect 0 "$plan" "$scratch/empty.csv"
[ "$(cat "$scratch/out")" = lower,upper,size,offset ] || fail "an empty table"

# bad tables: exit code 2, the line is named
bad() { # expected words, table
  printf '%b' "$2" > "$scratch/bad.csv"
  expect 2 "$plan" "$scratch/bad.csv"
  says err "$1"
  silent out
}
bad 'line 1: the header must name' 'id,lower,size\n'
bad 'line 1: there is no header' ''
bad 'line 1: a column appears twice' 'lower,upper,size,size\n'
bad 'line 3: 2 fields; the header has 3' 'lower,upper,size\n0,1,5\n0,1\n'
bad "line 2: size '-5' is no number from 0 on" 'lower,upper,size\n0,1,-5\n'
bad "line 2: size '' is no" 'lower,upper,size\n0,1,\n'
bad "line 2: upper '1.5' is no number" 'lower,upper,size\n0,1.5,5\n'
bad "line 2: lower '9223372036854775808'" 'lower,upper,size\n9223372036854775808,1,5\n'
bad "line 2: size '18446744073709551616'" 'lower,upper,size\n0,1,18446744073709551616\n'
bad 'that is line 2' 'lower,upper,size\n0,1,18446744073709551615\n'
bad 'that is line 4' 'lower,upper,size\n0,1,5\n\n3,2,5\n'
bad 'that is line 3' 'lower,upper,size,alignment\n0,1,5,8\n0,1,5,12\n'
bad 'those are lines 2 and 4' 'lower,upper,size,offset\n0,9,5,0\n0,9,5,\n8,9,5,4\n'
bad 'exceeds 2.63' 'lower,upper,size\n0,1,9223372036854775807\n0,1,1\n'
bad 'line 2: quotes' 'lower,upper,size\n"0",1,5\n'
bad 'line 2: quotes' 'lower,upper,size\n0,1,5\0\n'

# garbage: an error or a plan, never anything else
cat > "$scratch/garble.py" <<'PY'
import random
import sys
text = bytearray(open(sys.argv[1], "rb").read()[:1500])
r = random.Random(int(sys.argv[2]))
for _ in range(r.choice([1, 3, 30])):
    what, at = r.randrange(3), r.randrange(10, len(text))
    if what == 0:
        text[at] = r.choice(b"0123456789,,\n-. \xff\0\"")
    elif what == 1:
        del text[at:at + r.randrange(1, 9)]
    else:
        text[at:at] = bytes(r.choice(b"0123456789,\n") for _ in range(r.randrange(1, 22)))
sys.stdout.buffer.write(bytes(text))
PY
for i in $(seq 25); do
  python3 "$scratch/garble.py" "$fixtures/A.1048576.csv" "$i" > "$scratch/garbled.csv"
  timeout 20 "$plan" --time-limit 0 --svg "$scratch/g.svg" "$scratch/garbled.csv" > "$scratch/out" 2> "$scratch/err"
  code=$?
  case $code in
    0) check <(grep -v '^ *$' "$scratch/garbled.csv") 0 "$scratch/g.svg" ;;
    2) [ -s "$scratch/err" ] || fail "no complaint about garbage $i" ;;
    *) fail "exit code $code for garbage $i" ;;
  esac
done

# command line and output
expect 0 "$plan" --help
expect 0 "$plan" --version
for wrong in '' '--capacity 0 x' '--capacity -1 x' '--capacity 1k x' '--time-limit -1 x' '--time-limit nan x' '--unknown' 'a b'; do
  # shellcheck disable=SC2086
  expect 2 "$plan" $wrong
done
expect 2 "$plan" "$scratch/nowhere.csv"
says err 'cannot open'
expect 3 "$plan" --svg "$scratch/no/folder.svg" "$scratch/plain.csv"
expect 2 "$plan" --svg - "$scratch/plain.csv"
# times are whole numbers, each at its place once, also where they are large
printf 'lower,upper,size\n0,3,100\n3,6,80\n' > "$scratch/axis.csv"
printf 'lower,upper,size\n1000000000000000000,1000000000000000003,100\n' > "$scratch/late.csv"
expect 0 "$plan" --svg "$scratch/axis.svg" "$scratch/axis.csv"
times=$(grep -o "<path d='M[0-9.]* 670 v5'.*</text>" "$scratch/axis.svg" | sed "s/.*'>//; s/<.*//" | tr '\n' ' ')
[ "$times" = "0 1 2 3 4 5 6 " ] || fail "the axis of time says $times"
expect 0 timeout 20 "$plan" --svg "$scratch/late.svg" "$scratch/late.csv"
timeout 20 "$plan" "$fixtures/G.1048576.csv" --time-limit 0 > /dev/full 2> "$scratch/err"
[ $? = 3 ] || fail "a full disk passed for success"

# every option is in the manual page
page=$SOURCE_DIR/docs/man/shmem-plan.1
for option in $("$plan" --help | grep -oE '(^|[ ,])--[a-z-]+' | tr -d ' ,' | sort -u); do
  grep -qF -- "$(sed 's/-/\\-/g' <<< "$option")" "$page" || fail "$option is not in $page"
done
finish
