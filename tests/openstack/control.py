"""Runs on the controller, as python3 control.py STEP: fills Keystone's catalog, and plays the part of Neutron that servers without
a port need."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def catalog(said: dict) -> None:
    """The project service with its users, and where each service is."""
    import openstack  # the controller's own

    identity = openstack.connect(auth=said["auth"], region_name="RegionOne").identity
    service = identity.create_project(name="service", domain_id="default")
    admin = identity.find_role("admin")
    for name in said["users"]:
        user = identity.create_user(name=name, password=said["auth"]["password"], domain_id="default", default_project_id=service.id)
        identity.assign_project_role_to_user(service, user, admin)
    for kind, url in said["urls"].items():
        made = identity.create_service(name=kind, type=kind)
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(service_id=made.id, interface=interface, url=url, region_id="RegionOne")


class Nothing(BaseHTTPRequestHandler):
    """There is no network, port or group."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = self.path.split("?")[0].rstrip("/").split("/")[-1] or "versions"
        found = [{"id": "v2.0", "status": "CURRENT", "links": []}] if name == "versions" else []
        body = json.dumps({name: found}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    if sys.argv[1] == "catalog":
        catalog(json.loads(sys.argv[2]))
    else:
        ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Nothing).serve_forever()
