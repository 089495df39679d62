"""What the services are told: OpenStack's own files, as an installer would write them. Passwords are of a network that nobody sees."""

from __future__ import annotations

CONTROLLER, BITS = "10.99.0.1", 24
PASSWORD = "os"
DATABASE = f"mysql+pymysql://os:{PASSWORD}@127.0.0.1"
DATABASES = ("keystone", "placement", "glance", "neutron", "nova_api", "nova", "nova_cell0")
USERS = ("nova", "placement", "glance", "neutron")
PORTS = {"identity": 5000, "placement": 8778, "image": 9292, "compute": 8774, "network": 9696, "volumev3": 8776}
PATHS = {"identity": "/v3", "compute": "/v2.1", "volumev3": "/v3/%(tenant_id)s"}
TENANTS, TENANTS_BITS, UPLINK = "10.98.0.1", 16, "eth1"
"""The network of the servers: the controller's address in it, and the interface of a hypervisor by which it leaves."""


def url(service: str) -> str:
    """Of its endpoint, by Keystone's type of service."""
    return f"http://{CONTROLLER}:{PORTS[service]}{PATHS.get(service, '')}"


def credentials(user: str, project: str = "service") -> dict[str, str]:
    """As keystoneauth names them."""
    return {"auth_url": url("identity"), "username": user, "password": PASSWORD, "project_name": project,
            "user_domain_name": "Default", "project_domain_name": "Default"}


def _section(name: str, values: dict[str, object]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


def as_user(user: str) -> dict[str, object]:
    """Of a section that says who a service is."""
    return {"auth_type": "password", **credentials(user), "region_name": "RegionOne"}


def _checks_tokens(user: str) -> str:
    return _section("keystone_authtoken", {"www_authenticate_uri": url("identity"), **as_user(user), "service_token_roles_required": "false"})


KEYSTONE = _section("DEFAULT", {"log_dir": ""}) + _section("database", {"connection": f"{DATABASE}/keystone"}) + _section(
    "token", {"provider": "fernet"})
PLACEMENT = _section("api", {"auth_strategy": "keystone"}) + _section(
    "placement_database", {"connection": f"{DATABASE}/placement"}) + _checks_tokens("placement")
GLANCE = (
    _section("DEFAULT", {"bind_host": CONTROLLER, "bind_port": PORTS["image"], "workers": 1, "enabled_backends": "fs:file"})
    + _section("database", {"connection": f"{DATABASE}/glance"}) + _section("glance_store", {"default_backend": "fs"})
    + _section("fs", {"filesystem_store_datadir": "/var/lib/glance/images"}) + _section("paste_deploy", {"flavor": "keystone"})
    + _checks_tokens("glance"))

_NOVA = {
    "transport_url": f"rabbit://os:{PASSWORD}@{CONTROLLER}:5672/", "state_path": "/var/lib/nova",
    "compute_driver": "libvirt.LibvirtDriver", "instances_path": "/srv/instances", "update_resources_interval": 5,
    "sync_power_state_interval": 20, "vif_plugging_is_fatal": "false", "vif_plugging_timeout": 0,
    "heal_instance_info_cache_interval": -1, "enabled_apis": "osapi_compute", "osapi_compute_listen": CONTROLLER,
    "osapi_compute_workers": 1, "reserved_host_memory_mb": 0, "initial_ram_allocation_ratio": 4.0,
    "initial_cpu_allocation_ratio": 16.0, "initial_disk_allocation_ratio": 16.0, "allow_resize_to_same_host": "true",
    "resume_guests_state_on_host_boot": "true",
}
_SECTIONS: dict[str, dict[str, object]] = {
    "api": {"auth_strategy": "keystone"}, "conductor": {"workers": 1},
    "quota": {"instances": -1, "cores": -1, "ram": -1}, "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 5},
    "vnc": {"enabled": "false"}, "spice": {"enabled": "false"}, "glance": {"api_servers": url("image")},
    "oslo_concurrency": {"lock_path": "/var/lib/nova/tmp"}, "service_user": {"send_service_user_token": "true", **as_user("nova")},
    "placement": as_user("placement"), "neutron": as_user("neutron"),
    "cinder": {"os_region_name": "RegionOne"},
    # Kernel and initial RAM disk are images, too, which the inspection takes for broken.
    "workarounds": {"disable_deep_image_inspection": "true"},
}


def nova(databases: bool, host: str, address: str, *extra: str) -> str:
    """nova.conf of the controller, which has the data bases, or of a hypervisor, which must not name them."""
    text = _section("DEFAULT", {**_NOVA, "host": host, "my_ip": address})
    if databases:
        text += _section("api_database", {"connection": f"{DATABASE}/nova_api"}) + _section("database", {"connection": f"{DATABASE}/nova"})
    text += "".join(_section(name, values) for name, values in _SECTIONS.items()) + _checks_tokens("nova")
    text += _section("libvirt", {
        "virt_type": "qemu", "cpu_mode": "none", "images_type": "raw", "live_migration_uri": "qemu+tcp://%s/system",
        "live_migration_inbound_addr": address, "live_migration_scheme": "tcp", "live_migration_timeout_action": "abort"})
    return text + "".join(extra)


NEUTRON = (
    _section("DEFAULT", {"core_plugin": "ml2", "service_plugins": "", "auth_strategy": "keystone", "bind_host": CONTROLLER,
                         "transport_url": f"rabbit://os:{PASSWORD}@{CONTROLLER}:5672/", "api_workers": 1, "rpc_workers": 1,
                         "rpc_state_report_workers": 0, "dhcp_agent_notification": "false", "state_path": "/var/lib/neutron"})
    + _section("database", {"connection": f"{DATABASE}/neutron"}) + _section("nova", as_user("nova"))
    + _section("placement", as_user("placement")) + _checks_tokens("neutron"))
_BRIDGES = _section("oslo_concurrency", {"lock_path": "/var/lib/neutron/tmp"}) + _section("experimental", {"linuxbridge": "true"})


def ml2(ports: bool) -> str:
    """Of neutron-server. ports: with Linux bridges."""
    return (
        _section("ml2", {"type_drivers": "flat", "tenant_network_types": "", "mechanism_drivers": "linuxbridge" if ports else "",
                         "extension_drivers": "port_security"})
        + _section("ml2_type_flat", {"flat_networks": "tenants"}) + _BRIDGES)


def bridges(host: str) -> str:
    """Of Neutron's agent on a hypervisor."""
    return (
        _section("DEFAULT", {"transport_url": f"rabbit://os:{PASSWORD}@{CONTROLLER}:5672/", "host": host,
                             "state_path": "/var/lib/neutron", "core_plugin": "ml2"})
        + _section("linux_bridge", {"physical_interface_mappings": f"tenants:{UPLINK}"}) + _section("vxlan", {"enable_vxlan": "false"})
        + _section("securitygroup", {"enable_security_group": "false", "firewall_driver": "noop"})
        + _section("agent", {"root_helper": "sudo", "polling_interval": 1}) + _BRIDGES)


WEIGHER = _section("filter_scheduler", {
    "weight_classes": "nova.scheduler.weights.all_weighers,idletime_openstack.weigher.IdletimeWeigher"})


def agent(host: str) -> str:
    """/etc/idletime/openstack.conf of a hypervisor."""
    return _section("idletime", {"provider": host, "look_seconds": 2})


EVICTION = {"after_seconds": 8, "resume_seconds": 8, "look_seconds": 2, "acts_per_minute": 60, "disruptions": 100,
            "migration_mib_per_second": 0}
EVICTOR = _section("eviction", {"background_flavors": "bg.*", **EVICTION}) + _section("nova", as_user("nova"))

LIBVIRTD = """listen_tls = 0
listen_tcp = 1
listen_addr = "{address}"
auth_tcp = "none"
auth_unix_rw = "none"
unix_sock_rw_perms = "0770"
host_uuid = "{uuid}"
log_outputs = "3:stderr"
"""
