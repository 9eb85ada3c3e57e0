# Begin with `make demo` and `make test`.

CARGO_TARGET_DIR ?= target
HEADROOM = $(CARGO_TARGET_DIR)/release/headroom
STATIC_HEADROOM = $(CARGO_TARGET_DIR)/x86_64-unknown-linux-musl/release/headroom
CARGO_FLAGS = --release --locked
# One profile for tests and lint, so that dependencies are built once.
TEST_FLAGS = --profile tests --locked
# Examples are programs for measuring, which no test runs; the lint checks that they compile.
TESTS = --lib --bins --tests
# The seed is fixed so that `make test` checks properties with the same cases each time, and does not
# fail by chance; `cargo test` alone and the fuzzers find new ones.
RUN_TESTS = HEADROOM_TESTS=required KERNEL_PEER=required PROPTEST_RNG_SEED=1 cargo test $(TEST_FLAGS)
# The IKE daemons of another Debian release are of locked versions, which the archive drops one day:
# then their tests are skipped, and `make interop` fails.
PARTS_FOR_TESTS = scripts/fetch-parts && scripts/fetch-parts curl --with-examples && scripts/fetch-parts --with-layers && \
	scripts/fetch-parts --with-media && scripts/fetch-parts nats-server versitygw moto && scripts/fetch-parts --with-browser && scripts/fetch-parts --with-peers && \
	scripts/fetch-parts pebble $(if $(filter yes,$(STATIC)),musl-gcc=musl-tools) && \
	(scripts/fetch-parts --with-ike-peers || echo 'Tests with the IKE daemons of scripts/ike-peers.lock are skipped.')

# The pinned programs, in a cache of their own so that only the tests of them use them. Where the
# archive no longer has them, these are skipped.
PINNED_FOR_TESTS = HEADROOM_PARTS="$${HEADROOM_PARTS:-$${XDG_CACHE_HOME:-$$HOME/.cache}/headroom/parts}/pinned-tests" \
	$(CARGO_TARGET_DIR)/tests/headroom lab parts || echo 'Tests of the pinned programs are skipped.'

# The statically linked program is built in the background of the tests, and then tested: on x86-64,
# for which alone scripts/build-static builds it. `make test STATIC=no` leaves out both.
STATIC = $(if $(filter x86_64,$(shell uname -m)),yes,no)
STATIC_FOR_TESTS = $(abspath $(CARGO_TARGET_DIR))/x86_64-unknown-linux-musl/tests/headroom

.PHONY: demo test interop bench-tunnel bench-ike bench-post-quantum bench-transfer studies studies-quick build static static-for-tests parts lint browser page-wasm deny examples install-docs image-root fuzz

# What do FTPS, SFTP and HTTPS cost over FTP and HTTP on this machine? Builds the lab alone, and
# measures the pinned programs where they can be had, else those of this machine's Debian. Elsewhere
# than on Debian: make demo ARCHIVE=http://HOST, a mirror that has debian and debian-security.
demo:
	cargo build --release --locked -p headroom --no-default-features
	$(HEADROOM) lab parts $(if $(ARCHIVE),--archive $(ARCHIVE)) || scripts/fetch-parts
	$(HEADROOM) lab run plans/demo.toml

# Format, lint, licences, unit tests, integration tests with real servers. Nothing is built
# before the tests but what they need: with development dependencies, which give some
# crates more features, much of it would be built twice. Many tests wait (links, logins,
# timers), so twice as many run at once as there are cores. Lint has what the tests leave of
# the processor (chrt --idle), and its output is shown if it fails. The lab's tests beside all
# others would save two minutes, and some fail on a machine that is so busy.
LINT_OUTPUT = $(CARGO_TARGET_DIR)/lint.txt
test:
	cargo fmt --all --check
	($(PARTS_FOR_TESTS)) & parts=$$!; cargo test $(TEST_FLAGS) $(TESTS) --no-run && wait $$parts
	$(PINNED_FOR_TESTS)
	(sleep 20 && chrt --idle 0 make --no-print-directory lint browser deny examples \
	$(if $(filter yes,$(STATIC)),static-for-tests) > $(LINT_OUTPUT) 2>&1) & lint=$$!; \
	RUST_TEST_THREADS=$$((2 * $$(nproc))) $(RUN_TESTS) $(TESTS); tests=$$?; \
	wait $$lint || { cat $(LINT_OUTPUT); exit 1; }; exit $$tests
	$(if $(filter yes,$(STATIC)),HEADROOM_STATIC=$(STATIC_FOR_TESTS) $(RUN_TESTS) --test lab static_program)

# The examples in documentation comments.
examples:
	cargo test $(TEST_FLAGS) --doc

# Our IPsec against other people's, in every combination; docs/interop.md says what passed.
interop: build
	scripts/fetch-parts --with-peers
	scripts/fetch-parts --with-ike-peers
	$(CARGO_TARGET_DIR)/release/headroom-interop --write docs/interop.md

# What our IPsec carries beside others' tunnels: writes its part of docs/benchmarks.md.
bench-tunnel: build
	scripts/fetch-parts
	scripts/fetch-parts --with-layers
	scripts/bench-tunnel

# How many peers are set up by IKEv2 each second, ours beside strongSwan: writes its part of
# docs/benchmarks.md.
bench-ike: build
	scripts/fetch-parts --with-layers
	scripts/bench-ike

# What post-quantum keys add to a session, in 10 minutes: writes its part of docs/lab.md.
bench-post-quantum: build
	$(HEADROOM) lab parts $(if $(ARCHIVE),--archive $(ARCHIVE))
	scripts/fetch-parts --with-ike-peers
	HEADROOM=$(HEADROOM) scripts/bench-post-quantum $(RESULTS)

# Our transfer beside what others move files with: writes its parts of docs/benchmarks.md, some two
# hours. Some of them: make bench-transfer ONLY="pace cost". The same RESULTS=FOLDER again resumes where
# it was interrupted; the script lists the parts and how long each takes.
bench-transfer: build
	scripts/fetch-parts
	scripts/bench-transfer $(RESULTS)

# The five studies, run again as large as they were (hours; the same command resumes where
# it was interrupted), or in minutes. Both end with the path of a page over all of them;
# scripts/publish-studies puts the large ones into docs/studies.
studies: parts-for-studies build
	scripts/fetch-parts --with-ike-peers
	HEADROOM=$(HEADROOM) scripts/studies full

studies-quick: parts-for-studies build
	HEADROOM=$(HEADROOM) scripts/studies quick

parts-for-studies:
	scripts/fetch-parts
	scripts/fetch-parts --with-layers
	scripts/fetch-parts --with-rivals
	scripts/fetch-parts --with-media

# Programs under test, unpacked into a private cache; nothing is installed.
parts:
	scripts/fetch-parts

build:
	cargo build $(CARGO_FLAGS)

# One file that needs no library of the Linux on which it starts.
static:
	scripts/build-static

static-for-tests:
	scripts/build-static --profile tests

# Fuzz targets, too, are what others call: they are checked with all else, without the fuzzer's
# own library, which nothing links here.
lint: export CUSTOM_LIBFUZZER_PATH = /dev/null
lint:
	cargo fmt --all --check
	cargo clippy $(TEST_FLAGS) --workspace --all-targets -- --deny warnings
	cargo clippy $(TEST_FLAGS) --workspace --no-default-features -- --deny warnings
	cargo run --profile tests --locked --quiet -p headroom-imports
	RUSTDOCFLAGS="--deny warnings" cargo doc $(TEST_FLAGS) --workspace --no-deps --quiet

# The page's module of WebAssembly, which is checked in, is what the sources give.
browser:
	scripts/page-module --check

# Makes that module again, to be committed.
page-wasm:
	scripts/page-module

# Ten minutes for each parser and for opening; FUZZ_SECONDS=60 make fuzz is a taste.
fuzz:
	scripts/fuzz

# Licences, sources and advisories of everything that is built in.
deny:
	scripts/check-dependencies

# Completions and manual pages, for packagers.
install-docs: build
	mkdir -p $(CARGO_TARGET_DIR)/doc-dist
	$(HEADROOM) man $(CARGO_TARGET_DIR)/doc-dist
	for shell in bash zsh fish; do \
	  $(HEADROOM) completions $$shell > $(CARGO_TARGET_DIR)/doc-dist/headroom.$$shell; done

# The files of the image that contrib/Containerfile describes.
image-root: static
	rm -rf $(CARGO_TARGET_DIR)/image
	scripts/image-root $(STATIC_HEADROOM) $(CARGO_TARGET_DIR)/image
