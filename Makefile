# Two commands for a newcomer: `make demo` and `make test`. Both create .venv and install what is missing, once.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

HARNESSES := capymoa avalanche measures
HARNESS_TESTS := $(HARNESSES:%=test-harness-%)

.PHONY: demo test test-slow test-gpu test-harnesses $(HARNESS_TESTS) docs clean

demo: .venv/installed
	rm -rf runs/demo
	$(BIN)/prol run prol_plus glyphs --backbone tiny --out runs/demo

test: .venv/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow and not gpu"

test-slow: .venv/installed-test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m slow

test-gpu: .venv/installed-test
	$(BIN)/pytest -m gpu

# Other libraries, each in an environment of its own: their pins conflict with constraints.txt and with each other.
test-harnesses: $(HARNESS_TESTS)

$(HARNESS_TESTS): test-harness-%: .venv-harness-%/installed
	OMP_NUM_THREADS=1 .venv-harness-$*/bin/pytest -c tests/harnesses/pytest.ini tests/harnesses/test_$**.py

docs: .venv/installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing prol and what it needs into .venv: about 6 GB, a few minutes, once."
	$(INSTALL) -e .
	touch $@

.venv/installed-test: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing prol and its test tools into .venv: about 7 GB, a few minutes, once."
	$(INSTALL) -e ".[test]"
	@sh tools/install_chromium.sh
	touch $@ .venv/installed

.venv-harness-%/installed: tests/harnesses/requirements-%.txt pyproject.toml
	@echo "Installing prol and what tests of $* need into .venv-harness-$*: about 6 GB, a few minutes, once."
	$(PYTHON) -m venv .venv-harness-$*
	.venv-harness-$*/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean:
	rm -rf .venv .venv-harness-* build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache
