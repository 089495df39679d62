# SPDX-License-Identifier: GPL-2.0-or-later
"""python3 -m idletime is virt-idletime."""

import sys

from .cli.main import main

sys.exit(main())
