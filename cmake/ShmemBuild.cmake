# SPDX-License-Identifier: Apache-2.0
# Compiler settings shared by every target, and the helpers that the folders' lists use.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # Linux interfaces (memfd, pidfd, SCM_RIGHTS) need _GNU_SOURCE
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Programs and libraries lie beside each other as they do after installation, so that
# "../bin/shmemd", seen from the library, is right in both trees.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(SHMEM_SANITIZER "" CACHE STRING "address, undefined or thread; empty for none")
option(SHMEM_COVERAGE "instrument for gcov" OFF)

add_compile_options(-Wall -Wextra -Wshadow -Wpointer-arith -Wvla -Wundef
                    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> -fvisibility=hidden
                    -fno-strict-aliasing -g)
add_compile_definitions(_GNU_SOURCE)
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

if(SHMEM_SANITIZER)
  add_compile_options(-fsanitize=${SHMEM_SANITIZER} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SHMEM_SANITIZER})
  if(SHMEM_SANITIZER STREQUAL "undefined")
    add_compile_options(-fno-sanitize-recover=all)
    add_link_options(-fno-sanitize-recover=all)
  endif()
endif()
if(SHMEM_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)

# The layers, lowest first. A layer may use those before it in this list, as far as
# scripts/check-layers allows.
set(SHMEM_LAYERS base os plan topo sync memory xport node job)

# shmem_layer_sources(OUT layer): the C files of a layer.
function(shmem_layer_sources out layer)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${layer}/*.c)
  set(${out} ${files} PARENT_SCOPE)
endfunction()
