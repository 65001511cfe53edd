#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Boots a kernel under qemu on machines with two and four NUMA nodes and runs test/numa/ there as the
# first process: topology, distances, placement of segments and pools read back from the kernel,
# hugetlb, containers, cpusets, measuring.
# No virtualization hardware is needed. Runs by itself too: BUILD_DIR=build/release test/scripts/numa_test.sh
set -u
: "${BUILD_DIR:?}"
source_dir=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cc=${CC:-cc}
skip() { echo "SKIPPED numa_test: $*"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }

[ "$(uname -m)" = x86_64 ] || skip "the machines are x86-64 ones"
[ -z "${SHMEM_SANITIZER:-}" ] || skip "a sanitizer's run-time does not fit into the small machine"
command -v qemu-system-x86_64 > /dev/null || skip "qemu-system-x86_64 is missing (scripts/install-deps check)"
command -v cpio > /dev/null || skip "cpio is missing (scripts/install-deps check)"
kernel=$("$source_dir/scripts/fetch-test-kernel" "$BUILD_DIR/kernel" 2>&1) || skip "no kernel: $kernel"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

build_initramfs() {
  local libraries=() extra=() root=$work/root library
  for layer in job node xport memory sync topo os base; do libraries+=("$BUILD_DIR/src/libshmemt_$layer.a"); done
  if grep -q __gcov_init "${libraries[0]}"; then extra=(--coverage); fi
  mkdir -p "$root/proc" "$root/sys" "$root/tmp" "$root/dev"
  # shellcheck disable=SC2046
  "$cc" -std=gnu11 -D_GNU_SOURCE -DSHMEMI_FAULT_POINTS=1 -O1 -I"$source_dir/include" \
    -I"$source_dir/src" -I"$source_dir/test/harness" "${extra[@]}" "$source_dir"/test/numa/*.c \
    "$BUILD_DIR/test/libshmemt_harness.a" "${libraries[@]}" $(pkg-config --libs hwloc) -lpthread \
    -o "$root/init" || fail "the guest does not build"
  ldd "$root/init" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initramfs" || fail "no initramfs"
}

# boot NAME "kernel arguments" qemu arguments...
boot() {
  local name=$1 arguments=$2
  shift 2
  timeout -k 2 100 qemu-system-x86_64 -accel tcg -machine q35 -cpu max -nodefaults -no-reboot \
    -display none -serial "file:$work/$name.log" -kernel "$kernel" -initrd "$work/initramfs" "$@" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr hugepages=8 $arguments" \
    < /dev/null > "$work/$name.qemu" 2>&1
  if ! tr -d '\r' < "$work/$name.log" | grep -qx 'GUEST passed'; then
    tail -n 40 "$work/$name.log" "$work/$name.qemu" >&2
    fail "$name (the console's end is above)"
  fi
  tr -d '\r' < "$work/$name.log" | grep '^  '
  echo "$name: $(tr -d '\r' < "$work/$name.log" | grep -c '^ok ') cases passed"
}

build_initramfs

# the firmware tells nanoseconds and MB/s (the kernel shows those of each node's own processors)
lb() { # INITIATOR TARGET NS MB/S
  echo "-numa hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access-latency,latency=$3" \
    "-numa hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access-bandwidth,bandwidth=$4M"
}
# shellcheck disable=SC2046
boot two-nodes "shmem.memory=1,1 shmem.cpus=1,1 shmem.distances=10,21,21,10 shmem.latency=60,147,126,70 shmem.bandwidth=20.9715,4.99321,9.98643,10.4858" \
  -machine hmat=on -m 512 -smp 2 \
  -object memory-backend-ram,id=m0,size=256M -object memory-backend-ram,id=m1,size=256M \
  -numa node,nodeid=0,cpus=0,memdev=m0,initiator=0 -numa node,nodeid=1,cpus=1,memdev=m1,initiator=1 \
  -numa dist,src=0,dst=1,val=21 \
  $(lb 0 0 60 20000) $(lb 0 1 150 5000) $(lb 1 0 150 5000) $(lb 1 1 70 10000) &
first=$!

# a ring of three with processors, the third without memory, and a far node with memory alone
boot four-nodes "shmem.memory=1,1,0,1 shmem.cpus=1,1,1,0 shmem.distances=10,16,22,14,16,10,16,28,22,16,10,30,14,28,30,10" \
  -m 768 -smp 3 -object memory-backend-ram,id=m0,size=256M -object memory-backend-ram,id=m1,size=256M \
  -object memory-backend-ram,id=m3,size=256M \
  -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1 \
  -numa node,nodeid=2,cpus=2 -numa node,nodeid=3,memdev=m3 \
  -numa dist,src=0,dst=1,val=16 -numa dist,src=0,dst=2,val=22 -numa dist,src=0,dst=3,val=14 \
  -numa dist,src=1,dst=2,val=16 -numa dist,src=1,dst=3,val=28 -numa dist,src=2,dst=3,val=30
wait $first || exit 1
