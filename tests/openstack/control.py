"""Runs on the controller, as python3 control.py STEP: fills Keystone's catalog, or plays the part of Cinder.

Cinder of Debian has no driver that works without the device mapper or a storage of its own. What is played here is what Nova asks:
one volume, a block device that each hypervisor has under the same name, and its attachments.
"""

import json
import re
import sys
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

STAMP = "2026-01-01T00:00:00.000000"


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


class Cinder(BaseHTTPRequestHandler):
    """A volume with any UUID is the device."""

    protocol_version = "HTTP/1.1"
    device = ""
    attachments: dict[str, dict] = {}

    def _answer(self, status: int, body: dict | None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("OpenStack-API-Version", "volume 3.70")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> dict:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def _last(self) -> str:
        return self.path.split("?")[0].rstrip("/").split("/")[-1]

    def do_GET(self) -> None:
        if match := re.search(r"/volumes/([^/?]+)$", self.path):
            self._answer(200, {"volume": self._volume(match[1])})
        elif self._last() in ("attachments", "detail"):  # Nova 31 looks for those that it has forgotten
            asked = parse_qs(urlsplit(self.path).query)
            found = [one for one in self.attachments.values() if one["instance"] in asked.get("instance_id", [one["instance"]])
                     and one["volume_id"] in asked.get("volume_id", [one["volume_id"]])]
            self._answer(200, {"attachments": found})
        elif "/attachments/" in self.path:
            self._answer(200, {"attachment": self.attachments[self._last()]})
        else:
            version = {"id": "v3.0", "status": "CURRENT", "version": "3.70", "min_version": "3.0", "links": []}
            self._answer(200, {"versions": [version]})

    def _volume(self, name: str) -> dict:
        mine = [one for one in self.attachments.values() if one["volume_id"] == name]
        of_volume = [{"server_id": one["instance"], "attachment_id": one["id"], "device": "/dev/vdb", "volume_id": name} for one in mine]
        return {"id": name, "status": "in-use" if mine else "available", "size": 1, "availability_zone": "nova", "created_at": STAMP,
                "name": "volume", "description": "", "volume_type": None, "snapshot_id": None, "bootable": "false", "metadata": {},
                "multiattach": False, "attachments": of_volume, "encrypted": False, "shared_targets": False, "service_uuid": None}

    def do_POST(self) -> None:
        said = self._body()
        if self.path.endswith("/action"):
            self._answer(204, None)
            return
        asked = said["attachment"]
        one = {"id": str(uuid.uuid4()), "volume_id": asked["volume_uuid"], "instance": asked["instance_uuid"], "status": "reserved",
               "attached_at": "", "detached_at": "", "connection_info": self._connection(asked.get("connector"))}
        self.attachments[one["id"]] = one
        self._answer(200, {"attachment": one})

    def do_PUT(self) -> None:
        one = self.attachments[self._last()]
        one["connection_info"] = self._connection(self._body()["attachment"]["connector"])
        self._answer(200, {"attachment": one})

    def _connection(self, connector: dict | None) -> dict:
        return {"driver_volume_type": "local", "device_path": self.device, "qos_specs": None, "access_mode": "rw"} if connector else {}

    def do_DELETE(self) -> None:
        self.attachments.pop(self._last(), None)
        self._answer(200, {"attachments": []})


if __name__ == "__main__":
    if sys.argv[1] == "catalog":
        catalog(json.loads(sys.argv[2]))
    else:
        Cinder.device = sys.argv[4]
        ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Cinder).serve_forever()
