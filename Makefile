# Every target makes the environment it needs; a fresh machine needs only Python >= 3.11 and make.
#
#   make demo                 train, save, reload and draw a digit classifier
#   make test                 the whole test suite
#   make peers                the same work done by other frameworks, side by side, and how much of PyTorch there is
#   make bench [ONLY=P1]      timings beside other frameworks, as ratios
#   make docs                 run the examples, build the pages
#   make lint                 format, lint and types
#   make clean                remove environments and everything built

PYTHON ?= python3
VENV   := .venv
PEERS  := .venv-peers
ONLY   ?=
ARGS   ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# A process for each core, each with one thread of NumPy's BLAS: more would only wait for each other.
TESTS := -m pytest --numprocesses=auto --dist=loadfile
test peers: export OMP_NUM_THREADS ?= 1
# Processes that tests start read what others have read before, and leave nothing beside the sources.
test peers docs: export PYTHONDONTWRITEBYTECODE :=
test peers docs: export PYTHONPYCACHEPREFIX ?= $(CURDIR)/$(VENV)/bytecode
test peers docs: export WENGERT_CACHE_DIR ?= $(CURDIR)/$(VENV)/kernels

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test peers bench docs lint lint-format lint-rules lint-types format clean

help:
	@sed -n 's/^#   //p' Makefile

# An environment, and a stamp in it for each extra that it has: .venv/with-test says that .[test] is installed.
$(VENV)/pyvenv.cfg $(PEERS)/pyvenv.cfg:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wengert needs Python 3.11 or newer: set PYTHON=...")'
	$(PYTHON) -m venv $(@D)

$(VENV)/with-%: pyproject.toml | $(VENV)/pyvenv.cfg
	$(VENV)/bin/python -m pip install --quiet --editable '.[$*]'
	@touch $@

$(PEERS)/with-%: pyproject.toml | $(PEERS)/pyvenv.cfg
	$(PEERS)/bin/python -m pip install --quiet --editable '.[$*]'
	@touch $@

demo: $(VENV)/with-demo
	$(VENV)/bin/python -m wengert demo $(ARGS)

test: $(VENV)/with-test
	$(VENV)/bin/python $(TESTS) --ignore=tests/peers $(ARGS)

peers: $(PEERS)/with-test $(PEERS)/with-peers
	$(PEERS)/bin/python -m pytest tests/peers $(ARGS)

bench: $(PEERS)/with-bench
	$(PEERS)/bin/python -m benchmarks $(addprefix --only=,$(ONLY)) $(ARGS)

docs: $(VENV)/with-test $(VENV)/with-docs
	$(VENV)/bin/python -m pytest wengert tests/docs
	$(VENV)/bin/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo 'Pages: docs/_build/html/index.html'

lint: lint-format lint-rules lint-types

lint-format: $(VENV)/with-lint
	$(VENV)/bin/python -m ruff format --check .

lint-rules: $(VENV)/with-lint
	$(VENV)/bin/python -m ruff check .

lint-types: $(VENV)/with-test $(VENV)/with-lint
	$(VENV)/bin/python -m mypy

format: $(VENV)/with-lint
	$(VENV)/bin/python -m ruff check --fix .
	$(VENV)/bin/python -m ruff format .

clean:
	rm -rf $(VENV) $(PEERS) build dist docs/_build benchmarks/results wengert-demo
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
