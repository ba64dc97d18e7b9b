# Thin: everything is in tools/dev.py, which needs nothing but Python.
DATA ?= data
PORT ?= 8000
ARGS ?=
SEEDS ?= 1000
FIRST ?= 0
KILLS ?= 500

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' Makefile)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

demo: ## a walk through the service, start to end
	@python3 tools/dev.py demo $(ARGS)

test: ## ruff, mypy and pytest on real servers; make test ARGS="-k ledger"
	@python3 tools/dev.py test $(ARGS)

test-full: ## the same, with the auditor at its full depth and every case of long tables
	@python3 tools/dev.py test-full $(ARGS)

fuzz: ## hostile requests and files, 200 an operation and role; make fuzz ARGS=2000
	@python3 tools/dev.py fuzz $(ARGS)

slowest: ## the same as test; writes the ten slowest tests into docs/testing.md
	@python3 tools/dev.py slowest $(ARGS)

serve: ## the service on this machine; make serve DATA=dir PORT=8000
	@python3 tools/dev.py serve --data "$(DATA)" --port "$(PORT)"

lint: ## ruff and mypy
	@python3 tools/dev.py lint

lock: ## write requirements.lock and requirements-dev.lock anew; ARGS=--upgrade for newer versions
	@python3 tools/dev.py lock $(ARGS)

sbom: ## dist/epsilond-VERSION.cdx.json: a CycloneDX bill of materials of requirements.lock
	@python3 tools/dev.py run -- python -m tools.sbom

audit-dependencies: ## known vulnerabilities of requirements.lock; needs the network
	@python3 tools/dev.py audit-dependencies $(ARGS)

release: ## dist: sdist, wheel, bill of materials, SHA256SUMS and its signature; ARGS="--key FILE"
	@python3 tools/dev.py release $(ARGS)

audit: ## the auditor with ten times the rounds
	@EPSILOND_AUDIT_ROUNDS=100000 python3 tools/dev.py run -- python -m pytest tests/audit -s --timeout 0 $(ARGS)

simulate: ## jobs' lifecycles with crashes and lost messages, by seed; make simulate SEEDS=1000 FIRST=0
	@python3 tools/dev.py run -- python -m tests.simulation --seeds "$(SEEDS)" --first "$(FIRST)" $(ARGS)

chaos: ## servers, APIs and workers killed, stopped, cut and filled up under load; make chaos KILLS=500 FIRST=0
	@python3 tools/dev.py run -- python -m tests.chaos --kills "$(KILLS)" --seed "$(FIRST)" $(ARGS)

linearise: ## histories of many threads against the ledger, checked; ARGS="--rounds 100 --threads 16"
	@python3 tools/dev.py linearise $(ARGS)

bench-overhead: ## what the service costs on top of the computation
	@python3 tools/dev.py bench overhead $(ARGS)

bench-client: ## what a new user of the Python client waits for
	@python3 tools/dev.py run -- python -m benchmarks.client $(ARGS)

bench-quotes: ## how long a quote of auto takes, asked anew and again
	@python3 tools/dev.py bench quotes $(ARGS)

bench-cold: ## the first jobs of a new installation, with no kernel compiled
	@python3 tools/dev.py bench cold $(ARGS)

bench-pace: ## what rows and steps cost: the constants by which schedules are chosen
	@python3 tools/dev.py run -- python -m benchmarks.pace $(ARGS)

bench-kernels: ## kernels and samplers against memory, Opacus, scikit-learn and OpenDP
	@python3 tools/dev.py run -- python -m benchmarks.kernels $(ARGS)

bench-adult: ## accuracy on UCI Adult against other libraries; make bench-adult ARGS="--data FOLDER"
	@python3 tools/dev.py run -- python -m benchmarks.adult $(ARGS)

bench-coverage: ## how often intervals of summaries hold the truth; ARGS="--delta 0"
	@python3 tools/dev.py run -- python -m benchmarks.coverage $(ARGS)

bench-million: ## every algorithm through HTTP on a million rows by a hundred columns
	@python3 tools/dev.py bench million $(ARGS)

noise: ## write docs/noise.md: calibrated noise beside the papers'
	@python3 tools/dev.py run -- python -m tools.noise $(ARGS)

bench-defaults: ## what a job gets that names nothing but its loss, on synthetic tables
	@python3 tools/dev.py run -- python -m benchmarks.defaults $(ARGS)

bench-evaluation: ## how often the intervals of an evaluation hold the truth; ARGS="--times 1000"
	@python3 tools/dev.py run -- python -m benchmarks.evaluation_coverage $(ARGS)

bench-utility: ## excess risk against n, beside the theorems
	@python3 tools/dev.py run -- python -m benchmarks.utility $(ARGS)

bench-heavy-tails: ## unbounded data: rates, time, lasso, California; ARGS="--data FOLDER --plot PNG"
	@python3 tools/dev.py run -- python -m benchmarks.heavy_tails $(ARGS)

bench-phase-retrieval: ## recovery of a planted signal, stationarity against n
	@python3 tools/dev.py run -- python -m benchmarks.phase_retrieval $(ARGS)

bench-frank-wolfe: ## Frank-Wolfe gap of a non-convex loss against n and d, beside the theorems
	@python3 tools/dev.py run -- python -m benchmarks.frank_wolfe_nonconvex $(ARGS)

bench-goldstein: ## Goldstein stationarity against n, prefix sums by root and by tree; ARGS="--plot PNG"
	@python3 tools/dev.py run -- python -m benchmarks.goldstein $(ARGS)

bench-network: ## a ReLU network on UCI Adult against linear and Opacus; ARGS="--data FOLDER"
	@python3 tools/dev.py run -- python -m benchmarks.network $(ARGS)

bench-polling: ## what 100 open clients cost the API
	@python3 tools/dev.py bench polling $(ARGS)

bench-reservations: ## jobs per second that one hot dataset admits
	@python3 tools/dev.py bench reservations $(ARGS)

bench-throughput: ## jobs per second of two workers, beside bare Celery's no-ops
	@python3 tools/dev.py bench throughput $(ARGS)

bench-ingest: ## what reading a file costs, by format, beside pyarrow
	@python3 tools/dev.py run -- python -m benchmarks.ingest $(ARGS)

bench-timing: ## whether a job's time tells of one record; make bench-timing ARGS="--runs 2000"
	@python3 tools/dev.py run -- python -m benchmarks.timing $(ARGS)

screenshots: ## pictures of every page of the dashboard into docs/screenshots
	@python3 tools/dev.py screenshots $(ARGS)

openapi: ## write the OpenAPI document
	@python3 tools/dev.py run -- python -m tools.openapi $(ARGS)

docs: ## write the reference pages, and the code and counts of CONTRIBUTING.md
	@python3 tools/dev.py run -- python -m tools.docs $(ARGS)

lab: ## the defaults on many problems, against our best and the constant; ARGS=--quick, --calibrate
	@python3 tools/dev.py run -- python -m benchmarks.lab $(ARGS)

bench-default: ## the defaults beside other libraries; make bench-default ARGS="--data FOLDER"
	@python3 tools/dev.py run -- python -m benchmarks.default $(ARGS)
