# Every target does its own set-up. `make test` and `make demo` need neither root nor Linux.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOOPS ?= 20
# Processes of `make hosts`: more than the cores of a small machine, because real daemons are waited for.
HOSTS_JOBS ?= 4
# Plans of `make soak`, from seed 1 on.
SEEDS ?= 1000
STAMP := $(VENV)/.installed

.PHONY: test lint model demo sieve soak mutants browser hosts chart conformance fire e2e lock docs image proto rules tour clean

$(STAMP): requirements-dev.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# The stage machine with its environment, every order of events: 3 minutes of one core.
model: $(STAMP)
	$(BIN)/python -m tests.model

demo: $(STAMP)
	$(BIN)/reconciler simulate --nodes 6 --loops 3 --bake 1 --seed 1

# Faulty rollouts in virtual time, one for each seed. One that fails is made small, and its plan and timeline are kept in
# build/soak (SOAK="--plan build/soak/7.json" plays it again; SOAK="--first 1001 --faults disk-full" chooses others).
soak: $(STAMP)
	$(BIN)/python -m tests.soak --seeds $(SEEDS) $(SOAK)

# Deliberate defects of the product, each of which the soak must catch within its number of seeds
# (MUTANTS="--only NAME" for one).
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants $(MUTANTS)

# The status page in headless Chromium, with pictures in build/browser. Debian; root where Chromium is missing.
browser: $(STAMP)
	$(BIN)/python -m tests.browser.packages
	$(BIN)/python -m pytest tests/browser

# The three patterns that break controllers, at every point of recorded runs (SIEVE="--every 10" for every tenth): hours.
sieve: $(STAMP)
	$(BIN)/python -m tests.sieve $(SIEVE)

# Linux and root: five real containerds, which are built once and kept (10 minutes). The acceptance cases are
# run where they lie beside this tree.
hosts: export ACCEPTANCE ?= $(abspath $(firstword $(wildcard ../*/cases/run.py)))
hosts: $(STAMP)
	$(BIN)/python tests/hosts/containerds.py
	@$(if $(ACCEPTANCE),true,echo "no acceptance cases beside this tree: only the tests of its own are run")
	HOSTCONFIG_EXAMPLES=400 $(BIN)/python -m pytest --numprocesses $(HOSTS_JOBS) --dist worksteal \
	  tests/unit/hostconfig/test_any_configuration.py tests/hosts \
	  $(if $(ACCEPTANCE),,--ignore tests/hosts/test_acceptance_cases.py)

# The chart: helm, and a real API server that is asked what it thinks of each object. Linux and, the first time, Go
# (10 minutes); no root.
chart: $(STAMP)
	$(BIN)/python -m pytest tests/chart

# Informers under fire: 200 runs behind a proxy that cuts, stalls and lies, against a real API server. Linux and, the
# first time, Go (10 minutes); no root.
fire: $(STAMP)
	$(BIN)/python -m pytest tests/fire

# What the embedded API server is held to in `make test`, held to a real one. Linux and, the first time, Go
# (10 minutes); no root.
conformance: $(STAMP)
	$(BIN)/python -m tests.conformance

# Linux and root: two real nodes.
e2e: $(STAMP)
	$(BIN)/python -m tests.cluster --loops $(LOOPS)

lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet pip-tools==7.6.2
	$(VENV)-lock/bin/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-header --allow-unsafe --extra controller -o requirements.lock pyproject.toml
	$(VENV)-lock/bin/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-header --allow-unsafe --extra controller --extra dev -o requirements-dev.lock pyproject.toml

# What is made from the code: the CRD, the pages of the API, of the simulation and of metrics, alerts and dashboards; and
# deploy/base, which is the chart with its default values. Tests hold all of it to that. Needs Go the first time, for helm.
docs: $(STAMP)
	$(BIN)/reconciler manifests > deploy/chart/files/crd.yaml
	$(BIN)/python -m tests.chart.base
	$(BIN)/python -m reconciler.api.reference > docs/api.md
	$(BIN)/python -m reconciler.sim.reference > docs/simulation.md
	$(BIN)/python -m metrics.reference > docs/metrics.md
	$(BIN)/python -m metrics.rules > deploy/observability/alerts.yaml
	$(BIN)/python -m metrics.dashboards deploy/observability/dashboards

# A node of the embedded cluster gets stuck, a real Prometheus tells, the runbook brings it back: what every panel and
# every alert showed, with pictures, in build/tour. 3 minutes; root on Debian only to install Prometheus and Chromium.
tour: $(STAMP)
	$(BIN)/python -m tests.tour build/tour

# The alerts against Prometheus' own unit tests; root on Debian only to install promtool.
rules: $(STAMP)
	$(BIN)/python -m tests.rules

# The image of README.md: a wheel of this tree, then buildah (IMAGE=registry/name:tag).
IMAGE ?= runtime-reconciler:0.1.0
image: $(STAMP)
	rm -rf dist && $(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	buildah build --ignorefile deploy/.containerignore -f deploy/Containerfile -t $(IMAGE) .

proto:
	sh reconciler/cri/generate.sh

clean:
	rm -rf $(VENV) build dist *.egg-info
