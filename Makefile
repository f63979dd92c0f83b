# krowlspider: `make help` lists what can be made.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# The first Python of 3.11 to 3.14 that really runs: a shim may exist for a version that does not.
PROBE := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
	"$$p" -c '$(PROBE)' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/requirements.stamp
DEV := $(VENV)/requirements-dev.stamp
BENCH := $(VENV)/requirements-bench.stamp
# Without a cache of bytecode, each process that tests start takes seconds longer.
# A file system in memory, where there is one of 2 GB: quick tests sync ten thousand files.
SHM_FREE_KB = df -Pk /dev/shm 2>/dev/null | awk 'END { print int($$4) }'
IN_MEMORY = $(shell [ "$$($(SHM_FREE_KB))" -gt 2000000 ] && echo TMPDIR=/dev/shm)
PYTEST = env -u PYTHONDONTWRITEBYTECODE \
	$(BIN)/pytest -q --no-header --capture=sys --durations=10 --durations-min=1
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --require-hashes
FUZZ := .cache/fuzz/requirements.stamp

# They reach the shell by its environment, so that spaces and quotes in them stand. ARGS are words
# for the shell: value keeps make from reading the $ of an expression such as '\.pdf$'.
JOBDIR ?= jobs/default
export SEEDS CONTACT JOBDIR PROCESSES

.PHONY: help setup crawl crawl-arguments demo test test-slow fuzz check docs proto bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  make crawl SEEDS=seeds/example.txt CONTACT=you@example.org \'
	@echo '             [JOBDIR=jobs/default] [PROCESSES=4] [ARGS="-a max_pages=100"]'

setup: $(DEV) ## .venv with all that crawling and testing need

crawl: crawl-arguments $(RUNTIME) ## crawl from SEEDS; the same again goes on where it stopped
	@$(BIN)/scrapy $(if $(PROCESSES),node --processes "$$PROCESSES",crawl) broad -a seeds="$$SEEDS" -s KROWL_CONTACT="$$CONTACT" \
		-s JOBDIR="$$JOBDIR" $(value ARGS)

crawl-arguments:
	@[ -n "$$SEEDS" ] || { echo 'make crawl: give a file of seeds, or the seeds:' \
		'make crawl SEEDS=seeds/example.txt CONTACT=you@example.org' >&2; exit 2; }
	@[ -n "$$CONTACT" ] || { echo 'make crawl: site owners must be able to reach you:' \
		'give CONTACT=you@example.org (or a URL)' >&2; exit 2; }
	@$(if $(PYTHON),'$(PYTHON)' -B -m krowlspider.config.contact)

demo: $(DEV) ## crawl a small web on this machine and check what was archived
	@$(BIN)/python -m tests.support.demo

test: $(DEV) ## the quick tests, in three minutes
	@$(IN_MEMORY) $(PYTEST) -n 3 --dist worksteal --few-examples \
		-o tmp_path_retention_policy=failed -m 'not slow'

test-slow: $(DEV) ## the slow ones
	@$(PYTEST) -n 3 --dist worksteal -m 'slow and not alone or hypothesis'
	@$(PYTEST) -m alone

fuzz: $(FUZZ) ## look for inputs that take too long: ARGS="--target links --seconds 60"
	@.cache/fuzz/bin/python -m tests.fuzz $(ARGS)

check: $(DEV) ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(DEV) ## docs/settings.md and docs/metrics.md, from the code
	@$(BIN)/python -m tests.support.settingsdoc
	@$(BIN)/python -m tests.support.metricsdoc

proto: $(DEV) ## the modules of krowlspider/rpc/generated, from deploy/proto; needs grpcio-tools
	$(BIN)/python -m grpc_tools.protoc -I krowlspider/rpc/generated=deploy/proto \
		--python_out=. --pyi_out=. --grpc_python_out=. deploy/proto/*.proto

bench: $(BENCH) ## measure the parts, and whole crawls beside other crawlers; an hour
	@$(BIN)/python -m bench $(ARGS)

# $(call make-venv): a .venv with a pip that runs, made again when it has none.
define make-venv
@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	'$(PYTHON)' -c '$(PROBE)' >/dev/null 2>&1 || { \
		echo 'No Python of 3.11 to 3.14 runs here:' \
			'install python3.12, or give PYTHON=/path/to/python' >&2; exit 1; }; \
	echo 'Making $(VENV) with $(PYTHON)'; \
	'$(PYTHON)' -m venv $(VENV) || { \
		echo '$(PYTHON) cannot make a venv; on Debian and Ubuntu:' \
			'apt install python3-venv (or python3.12-venv)' >&2; exit 1; }; }
@cp deploy/krowlspider.pth \
	"$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')"
endef

$(RUNTIME): requirements.txt
	$(make-venv)
	$(BIN)/python $(PIP_INSTALL) -r requirements.txt
	@touch $@

$(DEV): requirements.txt requirements-dev.txt
	$(make-venv)
	$(BIN)/python $(PIP_INSTALL) -r requirements-dev.txt
	@touch $(RUNTIME) $@

# A venv of its own beside what .venv has. Where atheris has no build, inputs are found by chance.
$(FUZZ): $(DEV) tests/fuzz/requirements.txt
	@$(BIN)/python -m venv .cache/fuzz
	@$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' \
		> "$$(.cache/fuzz/bin/python -c 'import site; print(site.getsitepackages()[0])')/krowlspider.pth"
	@.cache/fuzz/bin/python $(PIP_INSTALL) --only-binary :all: -r tests/fuzz/requirements.txt \
		|| echo 'atheris has no build for this Python: inputs are found by chance'
	@touch $@

$(BENCH): requirements.txt requirements-dev.txt bench/requirements.txt
	$(make-venv)
	$(BIN)/python $(PIP_INSTALL) -r bench/requirements.txt
	@touch $(RUNTIME) $(DEV) $@
