# What a user or a developer does here; `make help` lists it.
#
# Everything is installed inside this folder: Python packages in .venv, Azurite in node_modules, Redis in .make. Files
# in .make record what is installed, so that nothing is installed again until the file that names it changes.

# The first of these that is Python 3.11 or newer makes .venv; choose another with `make PYTHON=/path/to/python3 ...`.
PYTHON ?= python3 python3.11 python3.12 python3.13 python3.14

# What tests draw at random, and the order of sets, follows from this.
SEED ?= 1

# What the caller's shell has active must not reach into .venv, nor another Spark into PySpark; and each process would
# compile all modules anew if none may keep what it has compiled.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON

MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-test setup-servers demo orders orders-servers test test-rest test-connect test-all differential \
        model faults stream-kills epochs tla delivery docs docs-serve reference bench bench-guard bench-tables bench-streams \
        stages startup growth skew \
        cleanup algorithms publishing side-effects lint format constraints audit clean distclean

BIN := .venv/bin
PIP_INSTALL := scripts/quietly.sh $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt
# What the two commands need is pinned with hashes: pip refuses other files of these versions. Then come this project and
# what the files lack, which is nothing as long as they are up to date. HASHES=no goes without, for a mirror that builds
# packages itself.
PIP_REQUIRE = $(if $(filter no,$(HASHES)),@:,@$(PIP_INSTALL) --no-build-isolation --require-hashes)
PYTEST = PATH="$(CURDIR)/.make/node:$$PATH" PYTHONHASHSEED=$(SEED) $(BIN)/python -m pytest --seed $(SEED) $(PARALLEL)
export NO_MKDOCS_2_WARNING := 1
MKDOCS := $(BIN)/python -m mkdocs
PARALLEL := --numprocesses auto --maxprocesses 4
REQUIREMENTS := setup.cfg pyproject.toml constraints.txt $(wildcard requirements/*.txt)

help:  ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: .make/java .make/packages  ## install what is needed to run: Python packages into .venv, and Java if there is none

setup-test: .make/java .make/packages-test .make/azurite  ## also install what the tests and checks need, Azurite included

setup-servers: .make/azurite .make/redis/redis-server .make/postgres  ## install the servers of long tests and of `make orders-servers`: Azurite, Redis, PostgreSQL

demo: setup  ## run the ShootingRange sample from message log to leader board
	@$(BIN)/consistent demo

orders: .make/java .make/packages-test  ## run the sample of orders from message log to warehouse and letters
	@$(BIN)/python -m samples.orders

orders-servers: .make/java setup-servers  ## the same on Azurite, PostgreSQL and Redis, which are started for it
	@$(BIN)/python -m samples.orders --servers

test: setup-test  ## run the tests, in five minutes; ARGS="tests/unit -k name" runs some, SEED=2 draws other numbers
	@$(PYTEST) -m "not thorough" $(ARGS)

test-rest: setup-test setup-servers  ## run what `make test` leaves out: what takes long, and properties with many more examples
	@$(PYTEST) -m "thorough or hypothesis" --hypothesis-profile thorough --timeout 1200 $(ARGS)

test-connect: setup-test  ## run the tests of jobs again, on a session of Spark Connect
	@$(PYTEST) --connect --numprocesses 0 -m "not thorough or connect(thorough=True)" tests/integration/spark $(ARGS)

test-all: test test-rest test-connect  ## run all tests, those of jobs in both kinds of session

bench: .make/java .make/packages-bench .make/azurite  ## compare with others; SIZE=full takes longer, ARGS="--only NAME" runs some
	@PATH="$(CURDIR)/.make/node:$$PATH" $(BIN)/python -m benchmarks $(if $(SIZE),--size $(SIZE)) $(ARGS)

stages: .make/java .make/packages-bench  ## measure the processor time of each stage of a batch
	@$(BIN)/python -m benchmarks.stages $(ARGS)

startup: .make/java .make/packages-bench  ## compare how long a batch and a plain PySpark program take to start
	@$(BIN)/python -m benchmarks.startup $(ARGS)

growth: .make/packages-bench  ## measure how time and requests grow with sizes, and draw it; SIZE=full takes longer
	@$(BIN)/python -m benchmarks.growth $(if $(SIZE),--size $(SIZE)) $(ARGS)

skew: .make/java .make/packages-bench  ## watch the workers' memory in lopsided batches; SIZE=full takes longer
	@$(BIN)/python -m benchmarks.skew $(if $(SIZE),--size $(SIZE)) $(ARGS)

cleanup: .make/java .make/packages-bench .make/azurite  ## truncate very many streams and watch the memory; SIZE=full takes hours
	@PATH="$(CURDIR)/.make/node:$$PATH" $(BIN)/python -m benchmarks.cleanup $(if $(SIZE),--size $(SIZE)) $(ARGS)

algorithms: .make/packages  ## measure what each algorithm asks and keeps; rewrites the tables in docs/algorithms.md
	@$(BIN)/python -m benchmarks.algorithms --document docs/algorithms.md $(ARGS)

side-effects: .make/packages-test  ## kill consumers that store documents, count what is left, and rewrite the table in docs/side-effects.md
	@$(BIN)/python -m benchmarks.side_effects --document docs/side-effects.md $(ARGS)

bench-guard: setup  ## measure what the guard costs a fold in memory
	@$(BIN)/python -m benchmarks.guard $(ARGS)

bench-tables: .make/java .make/packages-bench  ## measure how fast versions are read as tables
	@$(BIN)/python -m benchmarks.tables $(ARGS)

bench-streams: .make/java .make/packages-bench  ## measure what a micro-batch costs beside a plain one; ARGS="--epochs 1000"
	@$(BIN)/python -m benchmarks.streams $(ARGS)

epochs: .make/packages-test  ## run 10,000 epochs of a stream without Spark, and rewrite the table in docs/streaming.md; ARGS="--epochs 1000"
	@$(BIN)/python -m benchmarks.epochs --document docs/streaming.md $(ARGS)

tla: .make/java .make/packages-tla  ## check the specifications in docs/tla with TLC; ARGS="StateBased" checks some
	@$(BIN)/python scripts/check_tla.py $(or $(ARGS),--write)

differential: setup-test  ## compare the store's backends by random programs for longer: PROGRAMS=2000
	@DIFFERENTIAL_PROGRAMS=$(or $(PROGRAMS),2000) $(PYTEST) tests/differential $(ARGS)

model: .make/packages-test  ## walk every interleaving of the shipped code; rewrites docs/verification.md, ARGS=--dry does not
	@$(BIN)/python -m tests.model $(ARGS)

faults: .make/packages-test .make/azurite  ## kill batches at random moments, compare how they end; rewrites docs/faults.md, ARGS="--share 0.01" is short
	@PATH="$(CURDIR)/.make/node:$$PATH" nice $(BIN)/python -m tests.faults $(ARGS)

stream-kills: setup-test  ## kill streams at random moments, compare how they end; rewrites docs/streaming.md, ARGS="--kills 20" is short
	@nice $(BIN)/python -m tests.stream_kills $(ARGS)

publishing: setup-test setup-servers  ## kill runners that publish before each of their calls, and count; rewrites docs/publishing.md, ARGS=--dry does not
	@$(BIN)/python -m tests.publishing $(ARGS)

delivery: .make/packages-test .make/redis/redis-server  ## kill deliveries to a server that counts; rewrites the table in docs/delivery.md
	@$(BIN)/python -m benchmarks.delivery --document docs/delivery.md $(ARGS)

docs: .make/packages-docs  ## build the documentation as a site, site/index.html; a broken link or anchor fails
	@scripts/quietly.sh $(MKDOCS) build --strict
	@echo "site/index.html"

docs-serve: .make/packages-docs  ## show the site while its pages are written
	@$(MKDOCS) serve --strict

reference: .make/packages  ## write docs/reference anew from the code
	@$(BIN)/python -m scripts.reference

lint: .make/packages-test  ## check style, types, layers and the samples' handlers
	@failed=; \
	check() { echo "$$*"; $(BIN)/"$$@" || failed=1; }; \
	check ruff check .; \
	check ruff format --check .; \
	check mypy; \
	check lint-imports --no-logo; \
	check consistent lint samples.shooting_range:app; \
	check consistent lint samples.orders:app; \
	test -z "$$failed"

format: .make/packages-test  ## rewrite the code in the project's style
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

constraints: .venv/pyvenv.cfg  ## choose the newest versions of all packages anew, and write their hashes (with Python 3.11)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5'
	@$(BIN)/python scripts/resolve_constraints.py

audit: .venv/pyvenv.cfg  ## ask the advisories of PyPI about the packages that are installed
	@$(BIN)/python scripts/audit.py

clean:  ## remove what runs, tests and builds left behind
	rm -rf build dist site .faults *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf demo-output orders-output .consistent spark-warehouse metastore_db derby.log
	find . \( -name .venv -o -name node_modules -o -name .git \) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean  ## also remove what was installed
	rm -rf .venv node_modules .make

# A record is worth nothing once what it stands for is gone.
ifneq ($(shell $(BIN)/python -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null),True)
.PHONY: .venv/pyvenv.cfg
endif
ifeq ($(wildcard node_modules/.bin/azurite-table),)
.PHONY: .make/azurite
endif

.venv/pyvenv.cfg:
	@scripts/make_venv.sh $(PYTHON)

.make/java: .venv/pyvenv.cfg scripts/ensure_java.py runtime/spark/sessions/java.py
	@$(BIN)/python scripts/ensure_java.py
	@mkdir -p .make && touch $@

# setuptools comes first and from constraints.txt, so that what is built here is built with a known version of it.
.make/packages: .venv/pyvenv.cfg $(REQUIREMENTS)
	@echo "Installing Python packages into .venv (about a minute) ..."
	$(PIP_REQUIRE) -r requirements/build.txt
	$(PIP_REQUIRE) -r requirements/run.txt
	@$(PIP_INSTALL) setuptools
	@$(PIP_INSTALL) --no-build-isolation --editable '.[azure,spark]'
	@mkdir -p .make && touch $@

.make/packages-test: .venv/pyvenv.cfg $(REQUIREMENTS)
	@echo "Installing Python packages, those for tests and checks included, into .venv (about a minute) ..."
	$(PIP_REQUIRE) -r requirements/build.txt
	$(PIP_REQUIRE) -r requirements/test.txt
	@$(PIP_INSTALL) setuptools
	@$(PIP_INSTALL) --no-build-isolation --editable '.[test,lint]'
	@mkdir -p .make && touch .make/packages $@

.make/packages-bench: .venv/pyvenv.cfg $(REQUIREMENTS)
	@echo "Installing Python packages, those of the benchmarks included, into .venv (about a minute) ..."
	@$(PIP_INSTALL) setuptools
	@$(PIP_INSTALL) --no-build-isolation --editable '.[bench]'
	@mkdir -p .make && touch .make/packages $@

.make/packages-docs: .venv/pyvenv.cfg $(REQUIREMENTS)
	@echo "Installing the site's generator into .venv ..."
	@$(PIP_INSTALL) setuptools
	@$(PIP_INSTALL) --no-build-isolation --editable '.[docs]'
	@mkdir -p .make && touch $@

.make/packages-tla: .venv/pyvenv.cfg $(REQUIREMENTS)
	@echo "Installing Python packages, TLC included, into .venv (about a minute) ..."
	@$(PIP_INSTALL) setuptools
	@$(PIP_INSTALL) --no-build-isolation --editable '.[azure,spark,tla]'
	@mkdir -p .make && touch .make/packages $@

.make/azurite: .venv/pyvenv.cfg package.json package-lock.json constraints.txt scripts/ensure_node.py
	@$(BIN)/python scripts/ensure_node.py
	@mkdir -p .make && touch $@

.make/postgres: .make/packages-test scripts/ensure_postgres.py
	@$(BIN)/python scripts/ensure_postgres.py
	@mkdir -p .make && touch $@

.make/redis/redis-server: .venv/pyvenv.cfg scripts/ensure_redis.py
	@$(BIN)/python scripts/ensure_redis.py
	@touch -c $@
