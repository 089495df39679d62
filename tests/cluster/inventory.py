"""The cluster as Ansible sees it: an inventory, SSH settings and an ansible.cfg, all made for this one."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

import yaml

from tests.cluster.guest import get_images
from tests.cluster.node import Node
from tests.cluster.place import COLLECTIONS, CONTROLLER, INVENTORY, RESULTS, ROLES, RUN, SOCKETS, TOOLS
from tests.cluster.repository import REPOSITORY
from tests.cluster.space import Space
from tests.framework.paths import BUILD, ROOT

CONFIG = CONTROLLER / "ansible.cfg"
SSH_CONFIG = RUN / "ssh_config"

SSH_ARGS = f"-F {SSH_CONFIG} -o ControlMaster=auto -o ControlPersist=60s"

MODEL = Path(__file__).with_name("group_vars.yml")
"""What the cluster's operator decides; the same variables as in any inventory."""


def _ssh_config(fabric: Space) -> str:
    """Connections start in the fabric's network namespace; the machine's own network has no part in it."""
    return (
        "Host *\n"
        "  User root\n"
        f"  IdentityFile {RUN}/keys/cluster\n"
        "  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {RUN}/keys/known_hosts\n"
        "  StrictHostKeyChecking yes\n"
        f"  ProxyCommand nsenter --net=/proc/{fabric.pid}/ns/net nc %h %p\n"
    )


def _ansible_cfg() -> str:
    return (
        "[defaults]\n"
        f"inventory = {INVENTORY}\n"
        f"collections_path = {COLLECTIONS}:{TOOLS.parent}/lib/python3/site-packages\n"
        f"home = {CONTROLLER}/home\n"
        f"local_tmp = {CONTROLLER}/home/tmp\n"
        "gathering = smart\n"
        "fact_caching = memory\n"
        "interpreter_python = /usr/bin/python3\n"
        "forks = 8\n"
        "host_key_checking = true\n"
        "inject_facts_as_vars = false\n"
        "display_skipped_hosts = false\n"
        "callback_result_format = yaml\n"
        "[ssh_connection]\n"
        "pipelining = true\n"
        f"ssh_args = {SSH_ARGS}\n"
        f"control_path_dir = {SOCKETS}\n"
    )


def _hosts(nodes: list[Node]) -> dict[str, object]:
    hosts = {}
    for node in nodes:
        hosts[node.name] = {
            "ansible_host": node.address,
            # All nodes have this machine's firmware, and libvirt takes a host's identity from there.
            "idletime_host_uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{node.name}.idletime.test")),
        }
    return {"idletime_hosts": {"hosts": hosts, "vars": _variables()}}


def _variables() -> dict[str, str]:
    """Where things are on the controller."""
    return {
        "idletime_repository": str(REPOSITORY), "idletime_guest": str(get_images()),
        "idletime_results": str(RESULTS), "idletime_plot_python": str(BUILD / "venv" / "bin" / "python3"),
    }


def write(nodes: list[Node]) -> None:
    """Inventory and settings."""
    (INVENTORY / "group_vars").mkdir(parents=True, exist_ok=True)
    (INVENTORY / "hosts.yml").write_text(yaml.safe_dump(_hosts(nodes), sort_keys=False))
    (INVENTORY / "group_vars" / "idletime_hosts.yml").write_text(MODEL.read_text())
    CONFIG.write_text(_ansible_cfg())
    link_collection()


def write_ssh(fabric: Space) -> None:
    """How SSH reaches the nodes of this cluster."""
    SSH_CONFIG.write_text(_ssh_config(fabric))


def link_collection() -> None:
    """The collection under the name by which playbooks call it, without installing it."""
    link = COLLECTIONS / "ansible_collections" / "idletime" / "kvm"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(ROLES.parent)


def environment() -> dict[str, str]:
    """For ansible-playbook and its relatives. Molecule writes an ansible.cfg of its own: it needs the rest."""
    return {
        **os.environ, "ANSIBLE_CONFIG": str(CONFIG), "PATH": f"{TOOLS}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8",
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_HOME": str(CONTROLLER / "home"),
        "ANSIBLE_SSH_ARGS": SSH_ARGS, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(SOCKETS), "ANSIBLE_PIPELINING": "true",
        "IDLETIME_INVENTORY": str(INVENTORY), "IDLETIME_PYTHON": sys.executable, "IDLETIME_ROOT": str(ROOT),
    }
