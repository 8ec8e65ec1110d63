# The menu. `make` alone lists it.

CARGO ?= cargo
XTASK = $(CARGO) xtask
# The toolchain for what the stable one cannot do: Miri and the sanitizers.
export NIGHTLY ?= nightly
# How long each fuzz target runs.
FUZZ_SECONDS ?= 60

PINNED := $(shell xtask/toolchain.sh)
ifneq ($(PINNED),)
export RUSTUP_TOOLCHAIN := $(PINNED)
endif

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help demo test stage wheel reproduce install bench check deny miri cross sanitize fuzz clean setup-%

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */\1|/' | \
		while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

demo: setup-demo build-stage ## convection in a crucible on 1, 2 and 4 ranks: table, check, picture (2 minutes)
	$(CARGO) run --quiet --release -p margay-bench-peers --bin demo

test: setup-test build-stage ## all tests, through the real launcher and libraries, and tidy
	$(XTASK) test --beside '$(MAKE) model-lock-free'

# Every interleaving of the ring, the event count, the turn, the deque, the tallies, the sleepers, the RMA queues, the lock of the
# boards, the lock and barrier of processes, the shelf, the claims of members, the counts of tasks, the wake queue, and of teams'
# barriers, dependences and offers, under loom; everything is built for it, so in a folder of its own.
.PHONY: model-lock-free
model-lock-free:
	RUSTFLAGS="--cfg loom" $(CARGO) test --target-dir "$${CARGO_TARGET_DIR:-target}/loom" -p margay-sys-os -p margay-sys-shm -p margay-sys-threads -p margay-sys-mlp --lib -- ring inbox event_count turn deque tally sleepers robust rma_queue owner shelf claims child_count wake_queue barrier dependence offer

stage: setup-demo build-stage ## build the usable tree stage/{bin,lib,include,share}

.PHONY: build-stage
build-stage:
	$(XTASK) stage

wheel: setup-demo build-stage ## pack the tree as a Python wheel, dist/margay_mpi-*.whl
	$(XTASK) wheel

reproduce: setup-demo ## build this commit again in another folder: the same bytes?
	$(XTASK) reproduce

install: require-prefix stage ## copy the stage tree: make install PREFIX=/opt/margay
	$(XTASK) install "$(DESTDIR)$(PREFIX)"

.PHONY: require-prefix
require-prefix:
	@test -n "$(PREFIX)" || { echo 'make install: say where: make install PREFIX=/opt/margay' >&2; exit 2; }

bench: setup-bench build-stage ## Margay and its peers in one run (15 minutes); ARGS='--only p2p --quick' for less
	$(CARGO) run --quiet --release -p margay-bench-peers --bin bench -- $(ARGS)

check: setup-check deny ## formatting, lints, doc comments, generated files, licences, and the rules of the house
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path tests/fuzz/Cargo.toml -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	$(XTASK) header --check
	$(XTASK) docs --check
	$(XTASK) tidy

deny: setup-check ## licences, sources and known vulnerabilities of all dependencies (deny.toml)
	xtask/deny.sh

miri: setup-miri ## undefined behaviour in core/ and the parts of sys/ that need no kernel, under Miri
	xtask/miri.sh $(NIGHTLY)

cross: setup-cross ## the workspace for aarch64; the tests of core/ there, under QEMU
	xtask/cross.sh

sanitize: setup-sanitize ## worlds of ranks under the address and the thread sanitizer
	xtask/sanitize.sh $(NIGHTLY)

fuzz: setup-fuzz ## each fuzz target for FUZZ_SECONDS (60), two at a time
	tests/fuzz/run.sh $(FUZZ_SECONDS)

clean: ## remove what was built
	$(CARGO) clean
	rm -rf stage stage-debug dist

setup-%:
	@xtask/setup.sh $*
