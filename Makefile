# Short verbs. Each builds .venv from pyproject.toml when it is missing.
PYTHON ?= python3
BIN := .venv/bin
# One XLA thread pool per test worker: two workers on two cores are faster than one with both.
WORKERS ?= 2

.PHONY: demo test test-all attack soak fuzz check docs figures outputs pictures dist bench bench-botorch reproduce reproduce-full reproduced clean

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch .venv/ready

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: .venv/ready
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --durations=5

# With the extras, in an environment of their own. Downloads PyTorch.
test-all: .venv-all/ready
	.venv-all/bin/python -m pytest --numprocesses $(WORKERS) --durations=5

.venv-all/ready: pyproject.toml
	$(PYTHON) -m venv .venv-all
	.venv-all/bin/pip install --quiet --upgrade pip
	.venv-all/bin/pip install --quiet --editable '.[dev,botorch,molecules]'
	touch .venv-all/ready

# Odd input, damaged files, kills, two writers, promises: half an hour, fixed seeds, one table. Fails if anything is wrong.
attack: .venv/ready
	$(BIN)/python tests/attack

# A long run in one process: memory, open files and maps stay level. SECONDS=7200 for two hours.
SECONDS ?= 1200
soak: .venv/ready
	$(BIN)/python tests/attack/soak.py --seconds $(SECONDS)

# Coverage-guided fuzzing of a reader, for SECONDS: KIND=model, checkpoint or table. Downloads atheris.
KIND ?= model
fuzz: .venv/fuzz
	$(BIN)/python tests/attack/fuzz.py $(KIND) -max_total_time=$(SECONDS)

.venv/fuzz: .venv/ready
	$(BIN)/pip install --quiet atheris
	touch .venv/fuzz

docs: .venv/docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

# Every figure in README and docs, written from the result files.
figures: .venv/ready
	$(BIN)/python docs/figures.py

# What README and docs show as the output of commands, run anew: minutes.
outputs: .venv/ready
	$(BIN)/python docs/outputs.py

# The pictures of the docs that need no data from elsewhere, and those of result files.
pictures: .venv/ready
	$(BIN)/python docs/pictures.py
	$(BIN)/python benchmarks/chart.py

# A wheel, tried in an environment of its own: from an empty folder, with nothing of the checkout in sight.
dist: .venv/ready
	rm -rf dist .venv-dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip install --quiet "dualgp[cli] @ file://$(CURDIR)/$$(ls dist/*.whl)"
	cd dist && ../.venv-dist/bin/python -I -c "import dualgp; print('dualgp', dualgp.__version__, 'from', dualgp.__file__)"
	cd dist && ../.venv-dist/bin/dualgp fit ../examples/data/offers.csv --target asked -o offers.dgp
	cd dist && ../.venv-dist/bin/dualgp predict offers.dgp ../examples/data/offers.csv -o predictions.csv && rm offers.dgp predictions.csv
	rm -rf .venv-dist

.venv/docs: .venv/ready
	$(BIN)/pip install --quiet --editable '.[docs]'
	touch .venv/docs

# Hours on 2 cores; results that are there already are not measured again, except for the short ones. The peers come with PyTorch: .venv/peers and .venv-all/ready are the only steps that download it.
bench: .venv/peers
	$(BIN)/python benchmarks/rows.py
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/precision.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/prediction.py
	$(BIN)/python benchmarks/blocks.py
	$(BIN)/python benchmarks/solvers.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/small.py
	$(BIN)/python benchmarks/how_long.py
	$(BIN)/python benchmarks/near_far.py
	$(BIN)/python benchmarks/limits.py
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/learning.py
	$(BIN)/python benchmarks/table.py
	$(BIN)/python benchmarks/devices.py
	$(BIN)/python benchmarks/kill.py
	$(BIN)/python benchmarks/ask.py
	$(BIN)/python benchmarks/tanimoto.py
	$(BIN)/python benchmarks/chart.py

bench-botorch: .venv-all/ready
	.venv-all/bin/python benchmarks/decisions.py
	.venv-all/bin/python benchmarks/botorch_paths.py

.venv/peers: .venv/ready
	$(BIN)/pip install --quiet --editable '.[bench]'
	touch .venv/peers

# Quick cells of the paper's table and one of its figures, measured if they are not there yet; then all tables and figures.
reproduce: .venv/ready
	$(BIN)/python experiments/uci_table.py --sets pol,elevators,bike --splits 0 --methods "default;SVGP;SDD" --steps 5000
	$(BIN)/python experiments/ablations.py --figures 4
	$(MAKE) reproduced

# Everything, with the paper's number of steps: days on 2 cores, resumable.
reproduce-full: .venv/ready
	$(BIN)/python experiments/uci_table.py --steps 100000
	$(BIN)/python experiments/step_sizes.py
	$(BIN)/python experiments/ablations.py
	$(BIN)/python experiments/large_sets.py --passes 8
	$(BIN)/python experiments/thompson.py --paper --seeds 0,1,2,3,4,5,6,7,8,9
	$(BIN)/python experiments/molecules.py
	$(MAKE) reproduced

# The tables and figures of what has been measured.
reproduced: .venv/ready
	$(BIN)/python experiments/uci_table.py --table
	$(BIN)/python experiments/ablations.py --draw
	$(BIN)/python experiments/large_sets.py --table
	$(BIN)/python experiments/thompson.py --draw
	$(BIN)/python experiments/molecules.py --table
	$(MAKE) figures

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/figures.py --check

clean:
	rm -rf .venv .venv-all .venv-dist dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
