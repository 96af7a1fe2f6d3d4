# make compare   compare strategies on this machine        make lint    ruff, mypy, direction of imports
# make test      the default tests: no GPU needed          make gpu     on a machine with an NVIDIA GPU
# make test-all  these and the thorough ones                make docs    the site, in build/site; make docs-serve shows it
# make wheels    wheel and sdist, installed and used in empty environments of PYTHONS
#
# The first target that needs it builds .venv. ARGS are passed on: make compare ARGS="seed=1", make test ARGS="-k env".

PYTHON ?= python3
JOBS ?= 2
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Libraries that start a thread per core disturb timings and one another; kernels have a thread pool of their own.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export NUMEXPR_NUM_THREADS ?= 1
# Containers often set it. Tests start hundreds of processes, each of which would then read every module as text.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: compare test examples test-all lint docs docs-serve wheels gpu gpu-wheels gpu-env gpu-dry clean

compare: $(STAMP)
	$(BIN)/python -m experiments.compare $(ARGS)

# The GPU machine's Python and its packages (experiments/gpu_env.txt), without a GPU: make gpu-dry PYTHON312=/path/to/python3.12
PYTHON312 ?= python3.12
VENV312 := .venv312
STAMP312 := $(VENV312)/.installed

# A test that crashes ends the run: with files handed out whole, pytest-xdist 3.8 waits for ever once it replaced a process.
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --max-worker-restart=0 --durations=10

test: $(STAMP)
	$(PYTEST) $(ARGS)

# What README, the pages of docs and the example of a plugin show.
examples: $(STAMP)
	$(PYTEST) -m 'examples and not thorough' tests/test_readme.py tests/test_plugins.py tests/test_docs_examples.py $(ARGS)

test-all: $(STAMP)
	$(PYTEST) -m 'not slow' $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Fails on a dead link, a page that is in no menu, and a name that is not there.
docs docs-serve: export NO_MKDOCS_2_WARNING = 1
docs: $(STAMP)
	$(BIN)/mkdocs build -q

docs-serve: $(STAMP)
	$(BIN)/mkdocs serve

# Needs no .venv. Minutes for each Python; WITHOUT_TORCH names Pythons for which torch need not be downloaded.
PYTHONS ?= python3.11 python3.12 python3.13
WITHOUT_TORCH ?=
REPOSITORY ?=
wheels:
	$(PYTHON) .ci/wheels.py --repository "$(REPOSITORY)" $(PYTHONS:%=--python %) $(WITHOUT_TORCH:%=--without-torch %)

# A GPU machine brings its own Python with CuPy; nothing is installed there.
gpu:
	python3 -m experiments.gpu $(ARGS)

# Run where there is a network: pure Python packages that the GPU machine lacks, to travel with the tree.
gpu-wheels:
	$(PYTHON) -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --platform any -d .whl -r experiments/gpu_wheels.txt
	$(PYTHON) -m pip wheel -q --no-deps -w .whl antlr4-python3-runtime==4.9.3

gpu-env: $(STAMP312)

$(STAMP312): experiments/gpu_env.txt
	test -x $(VENV312)/bin/python || $(PYTHON312) -m venv $(VENV312)
	$(VENV312)/bin/python -m pip install -q -r $<
	touch $@

# What can be said of a first contact without a GPU: under that Python, with the wheels that travel. Calls of CuPy and of
# CUDA's bindings are held against the real ones, stages run on a stand-in. ARGS go to pytest.
DRY := tests/measure/test_measure_cupy.py tests/measure/test_measure_gpu.py tests/measure/test_measure_worker.py tests/experiments/device
gpu-dry: $(STAMP312)
	test -d .whl || $(MAKE) gpu-wheels
	$(VENV312)/bin/python -m experiments.device.dry
	PYTHONPATH=$(CURDIR):$(CURDIR)/.whl/site $(VENV312)/bin/python -m pytest -q -n $(JOBS) --dist loadfile $(DRY) $(ARGS)

clean:
	rm -rf build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache .coverage
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than Python 3.11; name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[lab,dev,nvrtc,docs,explore,minari]'
	touch $@
