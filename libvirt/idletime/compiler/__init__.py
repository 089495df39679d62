# SPDX-License-Identifier: GPL-2.0-or-later
"""Domain XML with a policy in, domain XML with its effect out. Pure; idempotent to the byte; undone to the byte."""

from .compile import compile, compile_device, decompile, plan, root_name
from .facts import HostFacts, Resolution, Source
from .result import CompileResult, DevicePlan, Plan, ResourcePlan

__all__ = ["CompileResult", "DevicePlan", "HostFacts", "Plan", "Resolution", "ResourcePlan", "Source",
           "compile", "compile_device", "decompile", "plan", "root_name"]
