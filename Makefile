PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONDONTWRITEBYTECODE =
# Compiled loops of the sources as they are; tools/loops_folder.py says why.
ifndef NUMBA_CACHE_DIR
NUMBA_CACHE_DIR := $(shell $(PYTHON) tools/loops_folder.py)
endif
export NUMBA_CACHE_DIR

.PHONY: run test test-plain test-portable test-browser test-slow test-gpu test-oldest test-oldest-numba dist fuzz boundscheck lint bench speed-table docs links clean

# The pip of $(PYTHON) serves an environment that has none yet: its own would take four seconds to install.
PIP = $$(test -x $(BIN)/pip && echo $(BIN)/python -m pip || echo $(PYTHON) -m pip --python $(BIN)/python)
INSTALL = $(PIP) install --quiet --disable-pip-version-check
# What pyproject.toml asks for at run time, one requirement a line.
NEEDS := import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*p["dependencies"], *p["optional-dependencies"]["plots"], "pip", sep="\n")

$(BIN)/python:
	if $(PYTHON) -m pip --version >/dev/null 2>&1; then $(PYTHON) -m venv --without-pip $(VENV); \
		else $(PYTHON) -m venv $(VENV); fi

# The package itself, for which setuptools is fetched, beside what it needs.
$(VENV)/.run: $(BIN)/python pyproject.toml
	$(BIN)/python -c '$(NEEDS)' > $(VENV)/needs.txt
	$(INSTALL) --no-compile --no-deps -e . & package=$$!; \
		$(INSTALL) --no-compile -r $(VENV)/needs.txt && wait $$package
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(INSTALL) pip -e ".[dev]"
	touch $@ $(VENV)/.run

$(VENV)/.bench: $(VENV)/.dev
	$(INSTALL) -e ".[bench]"
	touch $@

# The loops that the demo needs, once, on two processes.
$(NUMBA_CACHE_DIR)/.warm: | $(VENV)/.run
	$(BIN)/maxmargin warmup --jobs 2 multilabel multiclass sparse-multiclass submodular ranking chain
	touch $@

run: $(VENV)/.run $(NUMBA_CACHE_DIR)/.warm
	$(BIN)/maxmargin demo

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Fits of every solver, for the part of `make test` that runs as on an older processor.
PORTABLE := tests/test_golden.py tests/test_random_fits.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not browser"
	$(BIN)/python tools/portable.py x86-64-v2 -q -n 2 -m "not slow and not browser" $(PORTABLE)
	$(MAKE) test-oldest-numba

# The tests of loops with all of them as plain Python; `make test` runs their entries both ways.
test-plain: $(VENV)/.dev
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -n 2 -m "nojit and not slow"

# The whole suite as on other processors: OpenBLAS kernels and x86-64 levels, as far as this machine supports them.
test-portable: $(VENV)/.dev
	$(BIN)/python tools/portable.py -q -n 2 -m "not slow and not browser"

test-browser: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m browser

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m slow

# On a machine with an NVIDIA GPU; anywhere else the same on the CPU, by Triton's interpreter.
test-gpu: $(VENV)/.dev
	$(INSTALL) -e ".[gpu]"
	$(BIN)/python -m pytest -q tests/device

# The oldest numba that pyproject.toml allows, with NumPy and SciPy of its time: how loops are compiled, and the
# default fits of every family, which `warmup` runs.
OLDEST_NUMBA := .venv-oldest-numba
$(OLDEST_NUMBA)/.done: tools/oldest.txt pyproject.toml
	$(PYTHON) -m venv $(OLDEST_NUMBA)
	$(OLDEST_NUMBA)/bin/python -m pip install --quiet --disable-pip-version-check -c tools/oldest.txt \
		-e . pytest pytest-xdist hypothesis
	touch $@

test-oldest-numba: export NUMBA_CACHE_DIR := $(NUMBA_CACHE_DIR)/oldest-numba
test-oldest-numba: $(OLDEST_NUMBA)/.done
	$(OLDEST_NUMBA)/bin/maxmargin warmup --jobs 2
	$(OLDEST_NUMBA)/bin/python -m pytest -q -n 2 -m "not slow" tests/core/test_jit.py tests/core/test_lanes.py

# The oldest dependencies that pyproject.toml allows, in an environment of their own; loops run as plain Python.
OLDEST := .venv-oldest
$(OLDEST)/.done: tools/oldest.txt pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c tools/oldest.txt \
		-e ".[plots,parquet,data]" pytest hypothesis pandas polars networkx cvxpy skops
	touch $@

test-oldest: export NUMBA_CACHE_DIR := $(NUMBA_CACHE_DIR)/oldest-numba
test-oldest: $(OLDEST)/.done
	NUMBA_DISABLE_JIT=1 $(OLDEST)/bin/python -m pytest -q -m "nojit and not slow"
	$(OLDEST)/bin/python -m pytest -q -m "not slow and not browser" tests/io tests/cli tests/test_every_estimator.py \
		tests/test_label_sets.py tests/test_tables.py tests/test_package.py tests/test_progress.py

# Source distribution and wheel, looked at as the package index does.
dist: $(VENV)/.dev
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist
	$(BIN)/python -m twine check --strict build/dist/*

# Changed model and data files, in processes with limits: make fuzz COUNT=1000000 SEED=3
COUNT ?= 100000
SEED ?= 0
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED)

# Every access of a loop to an array is checked; slow, once per release.
boundscheck: $(VENV)/.dev
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(NUMBA_CACHE_DIR)/boundscheck $(BIN)/python -m pytest -q -n 2 -m "not slow and not browser"

# One race: make bench RACE="multiclass letter"
bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(RACE)

$(VENV)/.docs: $(VENV)/.dev
	$(INSTALL) -e ".[docs]"
	touch $@

speed-table: $(VENV)/.run
	$(BIN)/python docs/speed.py

docs: $(VENV)/.docs
	rm -rf docs/generated
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# Every address that the pages and files of the project name; needs the network.
links: $(VENV)/.run
	$(BIN)/python tools/links.py

clean:
	rm -rf $(VENV) $(OLDEST) $(OLDEST_NUMBA) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
