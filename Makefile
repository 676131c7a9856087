.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 1000

.PHONY: help
help: ## Say what there is
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: .venv/.ready ## Make .venv with the locked requirements and the command trueup

.PHONY: demo
demo: setup ## The rack drill on real servers: data lost without Trueup, none lost with it
	$(BIN)/trueup demo rack-drill

.PHONY: test
test: setup lint ## Everything: lint, unit, property, simulation, integration on real servers
	$(BIN)/python -m pytest

.PHONY: lint
lint: setup ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: quick
quick: setup ## Tests that start no server
	$(BIN)/python -m pytest -m 'not servers'

.PHONY: simulate
simulate: setup ## Seeded simulation of a cluster: make simulate SEEDS=100000
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

.PHONY: bench
bench: setup ## Trueup beside BookKeeper's own Auditor; the table goes to bench/results/placement.json
	$(BIN)/python -m bench.placement

.PHONY: lock
lock: setup ## Renew requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra dev --generate-hashes --universal --python-version 3.11 --no-header -q -o requirements.lock

.PHONY: clean
clean: ## Remove what setup and the tools made
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
