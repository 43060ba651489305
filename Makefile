# The only entry points. Each sets up what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(ZONEWISE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/zonewise)
export PATH := $(CACHE)/tools/bin:$(HOME)/.cargo/bin:$(PATH)
REPORT := target/report.html
ZONEWISE := target/release/zonewise
RELEASE := target/release-files

PREFIX := /usr/local

# An unoptimised program is large, and what of it is used counts as memory of the lab. At a fixed address it needs no list of
# relocations (6 MB); and the linker that Rust has for x86_64 merges functions that are the same (9 MB of 46).
QUICK_LINK := -C link-arg=-no-pie
ifeq ($(shell uname -m),x86_64)
QUICK_LINK += -C link-arg=-Wl,--icf=all
endif

.PHONY: help run test test-all test-long test-json stress cluster cluster-down e2e e2e-smoke e2e-faults fuzz mutants bench lint advisories docs pictures install image manifests archives \
	release-files simulate simulate-faults simulate-kep soak

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Run the lab: a cluster of three zones on this machine, with real traffic (no root; simulated where that is forbidden)
	@scripts/setup build
	@cargo rustc --profile quick --locked --package zonewise --bin zonewise --no-default-features --features lab -- $(QUICK_LINK)
	@target/quick/zonewise lab $(LAB)

simulate: ## Score every heuristic on the small data set and write a report
	@scripts/setup build
	@cargo build --release --locked --package zonewise
	@$(ZONEWISE) simulate --dataset kep-small
	@$(ZONEWISE) simulate --dataset kep-small -o html --to $(REPORT)
	@printf 'Report with distributions and worst inputs: %s\n' "$(REPORT)"

simulate-faults: ## Run controllers and proxies with random faults in a simulation (SEEDS=0..1000, or SEEDS=7 to see one)
	@scripts/setup build
	@cargo run --release --quiet --locked --package zonewise-robustness -- $(or $(SEEDS),0..1000)

soak: ## Run controller and proxy under churn and faults on the real kernel; does anything grow? (MINUTES=30; as root)
	@scripts/setup build
	@cargo build --release --quiet --locked --package zonewise
	@ZONEWISE_BINARY=$(CURDIR)/$(ZONEWISE) cargo test --quiet --locked --workspace --bench soak -- --minutes $(or $(MINUTES),30)

test: ## Prove the product, in minutes: a real kube-apiserver, the real kernel, a real browser
	@scripts/setup tests
	@scripts/test

test-all: ## Besides, what takes long or more programs: kube-proxy, kubectl, Helm, 1,000 random cases (PART=1/6: a sixth)
	@scripts/setup tests
	@TIER=all scripts/test

test-long: ## The tests of test-all with many more random cases (CASES=20000 each): for a night, or before a release
	@scripts/setup tests
	@TIER=all PROPTEST_CASES=$(or $(CASES),20000) scripts/test

test-json: ## The tests of test-all with JSON in place of protobuf between our programs and the API server
	@scripts/setup tests
	@TIER=all CONTENT_TYPE=application/json scripts/test

stress: ## Run tests 200 times beside a load of all cores: are they steady? (TESTS='counting:: walks::', TIMES=200)
	@scripts/setup tests
	@scripts/stress $(TESTS)

cluster: ## Make a real Kubernetes cluster on this machine: three nodes in three zones (NODES=3, DUAL=1; as root)
	@scripts/cluster up

cluster-down: ## Remove that cluster, and check that nothing is left (as root)
	@scripts/cluster down

e2e: ## Run Kubernetes' own tests of Services with its programs and with ours; renews docs/conformance-e2e.md (as root)
	@scripts/e2e all

e2e-smoke: ## Install, upgrade and remove the chart under connections, and run a dozen of those tests (as root)
	@scripts/e2e smoke

e2e-faults: ## Make misconfigurations on purpose: zonewise check finds each, and its fix works (as root)
	@scripts/e2e faults

fuzz: ## Search for input that makes a reader panic (SECONDS=180 for each TARGETS; needs nightly Rust)
	@scripts/setup fuzz
	@scripts/fuzz $(or $(SECONDS),180) $(TARGETS)

mutants: ## Change the pure crates in SAMPLE=200 places, one at a time: do their tests notice? (SEED=1, CRATES="slices"; or SINCE=REV)
	@scripts/setup mutants
	@scripts/mutants $(if $(SINCE),--in-diff $(SINCE)) $(CRATES)

bench: ## Measure speed (set PEER=/path/to/the/evaluation/tool to measure it in the same run)
	@scripts/setup bench
	@cargo bench --locked --package zonewise-simulator --features instructions --bench instructions
	@cargo bench --locked --package zonewise-simulator --bench rows
	@cargo bench --locked --package zonewise-explain --bench shapes
	@cargo bench --locked --package zonewise-demand --bench fleet
	@cargo build --release --locked --package zonewise
	@scripts/bench-peer $(ZONEWISE) "$(PEER)"
	@cargo bench --locked --package zonewise-slices --features instructions --bench instructions
	@HINTS_PEER=$$(scripts/reference bench)/hints cargo bench --locked --package zonewise-slices --bench hints
	@ZONEWISE_REFERENCE=$$(scripts/reference bench) cargo bench --locked --package zonewise-inventory --bench forms
	@ZONEWISE_REFERENCE=$$(scripts/reference bench) ZONEWISE_BINARY=$(CURDIR)/$(ZONEWISE) \
		cargo test --locked --workspace --bench side_by_side
	@ZONEWISE_REFERENCE=$$(scripts/reference bench) ZONEWISE_BINARY=$(CURDIR)/$(ZONEWISE) \
		cargo test --locked --workspace --bench leader
	@ZONEWISE_REFERENCE=$$(scripts/reference bench) ZONEWISE_BINARY=$(CURDIR)/$(ZONEWISE) \
		cargo test --locked --workspace --bench proxies
	@cargo bench --locked --package zonewise-proxy --bench tables
	@ZONEWISE_BINARY=$(CURDIR)/$(ZONEWISE) cargo test --locked --workspace --bench dumps
	@ZONEWISE_REFERENCE=$$(scripts/reference bench) UPDATE_DOCS=1 cargo test --locked --workspace --bench subsets

lint: ## Check format, lints, documentation and dependencies
	@scripts/setup lint
	@cargo fmt --all --check
	@cargo clippy --locked --workspace --all-targets -- -D warnings
	@RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	@# Advisories are not checked here: they change without us, and their database is not everywhere.
	@cargo deny --locked check bans licenses sources
	@# Crates use what ARCHITECTURE.md allows, every dependency is used, and docs/requirements.md names the tests there are.
	@cargo test --locked --quiet --package zonewise-common --test repository

advisories: ## Compare the dependencies with a database of advisories (DB=/path/to/a/clone, or a mirror)
	@scripts/setup lint
	@scripts/advisories "$(DB)"

install: ## Install zonewise, the kubectl plugin, man pages and completions (PREFIX=/usr/local)
	@scripts/setup build
	@cargo build --release --locked --package zonewise
	@scripts/install $(ZONEWISE) $(PREFIX)

image: ## Build the container image as an OCI archive, and the list of its parts (ARCH="amd64 arm64")
	@scripts/setup build
	@scripts/image $(ARCH)

manifests: ## Render the manifests in deploy/ from the chart
	@scripts/manifests

archives: ## Build archives of program and chart, Krew's manifest and checksums (ARCH="amd64 arm64")
	@scripts/setup build
	@OUTPUT=$(RELEASE) scripts/archives $(ARCH)

release-files: ## Everything that a release has, in target/release-files (ARCH="amd64 arm64"): docs/release.md
	@scripts/setup build
	@OUTPUT=$(RELEASE) scripts/image $(ARCH)
	@$(MAKE) --no-print-directory archives

pictures: ## Take the pictures of the dashboard in docs/pictures anew, with Chromium
	@scripts/setup thorough
	@UPDATE_PICTURES=1 cargo test --locked --quiet --workspace --test thorough -- dashboard::pictures dashboard::lab

docs: ## Build the API documentation, and renew the generated pages in docs/
	@scripts/setup build
	@cargo doc --locked --workspace --no-deps
	@UPDATE_DOCS=1 cargo test --locked --quiet --package zonewise-topology --test suite reasons
	@UPDATE_DOCS=1 cargo test --locked --quiet --package zonewise-common --test repository requirements
	@UPDATE_DOCS=1 cargo test --locked --quiet --package zonewise --test suite observe::pages
	@UPDATE_DOCS=1 cargo test --locked --quiet --lib --package zonewise-controller \
		--package zonewise-proxy the_page_lists
	@printf 'Start at %s\n' target/doc/zonewise_topology/index.html

simulate-kep: ## Compare with the published tables, all 39,273,145 inputs (a minute); renews docs/published.md
	@scripts/setup build
	@cargo build --release --locked --package zonewise
	@$(ZONEWISE) simulate published >target/published.md || { cat target/published.md; exit 1; }
	@mv target/published.md docs/published.md
	@cat docs/published.md
