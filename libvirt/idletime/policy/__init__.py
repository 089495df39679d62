# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy element: model, units, parser, exact errors. Pure."""

from ..police.enforce import Enforce
from .model import AUTO, NAMESPACE, NONE, Class, Control, CpuClass, DevicePolicy, Memory, Policy, Space
from .parse import parse

__all__ = ["AUTO", "NAMESPACE", "NONE", "Class", "Control", "CpuClass", "DevicePolicy", "Enforce", "Memory", "Policy", "Space",
           "parse"]
