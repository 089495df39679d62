# SPDX-License-Identifier: GPL-2.0-or-later
"""The real Placement on a port of its own: sqlite, no Keystone (noauth2). Says its port, and serves until its input ends.

PORT 0 is any free one.

    placement_server.py FILE-OF-DATA-BASE PORT
"""

from __future__ import annotations

import os
import sys
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

from oslo_config import cfg
from placement import conf, db_api, deploy
from placement.db.sqlalchemy import migration


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    config = cfg.ConfigOpts()
    conf.register_opts(config)
    config.set_override("connection", f"sqlite:///{sys.argv[1]}", "placement_database")
    config.set_override("auth_strategy", "noauth2", "api")
    config([], project="placement", default_config_files=[])
    db_api.configure(config)
    if not os.path.exists(sys.argv[1]):
        migration.upgrade("head")
    with make_server("127.0.0.1", int(sys.argv[2]), deploy.loadapp(config), handler_class=_Quiet) as server:
        print(server.server_port, flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()


main()
