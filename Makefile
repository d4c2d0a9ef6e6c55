# What a user or a developer does here; `make help` lists it, CONTRIBUTING.md tells the rest.
#
# Everything is installed inside this folder: Python packages in .venv, Azurite in node_modules, Redis in .make. Files
# in .make record what is installed, so that nothing is installed again until the file that names it changes.

# The first of these that is Python 3.11 or newer makes .venv; choose another with `make PYTHON=/path/to/python3 ...`.
PYTHON ?= python3 python3.11 python3.12 python3.13 python3.14

# What tests draw at random, and the order of sets, follows from this.
SEED ?= 1

# What the caller's shell has active must not reach into .venv, nor another Spark into PySpark; and each process would
# compile all modules again if none may keep what it has compiled.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
export NO_MKDOCS_2_WARNING := 1

MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-test setup-servers demo test test-all lint format docs bench clean

BIN := .venv/bin
PIP_INSTALL := scripts/quietly.sh $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt
PYTEST = PATH="$(CURDIR)/.make/node:$$PATH" PYTHONHASHSEED=$(SEED) $(BIN)/python -m pytest --seed $(SEED)
PARALLEL := --numprocesses auto --maxprocesses 4
ALL_EXTRAS := azure,documents,kafka,postgres,publish,serve,spark,sql,testing
RUN_EXTRAS := azure,spark
DEPENDENCIES := .venv/pyvenv.cfg setup.cfg pyproject.toml constraints.txt

help:  ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: .make/java .make/packages  ## install what is needed to run: Python packages into .venv, and Java if there is none

setup-test: .make/java .make/packages-test .make/azurite  ## also install what the tests and checks need, Azurite included

setup-servers: setup-test .make/servers .make/kafka-server .make/rabbitmq-server  ## also install the servers of long tests: PostgreSQL, Redis, Apache Kafka, RabbitMQ, and Chromium

demo: setup  ## run the ShootingRange sample from message log to leader board
	@$(BIN)/consistent demo

test: setup-test  ## run the tests, in three to four minutes on two cores; ARGS="tests/unit -k name" runs some, SEED=2 draws other numbers
	@$(PYTEST) $(PARALLEL) -m "not thorough" $(ARGS)

test-all: setup-servers  ## run all tests, with many more examples, those of jobs on Spark Connect first
	@failed=; \
	$(PYTEST) --connect -m "not thorough or connect(thorough=True)" tests/integration/spark || failed=1; \
	$(PYTEST) $(PARALLEL) --hypothesis-profile thorough --timeout 1200 $(ARGS) || failed=1; \
	test -z "$$failed"

lint: .make/packages-test  ## check style, types, layers, weight, prose and the samples' handlers
	@failed=; \
	check() { echo "$$*"; $(BIN)/"$$@" || failed=1; }; \
	check ruff check .; \
	check ruff format --check .; \
	check mypy; \
	check lint-imports --no-logo; \
	check consistent lint samples.shooting_range:app; \
	check consistent lint samples.orders:app; \
	check python scripts/weight.py; \
	check python scripts/prose.py; \
	check python scripts/plain_words.py; \
	test -z "$$failed"

format: .make/packages-test  ## rewrite the code in the project's style
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

docs: .make/packages-docs  ## build the documentation as a site, site/index.html; a broken link or anchor fails
	@scripts/quietly.sh $(BIN)/python -m mkdocs build --strict
	@echo "site/index.html"

bench: .make/java .make/packages-bench .make/azurite  ## list the benchmarks; ARGS="compare --size full" runs one
	@$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove what runs, tests and builds left behind; `git clean -dfX` removes what was installed too
	rm -rf build dist site .faults *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf demo-output orders-output .consistent spark-warehouse metastore_db derby.log
	find . \( -name .venv -o -name node_modules -o -name .git \) -prune -o -name __pycache__ -type d -exec rm -rf {} +

# A record is worth nothing once what it stands for is gone.
ifneq ($(shell $(BIN)/python -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null),True)
.PHONY: .venv/pyvenv.cfg
endif
ifeq ($(wildcard node_modules/.bin/azurite-table),)
.PHONY: .make/azurite
endif

.venv/pyvenv.cfg:
	@scripts/make_venv.sh $(PYTHON)

.make/java: .venv/pyvenv.cfg scripts/ensure_java.py runtime/spark/java.py
	@$(BIN)/python scripts/ensure_java.py
	@mkdir -p .make && touch $@

# setuptools comes first and from constraints.txt, so that what is built here is built with a known version of it; pip
# is one that knows dependency groups.
define install
	@$(PIP_INSTALL) pip setuptools
	@$(PIP_INSTALL) --no-build-isolation $(1)
	@mkdir -p .make && touch .make/packages $@
endef

.make/packages: $(DEPENDENCIES)
	@echo "Installing Python packages into .venv (about a minute) ..."
	$(call install,--editable '.[$(RUN_EXTRAS)]')

.make/packages-test: $(DEPENDENCIES)
	@echo "Installing Python packages, those for tests and checks included, into .venv (about a minute) ..."
	$(call install,--editable '.[$(ALL_EXTRAS)]' --group test --group lint)

.make/packages-bench .make/packages-docs: .make/packages-%: $(DEPENDENCIES)
	@echo "Installing Python packages, those of the group $* included, into .venv (about a minute) ..."
	$(call install,--editable '.[$(RUN_EXTRAS)]' --group $*)

.make/azurite: .venv/pyvenv.cfg package.json package-lock.json constraints.txt scripts/ensure_node.py
	@$(BIN)/python scripts/ensure_node.py
	@mkdir -p .make && touch $@

# Servers of long tests and of `python -m tests.support.servers`.
.make/servers: .make/packages-test .make/azurite scripts/ensure_postgres.py scripts/ensure_unpacked.py
	@$(BIN)/python scripts/ensure_postgres.py
	@$(BIN)/python scripts/ensure_unpacked.py
	@touch $@

.make/kafka-server .make/rabbitmq-server: .make/%-server: .make/packages-test .make/java scripts/ensure_%.py
	@$(BIN)/python scripts/ensure_$*.py
	@touch $@
