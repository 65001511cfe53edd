# SPDX-License-Identifier: Apache-2.0
# The commands people type. Each installs what is missing, builds, and does its work.
PRESET ?= release
BUILD := build/$(PRESET)
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

MAKEFLAGS += --no-print-directory

.PHONY: all configure build deps check-deps demo check check-long bench install format sanitize clean

all: build

deps:
	@scripts/install-deps

check-deps:
	@scripts/install-deps check

configure: deps
	@cmake --preset $(PRESET) -DCMAKE_INSTALL_PREFIX=$(PREFIX) > /dev/null

build: configure
	@cmake --build --preset $(PRESET) -j $(JOBS)

demo: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target shmem-run shmemd hello digits
	@scripts/demo $(BUILD)

check: check-deps build
	@scripts/check $(BUILD)

check-long: check-deps build
	@scripts/check-long $(BUILD)

sanitize: check-deps
	@scripts/sanitize

bench: build
	@scripts/bench $(BUILD)

# Only what is installed is built: the library and the programs.
install: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target shmem tools/all daemon/all
	@cmake --install $(BUILD) --prefix $(PREFIX)

format:
	@git ls-files '*.c' '*.h' '*.cpp' | xargs clang-format -i

clean:
	@rm -rf build
