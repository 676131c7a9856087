.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 1000
JOBS ?= 3

# The application, its Spark workers and the command line start some hundred times in tests, too often to compile each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

.PHONY: demo-failover
demo-failover: setup ## A Kafka cluster dies and returns: its readers and writers go on at another
	$(BIN)/trueup demo failover

.PHONY: demo-rocketmq
demo-rocketmq: setup ## A RocketMQ broker dies and returns: a Java consumer goes on at another; Kafka has all messages
	$(BIN)/trueup demo rocketmq

.PHONY: demo-logdirs
demo-logdirs: setup ## Balances three disks of different size under one Kafka broker; draws a picture
	$(BIN)/trueup demo logdirs

.PHONY: demo-reads
demo-reads: setup ## A Java consumer that stalls at a lost copy goes on; topics are read with every broker stopped
	$(BIN)/trueup demo reads

.PHONY: demo-leak
demo-leak: setup ## A Pulsar broker forgets ledgers: found, deleted and confirmed gone next to a live writer
	$(BIN)/trueup demo leak

PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: archives
archives: setup ## Make the class-data archives that servers of tests start with, once for each environment
	@$(BIN)/python -m tests.record_archives

.PHONY: tools
tools: setup ## Install what tests need from Debian, if it is missing: chromium and promtool
	@tests/tools.sh

.PHONY: test
test: setup tools lint archives ## Lint, unit, property, simulation, integration on real servers; JOBS=3 files at a time
	$(PYTEST) -m 'not release'

# The demos start whole clusters: two files at a time are what two cores carry.
.PHONY: release-check
release-check: JOBS = 2
release-check: setup tools lint archives ## All tests, among them long ones and the README with its demos
	$(PYTEST)

.PHONY: versions
versions: setup ## Older and newer versions of each system; to docs/versions.md: make versions VERSIONS="kafka-2.8.2"
	$(BIN)/python -m tests.versions $(VERSIONS)

.PHONY: lint
lint: setup ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: quick
quick: setup tools ## Tests that start no server
	$(PYTEST) -m 'not servers and not release'

.PHONY: simulate
simulate: setup ## Seeded simulation of a world in which all streams meet: make simulate SEEDS=100000
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

.PHONY: bench
bench: setup ## Trueup beside BookKeeper's own Auditor; the table goes to bench/results/placement.json
	$(BIN)/python -m bench.placement

.PHONY: bench-scale
bench-scale: setup ## The placement stream at many ledgers: make bench-scale LEDGERS="1000000 10000000"
	$(BIN)/python -m bench.scale $(if $(LEDGERS),--ledgers $(LEDGERS))

.PHONY: bench-deletion
bench-deletion: setup ## Unreferenced ledgers: full comparison, time to the report, deletions per second
	$(BIN)/python -m bench.deletion

.PHONY: bench-copy
bench-copy: setup ## Ledgers of a lost bookie: Trueup's copies beside AutoRecovery; to bench/results/copy.json
	$(BIN)/python -m bench.copy

.PHONY: bench-logdirs
bench-logdirs: setup ## Plans of moves between log directories, beside Cruise Control's rule
	$(BIN)/python -m bench.logdirs

.PHONY: bench-replication
bench-replication: setup ## Links beside MirrorMaker 2 and Spark's own connector; to bench/results/replication.json
	$(BIN)/python -m bench.replication

.PHONY: bench-rocketmq
bench-rocketmq: setup ## Links from and to RocketMQ beside copiers with the Java clients (needs a JDK)
	$(BIN)/python -m bench.rocketmq

.PHONY: bench-reads
bench-reads: setup ## Topics read from bookies and tiered storage beside Pulsar's clients (needs a JDK)
	$(BIN)/python -m bench.reads

.PHONY: picture
picture: setup ## Render the page for the README
	$(BIN)/python -m tests.browser.picture

.PHONY: chart
chart: ## Render the Helm chart for tests (needs Helm 3): make chart HELM=helm
	tests/chart.sh $(or $(HELM),helm)

.PHONY: bench-cluster
bench-cluster: setup ## CPU of records and ledgers on a Spark cluster beside local mode
	$(BIN)/python -m bench.cluster

.PHONY: soak
soak: setup ## Links in both directions under faults of processes, connections and operators: make soak MINUTES=60
	$(BIN)/python -m tests.replication.soak --minutes $(or $(MINUTES),60)
	$(BIN)/python -m tests.replication.soak_rocketmq --minutes $(or $(MINUTES),60)

.PHONY: alerts
alerts: ## Print the alerts with absolute links to runbooks: make -s alerts DOCS=https://HOST/docs
	@sed 's#runbook_url: docs/#runbook_url: $(if $(DOCS),$(DOCS),docs)/#' conf/prometheus/alerts.yml

LOCK = --generate-hashes --universal --python-version 3.11 --no-header -q

.PHONY: lock
lock: setup ## Renew requirements.lock, and requirements.image.lock without what only development needs (needs uv)
	uv pip compile pyproject.toml --extra dev $(LOCK) -o requirements.lock
	uv pip compile pyproject.toml -c requirements.lock $(LOCK) -o requirements.image.lock

.PHONY: clean
clean: ## Remove what setup and the tools made
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
