PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONDONTWRITEBYTECODE =

.PHONY: run test test-browser test-slow fuzz lint bench speed-table docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[plots]"
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@ $(VENV)/.run

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	touch $@

run: $(VENV)/.run
	$(BIN)/maxmargin demo

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 -m "not slow and not browser"
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -n 2 -m "nojit and not slow"

test-browser: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m browser

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m slow

# Changed model and data files, in processes with limits: make fuzz COUNT=1000000 SEED=3
COUNT ?= 100000
SEED ?= 0
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED)

# One race: make bench RACE="multiclass letter"
bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(RACE)

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

speed-table: $(VENV)/.run
	$(BIN)/python docs/speed_table.py

docs: $(VENV)/.docs
	rm -rf docs/generated
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
