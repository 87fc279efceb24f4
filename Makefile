# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

# Files of tests side by side, a core each.
TESTED := OMP_NUM_THREADS=1
SIDE_BY_SIDE := --numprocesses auto --dist loadfile

FAIRSEQ := .venv-fairseq/bin
COMET := .venv-comet/bin
LOWEST := .venv-lowest/bin

.PHONY: demo test bench figures lint format clean fairseq test-fairseq comet test-comet test-lowest
.DEFAULT_GOAL := test

demo: .venv/installed
	$(BIN)/knn-seq demo

test: .venv/dev-installed
	$(TESTED) $(BIN)/python -m pytest $(SIDE_BY_SIDE)

# One table of ratios, measured here: see docs/speed.md.
bench: .venv/dev-installed
	$(BIN)/python benchmarks/bench.py

# The tables of README and docs, measured here: all of them, or ONLY="speed results"; see benchmarks/README.md.
figures: .venv/dev-installed
	$(BIN)/python benchmarks/figures.py $(ONLY)

lint: .venv/dev-installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/dev-installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The demo needs the package alone, which is a gigabyte less.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/dev-installed: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# fairseq builds C++ against the torch that is there already, and its users have it in an environment of its own.
fairseq: .venv-fairseq/installed

test-fairseq: .venv-fairseq/installed
	$(FAIRSEQ)/python -m pytest tests/fairseq

.venv-fairseq/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-fairseq
	$(FAIRSEQ)/python -m pip install --quiet --constraint constraints.txt torch numpy cython setuptools wheel
	$(FAIRSEQ)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation fairseq-fixed==0.12.3.1
	$(FAIRSEQ)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(FAIRSEQ)/python -m pip uninstall --quiet --yes torchaudio  # text needs none, and it fails beside another build of torch
	touch $@

# COMET needs older libraries than ours, so it has an environment of its own.
comet: .venv-comet/installed

test-comet: .venv/dev-installed .venv-comet/installed
	KNN_SEQ_COMET_PYTHON=$(COMET)/python $(BIN)/python -m pytest tests/metrics/test_comet.py

.venv-comet/installed: constraints.txt
	$(PYTHON) -m venv .venv-comet
	$(COMET)/python -m pip install --quiet --constraint constraints.txt torch
	$(COMET)/python -m pip install --quiet unbabel-comet==2.2.7 'pytorch-lightning<2.6' 'setuptools<81'
	touch $@

# The lowest versions that pyproject.toml allows, of torch and of all that the tests need.
test-lowest: .venv-lowest/installed
	$(TESTED) $(LOWEST)/python -m pytest $(SIDE_BY_SIDE)

.venv-lowest/installed: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	$(LOWEST)/python -m pip install --quiet --constraint constraints.txt torch uv
	$(LOWEST)/uv pip install --quiet --python $(LOWEST)/python --resolution lowest-direct --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-fairseq .venv-comet .venv-lowest knn-seq-demo
