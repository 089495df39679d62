"""One node: its own layer above the base tree, its keys, its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.cluster.place import HERE, RUN, run

NETWORK, BITS, BRIDGE = "10.77.0", 24, "fabric0"
"""Addresses of the cluster; they exist in its namespaces only."""

STORAGE = f"{NETWORK}.1"
SERVICE_TIME = "5ms"
"""Of the nodes' disk controllers: the non-preemptible disk of the demo."""

DPKG = """\
# Nobody needs a node's disk to survive the machine's own crash; so packages unpack without waiting for it.
force-unsafe-io
"""

SSHD = """\
PasswordAuthentication no
PermitRootLogin prohibit-password
UseDNS no
"""


@dataclass(frozen=True)
class Node:
    """The number decides name and address."""

    number: int

    @property
    def name(self) -> str:
        """Host name, and that of the link."""
        return f"node{self.number}"

    @property
    def address(self) -> str:
        """In the cluster's network."""
        return f"{NETWORK}.{10 + self.number}"

    @property
    def folder(self) -> Path:
        """The node's layer and log: what stays when the node is killed."""
        return RUN / "nodes" / self.name

    @property
    def ready(self) -> Path:
        """Made by the node when its services run; as the host sees it."""
        return self.folder / "upper/var/lib/cluster-ready"

    @property
    def log(self) -> Path:
        """What process 1 of the node says."""
        return self.folder / "log"


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """A file in a node's layer, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def create(node: Node, nodes: list[Node], keys: Path) -> None:
    """The node's layer as an installer would leave it: name, keys, addresses of the others."""
    upper = node.folder / "upper"
    for name in ("upper", "work", "root"):
        (node.folder / name).mkdir(parents=True)
    upper.chmod(0o755)
    write(upper / "etc/hostname", node.name + "\n")
    lines = ["127.0.0.1 localhost", *(f"{each.address} {each.name}" for each in nodes)]
    write(upper / "etc/hosts", "\n".join(lines) + "\n")
    write(upper / "etc/ssh/sshd_config.d/cluster.conf", SSHD)
    write(upper / "etc/dpkg/dpkg.cfg.d/cluster", DPKG)
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        write(upper / f"etc/ssh/ssh_host_ed25519_key{suffix}", (keys / f"{node.name}{suffix}").read_text(), mode)
    ssh = upper / "root/.ssh"
    write(ssh / "authorized_keys", (keys / "cluster.pub").read_text(), 0o600)
    # The nodes reach each other with the same key: migration goes over SSH.
    write(ssh / "id_ed25519", (keys / "cluster").read_text(), 0o600)
    write(ssh / "known_hosts", (keys / "known_hosts").read_text())
    ssh.chmod(0o700)
    (upper / "root").chmod(0o700)


def init_words(node: Node, base: Path, packages: Path) -> list[str | Path]:
    """What becomes the node's process 1."""
    return [HERE / "node-init.sh", node.folder, base, packages, node.name, STORAGE, SERVICE_TIME]


def make_keys(folder: Path, nodes: list[Node]) -> None:
    """A key for the controller and one for each node's sshd, made for this cluster and gone with it."""
    folder.mkdir(mode=0o700)
    for name in ("cluster", *(node.name for node in nodes)):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"idletime test cluster {name}", "-f", folder / name])
    lines = []
    for node in nodes:
        kind, key, *_ = (folder / f"{node.name}.pub").read_text().split()
        lines.append(f"{node.name},{node.address} {kind} {key}\n")
    (folder / "known_hosts").write_text("".join(lines))
