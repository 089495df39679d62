# The way into the project: "make help" lists what can be done here.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
PYTEST_ARGS ?=
DISK ?=
SIZE ?=
UPLINK ?=
RATE_MBIT ?=
DEMO_ARGS ?=
export JOBS QEMU_TARBALL

build   := build
scripts := qemu-patches/scripts
python  := $(build)/venv/bin/python3
# Named after the system's Python, so that a new one gets a new environment.
venv_stamp := $(build)/venv/.made-for-$(notdir $(realpath /usr/bin/python3))
# Where an installed QEMU lives: a folder of its own, in no distribution's way.
libdir  := $(DESTDIR)$(PREFIX)/lib/idletime
mandir  := $(DESTDIR)$(PREFIX)/share/man

heading = printf '\n== %s\n'

.PHONY: help
help: ## List the targets.
	@echo 'Usage: make TARGET'
	echo
	sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1|\2/p' Makefile | while IFS='|' read -r name what; do
	    printf '%-17s %s\n' "$$name" "$$what"
	done
	echo
	echo 'Variables: JOBS=n (parallel compilers), QEMU_TARBALL=/path (a local QEMU source), DESTDIR= PREFIX= (install),'
	echo '           PYTEST_ARGS= (more options for the e2e tests).'

# ---- what a machine needs

.PHONY: deps
deps: ## Install the Debian packages that building and testing need (as root).
	@$(scripts)/deps

# $(call environment,FOLDER[,OPTIONS]): make a Python environment anew, with the requirements of this rule.
define environment
rm -rf $(1)
mkdir -p $(dir $(1))
/usr/bin/python3 -m venv $(2) $(1) || { echo "error: /usr/bin/python3 cannot make a venv: run 'make deps' first" >&2; exit 1; }
$(1)/bin/python3 -m pip install --quiet --disable-pip-version-check --ignore-installed --requirement $< ||
    { echo "error: pip could not install $<, see above: is the network up?" >&2; exit 1; }
touch $@
endef

.PHONY: venv
venv: $(venv_stamp) ## Make build/venv, the Python environment of build and tests.

$(venv_stamp): tests/requirements.txt
	@echo '== Making the Python environment (about 20 seconds)'
	$(call environment,$(build)/venv,--system-site-packages)

# ---- QEMU

.PHONY: qemu
qemu: venv ## Build the patched QEMU: build/stage/bin/qemu-system-x86_64.
	@$(scripts)/qemu patched
	$(MAKE) observer

.PHONY: qemu-unpatched
qemu-unpatched: venv ## Build the same QEMU without our changes, for comparisons: build/unpatched/stage.
	@$(scripts)/qemu unpatched

.PHONY: qemu-sanitized
qemu-sanitized: venv ## Build the patched QEMU with sanitizers and coverage (10 minutes): build/sanitized/stage.
	@$(scripts)/qemu sanitized

# ---- the observer

.PHONY: observer
observer: ## Build the observer, which sees the foreground in the kernel: build/stage/bin/idletime-observer.
	@$(MAKE) -s -C observer OUT='$(abspath $(build))/observer'
	install -D -m 755 $(build)/observer/idletime-observer $(build)/stage/bin/.observer
	mv -f $(build)/stage/bin/.observer $(build)/stage/bin/idletime-observer

.PHONY: observer-check
observer-check: venv observer ## Run the observer's tests on this machine's kernel (as root).
	@$(heading) 'Observer'
	$(python) -m pytest tests/observer --ignore=tests/observer/test_kernels.py --ignore=tests/observer/test_systemd.py $(again) $(PYTEST_ARGS)

.PHONY: observer-kernels
observer-kernels: deps qemu ## Run the observer on Debian's kernel, in a guest that plays the host (5 minutes under TCG).
	@$(heading) "Observer on Debian's kernel"
	$(python) -m pytest tests/observer/test_kernels.py tests/observer/test_systemd.py $(PYTEST_ARGS)

# ---- the guest agent

.PHONY: agent
agent: ## Build the guest agent: build/agent/idletime and idletime-agent, static.
	@$(MAKE) -C guest-agent

.PHONY: agent-check
agent-check: ## Run the agent's own tests: vet, unit tests, race detector, short fuzzing, installation.
	@$(heading) 'Guest agent'
	$(MAKE) -C guest-agent check

.PHONY: agent-kernels
agent-kernels: deps qemu ## Run the agent in guests with Linux 6.1 and 6.12 (5 minutes); CI has the first.
	@$(heading) 'Guest agent, both kernels'
	IDLETIME_FULL=1 $(python) -m pytest tests/e2e/test_agent.py $(PYTEST_ARGS)

.PHONY: install-guest
install-guest: ## Install the guest agent: programs, units, init script, completion, man pages.
	@$(MAKE) -C guest-agent install DESTDIR='$(if $(DESTDIR),$(abspath $(DESTDIR)))' PREFIX='$(PREFIX)'

# ---- the main job

.PHONY: demo
demo: ## Show a foreground VM keep its disk beside a greedy background VM; DISK=DIR SIZE=4G on a disk of yours, UPLINK=IFACE.
	@size='$(SIZE)'
	if [ -n '$(DISK)' ] && command -v python3 >/dev/null; then  # asked before minutes of building
	    size=$$(python3 -m tests.testbed.ownsize '$(DISK)' "$$size")
	fi
	$(MAKE) deps qemu
	if [ -n '$(DISK)' ]; then
	    $(heading) 'Demo on a disk of yours'
	    exec $(python) -m tests.bench.own_disk '$(DISK)' --size "$$size" $(DEMO_ARGS)
	elif [ -n '$(UPLINK)' ]; then
	    $(heading) 'Demo for an uplink of yours, without sending on it'
	    exec $(python) -m tests.bench.uplink '$(UPLINK)' $(if $(RATE_MBIT),--rate-mbit '$(RATE_MBIT)') $(DEMO_ARGS)
	fi
	$(heading) 'Demo'
	$(python) -m tests.bench.demo $(DEMO_ARGS)
	$(heading) 'Demo of the network, short'
	$(python) -m tests.bench.net short --seconds 2 --output $(build)/demo-net-short ||
	    { [ $$? -eq 3 ] && echo 'The network was left out: it needs what the line above names.'; }

.PHONY: demo-net
demo-net: deps qemu ## Show a foreground VM keep its uplink beside greedy background VMs, at length; results in build/demo-net.
	@$(heading) 'Demo of the network'
	$(python) -m tests.bench.net demo --output $(build)/demo-net

.PHONY: demo-quick
demo-quick: deps qemu ## The demo with shorter runs.
	@$(heading) 'Demo, short'
	$(python) -m tests.bench.demo --quick

.PHONY: demo-libvirt
demo-libvirt: deps qemu ## The demo on a libvirtd of its own: two tenants of the examples (as root); results in build/demo-libvirt.
	@$(heading) 'Demo on libvirt'
	$(python) -m tests.bench.demo_libvirt

# ---- tests: each a step of its own; "make test" stops at the first failure

# What runs in real time fails when the machine stalls: it is run once more, and the summary names it (RERUN).
again := --reruns 1 -rfEsR

.PHONY: test
test: deps qemu ## Run everything that CI runs.
	@times=
	for step in check-patches unit observer-check agent-check rooms fuzz-quick machine e2e ansible; do
	    begin=$$SECONDS
	    $(MAKE) $$step
	    times+=" $$step $$((SECONDS - begin)) s,"
	done
	$(heading) "All tests passed:$${times%,}"

# Each is one process that computes, or waits for the network: JOBS of them at a time.
.PHONY: rooms
rooms: ## Run the tests of the rooms libvirt, engine and cockpit, and of confinement; prepare the test cluster.
	@cockpit/deps  # apt's lists change under it: not beside those who read them
	$(MAKE) --jobs='$(JOBS)' --output-sync=target libvirt engine cluster-prepare cockpit-check confinement

.PHONY: check-patches
check-patches: venv ## Check the patches, the overlay, the scripts and the pages.
	@$(heading) 'Patches, overlay, scripts and pages'
	$(scripts)/check
	packages/qemu/check
	$(python) -m ruff check --quiet --select F --ignore F811 tests  # F811: fixtures are arguments
	$(python) -m pytest -q tests/pages $(PYTEST_ARGS)

.PHONY: unit
unit: ## Run the unit and property tests of the scheduler, and the simulator against its golden files.
	@$(heading) 'Unit and property tests'
	$(MAKE) -C tests/unit --jobs='$(JOBS)' --output-sync check
	$(MAKE) -C tests/bench/micro all
	$(MAKE) -C tests/sim check

.PHONY: prometheus
prometheus: ## Fetch Debian's Prometheus into build/prometheus, for tests of metrics.
	@tests/prometheus

.PHONY: libvirt
libvirt: venv prometheus ## Run the tests of the libvirt room: policy, plan, resolution, idletimed, virt-idletime.
	@$(heading) 'Policy in domain XML'
	$(MAKE) -C libvirt check PYTHON=$(abspath $(python)) PYTEST_ARGS='$(again) $(PYTEST_ARGS)'

# ---- Cockpit's page

.PHONY: demo-live
demo-live: deps qemu cockpit ## Show the demo's two VMs live in Cockpit's page, with an interval to move (as root).
	@cockpit/deps test
	$(heading) 'Live demo'
	$(python) -m tests.bench.demo_live

.PHONY: cockpit
cockpit: ## Build Cockpit's page "Idle load": build/cockpit/dist.
	@cockpit/deps
	$(MAKE) -C cockpit build

.PHONY: cockpit-check
cockpit-check: cockpit ## Check the page's types and run its unit tests.
	@$(heading) "Cockpit's page"
	$(MAKE) -C cockpit check

.PHONY: cockpit-test
cockpit-test: deps qemu cockpit ## Try the page in Chromium on a cockpit-ws with two VMs (as root; 3 minutes); screenshots in build/cockpit.
	@cockpit/deps test
	$(heading) "Cockpit's page in a browser"
	$(python) -m pytest tests/cockpit $(PYTEST_ARGS)

.PHONY: install-cockpit
install-cockpit: ## Install Cockpit's page below PREFIX.
	@$(MAKE) -C cockpit install PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)'

engine_tools := $(build)/engine/venv
engine_stamp := $(engine_tools)/.made-for-$(notdir $(realpath /usr/bin/python3))

$(engine_stamp): engine/requirements.txt
	@echo '== Making the environment of the cluster engine: Placement (half a minute)'
	$(call environment,$(engine_tools))

.PHONY: engine
engine: $(engine_stamp) ## Run the tests of OpenStack's agent and evictor, with a real Placement, and of the fleet's simulation.
	@$(heading) 'Cluster engine'
	$(MAKE) -C engine check PYTHON=$(abspath $(engine_tools)/bin/python3) PYTEST_ARGS='$(PYTEST_ARGS)'

ansible_tools := $(build)/ansible/venv
ansible_stamp := $(ansible_tools)/.made-for-$(notdir $(realpath /usr/bin/python3))
lab_tools := $(build)/lab/venv
lab_stamp := $(lab_tools)/.made-for-$(notdir $(realpath /usr/bin/python3))

$(lab_stamp): tests/lab/requirements.txt
	$(call environment,$(lab_tools))

.PHONY: engine-lab
engine-lab: qemu observer $(lab_stamp) $(ansible_stamp) ## A real Nova with three hypervisors, and a pool of HTCondor, in namespaces of this machine (as root; 40 minutes, 8 more the first time).
	@$(heading) 'Cluster engine in a cloud'
	$(lab_tools)/bin/python3 -m pytest -p no:cacheprovider -W ignore --durations=0 tests/openstack tests/condor $(PYTEST_ARGS)

.PHONY: engine-test
engine-test: $(engine_stamp) ## The same with Nova's own weighers, and the day of a fleet in simulation (5 minutes): build/engine/fleet*.
	@$(heading) 'Cluster engine with Nova'
	$(engine_tools)/bin/pip install --quiet --disable-pip-version-check --requirement engine/requirements-test.txt
	$(MAKE) engine
	for servers in 60 200; do
	    PYTHONPATH=libvirt:engine $(engine_tools)/bin/python3 -m fleet --servers $$servers --output $(build)/engine/fleet-$$servers
	done

.PHONY: confinement
confinement: ## Check the AppArmor abstractions, the SELinux module and the units; nothing is loaded.
	@$(heading) 'Confinement'
	libvirt/confinement/check

.PHONY: test-libvirt-full
test-libvirt-full: deps qemu ## The longer tests of idletimed: all floods, long fuzzing, 50 domains (10 minutes).
	@$(heading) 'idletimed, long'
	IDLETIME_FULL=1 $(MAKE) libvirt
	IDLETIME_FULL=1 $(python) -m pytest tests/e2e -k libvirt $(PYTEST_ARGS)
	$(python) -m tests.bench.idletimed

.PHONY: test-libvirt-13
test-libvirt-13: ## Run the libvirt tests with Debian 13's libvirt, in a root file system of its own (as root; 20 minutes).
	@$(heading) 'libvirt of Debian 13'
	tests/bare/run trixie 'make deps qemu libvirt && build/venv/bin/python3 -m pytest tests/e2e -k libvirt $(PYTEST_ARGS)'

.PHONY: machine
machine: ## Run the machine tests (qtest, virtual time) against the built QEMU.
	@$(heading) 'Machine tests in virtual time'
	IDLETIME_AGAIN=1 tests/machine/run

.PHONY: machine-long
machine-long: ## Run the machine tests of virtio-scsi that take a minute each and are virtio-blk's too (3 minutes).
	@$(heading) 'Machine tests of virtio-scsi that CI leaves out'
	IDLETIME_AGAIN=1 tests/machine/run --long

.PHONY: e2e
e2e: prometheus ## Run the end-to-end tests with real guests, JOBS files of them at a time.
	@$(heading) 'End-to-end tests with real guests'
	# Twice more where it fails: the other files' guests are what a busy host is.
	$(python) -m pytest tests/e2e --numprocesses='$(JOBS)' --dist=loadfile --durations=20 $(again) --reruns 2 $(PYTEST_ARGS)

.PHONY: nested
nested: deps qemu ## Run the machine tests of NICs with vhost and pass-through SCSI disks, in a guest that plays the host (15 minutes).
	@$(heading) 'In a guest that plays the host'
	$(python) -m pytest tests/nested $(PYTEST_ARGS)

# ---- packages: what an ordinary host installs

SUITES ?=
export KEY

.PHONY: packages
packages: deps ## Make the apt repository build/packages: QEMU as Debian builds it, with our patches, and idletime (as root; half an hour a release): SUITES=trixie.
	@$(heading) 'Debian packages'
	packages/build $(SUITES)

.PHONY: packages-check
packages-check: packages ## Install these packages in a bare Debian of each release, start VMs, compare with Debian's QEMU, and go back (as root).
	@$(heading) 'Debian packages, as a user installs them'
	tests/packages/check $(SUITES)

# ---- Ansible: collection, test cluster

$(ansible_stamp): ansible/requirements.txt
	@echo '== Making the Ansible environment (1 to 2 minutes, 600 MB)'
	$(call environment,$(ansible_tools))

cluster := $(ansible_tools)/bin/python -m tests.cluster

.PHONY: cluster-prepare
cluster-prepare: qemu $(ansible_stamp)
	@$(cluster) prepare

.PHONY: ansible
ansible: qemu $(ansible_stamp) ## Check the collection: lint, wrong inventories, the cluster's end, one role's scenario (as root).
	@$(heading) 'Ansible'
	ansible/check
	$(ansible_tools)/bin/python -m pytest -q -p no:cacheprovider tests/cluster/test_leaves_nothing.py tests/cluster/test_bad_inventories.py
	$(cluster) molecule test --scenario-name tenant

.PHONY: cluster
cluster: qemu $(ansible_stamp) ## Raise the test cluster: nodes in namespaces of this machine (as root).
	@$(cluster) up

.PHONY: cluster-down
cluster-down: $(ansible_stamp) ## End the test cluster and check that nothing is left of it.
	@$(cluster) down

.PHONY: cluster-test
cluster-test: qemu $(ansible_stamp) ## Run the whole life of a cluster, all roles' scenarios, and engine-lab; says how long each step took.
	@$(heading) 'The life of a cluster'
	begin=$$SECONDS
	$(ansible_tools)/bin/python -m pytest -v -x -p no:cacheprovider --durations=0 tests/cluster
	for scenario in host tenant guest benchmark; do
	    $(cluster) molecule test --scenario-name $$scenario
	    echo "== $$scenario: $$((SECONDS - begin)) seconds since the start"
	done
	$(MAKE) engine-lab
	echo "== All took $$((SECONDS - begin)) seconds; figures: $(build)/cluster/results"

.PHONY: fuzz-quick
fuzz-quick: ## Fuzz for half a minute, as CI does.
	@$(heading) 'Fuzzing, short'
	$(MAKE) -C tests/fuzz check

.PHONY: fuzz
fuzz: ## Fuzz what is read from shared memory, and disks with racing and malformed requests, longer than the tests do.
	@$(heading) 'Fuzzing'
	$(MAKE) -C tests/fuzz run
	seed=$${IDLETIME_RACE_SEED:-$$RANDOM}
	echo "   virtio-blk and virtio-scsi: seed $$seed, 4000 steps"
	IDLETIME_RACE_SEED=$$seed IDLETIME_RACE_STEPS=4000 tests/machine/run race scsi:race
	grep -h 'bytes verified' $(build)/tests/machine/{,scsi:}race.log | sed 's/^# /   /'

# ---- mutation testing: finds what no test notices; for hours with SAMPLE=all, so CI does not run it

mutants_tools := $(build)/mutants/venv
mutants_stamp := $(mutants_tools)/.made-for-$(notdir $(realpath /usr/bin/python3))
FILES ?= pure
SAMPLE ?= 60
SEED ?= 1

$(mutants_stamp): tests/mutants/requirements.txt
	@echo '== Making the environment of the mutation tests (10 seconds)'
	rm -rf $(mutants_tools)
	mkdir -p $(build)/mutants
	/usr/bin/python3 -m venv $(mutants_tools)
	$(mutants_tools)/bin/pip install --quiet --disable-pip-version-check --requirement tests/mutants/requirements.txt ||
	    { echo "error: pip could not install tests/mutants/requirements.txt, see above: is the network up?" >&2; exit 1; }
	touch $@

.PHONY: mutants
mutants: $(mutants_stamp) ## Change the code a little and see whether the tests notice: FILES=pure, device or names, SAMPLE=60 or all, SEED=1.
	@$(heading) 'Mutants'
	$(mutants_tools)/bin/python -m tests.mutants $(FILES) --sample '$(SAMPLE)' --seed '$(SEED)' --jobs '$(JOBS)'

.PHONY: coverage
coverage: ## Show how much of core, learner and arena the unit tests and the fuzz corpora reach.
	@$(heading) 'Coverage of core and arena'
	tests/unit/coverage

.PHONY: sanitize
sanitize: qemu qemu-sanitized ## Run the machine tests and QEMU's own of virtio-blk with sanitizers; prints coverage.
	@$(heading) 'Machine tests with sanitizers'
	tests/machine/sanitize

.PHONY: upstream-tests
upstream-tests: qemu qemu-unpatched ## Run QEMU's own block, drain and migration tests on both trees; 30 minutes.
	@$(heading) "QEMU's own tests, unpatched and patched"
	$(python) -m tests.upstream

HOURS ?= 0.5
.PHONY: soak
soak: qemu qemu-unpatched ## Run the tests of life, faults and neighbours in random order: HOURS=0.5, SOAK_ARGS=--seed=N.
	@$(heading) 'Soak'
	tests/machine/run race
	$(python) -m tests.soak --hours '$(HOURS)' $(SOAK_ARGS)

.PHONY: bench
bench: deps qemu qemu-unpatched ## Run the benchmarks, for hours; they print series and assert nothing. Resumable.
	@$(heading) 'Benchmarks'
	$(python) -m tests.bench

.PHONY: bench-quick
bench-quick: deps qemu ## A short evaluation, about ten minutes: all kinds of scheduler on one disk.
	@$(heading) 'Benchmarks, short'
	$(python) -m tests.bench --quick

# ---- install, clean

.PHONY: install
install: ## Install the built QEMU in PREFIX/lib/idletime, its programs as PREFIX/bin/idletime-qemu-*.
	@[ -x $(build)/stage/bin/qemu-system-x86_64 ] || { echo "error: nothing to install: run 'make qemu' first" >&2; exit 1; }
	install -d '$(libdir)/bin' '$(libdir)/share/qemu/keymaps' '$(DESTDIR)$(PREFIX)/bin'
	install -m 755 $(build)/stage/bin/* '$(libdir)/bin/'
	install -m 644 $(build)/stage/share/qemu/*.* '$(libdir)/share/qemu/'
	install -m 644 $(build)/stage/share/qemu/keymaps/* '$(libdir)/share/qemu/keymaps/'
	ln -sf ../lib/idletime/bin/idletime-observer '$(DESTDIR)$(PREFIX)/bin/idletime-observer'
	for program in qemu-system-x86_64 qemu-img qemu-io qemu-storage-daemon; do
	    ln -sf "../lib/idletime/bin/$$program" '$(DESTDIR)$(PREFIX)'"/bin/idletime-$$program"
	done
	for page in docs/*.[1-8]; do
	    [ -e "$$page" ] || continue
	    install -D -m 644 "$$page" '$(mandir)'"/man$${page##*.}/$${page##*/}"
	done

.PHONY: install-libvirt
install-libvirt: ## Install virt-idletime, its Python package, schema, man pages and completion below PREFIX.
	@$(MAKE) -C libvirt install PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)'

.PHONY: install-openstack
install-openstack: ## Install idletime-openstack, idletime-openstack-evict and Nova's weigher below PREFIX.
	@$(MAKE) -C engine install PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)'

.PHONY: clean
clean: ## Remove what was built; downloads, sources and the Python environment stay.
	@rm -rf $(build)/{stage,qemu/obj,unpatched,demo,bench,unit,sim,fuzz,tests}

.PHONY: distclean
distclean: ## Remove the whole build folder.
	@rm -rf $(build)
