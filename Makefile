# make demo: from nothing to a trained model.  make test: what has to pass before a change is shared.
# The first call makes .venv and installs what constraints.txt pins; later calls find it done.

PYTHON ?= python3
BIN := .venv/bin
CODE := src tests benchmarks examples
INSTALLED := .venv/.installed
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# tests wait more than they compute: more of them at once than a small machine has cores
PARALLEL := --numprocesses 4 --dist worksteal

.PHONY: demo setup lint types test test-all bench docs clean

demo: $(INSTALLED)
	@$(BIN)/volary train examples/digits.yaml

setup: $(INSTALLED)

lint: $(INSTALLED)
	@$(BIN)/ruff format --quiet --check $(CODE)
	@$(BIN)/ruff check --quiet $(CODE)

types: $(INSTALLED)
	@$(BIN)/mypy --no-error-summary

test: lint types
	@$(BIN)/pytest -q $(PARALLEL) -m "not slow and not gpu"

test-all: lint types
	@$(BIN)/pytest -q $(PARALLEL)

bench: $(INSTALLED)
	@set -e; for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script $(ARGS); done

docs: $(INSTALLED)
	@$(BIN)/python -m volary.session.reference_page docs/session.md

clean:
	@rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src tests benchmarks examples docs -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Volary needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo 'not there')." >&2; \
		echo "Name one that is: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv .venv

# first what builds the package, pinned too: pip would fetch any version of it into a build of its own
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing what constraints.txt pins into .venv (the first time takes some minutes)."
	@$(PIP) install --constraint constraints.txt hatchling editables
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@
