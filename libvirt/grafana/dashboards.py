# SPDX-License-Identifier: GPL-2.0-or-later
"""The dashboards for Grafana, from one source: `python3 libvirt/grafana/dashboards.py` writes the JSON files beside it.

What a panel asks for is PromQL over idletime-metrics(7) and the recording rules of ../prometheus. A test finds a stale file, a
metric or label that nobody has, and a query that Prometheus does not read: libvirt/tests/test_dashboards.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as models
from grafana_foundation_sdk.models import dashboard as of

HERE = Path(__file__).parent
SOURCE = of.DataSourceRef(type_val="prometheus", uid="${datasource}")

# Okabe and Ito: told apart with any colour vision. A class and a state have the same colour in every panel.
FOREGROUND, BACKGROUND, PREEMPTION, IDLE, LOST, UNKNOWN = "#0072B2", "#E69F00", "#56B4E9", "#BBBBBB", "#D55E00", "#777777"
STATES = {
    "foreground": FOREGROUND,
    "preemption": PREEMPTION,
    "background": BACKGROUND,
    "idle": IDLE,
    "lost": LOST,
    "unknown": UNKNOWN,
}
CLASSES = {"foreground": FOREGROUND, "background": BACKGROUND}
HOST, ON = 'instance="$instance"', 'instance="$instance",resource=~"$resource"'

Query = tuple[str, str]
"""PromQL, and the legend of its series."""
Panel = timeseries.Panel | stat.Panel | table.Panel | statetimeline.Panel | bargauge.Panel


def _asked(panel: Panel, title: str, says: str, queries: Sequence[Query], unit: str, *, now: bool = False) -> None:
    """What all panels have. now: the newest value only, as a table wants it."""
    panel.title(title).description(says).datasource(SOURCE).unit(unit)
    for number, (expression, legend) in enumerate(queries):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        panel.with_target(query.instant().format("table") if now else query)


def _coloured(panel: Panel, colours: dict[str, str]) -> None:
    """The series of this name in this colour."""
    for name, colour in colours.items():
        fixed = of.FieldColor(mode=of.FieldColorModeId.FIXED, fixed_color=colour)
        panel.override_by_name(name, [of.DynamicConfigValue(id_val="color", value=fixed)])


def graph(
    title: str,
    says: str,
    *queries: Query,
    unit: str = "short",
    colours: dict[str, str] | None = None,
    stacked: bool = False,
    share: bool = False,
    wide: bool = False,
) -> Panel:
    """Lines over time, or areas that add up."""
    panel = timeseries.Panel().span(24 if wide else 12).height(8).min(0).show_points(models.VisibilityMode.NEVER)
    _asked(panel, title, says, queries, unit)
    _coloured(panel, colours or {})
    if stacked or share:
        mode = models.StackingMode.PERCENT if share else models.StackingMode.NORMAL
        panel.stacking(common.StackingConfig().mode(mode).group("A")).fill_opacity(80).line_width(0)
    return panel


def number(title: str, says: str, expression: str, unit: str = "short", *, bad_from: float | None = None) -> Panel:
    """One number; red from a value on."""
    panel = stat.Panel().span(4).height(4)
    _asked(panel, title, says, [(expression, "")], unit)
    if bad_from is not None:
        steps = [of.Threshold(value=None, color="green"), of.Threshold(value=bad_from, color="red")]
        panel.thresholds(dashboard.ThresholdsConfig().mode(of.ThresholdsMode.ABSOLUTE).steps(steps))
    return panel


def rows(title: str, says: str, expression: str, unit: str, value: str) -> Panel:
    """A table, the largest first."""
    panel = table.Panel().span(24).height(9)
    _asked(panel, title, says, [(expression, "")], unit, now=True)
    panel.sort_by([common.TableSortByFieldState().display_name(value).desc(True)])
    panel.with_transformation(
        of.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True, "instance": True, "job": True, "__name__": True},
                "renameByName": {"Value": value},
            },
        )
    )
    return panel


def _variable(name: str, label: str, query: str, *, several: bool = False) -> dashboard.QueryVariable:
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(of.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
    return variable.multi(True).include_all(True) if several else variable


def _board(uid: str, title: str, says: str, *panels: Panel, resources: bool = True) -> dashboard.Dashboard:
    board = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(says)
        .tags(["idletime"])
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(of.DashboardCursorSync.CROSSHAIR)
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_variable("instance", "Host", "label_values(idletime_daemon_tick_age_seconds, instance)"))
    )
    if resources:
        board.with_variable(
            _variable(
                "resource",
                "Disk or uplink",
                'label_values(idletime_resource_devices{instance="$instance"}, resource)',
                several=True,
            )
        )
    for panel in panels:
        board.with_panel(panel)
    return board


def host() -> dashboard.Dashboard:
    """All resources of a host at a glance: is the foreground left alone, and what does the background get?"""
    slowdown = f"max by (resource) (idletime_view_slowdown_ratio{{{HOST}}})"
    budget = f"max by (resource) (idletime_view_budget_ratio{{{HOST}}})"
    return _board(
        "idletime-host",
        "Idletime: host",
        "Is the foreground left alone, and what does the background get?",
        number("Background VMs", "VMs that run as background.", f'idletime_vms{{{HOST},class="background"}}'),
        number(
            "Not in force",
            "VMs whose policy is not carried out: virt-idletime status says why.",
            f"count(idletime_vm_in_force{{{HOST}}} == 0) or vector(0)",
            bad_from=1,
        ),
        number(
            "Over budget",
            "Resources whose foreground pays more than its budget.",
            f"count({slowdown} > {budget}) or vector(0)",
            bad_from=1,
        ),
        number(
            "Devices not seen",
            "Foreground that passes QEMU by, where no observer sees it.",
            f"count((idletime_device_seen{{{HOST}}} == 0) unless on (instance, resource) idletime_observer_up == 1) "
            "or vector(0)",
            bad_from=1,
        ),
        number(
            "Age of figures",
            "Above 30 s idletimed does not get to look: see its log.",
            f"idletime_daemon_facts_age_seconds{{{HOST}}}",
            "s",
            bad_from=60,
        ),
        number(
            "Generations",
            "More than 1 on a resource: VMs do not see each other.",
            f"max(idletime_resource_generations{{{HOST}}})",
            bad_from=2,
        ),
        graph(
            "Idle time used",
            "Bytes of background by resource.",
            (f'sum by (resource) (idletime:resource_bytes:rate5m{{{HOST},class="background"}})', "{{resource}}"),
            unit="Bps",
            stacked=True,
        ),
        graph(
            "Foreground",
            "Bytes of foreground by resource.",
            (f'sum by (resource) (idletime:resource_bytes:rate5m{{{HOST},class="foreground"}})', "{{resource}}"),
            unit="Bps",
            stacked=True,
        ),
        graph(
            "What the foreground pays",
            "Mean slowdown of the foreground by all background, and its budget.",
            (slowdown, "{{resource}}"),
            (budget, "budget of {{resource}}"),
            unit="percentunit",
        ),
        graph(
            "Time without foreground",
            "What there is to give, as a share of the last minute.",
            (f'max by (resource) (idletime_view_spare_ratio{{{HOST},span="minute"}})', "{{resource}}"),
            unit="percentunit",
        ),
        graph(
            "Background VMs as a whole",
            "How often they were stopped or limited, or gave memory or disk space, and why: the host is short of that.",
            (
                f"sum by (policy, act, cause) (increase(idletime_policy_acts_total{{{HOST}}}[$__rate_interval])) > 0",
                "{{policy}}: {{act}}, {{cause}}",
            ),
        ),
        graph(
            "VMs stopped",
            "Background VMs that stood still, on average; many all the time: move one.",
            (f"rate(idletime_policy_stopped_seconds_total{{{HOST}}}[$__rate_interval])", "stopped"),
        ),
        resources=False,
    )


def resource() -> dashboard.Dashboard:
    """One disk or uplink over time."""
    by_state = [
        (f'sum by (state) (avg_over_time(idletime_view_state{{{ON},state="{name}"}}[$__rate_interval]))', name)
        for name in STATES
    ]
    classes = "{{class}}"
    return _board(
        "idletime-resource",
        "Idletime: disk or uplink",
        "One disk or uplink over time, in the colours of its states.",
        graph(
            "States",
            "In which state background VMs found it when they were asked, as shares; blue is foreground, orange background.",
            *by_state,
            colours=STATES,
            share=True,
            wide=True,
        ),
        graph(
            "Requests",
            "Issued to the disk or link.",
            (f"sum by (class) (idletime:resource_requests:rate5m{{{ON}}})", classes),
            unit="iops",
            colours=CLASSES,
            stacked=True,
        ),
        graph(
            "Bytes",
            "Issued to the disk or link.",
            (f"sum by (class) (idletime:resource_bytes:rate5m{{{ON}}})", classes),
            unit="Bps",
            colours=CLASSES,
            stacked=True,
        ),
        graph(
            "Collisions",
            "Foreground requests a second that found background in service.",
            (f"sum by (resource) (idletime:resource_collisions:rate5m{{{ON}}})", "{{resource}}"),
            unit="ops",
        ),
        graph(
            "Slowdown and budget",
            "Mean slowdown of the foreground; above the budget, lower budget-percent.",
            (f"max by (resource) (idletime_view_slowdown_ratio{{{ON}}})", "{{resource}}"),
            (f"max by (resource) (idletime_view_budget_ratio{{{ON}}})", "budget of {{resource}}"),
            unit="percentunit",
        ),
        graph(
            "Preemption interval",
            "In force by VM; longer ones protect the foreground, shorter ones feed the background.",
            (f"max by (vm, resource) (idletime_view_interval_seconds{{{ON}}})", "{{vm}} on {{resource}}"),
            unit="s",
        ),
        graph(
            "Idle time, and its forecast",
            "Share of time without foreground in the last minute; what is expected for the next.",
            (f'max by (resource) (idletime_view_spare_ratio{{{ON},span="minute"}})', "{{resource}}"),
            (f"max by (resource) (idletime_view_spare_forecast_ratio{{{ON}}})", "forecast for {{resource}}"),
            unit="percentunit",
        ),
        graph(
            "Held requests",
            "Of background devices, waiting for foreground to pause.",
            (f"sum by (vm, device) (idletime_device_held_requests{{{ON}}})", "{{vm}} {{device}}"),
        ),
        graph(
            "How long requests were held",
            "95 of 100 left within this time.",
            (
                "histogram_quantile(0.95, sum by (vm, device, le) "
                f"(rate(idletime_device_hold_seconds_bucket{{{ON}}}[$__rate_interval])))",
                "{{vm}} {{device}}",
            ),
            unit="s",
        ),
        graph(
            "Block jobs",
            "Backups, copies, commits of background VMs: bytes a second.",
            (
                f"sum by (vm, device, type) (rate(idletime_job_bytes_total{{{ON}}}[$__rate_interval]))",
                "{{type}} {{vm}} {{device}}",
            ),
            unit="Bps",
        ),
        graph(
            "Why held requests waited",
            "Foreground is load; budget and interval are settings; arena is a fault.",
            (f"sum by (reason) (rate(idletime_resource_waits_total{{{ON}}}[$__rate_interval]))", "{{reason}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Released early",
            "By cause; many by deadline: no idle time is left.",
            (f"sum by (cause) (rate(idletime_resource_promotions_total{{{ON}}}[$__rate_interval]))", "{{cause}}"),
            unit="ops",
            stacked=True,
        ),
    )


def tenants() -> dashboard.Dashboard:
    """Who used how much idle time, for a bill."""
    used = f'sum by (vm, resource) (increase(idletime_device_bytes_total{{{ON},class="background"}}[$__range]))'
    requests = f'increase(idletime_device_requests_total{{{ON},class="background"}}[$__range])'
    service = f"avg_over_time(idletime_view_service_seconds{{{ON}}}[$__range])"
    asked = f"sum by (vm, resource) ({requests})"
    time = f"sum by (vm, resource) ({requests} * on (instance, vm, resource) group_left () {service})"
    return _board(
        "idletime-tenants",
        "Idletime: idle time used",
        "Who used how much idle time in the range above, and what it cost the foreground.",
        rows(
            "Idle time by VM",
            "Requests of background, times what one takes on average: known where the interval is learned.",
            time,
            "s",
            "idle time",
        ),
        rows(
            "Bytes by VM", "Bytes of background in idle time, since the beginning of the range above.", used, "bytes", "bytes"
        ),
        rows("Requests by VM", "Requests of background, since the beginning of the range above.", asked, "short", "requests"),
        graph(
            "Use over time",
            "Bytes of background by VM.",
            (f'sum by (vm) (rate(idletime_device_bytes_total{{{ON},class="background"}}[$__rate_interval]))', "{{vm}}"),
            unit="Bps",
            stacked=True,
            wide=True,
        ),
        graph(
            "Cost",
            "Time that foreground waited for background, a second of time.",
            (f"sum by (resource) (idletime:resource_collision_cost:rate5m{{{ON}}})", "{{resource}}"),
            unit="percentunit",
        ),
        graph(
            "Bytes by deadline",
            "Share of background requests that left by their deadline: they are not to be billed as idle time.",
            (f"max by (vm, resource) (idletime:device_by_deadline:ratio15m{{{ON}}})", "{{vm}} on {{resource}}"),
            unit="percentunit",
        ),
    )


def texts() -> dict[str, str]:
    """File name and JSON of each dashboard."""
    built = {f"{board.uid}.json": board for board in (make().build() for make in (host, resource, tenants))}
    return {name: JSONEncoder(sort_keys=True, indent=1).encode(board) + "\n" for name, board in built.items()}


if __name__ == "__main__":
    for file, text in texts().items():
        (HERE / file).write_text(text)
