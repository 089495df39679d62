# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest writes: every byte string is either used, ignored or complained about, in bounded memory and time."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.hostd import protocol
from idletime.hostd.protocol import LINE_BYTES, Lines, Malformed, QueueWish, State, Wish

STATE: dict[str, Any] = {
    "version": 1, "type": "state", "session": "abc", "sequence": 3, "request": {"class": "background"}}


def line(**changed: Any) -> bytes:
    return json.dumps({**STATE, **changed}).encode()


def test_a_state() -> None:
    queues = [{"device": {"serial": "backup", "pci": "0000:00:05.0", "more": 1}, "queues": "2-3", "new": {}}]
    assert protocol.parse(line(request={"class": "foreground", "queues": queues}, agent="whatever")) == State(
        "abc", 3, Wish(False, (QueueWish({"serial": "backup", "pci": "0000:00:05.0"}, "2-3"),)))


@pytest.mark.parametrize("changed, wish", [
    ({}, Wish(True)), ({"request": {}}, Wish()), ({"request": None}, Wish()), ({"request": {"queues": []}}, Wish()),
])
def test_what_is_missing_has_its_default(changed: dict[str, Any], wish: Wish) -> None:
    state = protocol.parse(line(**changed))
    assert state is not None and state.wish == wish


@pytest.mark.parametrize("kind", ["error", "policy", "promote"])
def test_other_types_are_ignored(kind: str) -> None:
    assert protocol.parse(line(type=kind)) is None


@pytest.mark.parametrize("changed, text", [
    ({"request": {"class": "idle"}}, "request.class is 'idle': it must be foreground or background"),
    ({"request": {"class": 1}}, "class is 1: it must be a string"),
    ({"request": []}, "request is a list: it must be an object"),
    ({"request": {"queues": [1]}}, "an entry of request.queues is 1: it must be an object"),
    ({"request": {"queues": [{}] * 65}}, "request.queues has 65 entries: at most 64 are read"),
    ({"request": {"queues": [{"device": {"mac": "x" * 65}, "queues": "1"}]}}, "at most 64 printable characters"),
    ({"request": {"queues": [{"device": {"mac": "a\n"}, "queues": "1"}]}}, "at most 64 printable characters"),
    ({"request": {"class": []}, "more": 1}, "class is a list: it must be a string"),
    ({"session": ""}, "session is '': it must be 1 to 64 visible ASCII characters"),
    ({"session": "a b"}, "1 to 64 visible"),
    ({"sequence": -1}, "sequence is -1: it must be 0 to 2^63 - 1"),
    ({"sequence": 1 << 63}, "it must be 0 to"),
    ({"sequence": True}, "sequence is True: it must be an integer"),
    ({"sequence": 1.5}, "sequence is 1.5: it must be an integer"),
    ({"type": None}, "type is None: it must be a string"),
])
def test_malformed(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(Malformed) as error:
        protocol.parse(line(**changed))
    assert text in str(error.value) and error.value.code == "malformed"


@pytest.mark.parametrize("raw", [
    b"{", b"[]", b"null", b"\xff\xfe", b"{}", b"[" * 60000, b"9" * 60000, b'{"version": NaN}', b'{"version": 1e999}',
    b'{"a":' * 9000,
])
def test_not_an_object(raw: bytes) -> None:
    with pytest.raises(Malformed) as error:
        protocol.parse(raw)
    assert len(str(error.value)) < 200


def test_another_version_is_named() -> None:
    with pytest.raises(Malformed, match="version 7 is not spoken here") as error:
        protocol.parse(line(version=7))
    assert json.loads(protocol.error(error.value.code, str(error.value)))["speaks"] == [1]


# ---- fuzz

# A minute's worth with IDLETIME_FULL=1 (make test-libvirt-full).
EXAMPLES = 10000 if os.environ.get("IDLETIME_FULL") else 250

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(
        [*STATE, "class", "queues", "device", *protocol.NAMES, "kernel"]) | st.text(max_size=5), inner, max_size=6),
    max_leaves=30)


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode())
       | st.dictionaries(st.sampled_from([*STATE]), JSON).map(lambda changed: line(**changed)))
@example(b'{"version":1,"type":"state","session":"a","sequence":0,"request":{"queues":[{"device":{"mac":"\\ud800"}}]}}')
def test_any_line(raw: bytes) -> None:
    """Whatever it is: a state within bounds, nothing, or Malformed with a short text that can be sent."""
    try:
        state = protocol.parse(raw)
    except Malformed as error:
        assert len(protocol.error(error.code, str(error))) < 400
        return
    if state is not None:
        assert 1 <= len(state.session) <= 64 and state.sequence >= 0
        assert len(state.wish.queues) <= protocol.QUEUE_ENTRIES
        for entry in state.wish.queues:
            assert all(value.isprintable() for value in (*entry.device.values(), entry.queues))


@given(st.lists(st.binary(max_size=40), max_size=30), st.data())
def test_lines_do_not_depend_on_the_pieces(parts: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere, the same lines come out."""
    stream = b"\n".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=False)]
    lines = Lines()
    found = [one for piece in pieces for one in lines.feed(piece)]
    assert found == [stripped for part in stream.split(b"\n")[:-1] if (stripped := part.strip(b" \t\r"))]


@pytest.mark.parametrize("piece", [1000, 4096, 200000])
def test_a_line_that_is_too_long(piece: int) -> None:
    """It comes as None, once; what follows is read; memory stays below the limit."""
    stream = b"x" * (3 * LINE_BYTES) + b"\nnext\n" + b"y" * (LINE_BYTES - 1) + b"\n" + b"z" * LINE_BYTES + b"\nend\n"
    lines, found = Lines(), []
    for begin in range(0, len(stream), piece):
        found += list(lines.feed(stream[begin:begin + piece]))
        assert len(lines._rest) <= LINE_BYTES
    assert found == [None, b"next", b"y" * (LINE_BYTES - 1), None, b"end"]
