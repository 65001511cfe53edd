#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is installed is enough: programs are built by pkg-config and by CMake, in C and C++, and run
# alone and as a job, with the installed files only.
. "$(dirname "$0")/lib.sh"
tree=$scratch/tree
cmake --install "$BUILD_DIR" --prefix "$tree" > "$scratch/log" 2>&1 || { cat "$scratch/log"; fail "install"; }
for program in shmem-run shmem-info shmemd; do [ -x "$tree/bin/$program" ] || fail "$program is not installed"; done
for page in shmem-run shmem-info shmemd; do [ -f "$tree/share/man/man1/$page.1" ] || fail "no manual page of $page"; done
library=$(dirname "$(find "$tree" -name libshmem.so | head -1)")
[ -e "$library/libshmem.so.0" ] || fail "no libshmem.so.0"
# what the pages link to is there
while read -r page target; do
  [ -e "$(dirname "$page")/$target" ] || fail "$page links to $target, which is not installed"
done < <(cd "$tree/share/doc/shmem" && find "$PWD" -name '*.md' -not -path '*/design/*' -exec grep -oHE '\]\([^):#]+' {} + | sed 's/:\](/ /')
[ -f "$tree/share/doc/shmem/docs/guide/services.md" ] || fail "the guides are not installed"
# the programs find the library where it was installed, without the build directory
env -u LD_LIBRARY_PATH "$tree/bin/shmem-run" --version > /dev/null || fail "shmem-run does not find the library"
if readelf -d "$tree/bin/shmem-run" | grep -qF "$BUILD_DIR"; then fail "the build directory is in the installed program"; fi

# the sequence of calls that the interface promises, as it is written there
cat > "$scratch/first.c" <<'C'
#include <shmem/shmem.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
    shmem_context_t ctx;
    shmem_memory_t mem;
    if (shmem_init(&ctx))
        return 10;
    if (shmem_memory_create(ctx, &mem, 1 << 20))
        return 11;
    char *ptr = (char *)shmem_memory_map(mem);
    if (!ptr)
        return 12;
    int rank = shmem_context_rank(ctx), size = shmem_context_size(ctx), right = (rank + 1) % size;
    memset((char *)shmem_memory_address(mem, right), 'a' + rank, 1 << 20);
    if (shmem_barrier(ctx))
        return 13;
    if (ptr[0] != 'a' + (rank + size - 1) % size || ptr[(1 << 20) - 1] != ptr[0])
        return 14;
    printf("%d of %d with %s\n", rank, size, shmem_version());
    if (shmem_barrier(ctx))
        return 15;
    if (shmem_memory_unmap(ptr))
        return 16;
    if (shmem_memory_destroy(mem))
        return 17;
    return shmem_finalize(ctx) ? 18 : 0;
}
C
cp "$scratch/first.c" "$scratch/first.cpp"
flags=""
case ${SHMEM_SANITIZER:-} in ?*) flags="-fsanitize=$SHMEM_SANITIZER" ;; esac
CC=${CC:-cc} CXX=${CXX:-c++}

# try PROGRAM: alone, and as 4
try() {
  expect 0 env -u SHMEM_SHMEMD LD_LIBRARY_PATH="$library" "$1"
  says out '^0 of 1 with '
  expect 0 env -u SHMEM_SHMEMD LD_LIBRARY_PATH="$library" "$tree/bin/shmem-run" -n 4 "$1"
  [ "$(cut -c1-6 "$scratch/out" | sort | tr '\n' ' ')" = "0 of 4 1 of 4 2 of 4 3 of 4 " ] || fail "$1 as a job of 4"
}

if command -v pkg-config > /dev/null; then
  export PKG_CONFIG_PATH=$library/pkgconfig
  [ "$(pkg-config --modversion shmem)" = "$("$tree/bin/shmem-info" --version | sed 's/[^0-9]*\([0-9.]*\).*/\1/')" ] ||
    fail "versions differ"
  # shellcheck disable=SC2046
  "$CC" -std=c11 -Wall -Wextra -Werror $flags -o "$scratch/first-c" "$scratch/first.c" $(pkg-config --cflags --libs shmem) ||
    fail "C by pkg-config"
  # shellcheck disable=SC2046
  "$CXX" -std=c++17 -Wall -Wextra -Werror $flags -o "$scratch/first-cpp" "$scratch/first.cpp" \
    $(pkg-config --cflags --libs shmem) || fail "C++ by pkg-config"
  try "$scratch/first-c"
  try "$scratch/first-cpp"
else
  note_skip "no pkg-config"
fi

mkdir "$scratch/project"
cp "$scratch/first.c" "$scratch/first.cpp" "$scratch/project"
cat > "$scratch/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.24)
project(first LANGUAGES C CXX)
find_package(shmem 0.1 REQUIRED)
add_executable(first-c first.c)
target_link_libraries(first-c shmem::shmem)
add_executable(first-cpp first.cpp)
target_link_libraries(first-cpp shmem::shmem)
CMAKE
{ cmake -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$tree" -DCMAKE_C_COMPILER="$CC" \
    -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" &&
  cmake --build "$scratch/project/build"; } > "$scratch/log" 2>&1 || { cat "$scratch/log"; fail "by CMake"; }
try "$scratch/project/build/first-c"
try "$scratch/project/build/first-cpp"

# only the names that are meant to be seen are seen
if nm -D --defined-only "$library/libshmem.so" | awk '{ print $3 }' | grep -vE '^(shmem_[a-z]|SHMEM_[0-9.]+)' | grep .; then
  fail "other symbols than shmem_* are exported"
fi
finish
