"""The cloud: a controller with OpenStack's services and the evictor, and hypervisors with Nova's agent, libvirtd, idletimed and ours.

Each hypervisor has a disk of its own that serves one request at a time in 5 ms: a loop device, on which its servers' disks are;
and an uplink of 50 Mbit/s, by which Neutron's bridges leave. A volume is a loop device that all of them have. What is foreground
on disk and uplink is what the observers see.
All are namespaces of this machine; leaving the lab ends them by the pid of their first process.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openstack

from tests.cluster import apt
from tests.cluster import guest as guests
from tests.cluster.space import connect, plug
from tests.framework import paths
from tests.lab.host import SOURCE, Host, until
from tests.lab.hosts import Hosts, formatted, loop_disk
from tests.lab.tree import IDLETIMED, get_tree
from tests.openstack import configuration as conf

PACKAGES = [
    # the controller
    "keystone", "placement-api", "nova-api", "nova-conductor", "nova-scheduler", "glance-api", "python3-openstackclient",
    "neutron-server", "rabbitmq-server", "mariadb-server", "uwsgi-core", "uwsgi-plugin-python3", "python3-tooz",
    # of both, for role nova
    "openssh-server", "python3-apt",
    # a hypervisor
    "nova-compute", "neutron-linuxbridge-agent", "libvirt-daemon-system", "libvirt-clients", "qemu-system-x86", "qemu-utils",
    "python3-libvirt", *IDLETIMED, "curl",
]
CACHE = paths.BUILD / "openstack"
RUN = CACHE / "run"
BRIDGE, TENANTS = "fab0", "ten0"
BUCKET = "tbf rate 50mbit burst 16kb limit 100kb"
ENGINE = {"PYTHONPATH": f"{SOURCE}/engine"}
UWSGI = ["uwsgi", "--plugins", "python3", "--buffer-size", "65535", "--processes", "1", "--threads", "4", "--enable-threads", "--lazy-apps",
         "--die-on-term", "--add-header", "Connection: close", "--listen", "100"]
NEUTRON = ["--config-file", "/etc/neutron/neutron.conf"]
RESOURCES = f"""
[{{disk}}]
auto = true
match.path = "/srv/instances/*"
[{conf.UPLINK}]
auto = true
rate = "50Mbit"
match.bridge = "brq*"
"""
DISK, GAUGE = "CUSTOM_IDLETIME_DISK_PERCENT", "CUSTOM_IDLETIME_GAUGE"
BROKER = {"RABBITMQ_NODENAME": "rabbit@localhost", "RABBITMQ_NODE_IP_ADDRESS": conf.CONTROLLER, "ERL_EPMD_ADDRESS": "127.0.0.1",
          "RABBITMQ_SERVER_ERL_ARGS": "+S 2:2 -kernel inet_dist_use_interface {127,0,0,1}"}
MIB = 1 << 20
IMAGE_BYTES = 16 * MIB
SENDS = f" idletime.network=10.98 idletime.send=protocol=udp,host={conf.TENANTS},connections=1,seconds=2"
LOADS = {
    "idle": "",
    "greedy": " idletime.load=operation=write,span-bytes=8388608,seconds=2",
    # Several at a time, or an emulated guest would not fill the disk.
    "busy": " idletime.load=operation=write,span-bytes=8388608,outstanding=4,seconds=2",
    # Reads back what it wrote.
    "checks": " idletime.verify=span-bytes=4194304,seconds=3",
    # 4 of 5 parts of the uplink.
    "sends": f"{SENDS},pace-mbit=40",
    "greedy-sends": SENDS,
}
"""Images by name: what the guest does from its boot on."""


class Lab(Hosts):
    """A context manager. hypervisors: hv1, hv2, ...; cloud: openstacksdk, as admin, in the controller's network; ports: servers can
    have some. Debian's release is this machine's, or that of IDLETIME_LAB_SUITE."""

    cache = CACHE

    def __init__(self, count: int = 3) -> None:
        self._count = count

    def _make(self, stack: ExitStack) -> None:
        source = apt.Source(apt.main_source().uri, os.environ.get("IDLETIME_LAB_SUITE") or apt.suite())
        tree = get_tree(CACHE, source, PACKAGES, f"OpenStack's file system ({source.suite}; three minutes, 1.8 GB)")
        self.ports = has_ports(tree)
        self._guest = guests.get_images()
        state = get_state(tree, self._guest)
        self.controller = _controller(RUN / "controller", [state, tree])
        self._begin(stack, self.controller)
        _network(self.controller)
        _database(self.controller)
        self.broker()
        _keystone(self.controller)
        self._volume = loop_disk(stack, "volume")
        self._api()
        self.hypervisors = [self._hypervisor(stack, tree, number) for number in range(1, self._count + 1)]
        _enter_network(stack, self.controller)
        self.cloud = openstack.connect(auth=conf.credentials("admin", "admin"), region_name="RegionOne", compute_api_version="2.90")
        until(lambda: len(list(self.cloud.compute.hypervisors())) == self._count, "Nova knows all hypervisors", 90,
              lambda: self.hypervisors[0].said("nova-compute"))
        self._images()
        self._flavors()
        list(self.cloud.network.networks())  # Debian 13's Neutron lists no ports before it was asked for something else
        if self.ports:
            self._networks()
        self.evict()

    def _begin(self, stack: ExitStack, host: Host) -> None:
        host.start(self._guest)
        stack.callback(host.end)

    # ---- the controller

    def _api(self) -> None:
        one = self.controller
        self.placement()
        one.serve("glance", "glance-api", "--config-file", "/etc/glance/glance-api.conf")
        one.serve("volumes", "python3", f"{SOURCE}/tests/openstack/control.py", "volumes", conf.CONTROLLER, str(conf.PORTS["volumev3"]),
                  self._volume)
        one.serve("neutron", "neutron-server", *NEUTRON, "--config-file", "/etc/neutron/plugins/ml2/ml2_conf.ini")
        one.serve("sink", f"{SOURCE}/{paths.find_tool('netload', 'loadgen').relative_to(paths.ROOT)}", "sink", "--protocol", "udp",
                  "--seconds", "86400")
        for name in ("nova-api", "nova-conductor"):
            one.serve(name, name, "--config-file", "/etc/nova/nova.conf")
        self.scheduler()
        for name, service in (("placement", "placement"), ("image", "glance"), ("network", "neutron"), ("compute", "nova-api")):
            one.answers(service, "curl", "-s", "-o", "/dev/null", f"http://{conf.CONTROLLER}:{conf.PORTS[name]}/")

    def broker(self) -> None:
        """Start RabbitMQ."""
        _broker(self.controller)

    def scheduler(self) -> None:
        """Start nova-scheduler."""
        self.controller.serve("nova-scheduler", "nova-scheduler", "--config-file", "/etc/nova/nova.conf", environment=ENGINE)

    def placement(self) -> None:
        """Start Placement."""
        self.controller.serve("placement", *UWSGI, "--http-socket", f"{conf.CONTROLLER}:{conf.PORTS['placement']}", "--wsgi-file",
                              "/usr/bin/placement-api")

    def evict(self) -> None:
        """Start the evictor."""
        self.controller.serve("evictor", "python3", "-m", "idletime_openstack.evict", "--config-file", "/etc/nova/nova.conf",
                              "--config-file", "/etc/idletime/openstack.conf", environment=ENGINE)

    def _images(self) -> None:
        image = self.cloud.image
        kernel = image.create_image(name="kernel", filename=str(self._guest / "vmlinuz"), disk_format="aki", container_format="aki")
        initrd = image.create_image(name="initrd", filename=str(self._guest / "initrd"), disk_format="ari", container_format="ari")
        blank = RUN / "blank"
        blank.write_bytes(b"")
        os.truncate(blank, IMAGE_BYTES)
        self.images = {}
        for name, load in LOADS.items():
            line = f"console=ttyS0 quiet panic=1 no_timer_check mitigations=off{load}"
            self.images[name] = image.create_image(
                name=name, filename=str(blank), disk_format="raw", container_format="bare", kernel_id=kernel.id, ramdisk_id=initrd.id,
                os_command_line=line, hw_video_model="none").id

    def _flavors(self) -> None:
        compute = self.cloud.compute
        self.flavors = {name: compute.create_flavor(name=name, ram=192, vcpus=1, disk=0).id for name in ("bg.small", "bg.large", "bg.net", "m1.small")}
        for name, percent in (("bg.small", 10), ("bg.large", 60)):
            compute.create_flavor_extra_specs(self.flavors[name], {"resources:CUSTOM_IDLETIME_DISK_PERCENT": str(percent)})
        compute.create_flavor_extra_specs(self.flavors["bg.net"], {"resources:CUSTOM_IDLETIME_UPLINK_KBPS": "25000"})

    def _networks(self) -> None:
        """Flat, on the bridge of the tenants; guests find their addresses by themselves."""
        neutron = self.cloud.network
        self.network = neutron.create_network(name="tenants", provider_network_type="flat", provider_physical_network="tenants",
                                              port_security_enabled=False).id
        neutron.create_subnet(network_id=self.network, ip_version=4, cidr="10.98.0.0/16", gateway_ip=None, enable_dhcp=False)
        until(lambda: sum(each.is_alive for each in neutron.agents()) == self._count, "Neutron knows all hypervisors", 60,
              lambda: self.hypervisors[0].said("bridges"))

    # ---- hypervisors

    def _hypervisor(self, stack: ExitStack, tree: Path, number: int) -> Host:
        device = Path(formatted(loop_disk(stack, f"hv{number}"))).name
        loops = [Path(each).name.removeprefix("loop") for each in (device, self._volume)]
        one = Host(f"hv{number}", RUN / f"hv{number}", [tree], loops)
        address = f"10.99.0.1{number}"
        for path, text in {
            "etc/hosts": _hosts(self._count), "etc/nova/nova.conf": conf.nova(False, one.name, address),
            "etc/idletime/openstack.conf": conf.agent(one.name),
            "etc/idletime/rules.d/50-openstack.toml": (paths.ROOT / "engine/etc/50-openstack.toml").read_text(),
            "etc/neutron/neutron.conf": conf.bridges(one.name),
            "etc/idletime/resources.d/lab.toml": RESOURCES.format(disk=device),
            "etc/libvirt/libvirtd.conf": conf.LIBVIRTD.format(address=address, uuid=f"00000000-0000-4000-8000-00000000000{number}"),
        }.items():
            one.write(path, text)
        one.is_hypervisor()
        self._begin(stack, one)
        connect(self.controller.space, BRIDGE, one.space, f"{address}/{conf.BITS}")
        plug(self.controller.space, TENANTS, one.space, conf.UPLINK, f"{one.name}-up")
        one.sh(f"tc qdisc add dev {conf.UPLINK} root {BUCKET}")
        one.sh("mkdir -p /var/lib/nova/tmp /var/lib/neutron/tmp /run/libvirt /var/lib/libvirt/qemu /var/lib/libvirt/images; chmod 755 /srv/instances")
        one.serve("virtlogd", "virtlogd")
        self.libvirtd(one)
        one.idletimed()
        self.agent(one)
        if self.ports:
            one.serve("bridges", "neutron-linuxbridge-agent", *NEUTRON)
        self.compute(one)
        return one

    def libvirtd(self, one: Host) -> None:
        """Start it."""
        one.serve("libvirtd", "libvirtd", "--listen")
        one.answers("libvirtd", "virsh", "-c", "qemu:///system", "version")

    def agent(self, one: Host) -> None:
        """Start idletime-openstack."""
        one.serve("agent", "python3", "-m", "idletime_openstack.agent", "--config-file", "/etc/nova/nova.conf",
                  "--config-file", "/etc/idletime/openstack.conf", environment=ENGINE)

    def compute(self, one: Host) -> None:
        """Start Nova's own agent."""
        one.serve("nova-compute", "nova-compute", "--config-file", "/etc/nova/nova.conf")

    # ---- what tests do

    def boot(self, name: str, flavor: str, image: str = "idle", host: str = "") -> Any:
        """A server; returns it when it is active, or in error. One that sends has a port."""
        more = {"availability_zone": f"nova:{host}"} if host else {}
        server = self.cloud.compute.create_server(
            name=name, image_id=self.images[image], flavor_id=self.flavors[flavor],
            networks=[{"uuid": self.network}] if "sends" in image else "none", **more)
        return self.settled(server.id)

    def settled(self, uuid: str, seconds: float = 120) -> Any:
        """The server, when nothing is done with it."""
        until(lambda: (one := self.server(uuid)).status in ("ACTIVE", "ERROR", "PAUSED", "VERIFY_RESIZE") and not one.task_state,
              f"server {uuid} settles", seconds, lambda: str(self.server(uuid).to_dict()))
        return self.server(uuid)

    def server(self, uuid: str) -> Any:
        """As it is now."""
        return self.cloud.compute.get_server(uuid)

    def delete(self) -> None:
        """All servers."""
        for one in self.cloud.compute.servers():
            self.cloud.compute.delete_server(one.id, force=True)
        until(lambda: not list(self.cloud.compute.servers()), "all servers are gone", 60)

    def host_of(self, server: Any) -> Host:
        """Where it is."""
        name = self.server(server.id).compute_host
        return next(one for one in self.hypervisors if one.name == name)

    def classes(self, server: Any) -> dict[str, str]:
        """Of its devices by resource, as QEMU says."""
        one = self.server(server.id)
        text = self.host_of(server).call("virsh", "-c", "qemu:///system", "qemu-monitor-command", one.instance_name,
                                         '{"execute": "query-idletime"}')
        return {Path(each["path"]).name: device["class"] for each in json.loads(text)["return"] for device in each["devices"]}

    def class_of(self, server: Any) -> str:
        """Of its first disk; "" where QEMU does not know it."""
        return self.classes(server).get(self.disk_of(self.host_of(server)), "")

    @staticmethod
    def disk_of(host: Host) -> str:
        """The resource that its servers' disks are on."""
        return f"loop{host.loops[0]}"

    @property
    def volume_of_all(self) -> str:
        """The resource of a volume."""
        return Path(self._volume).name

    def console(self, server: Any) -> str:
        """What its guest has said on the host where it is."""
        return self.host_of(server).sh(f"cat /srv/instances/{server.id}/console.log || true")

    def reports(self, server: Any) -> list[dict[str, Any]]:
        """Of its load so far, each of 2 s."""
        return [json.loads(line) for line in self.console(server).splitlines() if line.startswith("{") and '"guest"' not in line]

    def _placement(self, path: str) -> Any:
        keywords: dict[str, Any] = {"endpoint_filter": {"service_type": "placement"}, "headers": {"OpenStack-API-Version": "placement 1.36"}}
        return self.cloud.session.get(path, **keywords).json()

    def _inventory(self, hypervisor: str, resource: str, class_: str) -> tuple[str, dict[str, Any] | None]:
        """UUID of the provider of a resource, and what it has of a class."""
        found = self._placement(f"/resource_providers?name={hypervisor}:idletime:{resource}")["resource_providers"]
        uuid = found[0]["uuid"] if found else ""
        return uuid, self._placement(f"/resource_providers/{uuid}/inventories")["inventories"].get(class_) if uuid else None

    def spare(self, hypervisor: str, uplink: bool = False) -> int:
        """What Placement believes to be spare of its disk, in percent, or of its uplink, in kbit/s; -1: it does not know."""
        one = next(each for each in self.hypervisors if each.name == hypervisor)
        _, found = self._inventory(hypervisor, conf.UPLINK if uplink else self.disk_of(one), GAUGE)
        return int(found["total"] - found["reserved"]) if found else -1

    def free(self, one: Host) -> int:
        """What a background server could still have of its disk, in percent."""
        uuid, found = self._inventory(one.name, self.disk_of(one), DISK)
        used = self._placement(f"/resource_providers/{uuid}/usages")["usages"].get(DISK, 0) if found else 0
        return int(found["total"] - found["reserved"] - used) if found else 0


def has_ports(tree: Path) -> bool:
    """Neutron of Debian 13 has no Linux bridges any more, and what else it has needs modules of the kernel."""
    return (tree / "usr/bin/neutron-linuxbridge-agent").exists()


def _hosts(count: int) -> str:
    lines = ["127.0.0.1 localhost", f"{conf.CONTROLLER} ctl", *(f"10.99.0.1{number} hv{number}" for number in range(1, count + 1))]
    return "\n".join(lines) + "\n"


def _controller(folder: Path, lower: list[Path]) -> Host:
    one = Host("ctl", folder, lower)
    for path, text in {
        "etc/hosts": _hosts(9), "etc/keystone/keystone.conf": conf.KEYSTONE, "etc/placement/placement.conf": conf.PLACEMENT,
        "etc/glance/glance-api.conf": conf.GLANCE, "etc/nova/nova.conf": conf.nova(True, "ctl", conf.CONTROLLER, conf.WEIGHER),
        "etc/idletime/openstack.conf": conf.EVICTOR, "etc/neutron/neutron.conf": conf.NEUTRON,
        "etc/neutron/plugins/ml2/ml2_conf.ini": conf.ml2(has_ports(lower[-1])),
    }.items():
        one.write(path, text)
    return one


def _network(one: Host) -> None:
    for bridge, address in ((BRIDGE, f"{conf.CONTROLLER}/{conf.BITS}"), (TENANTS, f"{conf.TENANTS}/{conf.TENANTS_BITS}")):
        one.sh(f"ip link add {bridge} type bridge; ip address add {address} dev {bridge}; ip link set {bridge} up")


def _database(one: Host) -> None:
    one.sh("mkdir -p /run/mysqld; chown mysql:mysql /run/mysqld; [ -d /var/lib/mysql/mysql ] || mariadb-install-db --user=mysql >/dev/null 2>&1")
    one.serve("mariadb", "mariadbd", "--user=mysql", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0",
              "--innodb-buffer-pool-size=128M", "--max-connections=500")
    one.answers("mariadb", "mariadb-admin", "ping")


def _broker(one: Host) -> None:
    one.sh("mkdir -p /run/rabbitmq; chown rabbitmq:rabbitmq /run/rabbitmq")
    one.serve("rabbitmq", "rabbitmq-server", environment=BROKER)
    one.answers("rabbitmq", *(f"{key}={value}" for key, value in BROKER.items()), "rabbitmqctl", "--silent", "await_startup")


def _keystone(one: Host) -> None:
    one.sh("chown -R keystone:keystone /var/lib/keystone /etc/keystone")
    one.serve("keystone", *UWSGI, "--http-socket", f"{conf.CONTROLLER}:{conf.PORTS['identity']}", "--wsgi-file", "/usr/bin/keystone-wsgi-public",
              "--uid", "keystone", "--gid", "keystone")
    one.answers("keystone", "curl", "-sf", conf.url("identity"))


SCHEMA = """
keystone-manage db_sync
keystone-manage fernet_setup --keystone-user keystone --keystone-group keystone
keystone-manage credential_setup --keystone-user keystone --keystone-group keystone
keystone-manage bootstrap --bootstrap-password {password} --bootstrap-admin-url {url} --bootstrap-internal-url {url} \
    --bootstrap-public-url {url} --bootstrap-region-id RegionOne
placement-manage db sync
glance-manage db_sync
nova-manage api_db sync
nova-manage cell_v2 map_cell0 --database_connection {cell0}
nova-manage db sync
nova-manage cell_v2 create_cell --name cell1
neutron-db-manage --config-file /etc/neutron/neutron.conf --config-file /etc/neutron/plugins/ml2/ml2_conf.ini upgrade heads
"""


def get_state(tree: Path, guest: Path) -> Path:
    """The controller's layer with data bases, users and catalog; made the first time for a tree (a minute)."""
    layer = CACHE / f"state-{tree.name.removeprefix('tree-')}"
    if layer.exists():
        return layer
    print("Making OpenStack's data bases (a minute) ...", flush=True)
    partial = CACHE / "state.partial"
    shutil.rmtree(partial, ignore_errors=True)
    one = _controller(partial, [tree])
    one.start(guest)
    try:
        _network(one)
        _database(one)
        for name in conf.DATABASES:
            hosts = " ".join(f"grant all on {name}.* to os@'{host}' identified by '{conf.PASSWORD}';" for host in ("%", "localhost", "127.0.0.1"))
            one.call("mariadb", "-e", f"create database {name}; {hosts}")
        one.sh(SCHEMA.format(password=conf.PASSWORD, url=conf.url("identity"), cell0=f"{conf.DATABASE}/nova_cell0"), 600)
        _broker(one)
        one.sh(f"rabbitmqctl --silent add_user os {conf.PASSWORD}; rabbitmqctl --silent set_permissions os '.*' '.*' '.*'", environment=BROKER)
        _keystone(one)
        said = {"auth": conf.credentials("admin", "admin"), "users": conf.USERS,
                "urls": {kind: conf.url(kind) for kind in conf.PORTS if kind != "identity"}}
        one.call("python3", f"{SOURCE}/tests/openstack/control.py", "catalog", json.dumps(said))
        one.sh("rabbitmqctl --silent shutdown", environment=BROKER)
        one.stop("mariadb")
    finally:
        one.end()
    (partial / "upper").rename(layer)
    shutil.rmtree(partial, ignore_errors=True)
    return layer


def _enter_network(stack: ExitStack, one: Host) -> None:
    """This thread is in the controller's network from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    for path in (f"/proc/{os.getpid()}/ns/net", f"/proc/{one.space.pid}/ns/net"):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, handle)
        if path.startswith(f"/proc/{os.getpid()}/"):
            stack.callback(libc.setns, handle, 0)
        elif libc.setns(handle, 0):
            raise OSError(ctypes.get_errno(), "setns")


