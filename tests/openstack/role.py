"""Role nova in the cloud: Ansible comes by SSH, as an operator's does; packages are from our own repository.

The hosts have no systemd, so that the packages' units are carried out by init scripts that are made of them here.
"""

from __future__ import annotations

import os
import re
import subprocess

import yaml

from tests.cluster import inventory, repository
from tests.cluster.place import COLLECTIONS, TOOLS, run
from tests.lab.host import Host
from tests.openstack import configuration as conf
from tests.openstack.lab import RUN, Lab

PLAY_SECONDS = 600.0
KEY, HOSTS, CONFIG = RUN / "key", RUN / "hosts.yml", RUN / "ansible.cfg"
AGENT, EVICTOR = "idletime-openstack", "idletime-openstack-evict"
SSH = f"-i {KEY} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
CFG = f"""[defaults]
inventory = {HOSTS}
collections_path = {COLLECTIONS}
home = {RUN}/ansible
interpreter_python = /usr/bin/python3
inject_facts_as_vars = false
[ssh_connection]
pipelining = true
ssh_args = {SSH}
"""
SCRIPT = """#!/bin/sh
### BEGIN INIT INFO
# Provides: {name}
# Required-Start:
# Required-Stop:
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
### END INIT INFO
unit=/lib/systemd/system/{name}.service
[ -e "$unit" ] || unit=/usr$unit
user=$(sed -n 's/^User=//p' "$unit")
pid=/run/pids/{name}
case $1 in
    start)
        start-stop-daemon --start --oknodo --background --make-pidfile --pidfile "$pid" --chuid "$user" --output /var/log/{name}.log \\
            --startas /bin/sh -- -c "exec $(sed -n 's/^ExecStart=//p' "$unit")" ;;
    stop) start-stop-daemon --stop --oknodo --retry 10 --remove-pidfile --pidfile "$pid" ;;
    restart) "$0" stop; "$0" start ;;
    status) start-stop-daemon --status --pidfile "$pid" ;;
esac
"""


def prepare(lab: Lab, hypervisor: Host) -> None:
    """Both hosts as they were without our engine: SSH, no source of packages but what the role brings."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", KEY])
    for one in (lab.controller, hypervisor):
        one.sh(f"""mkdir -p /run/sshd ~/.ssh; chmod 700 ~/.ssh; echo '{KEY.with_suffix(".pub").read_text().strip()}' >~/.ssh/authorized_keys
            rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/idletime/openstack.conf /etc/idletime/rules.d/50-openstack.toml""")
        one.serve("sshd", "/usr/sbin/sshd", "-D", "-e")
        for name in (AGENT, EVICTOR):
            one.sh(f"cat >/etc/init.d/{name} <<'END'\n{SCRIPT.format(name=name)}END\nchmod 755 /etc/init.d/{name}")
    repository.get_own()
    inventory.link_collection()
    CONFIG.write_text(CFG)
    HOSTS.write_text(yaml.safe_dump({"idletime_nova": {
        "hosts": {
            lab.controller.name: {"ansible_host": conf.CONTROLLER, "nova_compute": False, "nova_scheduler": True, "nova_evictor": True,
                                  "nova_eviction": conf.EVICTION, "nova_eviction_user": conf.as_user("nova")},
            hypervisor.name: {"ansible_host": f"10.99.0.1{hypervisor.name[2:]}", "nova_provider": hypervisor.name},
        },
        "vars": {"ansible_user": "root", "nova_service_manager": "script", "nova_background_flavors": ["bg.*"],
                 "repository_source": str(repository.REPOSITORY)},
    }}))


def play(*words: str) -> dict[str, int]:
    """Run playbook nova; how much it changed, by host."""
    argv = [str(TOOLS / "ansible-playbook"), "idletime.kvm.nova", *words]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(CONFIG), "PATH": f"{TOOLS}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    # It inherits this thread's network: the controller's.
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=PLAY_SECONDS)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    return {name: int(changed) for name, changed in re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", done.stdout, re.M)}
