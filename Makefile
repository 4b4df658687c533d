# make demo        set up .venv and run the five verbs on a small cohort
# make test        set up .venv with the test tools; lint, types, layers, reference, tests
# make test-slow   the tests that take minutes
# make campaign    half an hour of kills, damaged files, full disks, races, odd texts and numbers
# make test-lowest the fast tests with the lowest versions that pyproject.toml allows, in .venv-lowest
# make bench-guard whether costar is still as fast as stored results say: most of an idle hour
# make docs        the site, in build/site; fails on dead links and on pages that stand nowhere
# make dist        wheel and sdist in dist/, the same bytes from the same commit
# make audit       known vulnerabilities of the versions in constraints.txt
# make clean       remove what these made

PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
JOBS ?= 2

.DELETE_ON_ERROR:
.PHONY: demo test lint test-slow campaign test-lowest bench-guard docs dist audit clean

demo: .venv/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

lint: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/cli_reference.py --check

test-slow: .venv/.installed-test
	$(BIN)/python -m pytest -m slow

campaign: .venv/.installed-test
	$(BIN)/python -m tests.campaigns 250

# Old versions warn of new ones, and torch 2.6 leaves a folder to the interpreter's end.
test-lowest: .venv/bin/uv
	$(BIN)/uv venv --quiet --clear --seed --python $(BIN)/python .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct -e '.[test]'
	PYTHONWARNINGS=error,ignore::DeprecationWarning,ignore::ResourceWarning \
	  .venv-lowest/bin/python -m pytest -n $(JOBS) --dist loadfile -o filterwarnings=default

bench-guard: .venv/.installed-test
	$(BIN)/python -m benchmarks.guard

docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

dist: .venv/.installed-test
	$(BIN)/python docs/dist.py

audit: .venv/bin/uv
	$(BIN)/uv tool run pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

clean:
	rm -rf .venv .venv-lowest demo-workspace build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "costar needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/bin/uv: | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.installed-test: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@ .venv/.installed

.venv/.installed-docs: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@ .venv/.installed
