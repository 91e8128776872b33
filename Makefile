# The ways in. Everything else is CMake: see CMakePresets.json.
#
#   make demo       packages, build, data, and a first training run on two ranks
#   make test       packages, build, data, and the default test suite
#   make build      the command at build/bin/lockstep
#   make install    command, library and headers under PREFIX (/usr/local)
#   make sanitize   the rank tests under ASan + UBSan, then under TSan
#   make test-long  tests that take minutes
#   make fuzz       readers of files under libFuzzer for SECONDS=600 in all
#   make format     clang-format over all sources

BUILD ?= build
CTEST_FLAGS ?= --output-on-failure --timeout 300
JOBS ?= $(shell nproc)

PACKAGES = g++ cmake ninja-build ccache libtorch-dev libopenblas0-pthread libdnnl-dev libcli11-dev \
           libtomlplusplus-dev nlohmann-json3-dev zlib1g-dev libpcre2-dev libhwloc-dev libssl-dev liburing-dev \
           libgloo-dev libgtest-dev libgmock-dev librapidcheck-dev pkg-config

# For tests only: where these are not, the engine mpi is not built and its tests are skipped.
TEST_PACKAGES = openmpi-bin libopenmpi-dev mpich libmpich-dev iproute2

.PHONY: demo test build install configure tests setup setup-tests data sanitize test-long fuzz format clean

demo: build data
	@bash docs/demo.sh $(BUILD)

build: configure
	@cmake --build $(BUILD) -j $(JOBS) --target lockstep lockstep-worker

PREFIX ?= /usr/local
install: configure
	@cmake --build $(BUILD) -j $(JOBS) --target lockstep lockstep-worker lockstep_library
	@cmake --install $(BUILD) --prefix $(PREFIX) > /dev/null
	@echo "Lockstep is under $(PREFIX)"

configure: setup
	@cmake --preset release -B $(BUILD) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

# Installs what is missing; asks for nothing when all is there.
setup:
	@bash cmake/install_packages.sh $(PACKAGES)

setup-tests: setup
	@bash cmake/install_packages.sh $(TEST_PACKAGES)

data: build
	@$(BUILD)/bin/lockstep data prepare austen
	@$(BUILD)/bin/lockstep data prepare tokenizers || echo "Going on without: only BPE tokenizers need them."

test: setup-tests data tests
	@cd $(BUILD) && ctest $(CTEST_FLAGS) -LE long -j $(JOBS)

tests: configure
	@cmake --build $(BUILD) -j $(JOBS)

test-long: data tests
	@cd $(BUILD) && ctest --output-on-failure -L long

RANK_TESTS = net_test comm_test state_test train_test matrix_test

sanitize: setup data
	@cmake --preset asan && cmake --build build-asan -j $(JOBS) --target $(RANK_TESTS)
	@cd build-asan && ctest --output-on-failure -L ranks
	@cmake --preset tsan && cmake --build build-tsan -j $(JOBS) --target $(RANK_TESTS)
	@cd build-tsan && ctest --output-on-failure -L ranks

# libFuzzer comes with clang.
SECONDS ?= 600
fuzz: setup
	@bash cmake/install_packages.sh clang
	@cmake --preset fuzz > build-fuzz.log 2>&1 || { cat build-fuzz.log; exit 1; }
	@rm -f build-fuzz.log
	@cmake --build build-fuzz -j $(JOBS) --target fuzzers
	@bash tests/fuzz/run.sh build-fuzz/bin $(SECONDS)

format:
	@git ls-files '*.h' '*.cpp' | xargs clang-format -i

clean:
	rm -rf build build-*
