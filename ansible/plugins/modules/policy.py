#!/usr/bin/python
# GNU General Public License version 2 or later: together with Ansible, version 3 or later (https://www.gnu.org/licenses/)
# SPDX-License-Identifier: GPL-2.0-or-later
"""The policies of domains that are there, by the host's own command."""

from __future__ import annotations

DOCUMENTATION = r"""
module: policy
short_description: Make existing virtual machines foreground or background
version_added: 0.2.0
description:
  - Sets or removes the Idletime policy of libvirt domains, whoever has made them, running or not. Nothing is restarted,
    and nothing of a domain's XML is changed but its metadata.
  - The policy is the whole policy. What a task does not say is not kept from before.
  - A running domain is waited for, until C(idletimed) has carried its policy out.
  - It is done by the host's command C(virt-idletime), see virt-idletime(1); role P(idletime.kvm.host#role) installs it.
author:
  - The Idletime project (@idletime)
options:
  name:
    description:
      - Domains by name, UUID, or glob of these such as V(ci-*).
      - That no domain fits is an error, whatever O(state) is. It is a slip, or the domain is on another host.
    type: list
    elements: str
    required: true
    aliases: [names, domain]
  state:
    description:
      - V(present) sets the policy.
      - V(absent) takes the domains' own policy away. Then the rules of the host decide, or its default; without any the
        domain is stock again, at once.
    type: str
    choices: [present, absent]
    default: present
  class:
    description:
      - V(foreground) is served at once, and seen by background on the same disk or uplink.
      - V(background) uses what foreground leaves idle.
      - V(guest) lets the guest decide for each request, downward only.
      - Needed unless O(state=absent).
    type: str
    choices: [foreground, background, guest]
  disks:
    description:
      - What is different for single disks.
      - That a domain has no such disk is a warning, so that a glob can name what only some of its domains have.
    type: list
    elements: dict
    default: []
    suboptions:
      target:
        description: The disk as the domain names it, such as V(vda); without it, all disks that have no entry of their own.
        type: str
      resource:
        description: >-
          What it contends for. V(auto) is found out from the host, V(none) leaves the disk alone; else a name, see
          C(virt-idletime resources).
        type: str
      class:
        description: Its class, if it is not the domain's.
        type: str
        choices: [foreground, background, guest]
      queues:
        description: Queues that are background whatever the class is, such as V(2-3,6).
        type: str
  interfaces:
    description: What is different for single network interfaces.
    type: list
    elements: dict
    default: []
    suboptions:
      target:
        description: The MAC address, or the name of the tap; without it, all interfaces that have no entry of their own.
        type: str
      resource:
        description: As of O(disks[].resource).
        type: str
      class:
        description: Its class, if it is not the domain's.
        type: str
        choices: [foreground, background, guest]
      queues:
        description: As of O(disks[].queues).
        type: str
      dscp:
        description: Code points that mean background in class V(guest), such as V(1,8).
        type: str
  interval:
    description:
      - Preemption interval with a unit, such as V(20ms); or V(auto), which is learned.
      - Where neither this nor the host says one, it is learned. Best left to the host, in one place for all domains
        (variable C(host_resources) of role P(idletime.kvm.host#role)).
    type: str
  budget_percent:
    description: With the interval V(auto), the largest accepted mean slowdown of the foreground.
    type: int
  shadow:
    description: Decide and count everything, hold nothing.
    type: bool
  max_inflight:
    description: Background requests in service at a time, 1 to 64.
    type: int
  max_request:
    description: Larger background requests are issued in pieces of this size, such as V(128KiB).
    type: str
  max_hold:
    description: A held request is promoted after this time, such as V(5s); V(never) is dangerous.
    type: str
  uplink_rate:
    description: What an uplink sends in a second, such as V(950Mbit); for hosts with br_netfilter.
    type: str
  weight:
    description: Share among the background participants of a resource, 1 to 10000.
    type: int
  control:
    description: What the guest's agent may do, nothing or lower its domain and its processes.
    type: str
    choices: [none, demote]
  cpu:
    description: Processor class.
    type: str
    choices: [idle, minimal]
  memory_low:
    description: Memory that it keeps at least, such as V(256MiB); what it has beyond is given back while the foreground is short.
    type: str
  memory_high:
    description: Memory beyond which the host reclaims first, such as V(512MiB); needs O(memory_low).
    type: str
  enforce:
    description:
      - How it is kept back where it is background. V(interval) request by request, V(suspend) as a whole virtual machine, V(rate) by
        limits while the foreground is busy, V(auto) by what its devices allow.
    type: str
    choices: [interval, suspend, rate, auto]
  by:
    description:
      - Time of day, such as V("06:00"), in quotes, at which a background domain becomes foreground for the rest of its run.
    type: str
  jobs:
    description: What block jobs of the domain are (copies, commits, backups) and its live migration, whatever its class.
    type: str
    choices: [foreground, background]
  jobs_by:
    description: Time of day at which each background job is to be done, such as V("06:00"), in quotes; needs O(jobs).
    type: str
  scratch_disks:
    description:
      - Targets of its scratch disks, such as V(vdb); qcow2 overlays on a local file system.
      - Where that is short of space, they are trimmed, then the domain is stopped and B(all that they hold is dropped).
    type: list
    elements: str
    default: []
  wait:
    description: Wait until C(idletimed) has carried the policy out in running domains, ten seconds at the most.
    type: bool
    default: true
  uri:
    description: The libvirt to talk to. The default is that of C(virt-idletime).
    type: str
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status without changing anything.
  diff_mode:
    support: full
    description: Shows the policy of each domain before and after.
seealso:
  - name: idletime-policy(5)
    description: What each setting means.
    link: https://libvirt.org/formatdomain.html#custom-metadata
  - module: community.libvirt.virt
"""

EXAMPLES = r"""
- name: The build runners use what the others leave idle
  idletime.kvm.policy:
    name: ci-*
    class: background

- name: A database is foreground but for its disk of backups; its network is left alone
  idletime.kvm.policy:
    name: db1
    class: foreground
    disks:
      - target: vdb
        class: background
    interfaces:
      - resource: none

- name: Two machines may cost the others a little more, and their guests may lower themselves
  idletime.kvm.policy:
    name: [batch, 0c9f1c3e-64c5-4f0b-9b3b-0d6f6d1f2a11]
    class: background
    interval: auto
    budget_percent: 10
    weight: 50
    control: demote

- name: Backups and copies of the databases wait for idle disks; the databases do not
  idletime.kvm.policy:
    name: db*
    class: foreground
    jobs: background
    jobs_by: "06:00"

- name: Stock again, at once
  idletime.kvm.policy:
    name: ci-*
    state: absent
"""

RETURN = r"""
domains:
  description: Each domain that was named, in the order of their names.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: ci-1
    uuid:
      description: Its UUID.
      type: str
      sample: 0c9f1c3e-64c5-4f0b-9b3b-0d6f6d1f2a11
    changed:
      description: Whether its policy is another one than before.
      type: bool
    class:
      description: The class that it has by its own policy, by the host's rules or by the host's default; none is stock.
      type: str
      sample: background
    in_force:
      description: Whether QEMU does so now. Null where the domain does not run, or nobody waited.
      type: bool
    devices:
      description: Which device is on which resource.
      type: list
      elements: str
      sample: [vda on sda]
    when:
      description: From when on the policy holds.
      type: str
      sample: now and at each start
    problems:
      description: What is not in force and why, with the remedy. Each is a warning, too.
      type: list
      elements: str
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.idletime.kvm.plugins.module_utils.element import interval_problem, policy_element

COMMAND = "virt-idletime"
ROLE = "run role idletime.kvm.host on this host, or install the package idletime-host"

# Exit status of the command.
OK = 0
PENDING = 5  # written, but not all of it in force now
SETTINGS = 7  # done, but files below /etc/idletime are wrong

POLICY_OPTIONS = ("class", "disks", "interfaces", "interval", "budget_percent", "shadow", "max_inflight", "max_request", "max_hold",
                  "uplink_rate", "weight", "control", "cpu", "memory_low", "memory_high", "enforce", "by", "jobs", "jobs_by",
                  "scratch_disks")

CLASSES = ["foreground", "background", "guest"]


def arguments():
    """What a task may say."""
    device = dict(target=dict(type="str"), resource=dict(type="str"), queues=dict(type="str"))
    device["class"] = dict(type="str", choices=CLASSES)
    spec = dict(
        name=dict(type="list", elements="str", required=True, aliases=["names", "domain"]),
        state=dict(type="str", choices=["present", "absent"], default="present"),
        disks=dict(type="list", elements="dict", default=[], options=device),
        interfaces=dict(type="list", elements="dict", default=[], options=dict(device, dscp=dict(type="str"))),
        interval=dict(type="str"), budget_percent=dict(type="int"), shadow=dict(type="bool"), max_inflight=dict(type="int"),
        max_request=dict(type="str"), max_hold=dict(type="str"), uplink_rate=dict(type="str"), weight=dict(type="int"),
        control=dict(type="str", choices=["none", "demote"]), cpu=dict(type="str", choices=["idle", "minimal"]),
        memory_low=dict(type="str"), memory_high=dict(type="str"),
        enforce=dict(type="str", choices=["interval", "suspend", "rate", "auto"]), by=dict(type="str"),
        jobs=dict(type="str", choices=["foreground", "background"]), jobs_by=dict(type="str"),
        scratch_disks=dict(type="list", elements="str", default=[]), wait=dict(type="bool", default=True), uri=dict(type="str"),
    )
    spec["class"] = dict(type="str", choices=CLASSES)
    return spec


def words(program, action, params, check_mode):
    """The command line of one change. Pure."""
    found = [program]
    if params["uri"]:
        found += ["--connect", params["uri"]]
    found += [action, "--json"]
    if check_mode:
        found.append("--dry-run")
    if not params["wait"]:
        found.append("--no-wait")
    if action == "mark":
        found += ["--policy", "/proc/self/fd/0"]
    return found + ["--"] + params["name"]


def merged(answers):
    """One entry a domain, of the answers of several commands: the later one knows more, a change stays one. Pure."""
    found = {}
    for one in answers:
        before = found.get(one["uuid"])
        if before and before["changed"]:
            one = dict(one, changed=True, policy_before=before["policy_before"])
        found[one["uuid"]] = one
    return sorted(found.values(), key=lambda one: one["name"])


def results(answers):
    """What the task returns. Pure."""
    keys = ("name", "uuid", "changed", "class", "in_force", "devices", "when", "problems")
    return dict(
        changed=any(one["changed"] for one in answers),
        domains=[dict((key, one[key]) for key in keys) for one in answers],
        diff=[dict(before_header=one["name"], after_header=one["name"], before=_text(one["policy_before"]),
                   after=_text(one["policy_after"])) for one in answers if one["changed"]])


def _text(policy):
    return (policy or "").rstrip() + "\n" if policy else ""


def call(module, program, action, element):
    """One change; returns what the command says of each domain, and whether and why it failed."""
    argv = words(program, action, module.params, module.check_mode)
    status, output, said = module.run_command(argv, data=element, environ_update=dict(LC_ALL="C.UTF-8", NO_COLOR="1"))
    try:
        answers = json.loads(output) if output.strip() else []
    except ValueError:
        module.fail_json(msg="%s printed no JSON: %s%s" % (" ".join(argv), output[:500], said))
    if status == SETTINGS:
        module.warn(said.strip())
    return answers, None if status in (OK, PENDING, SETTINGS) else said.strip() or "%s ended with %d" % (" ".join(argv), status)


def main():
    """See DOCUMENTATION."""
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True,
                           required_if=[("state", "present", ["class"])])
    params = module.params
    program = module.get_bin_path(COMMAND)
    if program is None:
        module.fail_json(msg="there is no %s on this host; remedy: %s" % (COMMAND, ROLE))
    wrong = interval_problem(params["interval"])
    if wrong:
        module.fail_json(msg="interval is '%s': %s" % (params["interval"], wrong))
    # A policy of class foreground is taken away by another command than the others: each leaves alone what is not its own.
    actions, element = (("mark",), policy_element(dict((name, params[name]) for name in POLICY_OPTIONS))) \
        if params["state"] == "present" else (("unmark", "disable"), None)
    answers = []
    for action in actions:
        more, failure = call(module, program, action, element)
        answers += more
        if failure:
            module.fail_json(msg=failure, **results(merged(answers)))
    answers = merged(answers)
    for one in answers:
        for problem in one["problems"]:
            module.warn("%s: %s" % (one["name"], problem))
    module.exit_json(**results(answers))


if __name__ == "__main__":
    main()
