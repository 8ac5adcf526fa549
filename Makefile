# Every target sets up .venv by itself, from the pinned versions of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(BIN)/sdifp train gross-pitaevskii --dimension 2

.PHONY: help demo test validate torch lint format docs bench reproduce lock clean

help:
	@echo "make demo    find the ground state of a condensate with the constraint and its rivals"
	@echo "make test    run the tests"
	@echo "make validate  run those that take long: statistics, trainings, programs"
	@echo "make torch   install PyTorch and DeepXDE into .venv, run the tests of sdifp.torch"
	@echo "make lint    ruff (lint and format) and mypy"
	@echo "make format  rewrite the sources in ruff's format"
	@echo "make docs    build the documentation into site/"
	@echo "make bench   run all benchmarks"
	@echo "make reproduce  measure every table and figure of the paper, in half an hour"
	@echo "make lock    choose the newest versions and write requirements.lock"
	@echo "make clean   remove .venv and everything that was built"

$(READY): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "sdifp needs Python 3.11 or newer; say which with: make PYTHON=python3.12"; exit 1; }
	@echo "Setting up $(VENV) from requirements.lock (about a minute) ..."
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
	@echo "$(VENV) is ready."

demo: $(READY)
	@rm -rf out/demo
	@$(DEMO) --out out/demo/sdifp
	@$(DEMO) --method plain --out out/demo/plain
	@$(DEMO) --method "Soft(1000)" --out out/demo/penalty-1000
	@$(DEMO) --method pin-and-rescale --out out/demo/pin-and-rescale
	@cd out/demo && ../../$(BIN)/sdifp compare sdifp plain penalty-1000 pin-and-rescale --out compare.png
	@echo "Look at out/demo/compare.png and out/demo/sdifp/report.html"

test: $(READY)
	@echo "Running the tests ..."
	@$(BIN)/python -m pytest -q

validate: $(READY)
	@echo "Running the tests that take long ..."
	@$(BIN)/python -m pytest -q -m cases
	@$(BIN)/python -m pytest -q -m validate

$(VENV)/.torch: $(READY) requirements-torch.lock
	@echo "Installing PyTorch from requirements-torch.lock ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-torch.lock
	@touch $@

torch: $(VENV)/.torch
	@echo "Running the tests of sdifp.torch ..."
	@$(BIN)/python -m pytest -q tests/pytorch src/sdifp/torch

lint: $(READY)
	@echo "Checking style, format and types ..."
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(READY)
	@echo "Building the documentation ..."
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open site/index.html"

# Pinet for one of the studies; what it asks for besides is not needed here.
reproduce: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps pinet-hcnn==0.2.0
	@$(BIN)/python -m studies paper --out out/reproduction

bench: $(READY)
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

lock:
	@rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	@.lock-venv/bin/python -m pip install --quiet --upgrade pip
	@.lock-venv/bin/python -m pip install --quiet ".[dev]"
	@.lock-venv/bin/python -m pip freeze --exclude sdifp > requirements.lock
	@rm -rf .lock-venv
	@echo "Wrote requirements.lock: $$(wc -l < requirements.lock) packages."

clean:
	@rm -rf $(VENV) site out .pytest_cache .mypy_cache .ruff_cache .hypothesis
