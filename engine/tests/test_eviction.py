# SPDX-License-Identifier: GPL-2.0-or-later
"""Who leaves a host and who comes back: tables, and what holds in any fleet. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from idletime_openstack.account import ANYWHERE, Host, Resource, Server, State
from idletime_openstack.eviction import Act, Memory, Nowhere, Settings, What, decide, pays_after, shortage

DEFAULT = Settings()


def host(name: str, spare: float | None, **more) -> Host:
    return Host(name, {"disk": Resource("disk", spare, **more)})


def server(uuid: str, host: str, holds: float, cost: float, state: State = State.RUNS) -> Server:
    return Server(uuid, host, {"disk": holds}, {"disk": holds}, cost, state)


H1 = ("h1", "disk")
A = server("a", "h1", 0.2, 1000)
B = server("b", "h1", 0.2, 500)


def played(spares, servers, settings=DEFAULT, step=60.0, others=()):
    """Minutes of h1; what is done in each. Acts are carried out at once."""
    memory, there, said = Memory(), {one.uuid: one for one in servers}, []
    for minute, spare in enumerate(spares):
        hosts = [host("h1", spare), *others]
        acts, memory, _ = decide(minute * step, hosts, list(there.values()), settings, memory)
        for act in acts:
            one = there[act.server]
            state = {What.PAUSE: State.PAUSED, What.RESUME: State.RUNS}.get(act.what, one.state)
            there[act.server] = replace(one, host=act.to or one.host, state=state)
        said.append([f"{act.what.value} {act.server}" + (f" {act.to}" if act.to else "") for act in acts])
    return said


def test_the_example_at_the_head():
    """Held 40: short from minute 1 on, acted on in minute 3; 44 is not over, as that wants 45."""
    assert played([0.50, 0.30, 0.30, 0.44, 0.30], [A, B], others=[host("h2", 0.9)])[:4] == [[], [], [], ["move b h2"]]


def test_a_breath_is_no_reason():
    assert played([0.5, 0.3, 0.5, 0.3, 0.5, 0.3], [A, B], others=[host("h2", 0.9)]) == [[]] * 6


def test_hysteresis():
    """Once short, it is over only with a margin: 0.42 of 0.40 held is none."""
    assert played([0.3, 0.42, 0.42], [A, B], others=[host("h2", 0.9)])[2] == ["move b h2"]
    assert played([0.3, 0.46, 0.42, 0.42], [A, B], others=[host("h2", 0.9)]) == [[]] * 4


def test_the_cheapest_that_fits_goes_to_who_has_most_free():
    others = [host("h2", 0.3), host("h3", 0.6), host("h4", None)]
    assert played([0.3] * 3, [A, B], others=others)[2] == ["move b h3"]
    big = server("b", "h1", 0.7, 500)
    assert played([0.3] * 3, [A, big], others=others)[2] == ["move a h3"]


LINGERS = Settings(cost_per_second=5.0)
"""B, of 500, moves in 100 s."""


@pytest.mark.parametrize("share, seconds", [(0.0, 100.0), (0.5, 200.0), (0.9, 1000.0), (1.0, float("inf"))])
def test_a_move_pays_after(share: float, seconds: float):
    assert pays_after(share, 100.0) == pytest.approx(seconds)


def test_it_stays_as_long_as_that_pays():
    """30 of 40 held: it gets three quarters, a move of 100 s pays after 400 s; 10 of 40: 133 s; 10 of 20, a dear one: 400."""
    to = [host("h2", 0.9)]
    assert played([0.5, *[0.3] * 8], [A, B], LINGERS, others=to) == [[]] * 8 + [["move b h2"]]
    assert played([0.5, *[0.1] * 5], [A, B], LINGERS, others=to)[:5] == [[]] * 4 + [["move b h2"]]
    assert played([0.5, *[0.1] * 8], [A], LINGERS, others=to) == [[]] * 8 + [["move a h2"]]


def test_who_has_nowhere_to_go_does_not_linger():
    """What is left to it here is decided by policy."""
    assert played([0.3, 0.3, 0.3], [A, B], LINGERS)[2] == ["pause b"]


def test_the_model_is_in_the_reason_and_in_the_note():
    hosts, memory = [host("h1", 0.3), host("h2", 0.9)], Memory(short_since={H1: 0.0})
    acts, _, (note,) = decide(300.0, hosts, [A, B], LINGERS, memory)
    model = "it gets 75% of its part here, a move takes 100 s and pays after 400 s"
    assert acts == [] and note == f"h1 has 30% of disk spare and holds 40%, for 300 s: b stays: {model}"
    (act,), _, notes = decide(400.0, hosts, [A, B], LINGERS, memory)
    assert notes == [] and act.why.endswith(f"h2 has 90% free; {model}")


def test_nowhere():
    """Paused, and resumed after five minutes of room, from minute 5 on; or left. A breath without room begins anew."""
    said = played([0.1] * 5 + [0.9] * 12, [A, B])
    assert said == [[], [], ["pause b"], ["pause a"], *[[]] * 6, ["resume a"], ["resume b"], *[[]] * 5]
    assert not any(played([0.1] * 5 + [0.9, 0.9, 0.2] * 5, [A, B])[4:])
    assert played([0.1] * 9, [A, B], replace(DEFAULT, nowhere=Nowhere.LEAVE)) == [[]] * 9


def test_one_line_of_reason():
    acts, memory, _ = decide(0, [host("h1", 0.1), host("h2", 0.8)], [A], DEFAULT, Memory())
    acts, _, _ = decide(120, [host("h1", 0.1), host("h2", 0.8)], [A], DEFAULT, memory)
    assert str(acts[0]) == ("move a to h2: h1 has 10% of disk spare and holds 20%, for 120 s; the cheapest that fits "
                            "elsewhere, h2 has 80% free")


def test_a_budget():
    """Disrupted as often as it may be today: nobody leaves, and that is said. Tomorrow it may."""
    memory = Memory({H1: 0.0}, {}, {"a": (1.0,) * DEFAULT.budget})
    acts, _, notes = decide(500, [host("h1", 0.0), host("h2", 0.9)], [A], DEFAULT, memory)
    assert not acts and "nobody leaves" in notes[0]
    acts, _, _ = decide(90_000, [host("h1", 0.0), host("h2", 0.9)], [A], DEFAULT, memory)
    assert [act.what for act in acts] == [What.MOVE]


def test_a_rate_over_all_hosts():
    """20 hosts are short at once: ten acts a minute, those that wait longest first."""
    hosts = [host(f"h{n:02}", 0.0) for n in range(20)]
    servers = [server(f"s{n:02}", f"h{n:02}", 0.2, 1) for n in range(20)]
    memory = Memory({(one.name, "disk"): 0.0 for one in hosts}, {}, {}, 10.0, 1000.0)
    acts, memory, notes = decide(1000, hosts, servers, DEFAULT, memory)
    assert len(acts) == 10 and len(notes) == 10 and "later" in notes[0]
    acts, _, _ = decide(1060, hosts, servers[10:], DEFAULT, memory)
    assert len(acts) == 10


def test_who_is_busy_is_waited_for():
    assert played([0.1] * 6, [replace(A, state=State.BUSY), B], others=[host("h2", 0.9)]) == [[]] * 6


def test_an_unknown_gauge_moves_nobody():
    assert played([None] * 9, [A, B], others=[host("h2", 0.9)]) == [[]] * 9
    assert played([0.1] * 3, [A], replace(DEFAULT, nowhere=Nowhere.LEAVE), others=[host("h2", None)]) == [[]] * 3


PAUSED = replace(A, state=State.PAUSED)
ROOM_SINCE_LONG = {("h2", "disk"): ((0.0, 0.9),)}


@pytest.mark.parametrize("others", [[], [B]])
def test_a_paused_one_goes_where_there_is_room(others: list[Server]):
    """h1 has none, with or without one who runs there; h2 has had room for five minutes."""
    memory = Memory({H1: 0.0}, ROOM_SINCE_LONG, {"b": (9000.0,) * DEFAULT.budget})
    (act,), _, _ = decide(10_000, [host("h1", 0.1), host("h2", 0.9)], [PAUSED, *others], DEFAULT, memory)
    assert str(act) == "move a to h2: it is paused and h1 has no room; h2 has 90% free for 300 s"


def test_a_paused_one_stays_where_room_has_come():
    """It comes back there in five minutes, and costs no move."""
    hosts, memory = [host("h1", 0.8), host("h2", 0.9)], Memory(free=ROOM_SINCE_LONG)
    for now in range(10_000, 10_300, 60):
        acts, memory, _ = decide(now, hosts, [PAUSED], DEFAULT, memory)
        assert acts == []
    acts, _, _ = decide(10_300, hosts, [PAUSED], DEFAULT, memory)
    assert [act.what for act in acts] == [What.RESUME]


def test_a_paused_one_stays_where_the_gauge_is_unknown():
    acts, _, _ = decide(10_000, [host("h1", None), host("h2", 0.9)], [PAUSED], DEFAULT, Memory(free=ROOM_SINCE_LONG))
    assert acts == []


share = st.one_of(st.none(), st.floats(0, 1))


@hypothesis_settings(deadline=None)
@given(st.lists(st.lists(share, min_size=4, max_size=4), min_size=1, max_size=25), st.lists(st.tuples(
    st.integers(0, 3), st.floats(0.01, 0.6), st.integers(1, 9), st.sampled_from(list(State))), max_size=12))
def test_in_any_fleet(days, given):
    """Nobody is sent where there is no room or to himself; no budget is exceeded; who is busy is left alone."""
    servers = {f"s{n}": server(f"s{n}", f"h{at}", holds, cost, state) for n, (at, holds, cost, state) in enumerate(given)}
    memory, disrupted = Memory(), dict.fromkeys(servers, 0)
    for minute, spares in enumerate(days):
        hosts = [host(f"h{n}", spare) for n, spare in enumerate(spares)]
        acts, memory, _ = decide(minute * 60.0, hosts, list(servers.values()), DEFAULT, memory)
        assert len(acts) <= max(1, DEFAULT.acts_per_minute) and len({act.server for act in acts}) == len(acts)
        for act in acts:
            _carry_out(act, servers, disrupted)
        for act in acts:
            if act.to:
                held = sum(one.holds["disk"] for one in servers.values() if one.host == act.to and
                           (one.state not in (State.PAUSED, State.SHELVED) or one.uuid == act.server))
                assert held <= spares[int(act.to[1:])] + 1e-6
    assert all(count <= DEFAULT.budget for count in disrupted.values())


def _carry_out(act: Act, servers: dict[str, Server], disrupted: dict[str, int]) -> None:
    one = servers[act.server]
    assert one.state not in (State.BUSY, State.STUCK) and act.why and "\n" not in act.why
    disrupted[act.server] += one.state is State.RUNS
    if act.what is What.MOVE:
        assert act.to not in ("", one.host)
        servers[act.server] = replace(one, host=act.to)
    elif act.what is What.UNSHELVE:
        assert one.state is State.SHELVED
        servers[act.server] = replace(one, host=act.to, state=State.RUNS)
    else:
        assert (act.what is What.PAUSE) == (one.state is State.RUNS)
        servers[act.server] = replace(one, state=State.PAUSED if act.what is What.PAUSE else State.RUNS)


def test_several_resources():
    """Short of its uplink alone: only who holds some of it leaves, to where both fit; 0.9 of h2's disk is no use without an
    uplink, and of h4's uplink 0.1 + 0.05 is not there."""
    def of(name, disk, uplink):
        return Host(name, {"sda": Resource("disk", disk, full=1), "eth0": Resource("uplink", uplink, full=1)})
    cheap = Server("cheap", "h1", {"sda": 0.1}, {"disk": 0.1}, 1)
    net = Server("net", "h1", {"sda": 0.1, "eth0": 0.1}, {"disk": 0.1, "uplink": 0.1}, 9)
    hosts = [of("h1", 0.9, 0.05), host("h2", 0.9), of("h3", 0.2, 0.9), of("h4", 0.9, 0.14)]
    acts, _, _ = decide(200, hosts, [cheap, net], DEFAULT, Memory({("h1", "eth0"): 0.0}))
    assert [(act.what, act.server, act.to) for act in acts] == [(What.MOVE, "net", "h3")]
    assert shortage(hosts, [cheap, net], DEFAULT) == {"net"}


def test_one_leaves_a_host_that_is_short_of_two():
    hosts = [Host("h1", {"sda": Resource("disk", 0.0), "eth0": Resource("uplink", 0.0)}), host("h2", 0.9)]
    there = [Server("a", "h1", {"sda": 0.1}, {"disk": 0.1}, 1), Server("b", "h1", {"eth0": 0.1}, {"uplink": 0.1}, 1)]
    acts, _, _ = decide(200, hosts, there, DEFAULT, Memory({("h1", "sda"): 0.0, ("h1", "eth0"): 0.0}, credit=9))
    assert len(acts) == 1


def test_what_is_promised_is_no_room():
    """Of h2's 0.5 a server that is paused there was promised 0.3."""
    memory = Memory({H1: 0.0})
    promised = host("h2", 0.5, promised=0.3)
    assert decide(200, [host("h1", 0.1), promised], [A], DEFAULT, memory)[0][0].what is What.PAUSE
    assert decide(200, [host("h1", 0.1), host("h2", 0.5, promised=0.2)], [A], DEFAULT, memory)[0][0].to == "h2"


def test_hosts_that_refused():
    """And a host that takes nobody."""
    memory, others = Memory({H1: 0.0}), [host("h2", 0.9), host("h3", 0.8), replace(host("h4", 1.0), takes=False)]
    for refused, to in ((frozenset({"h2"}), "h3"), (frozenset({"h2", "h3"}), ""), (frozenset({ANYWHERE}), "")):
        (act,), _, _ = decide(200, [host("h1", 0.1), *others], [replace(A, refused=refused)], DEFAULT, memory)
        assert act.to == to and (to or act.what is What.PAUSE)
    assert act.why.endswith("its moves failed")


def test_shelved():
    """By policy; it comes back where there has been room for five minutes."""
    policy = replace(DEFAULT, nowhere=Nowhere.SHELVE)
    (act,), _, _ = decide(200, [host("h1", 0.1)], [A], policy, Memory({H1: 0.0}))
    assert act.what is What.SHELVE
    away = Server("a", "", {}, {"disk": 0.2}, 1, State.SHELVED)
    memory = Memory(free={H1: ((0.0, 0.6),), ("h2", "disk"): ((200.0, 0.9),)})
    assert decide(290, [host("h1", 0.6), host("h2", 0.9)], [away], policy, memory)[0] == []
    (act,), _, _ = decide(300, [host("h1", 0.6), host("h2", 0.9)], [away], policy, memory)
    assert str(act) == "unshelve a to h1: h1 has 60% free for 300 s"


def test_nobody_waits_for_one_that_is_stuck():
    """As it cannot leave, another one does."""
    stuck, memory = replace(B, state=State.STUCK), Memory({H1: 0.0})
    (act,), _, _ = decide(200, [host("h1", 0.1), host("h2", 0.9)], [stuck, A], DEFAULT, memory)
    assert act.server == "a"
    acts, _, notes = decide(200, [host("h1", 0.1)], [stuck], DEFAULT, memory)
    assert not acts and "nothing can be done with who is there" in notes[0]


@pytest.mark.parametrize("credit, acts", [(0.0, 0), (0.9, 0), (1.0, 1)])
def test_the_bucket(credit, acts):
    memory = Memory({H1: 0.0}, {}, {}, credit, 500.0)
    assert len(decide(500, [host("h1", 0.0), host("h2", 0.9)], [A], DEFAULT, memory)[0]) == acts
