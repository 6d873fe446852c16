# Targets for working with a checkout. Needs Python 3.11 or later and make; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup quickstart test check browser test-compiled test-interpreted test-bounds test-lowest bench soak soak-engine soak-files docs clean

help: ## this list
	@echo "make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## make .venv and install kilowait with its development tools into it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11; name a newer one: make setup PYTHON=python3.12"; exit 1; }
	@echo "== installing into $(VENV), a minute or two the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --editable '.[dev]' --constraint constraints.txt
	@touch $@
	@echo "== installed: $$($(BIN)/python -m pip list 2>/dev/null | tail -n +3 | wc -l) packages"

quickstart: setup ## a first simulation, on a generated workload: no data needed
	@$(BIN)/kilowait quickstart

test: check browser test-compiled test-interpreted test-bounds ## every gate: style, types, imports, docs, all tests
	@echo "== all gates passed"

check: setup ## style, types, import contracts
	@echo "== ruff: style"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@echo "== mypy: types"
	@$(BIN)/mypy --strict
	@echo "== import-linter: who may import whom"
	@$(BIN)/lint-imports --no-logo

# The report pages are tested in a real browser. Debian's Chromium is installed where that is possible; elsewhere an
# installed browser is used, or KILOWAIT_CHROMIUM names one.
browser: ## Chromium for the tests of pages, unless there is one or it cannot be installed
	@for name in "$$KILOWAIT_CHROMIUM" chromium chromium-browser google-chrome; do \
		test -n "$$name" && command -v "$$name" > /dev/null && exit 0; done; \
	if test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
		echo "== installing Chromium, for the tests of pages"; \
		{ apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y chromium; } \
			> /dev/null || echo "== Chromium could not be installed: the tests of pages are skipped"; \
	else echo "== no Chromium on this machine: the tests of pages are skipped"; fi

test-compiled: setup ## all tests, the docs' build and the examples in code, docs and README
	@echo "== tests, compiled"
	$(BIN)/python -m tests.compile_kernels
	$(PYTEST) -n 2 -q

KERNELS := tests/engine tests/oracle/test_engine.py tests/oracle/test_observing_policies.py \
	tests/oracle/test_power_controls.py tests/oracle/test_gpu_engine.py

# The environment tests that run every kernel through whole episodes in few steps; all of them would take minutes.
ENVS := snapshot or autoreset or forbidden or arrival_rate or mid_episode or observation_values or features_mask

test-interpreted: setup ## the kernels' tests once more as plain Python
	@echo "== kernels, interpreted"
	NUMBA_DISABLE_JIT=1 KILOWAIT_REFERENCE_CASES=60 $(PYTEST) -n 2 -q $(KERNELS)
	NUMBA_DISABLE_JIT=1 $(PYTEST) -n 2 -q tests/envs -k '$(ENVS)'

# Runs with power controls and GPU runs are excluded: compiling them again takes longer than everything else, and in the
# interpreted run above numpy checks their indices.
NOT_BOUNDS := tests/engine/test_power_controls.py tests/engine/gpu tests/oracle/test_power_controls.py tests/oracle/test_gpu_engine.py

test-bounds: setup ## the kernels' tests once more with every index checked
	@echo "== kernels, with bounds checks"
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.compile_kernels batch
	NUMBA_BOUNDSCHECK=1 KILOWAIT_REFERENCE_CASES=300 $(PYTEST) -n 2 -q $(filter-out $(NOT_BOUNDS),$(KERNELS)) \
		$(NOT_BOUNDS:%=--ignore %) -k 'not (can_never_start and power)'

LOWEST := .venv-lowest

# Core and the light extras; torch and what needs it are left out, as they take gigabytes.
test-lowest: ## a smoke test with the lowest versions of the dependencies that pyproject.toml permits; needs Python 3.11
	@echo "== installing the lowest versions into $(LOWEST)"
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install -qq --editable '.[pandas,polars,report,predict]' --constraint constraints-lowest.txt
	@echo "== smoke test"
	@$(LOWEST)/bin/python -m tests.smoke

bench: setup ## jobs per second, beside the reference simulator in the same run
	@$(BIN)/python -m benchmarks.speed simulator

soak: soak-engine soak-files ## random workloads and damaged files in large numbers; an hour

soak-engine: setup ## the engine against the reference simulator on 200,000 random workloads; ten to twenty minutes
	$(BIN)/python -m tests.oracle.soak --cases 100000 --processes 2
	$(BIN)/python -m tests.oracle.soak --kind power --cases 50000 --processes 2
	$(BIN)/python -m tests.oracle.soak --kind gpu --cases 50000 --processes 2

soak-files: setup ## more than 100,000 damaged logs, folders, agents, predictors, caches and commands; half an hour
	$(BIN)/python -m benchmarks.fuzz_readers --cases 50000
	$(BIN)/python -m benchmarks.fuzz_folders --cases 15000
	$(BIN)/python -m benchmarks.fuzz_models --cases 15000
	$(BIN)/python -m benchmarks.fuzz_kernel_cache --cases 20000
	$(BIN)/python -m benchmarks.fuzz_locks --cases 10000
	$(BIN)/python -m benchmarks.fuzz_command_line --cases 3000
	$(BIN)/python -m benchmarks.fuzz_gpu_policies --cases 2000

docs: setup ## the pages, into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean: ## remove what was built and cached, but not .venv
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
