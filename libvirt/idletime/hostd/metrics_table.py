# SPDX-License-Identifier: GPL-2.0-or-later
"""All metrics that idletimed serves, as data; idletime-metrics(7) has the same table, and a test compares them.

HELP says what a number is, and what to do about it. `idletime_resource_*` are sums over all VMs since idletimed looks, which
only grow; `idletime_device_*` and `idletime_job_*` are a QEMU's own, and begin anew with it or with the job.
"""

from __future__ import annotations

from dataclasses import dataclass

RESOURCE, VIEW, DEVICE = ("resource",), ("vm", "resource"), ("vm", "resource", "device")
JOB = (*DEVICE, "type")


@dataclass(frozen=True)
class Metric:
    """name: as in the text that is served. kind: counter, gauge, histogram, info."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def family(self) -> str:
        """Its name in OpenMetrics' # TYPE."""
        return self.name.removesuffix({"counter": "_total", "info": "_info"}.get(self.kind, ""))

    @property
    def unit(self) -> str:
        return next((unit for unit in ("seconds", "bytes", "ratio") if self.family.endswith(f"_{unit}")), "")


METRICS = (
    # ---- the daemon
    Metric("idletime_daemon_info", "info", ("version",),
           "Version of idletimed; hosts that migrate VMs to each other should have the same."),
    Metric("idletime_daemon_start_time_seconds", "gauge", (),
           "When idletimed started, since 1970; if it changes often, journalctl -u idletimed says why."),
    Metric("idletime_daemon_tick_age_seconds", "gauge", (),
           "Age of the last tick, which comes every 2 s; if it grows, idletimed hangs: restart it, VMs keep what they "
           "have."),
    Metric("idletime_daemon_facts_age_seconds", "gauge", (),
           "Age of all figures here; above two look-seconds idletimed does not get to look: see its log."),
    Metric("idletime_daemon_looks_total", "counter", (),
           "Looks at VMs; many a second mean that something changes VMs all the time."),
    Metric("idletime_daemon_look_failures_total", "counter", (),
           "Looks at VMs that came to nothing and are tried again; virt-idletime status says what of which VM."),
    Metric("idletime_daemon_look_seconds_total", "counter", (),
           "Time that looks took; above 1 s a look a QEMU or libvirtd is slow to answer."),
    Metric("idletime_daemon_stale_seconds", "gauge", (),
           "Figures older than this are not kept up to date: three times resync-seconds or metrics.look-seconds, 900 at "
           "least."),
    Metric("idletime_daemon_hanging_vms", "gauge", (),
           "VMs that have not answered for 10 s; virsh domjobinfo says what they do."),
    Metric("idletime_daemon_wrong_files", "gauge", (),
           "Mistakes below /etc/idletime, which are left out; virt-idletime doctor names them."),
    Metric("idletime_daemon_unread_vms", "gauge", (),
           "VMs whose QEMU answers what does not fit; the log says what. Is it Idletime's QEMU?"),
    Metric("idletime_daemon_left_out_vms", "gauge", (),
           "VMs beyond 1000, which are in no figure here; ask virt-idletime for them."),
    Metric("idletime_daemon_scrapes_total", "counter", (),
           "Answers with metrics; if it grows faster than your scrapers ask, somebody else reads."),
    Metric("idletime_daemon_refused_scrapes_total", "counter", (),
           "Connections that were ended unanswered, as slow or too many; find out who opens them (ss -xp, ss -tp)."),
    # ---- VMs
    Metric("idletime_vms", "gauge", ("class",),
           "VMs that run; of class none are those that no policy and no rule names: only an observer sees them, so mark them."),
    Metric("idletime_vm_info", "info", ("vm", "class", "by"),
           "Who a VM is, and who says so: its own policy (domain), a rule, or the default; virt-idletime explain says "
           "more."),
    Metric("idletime_vm_in_force", "gauge", ("vm",),
           "1: QEMU has what the policy wants. 0: virt-idletime status says what it lacks."),
    Metric("idletime_vm_problems", "gauge", ("vm",),
           "What could not be carried out; virt-idletime status lists it, each with its remedy."),
    Metric("idletime_vm_stopped", "gauge", ("vm",),
           "1: idletimed has stopped it for the foreground (enforce); 1 most of the time: no idle time is left, move a VM."),
    Metric("idletime_vm_limited_devices", "gauge", ("vm",),
           "Devices that have a rate limit for the foreground now (enforce='rate'); limited all the time: move a VM."),
    Metric("idletime_vm_memory_given_bytes", "gauge", ("vm",),
           "Memory that a background VM has given to the foreground; if it never gets it back, the host has too little."),
    Metric("idletime_vm_look_timestamp_seconds", "gauge", ("vm",),
           "When the VM's figures were taken, since 1970; old ones mean that its QEMU does not answer."),
    # ---- what policies have done to whole VMs, since idletimed started
    Metric("idletime_policy_acts_total", "counter", ("policy", "act", "cause"),
           "What was done to whole background VMs, and why; the cause that grows is what the host is short of: move a VM."),
    Metric("idletime_policy_stopped_seconds_total", "counter", (),
           "Time that VMs were stopped (enforce), all together; if it grows all the time, no idle time is left: move a VM."),
    Metric("idletime_policy_taken_bytes_total", "counter", ("policy", "act"),
           "Memory and disk space that background VMs gave; if it grows all the time, the host has too little: move a VM."),
    Metric("idletime_policy_migrated_total", "counter", ("direction",),
           "VMs that came in and went out by migration; if both grow all the time, VMs go to and fro: ask who moves them."),
    # ---- resources: sums over all VMs, since idletimed looks
    Metric("idletime_resource_events_total", "counter", (*RESOURCE, "state", "event"),
           "Events in each state, as background VMs see them; foreground in preemption is what the interval saved: where it is "
           "little beside foreground in background, make it longer."),
    Metric("idletime_resource_collisions_total", "counter", RESOURCE,
           "Foreground requests that found background in service; many: a longer interval, or a smaller budget."),
    Metric("idletime_resource_collision_cost_seconds_total", "counter", RESOURCE,
           "Time that foreground waited for background at least; if it grows by more than you accept, lower the budget."),
    Metric("idletime_resource_requests_total", "counter", (*RESOURCE, "class"),
           "Requests issued; where background stands still beside its VMs' load, it starves."),
    Metric("idletime_resource_bytes_total", "counter", (*RESOURCE, "class"),
           "Bytes issued; background is idle time that was used: bill it by idletime_device_bytes_total, which says of whom."),
    Metric("idletime_resource_promotions_total", "counter", (*RESOURCE, "cause"),
           "Held requests released early; many by deadline: no idle time is left, move a VM or raise the budget."),
    Metric("idletime_resource_waits_total", "counter", (*RESOURCE, "reason"),
           "Why held requests could not start; arena is a fault, budget and interval are settings, foreground is load."),
    Metric("idletime_resource_devices", "gauge", (*RESOURCE, "class"),
           "Devices on it now; with none that is background nobody is held."),
    Metric("idletime_resource_generations", "gauge", RESOURCE,
           "Versions of the arena in use; more than 1: VMs do not see each other until the old ones are started anew or "
           "migrated."),
    # ---- resources, as one VM's QEMU sees them
    Metric("idletime_view_state", "gauge", (*VIEW, "state"),
           "1 of the state that holds; lost: the arena or its observer is gone, background goes by deadline only: virt-"
           "idletime explain."),
    Metric("idletime_view_interval_seconds", "gauge", VIEW,
           "Preemption interval in force; longer ones protect the foreground, shorter ones feed the background."),
    Metric("idletime_view_auto", "gauge", VIEW,
           "1: the interval is learned. 0: somebody has set it, and has to know the foreground's pauses."),
    Metric("idletime_view_learner_ready", "gauge", VIEW,
           "1: enough is known. 0 for minutes: the foreground pauses too seldom to learn from."),
    Metric("idletime_view_learner_seconds_total", "counter", VIEW, "Processor time of learning; it should stay far below 1 %."),
    Metric("idletime_view_workload_changes_total", "counter", VIEW,
           "How often the foreground changed so much that all was learned anew; the budget may be exceeded meanwhile."),
    Metric("idletime_view_budget_ratio", "gauge", VIEW,
           "Accepted mean slowdown of the foreground, 0.03 is 3 %; budget-percent sets it."),
    Metric("idletime_view_slowdown_ratio", "gauge", VIEW,
           "Budget spent: mean slowdown of the foreground by all background since learning began; above idletime_view_budget_"
           "ratio: lower budget-percent."),
    Metric("idletime_view_service_seconds", "gauge", VIEW,
           "Time that a background request takes on average; times its requests, it is the idle time that a bill is about."),
    Metric("idletime_view_credit_seconds", "gauge", VIEW,
           "Budget that is left to spend; below 0 the foreground has paid in advance."),
    Metric("idletime_view_credit_max_seconds", "gauge", VIEW,
           "Up to this budget is saved; credit that stays there is not needed."),
    Metric("idletime_view_spare_ratio", "gauge", (*VIEW, "span"),
           "Share of time without foreground, of the last second, minute, hour; near 0 there is nothing to give: move a "
           "VM."),
    Metric("idletime_view_spare_forecast_ratio", "gauge", VIEW,
           "The same as expected for the next minute; start background jobs where it is high."),
    # ---- observers
    Metric("idletime_observer_up", "gauge", RESOURCE,
           "1: foreground that passes QEMU by is seen. 0: virt-idletime resources and doctor say why not."),
    Metric("idletime_observer_possible", "gauge", RESOURCE,
           "1: it is one device of this host. 0: the kernel cannot see it, say observe = false."),
    Metric("idletime_observer_declared", "gauge", RESOURCE,
           "1: observe = true, so background goes by deadline only while its observer is down."),
    Metric("idletime_observer_hidden_vms", "gauge", RESOURCE,
           "VMs in a cgroup that is left out, which it does not see; give them one of their own."),
    Metric("idletime_observer_hidden_disks", "gauge", RESOURCE,
           "Disks without a place of VMs that are left out for another disk; virt-idletime doctor names them."),
    Metric("idletime_observer_awaited_views", "gauge", RESOURCE,
           "QEMUs that hold by deadline only as the declared observer is not there; start it."),
    Metric("idletime_observer_lost_total", "counter", RESOURCE,
           "Observers that QEMUs lost, each QEMU counted; the log of idletime-observer says why."),
    Metric("idletime_observer_requests_total", "counter", RESOURCE,
           "Foreground requests that it saw; none on a busy disk: it looks at the wrong one."),
    Metric("idletime_observer_bytes_total", "counter", RESOURCE,
           "Bytes of these; compare them with those of the disk to see what is left out."),
    Metric("idletime_observer_unpaired_total", "counter", RESOURCE,
           "Ends without a begin, not counted; some at its start are normal."),
    Metric("idletime_observer_healed_total", "counter", RESOURCE,
           "Begins without an end, taken back; if it grows all the time, report it with the kernel's version."),
    Metric("idletime_observer_missed_total", "counter", RESOURCE,
           "Events that the kernel did not tell it; foreground was not seen: report it."),
    Metric("idletime_observer_requeued_total", "counter", RESOURCE,
           "Requests issued and taken back; many mean a busy or failing disk."),
    # ---- the gauge: idletime-gauge(5)
    Metric("idletime_spare_timestamp_seconds", "gauge", (),
           "When the gauge looked last, since 1970; older than 10 s: idletimed hangs, do not place VMs by it."),
    Metric("idletime_spare_spare_ratio", "gauge", (*RESOURCE, "span"),
           "Share of time without foreground, also where nobody is background; place VMs where steady is high, move one where "
           "it stays low."),
    Metric("idletime_spare_whole", "gauge", RESOURCE,
           "1: all foreground is in it. 0: only what passes Idletime's QEMUs; see virt-idletime gauge."),
    Metric("idletime_spare_rate_bytes", "gauge", RESOURCE,
           "What an uplink sends in a second; if it is wrong, say rate in /etc/idletime/resources.d."),
    # ---- devices, as their QEMU counts since it attached them
    Metric("idletime_device_info", "info", (*DEVICE, "class"),
           "Class of a device now; virt-idletime mark and unmark change it."),
    Metric("idletime_device_seen", "gauge", DEVICE,
           "0: its packets pass QEMU by (vhost); without an observer background does not wait for them."),
    Metric("idletime_device_requests_total", "counter", (*DEVICE, "class"),
           "Requests issued; large ones of background count once a piece."),
    Metric("idletime_device_bytes_total", "counter", (*DEVICE, "class"), "Bytes of these; by VM, what a bill is made of."),
    Metric("idletime_device_held_requests", "gauge", DEVICE,
           "Requests that wait for foreground; held all the time without any issued: it starves."),
    Metric("idletime_device_in_service_requests", "gauge", DEVICE,
           "Background requests that the disk or link has; one that stays hangs in the backend."),
    Metric("idletime_device_passed_total", "counter", DEVICE,
           "Requests that are never held, such as flushes; many: the guest syncs a lot."),
    Metric("idletime_device_dropped_total", "counter", DEVICE,
           "Held packets dropped at resets and when the link went down; else it should stand still."),
    Metric("idletime_device_pieces_total", "counter", DEVICE,
           "Pieces of large requests; many: max-request-bytes is small for this guest."),
    Metric("idletime_device_promotions_total", "counter", (*DEVICE, "cause"),
           "Held requests released early; by deadline: raise the budget, or the guest waits for seconds."),
    Metric("idletime_device_hold_seconds", "histogram", DEVICE,
           "How long background requests were held; near max-hold-ms its guest suffers."),
    Metric("idletime_device_hold_max_seconds", "gauge", DEVICE,
           "The longest hold; above 60 s some guests give up: lower max-hold-ms."),
    Metric("idletime_device_drained_seconds_total", "counter", DEVICE,
           "Time in which snapshots and block jobs kept the device from releasing; long ones are the job's."),
    # ---- block jobs that are background (<job>), while they run
    Metric("idletime_job_requests_total", "counter", JOB,
           "Chunks that the job has read; none while it runs: it starves, give it more budget or run it as it is (unmark)."),
    Metric("idletime_job_bytes_total", "counter", JOB, "Bytes of these; the rate says when it will be done."),
    Metric("idletime_job_held_requests", "gauge", JOB,
           "Chunks that wait for foreground; held all the time without any read: it starves."),
    Metric("idletime_job_in_service_requests", "gauge", JOB, "Chunks that the disk has; one that stays hangs in the backend."),
    Metric("idletime_job_promotions_total", "counter", (*JOB, "cause"),
           "Held chunks released early; many by deadline: no idle time is left, run the job at another hour."),
    Metric("idletime_job_hold_seconds", "histogram", JOB,
           "How long chunks were held; near max-hold-ms the job goes by deadline only."),
    Metric("idletime_job_hold_max_seconds", "gauge", JOB,
           "The longest hold of a chunk; near max-hold-ms: no idle time was left then."),
    Metric("idletime_job_drained_seconds_total", "counter", JOB,
           "Time in which snapshots and other jobs kept it from going on; long ones are theirs."),
)

BY_NAME = {metric.name: metric for metric in METRICS}
