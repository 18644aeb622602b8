# Everything sets itself up: `make demo` and `make test` work on a fresh machine with Python 3.11+, Java 17+ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests wait for other processes much of the time; a file's tests share their brokers, so they stay together.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.PHONY: setup peers demo test test-fast exactly-once chaos chaos-clients chaos-spark chaos-sources crash-points fuzz properties simulate controller mutants bench \
	lint lint-ruff lint-types lint-layers lint-reach lint-unused format dist clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Fencepost needs Python 3.11 or newer; $(PYTHON) is older. Say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ssl, venv' \
		|| { echo "$(PYTHON) was built without ssl or venv. Say another: make PYTHON=/usr/bin/python3 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@# Much of what comes is never imported: Python compiles what is.
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,spark]'
	@touch $(STAMP)

peers: setup
	@peers/setup
	@$(BIN)/python -m tests.peers.class_data

demo: setup
	$(BIN)/fencepost demo

test: peers
	@WORKERS=$(WORKERS) scripts/test

# Without foreign clients and brokers: seconds instead of minutes.
test-fast: setup
	$(PYTEST) tests/unit tests/properties

# 100,000 inputs through five clients under kill -9 of clients and broker; prints a table. About ten minutes.
exactly-once: peers
	$(BIN)/python -m tests.exactly_once

# Real clients under kills, stops, cut connections, lost and late calls and full disks, judged by their histories; then the
# pipelines on Spark. Half an hour.
chaos: chaos-clients chaos-spark

chaos-clients: peers
	$(BIN)/python -m tests.chaos

# The example pipelines on a local cluster of Spark, both brokers and protocols, under forty kills and sleeping drivers; a table.
chaos-spark: peers
	$(BIN)/python -m tests.spark.chaos

# Changes of a PostgreSQL database under kills, zombies, dying brokers and databases, audited against a slot of PostgreSQL's own;
# then the mutants, which must be caught. Both brokers; a quarter of an hour.
chaos-sources: peers
	$(BIN)/python -m tests.connect.chaos

# The properties of tests/unit, tests/history and others with inputs that were never tried before; the suite tries the same ones
# every time.
properties: setup
	HYPOTHESIS_PROFILE=fresh $(PYTEST) tests/unit tests/properties tests/history tests/security_acls/test_authorizer.py \
		tests/dashboard/test_transaction_model.py

# 500 worlds of 60 simulated seconds with every fault, from seeds that were never tried before; SEED=0 for those of the suite and
# on. Prints a summary and, of a world that fails, how to live through it again. A quarter of an hour on two cores.
SEED ?= $(shell date +%s)
SEEDS ?= 500
simulate: setup
	$(BIN)/fencepost simulate --seed $(SEED) --seeds $(SEEDS) --seconds 60

# Random administration at our controller and at Apache Kafka's: equal answers, equal records. A quarter of an hour; prints what
# was asked. STEPS and SEED say how much and what.
STEPS ?= 10000
controller: peers
	$(BIN)/python -m tests.cluster.differential --steps $(STEPS) --seed $(SEED)

# Deliberately broken brokers, each of which the simulation or a named check must kill; prints the kill table.
mutants: setup
	$(BIN)/python -m tests.mutants

# Power fails before every write and sync of a recorded trace, in every way of losing data; prints what was tried.
crash-points: setup
	$(BIN)/python -m tests.durability.crash_points

# Coverage-guided, with atheris (Linux): every target for so many seconds; `python -m tests.fuzz --keep` adds to the corpus.
FUZZ_SECONDS ?= 60
fuzz: setup
	@$(BIN)/python -c 'import atheris' 2> /dev/null \
		|| $(BIN)/python -m pip install --quiet --constraint constraints.txt atheris
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

bench: peers
	$(BIN)/python -m bench

lint: lint-ruff lint-types lint-layers lint-reach lint-unused

lint-ruff: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: setup
	$(BIN)/mypy

lint-layers: setup
	$(BIN)/lint-imports

# No module touches the private part of another or writes its objects' attributes; no import cycle; late imports say why.
lint-reach: setup
	$(BIN)/python scripts/lint_reach.py

# Nothing in src is unused but what scripts/unused_allowed.py lists.
lint-unused: setup
	$(BIN)/vulture

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: setup
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) dist build peers/.build src/*.egg-info
