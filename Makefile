# Two commands do all the set-up: `make demo` shows the main job, `make test` checks everything.
# Needed: Python >= 3.11, make, and a package registry that pip is set up for.
PYTHON ?= python3
# Plain `torch` pulls gigabytes of CUDA libraries; this release is the judge that the tests are written against.
TORCH ?= torch==2.13.0
DEMO := .venv-demo
TEST := .venv-test
LOWEST := .venv-lowest
# Optimum wants transformers 4, and the judge of the tests is transformers 5.
OPTIMUM := .venv-optimum
# Two test processes, each with one thread for torch and BLAS: more threads than cores only wait for each other.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PIP := -m pip --disable-pip-version-check install --quiet

.PHONY: demo test check test-newest test-lowest wheel docs-check clean

demo: $(DEMO)/.ready
	$(DEMO)/bin/onnxmt migrate demo -o out/demo --overwrite
	$(DEMO)/bin/onnxmt translate --model out/demo "Good morning. Where is the nearest station?"

test: check test-newest test-lowest

check: $(TEST)/.ready
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/ruff check .
	$(TEST)/bin/mypy

test-newest: $(TEST)/.ready $(OPTIMUM)/.ready
	ONNXMT_OPTIMUM_PYTHON=$(abspath $(OPTIMUM))/bin/python $(PYTEST) $(TEST)/bin/python -m pytest -n 2 --dist loadfile

# The same graphs, search and verification on the oldest versions that pyproject.toml allows.
test-lowest: $(LOWEST)/.ready
	$(PYTEST) $(LOWEST)/bin/python -m pytest -m lowest -n 2 --dist loadfile

$(DEMO)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "onnxmt needs Python >= 3.11: make PYTHON=python3.12 $@"; exit 1; }
	$(PYTHON) -m venv --clear $(DEMO)
	$(DEMO)/bin/python $(PIP) -e '.[export,eval]'
	touch $@

$(TEST)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "onnxmt needs Python >= 3.11: make PYTHON=python3.12 $@"; exit 1; }
	$(PYTHON) -m venv --clear $(TEST)
	$(TEST)/bin/python $(PIP) --upgrade 'pip>=25.1'
	$(TEST)/bin/python $(PIP) '$(TORCH)'
	$(TEST)/bin/python $(PIP) -e '.[export,eval,reference,serve,ray]' --group dev --group contract --group runtimes
	touch $@

$(LOWEST)/.ready: pyproject.toml tests/lowest.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python $(PIP) --upgrade 'pip>=25.1'
	$(LOWEST)/bin/python $(PIP) '$(TORCH)'
	$(LOWEST)/bin/python $(PIP) -e '.[export,reference,serve]' --group dev -c tests/lowest.txt
	touch $@

$(OPTIMUM)/.ready: Makefile
	$(PYTHON) -m venv --clear $(OPTIMUM)
	$(OPTIMUM)/bin/python $(PIP) '$(TORCH)' 'optimum[onnxruntime]>=2.1'
	touch $@

clean:
	rm -rf $(DEMO) $(TEST) $(LOWEST) $(OPTIMUM) out build dist
