# `make demo` shows what mpip does; `make test` runs what CI runs. Both install what is missing.

CARGO ?= cargo
TOOLS := target/tools
# Where `make install` installs.
PREFIX ?= /usr/local
TO = $(DESTDIR)$(PREFIX)
# Random worlds that `make sim` goes through, beginning at FIRST.
SEEDS ?= 10000
FIRST ?= 0

COMMANDS := ip:iproute2 tc:iproute2 ss:iproute2 iperf3:iperf3 nft:nftables conntrack:conntrack \
	ping:iputils-ping sysctl:procps python3:python3 systemd-analyze:systemd

# Crates of the engine, which need neither a kernel nor privileges.
ENGINE := -p mpip-types -p mpip-wire -p mpip-crypto -p mpip-transport -p mpip-core -p mpip-segments
# Tests on the kernel wait most of the time: so many run beside each other.
WAITING := 16
TESTS := MPIP_TEST_ALL=1 RUST_TEST_THREADS=$(WAITING) CARGO='$(CARGO)' sh scripts/test.sh

.PHONY: help build demo check test form lint unit audit test-all bench bench-path bench-compare bench-cores flame \
	instructions instructions-budget figures kill-matrix sim sweep lab setup mptcp web metrics programs install \
	static deb deb-test revision clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

build: ## Build mpipd, mpip and mpip-lab in release mode
	$(CARGO) build --locked --release

setup:
	@sh scripts/setup.sh $(COMMANDS)

web:
	@sh scripts/setup.sh nginx:nginx-light wrk:wrk || echo "without nginx and wrk: no traffic of kind web"

# An iperf3 from 3.19 on speaks MPTCP by itself.
mptcp:
	@sh scripts/setup.sh mptcpize:mptcpize || echo "without mptcpize: MPTCP may not be measured"

demo: setup mptcp build ## Two hosts, four paths, real transfers: TCP, MPTCP and mpip side by side
	@target/release/mpip-lab demo

check: ## After a change in the engine: format, clippy and tests of its crates (a minute)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked $(ENGINE) --all-targets -- -D warnings
	$(CARGO) test --locked --profile dev $(ENGINE) --lib

test: setup ## What CI runs: every test (as root, for namespaces), compiled with clippy, format, imports
	RUSTC_WORKSPACE_WRAPPER='$(CURDIR)/scripts/clippy.sh' $(TESTS) $(MAKE) --no-print-directory form

form:
	$(CARGO) fmt --all --check
	sh lint/purity.sh
	$(CARGO) run --locked --quiet -p mpip-lint

lint: form ## Format, clippy, documentation, what crates and modules may import
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps --document-private-items

unit: setup ## All tests, without the lints; one that cannot run fails
	$(TESTS)

audit: $(TOOLS)/bin/cargo-deny $(TOOLS)/bin/cargo-machete lint instructions ## Lints, licences, sources, unused dependencies, instructions
	$(TOOLS)/bin/cargo-deny --log-level error check licenses bans sources
	$(TOOLS)/bin/cargo-machete

instructions: setup ## Instructions per packet beside their budget, by callgrind
	@sh scripts/setup.sh valgrind:valgrind
	@sh scripts/instructions.sh

instructions-budget: setup
	@sh scripts/setup.sh valgrind:valgrind
	@sh scripts/instructions.sh --write

test-all: test audit sim kill-matrix ## All that shows whether it works: also 10,000 worlds (2 h)

# Debug builds without debug information: they run for a second, and an optimised build takes minutes.
$(TOOLS)/bin/cargo-%:
	$(CARGO) install --locked --debug --config profile.dev.debug=0 --root $(TOOLS) \
		--target-dir $(TOOLS)/build cargo-$*
	rm -rf $(TOOLS)/build

$(TOOLS)/bin/inferno-flamegraph:
	$(CARGO) install --locked --debug --config profile.dev.debug=0 --root $(TOOLS) \
		--target-dir $(TOOLS)/build --no-default-features --features cli inferno
	rm -rf $(TOOLS)/build

bench: ## Benchmarks of codecs, seal and open, queue, resequencer, scheduler, engine
	$(CARGO) bench --locked -p mpip-bench

# How long: make bench-path REPETITIONS=5 SECONDS=10.
LENGTH = $(if $(REPETITIONS),--repetitions $(REPETITIONS)) $(if $(SECONDS),--seconds $(SECONDS))

bench-path: setup mptcp web build ## Throughput, small packets, answers, CPU and RTT over 1 to 8 paths (15 min)
	target/release/mpip-lab bench-path $(LENGTH)

revision:
	@test -n '$(REV)' || { echo "expected REV=REVISION" >&2; exit 1; }

bench-compare: revision setup build ## mpipd beside another revision: make bench-compare REV=HEAD~1 (5 min)
	target/release/mpip-lab bench-compare $(LENGTH) -- '$(REV)'

bench-cores: setup build ## Both sides of one node with 1, 2 … threads: make bench-cores [THREADS=8] (2 min)
	target/release/mpip-lab bench-cores $(LENGTH) $(if $(THREADS),--threads $(THREADS))

flame: setup build $(TOOLS)/bin/inferno-flamegraph ## Where the daemons' time goes: docs/flame.svg
	@sh scripts/setup.sh perf:linux-perf
	@sh scripts/flame.sh docs/flame.svg

lab: setup mptcp web build ## What scenarios with other senders need beside: nginx, wrk, programs in Go
	@target/release/mpip-lab build-go || echo "without Go: no quic-go, no wireguard-go"

figures: setup mptcp build ## What mpip is to reach beside what it reaches: make figures REPETITIONS=5 (3 h)
	target/release/mpip-lab figures --repetitions $(or $(REPETITIONS),5)

kill-matrix: setup build ## Every proper subset of 2 to 4 paths killed in every way, on real kernels (50 min)
	target/release/mpip-lab kill-matrix --out results

sim: ## Random worlds in the simulator: make sim SEEDS=100000 [FIRST=0]
	$(CARGO) run --locked --release -p mpip-sim --example worlds -- --first $(FIRST) --seeds $(SEEDS)

sweep: ## Random links with every kind of inner sender, in the simulator: make sweep SETS=5000 [FIRST=0]
	$(CARGO) build --locked --release -p mpip-lab
	target/release/mpip-lab sweep --first-seed $(FIRST) --sets $(or $(SETS),200) --out results
	target/release/mpip-lab report results

metrics: ## Let Prometheus' promtool judge the metrics: names, units, types
	@sh scripts/setup.sh promtool:prometheus
	MPIP_TEST_PROMTOOL=1 $(CARGO) test --locked -p mpip-cli --bin mpip promtool

# What is installed, and the page of mpipd's manual.
programs:
	$(CARGO) build --locked --release -p mpip-daemon -p mpip-cli --bins --example manual

# Every file of an installation stands here; `make deb` packs what this installs.
install: programs ## Install to PREFIX (default /usr/local): programs, units, manual, completions
	install -D -m 755 target/release/mpipd $(TO)/sbin/mpipd
	install -D -m 755 target/release/mpip $(TO)/bin/mpip
	install -d $(TO)/lib/systemd/system
	for unit in mpip@ mpip-web@; do sed 's|/usr/local|$(PREFIX)|' contrib/$$unit.service \
		>$(TO)/lib/systemd/system/$$unit.service; done
	install -D -m 644 contrib/mpip.sysusers $(TO)/lib/sysusers.d/mpip.conf
	install -D -m 644 contrib/mpip.tmpfiles $(TO)/lib/tmpfiles.d/mpip.conf
	install -D -m 644 contrib/80-mpip.network $(TO)/lib/systemd/network/80-mpip.network
	install -D -m 644 contrib/networkd.conf $(TO)/share/doc/mpip/examples/networkd.conf
	install -D -m 644 contrib/NetworkManager.conf $(TO)/lib/NetworkManager/conf.d/mpip.conf
	install -D -m 644 contrib/grafana-mpip.json $(TO)/share/doc/mpip/examples/grafana-mpip.json
	install -D -m 644 -t $(TO)/share/doc/mpip docs/*.md
	rm -rf target/manual
	target/release/mpip generate target/manual
	target/release/examples/manual >target/manual/mpipd.8
	install -D -m 644 -t $(TO)/share/man/man1 target/manual/*.1
	install -D -m 644 -t $(TO)/share/man/man8 target/manual/mpipd.8
	install -D -m 644 target/manual/mpip.bash $(TO)/share/bash-completion/completions/mpip
	install -D -m 644 target/manual/_mpip $(TO)/share/zsh/vendor-completions/_mpip
	install -D -m 644 target/manual/mpip.fish $(TO)/share/fish/vendor_completions.d/mpip.fish
	test -n "$(DESTDIR)" || ! command -v systemd-sysusers || { \
		systemd-sysusers mpip.conf && systemd-tmpfiles --create mpip.conf; }
	test -n "$(DESTDIR)" || test ! -d /run/systemd/system || systemctl daemon-reload

# By glibc, which takes no other toolchain than the one that is there.
static: ## Build mpipd and mpip that need no library: target/TRIPLE/release
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --locked --release -p mpip-daemon -p mpip-cli \
		--target $(shell rustc -vV | sed -n 's/^host: //p')

deb: $(TOOLS)/bin/cargo-deb ## Build a package for Debian: target/debian/mpip_VERSION_ARCHITECTURE.deb
	rm -rf target/package
	$(MAKE) install DESTDIR=target/package PREFIX=/usr
	$(TOOLS)/bin/cargo-deb --no-build -p mpip-daemon $(DEB_OPTIONS)

deb-test: setup deb ## Install, join, upgrade and purge the package on Debian, booted in namespaces (3 min)
	@sh scripts/setup.sh systemd-nspawn:systemd-container mmdebstrap:mmdebstrap
	@sh scripts/deb-test.sh

clean: ## Remove everything that was built
	$(CARGO) clean
