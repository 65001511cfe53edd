# SPDX-License-Identifier: Apache-2.0
# The commands people type. Each installs what is missing, builds, and does its work.
PRESET ?= release
BUILD := build/$(PRESET)
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

.PHONY: all build deps demo check check-long bench install format sanitize clean

all: build

deps:
	@scripts/install-deps

build: deps
	@cmake --preset $(PRESET) -DCMAKE_INSTALL_PREFIX=$(PREFIX) > /dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS)

demo: build
	@scripts/demo $(BUILD)

check: build
	@scripts/check $(BUILD)

check-long: build
	@scripts/check-long $(BUILD)

sanitize: deps
	@scripts/sanitize

bench: build
	@scripts/bench $(BUILD)

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

format:
	@git ls-files '*.c' '*.h' '*.cpp' | xargs clang-format -i

clean:
	@rm -rf build
