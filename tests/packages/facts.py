#!/usr/bin/python3
"""What an installed QEMU offers, as sets of words: facts.py collect FOLDER, then facts.py compare OLD NEW [REMOVED].

`collect` asks the QEMU, qemu-img and libvirt of this machine and writes one file for each topic, a word a line.
`compare` prints every difference, and fails where something is gone that the file REMOVED does not list. A line of that
is "topic: pattern  reason", the pattern as a shell writes it, two blanks before the reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

QEMU = "qemu-system-x86_64"
MODULES = Path("/usr/lib/x86_64-linux-gnu/qemu")
LIBVIRT_CACHE = Path("/var/cache/libvirt/qemu/capabilities")
SECONDS = 60


def said(*argv: str) -> str:
    """What a program prints; "-run-with help" is answered and then an error."""
    return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS).stdout


def first_words(text: str) -> Iterable[str]:
    """The first word of each line, without headings."""
    return (line.split()[0] for line in text.splitlines() if line.strip() and not line.rstrip().endswith(":"))


def single_words(text: str) -> Iterable[str]:
    """The lines that are one word; the others are prose."""
    return (line.strip() for line in text.splitlines() if re.fullmatch(r"\s*[\w.-]+\s*", line))


def devices(text: str) -> Iterable[str]:
    """`name "virtio-blk-pci", bus PCI`: the names."""
    return re.findall(r'^name "([^"]+)"', text, re.MULTILINE)


def cpus(text: str) -> Iterable[str]:
    """Models (`x86 Haswell  desc`, `  Haswell  desc` since 9.2) and flags, the latter many to a line."""
    models, _, flags = text.partition("Recognized CPUID flags:")
    names = (re.sub(r"^x86 +", "", line.strip()).split() for line in models.splitlines() if not line.rstrip().endswith(":"))
    return [*(words[0] for words in names if words), *(f"flag {flag}" for flag in flags.split())]


def properties(text: str) -> Iterable[str]:
    """`  addr=<int32>  - description`: the names."""
    return re.findall(r"^ +([\w.-]+)=<", text, re.MULTILINE)


def options(text: str) -> Iterable[str]:
    """The options of --help."""
    return re.findall(r"^(--?[\w-]+)", text, re.MULTILINE)


def formats(text: str) -> Iterable[str]:
    """The words behind "Supported formats:", and since 10.0 those in the indented lines below "Supported image formats:"."""
    return " ".join(re.findall(r"upported(?: image)? formats:((?: .*)?(?:\n\n?(?:  .+\n)+)?)", text)).split()


def help_of(option: str, parse: Callable[[str], Iterable[str]] = single_words) -> Callable[[], Iterable[str]]:
    """The answer of the emulator to "help" of one option."""
    return lambda: parse(said(QEMU, "-display", "none", "-machine", "none", option, "help"))


def works(*argv: str) -> Iterable[str]:
    """Whether an emulator with these options starts, and is ended by its monitor."""
    result = subprocess.run([QEMU, "-machine", "none", "-display", "none", "-S", "-monitor", "stdio", *argv],
                            input="quit\n", capture_output=True, text=True, timeout=SECONDS)
    return ["works"] if result.returncode == 0 else []


def flattened(element: ET.Element, path: str = "") -> Iterable[str]:
    """Every element of XML as a path with its attributes and its text."""
    attributes = "".join(f"[{key}={value}]" for key, value in sorted(element.items()))
    path = f"{path}/{element.tag}{attributes}"
    yield f"{path}={(element.text or '').strip()}".replace(" ", "_").rstrip("=")
    for child in element:
        yield from flattened(child, path)


def domain_capabilities() -> Iterable[str]:
    """What libvirt says to its users about this emulator."""
    text = said("virsh", "-q", "domcapabilities", "--virttype", "qemu")
    # Of this host and this run, not of the emulator.
    return [line for line in flattened(ET.fromstring(text)) if "/cpu/" not in line and "/machine=" not in line] if text else []


def libvirt_flags() -> Iterable[str]:
    """What libvirt has found out about the emulator, by its own names."""
    said("virsh", "-q", "domcapabilities", "--virttype", "qemu")
    texts = [file.read_text() for file in LIBVIRT_CACHE.glob("*.xml")]
    ours = [text for text in texts if f"<emulator>/usr/bin/{QEMU}<" in text]
    return [flag for text in ours for flag in re.findall(r"<flag name='([^']+)'", text)]


TOPICS: dict[str, Callable[[], Iterable[str]]] = {
    "device": help_of("-device", devices),
    "object": help_of("-object"),
    "netdev": help_of("-netdev"),
    "display": help_of("-display"),
    "chardev": help_of("-chardev"),
    "audiodev": help_of("-audiodev"),
    "machine": lambda: first_words(said(QEMU, "-machine", "help")),
    "cpu": help_of("-cpu", cpus),
    "accel": help_of("-accel"),
    "drive format": lambda: formats(said(QEMU, "-drive", "format=help")),
    "option": lambda: options(said(QEMU, "--help")),
    "run-with": lambda: properties(said(QEMU, "-run-with", "help")),
    "sandbox": lambda: works("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
    "virtio-blk": lambda: properties(said(QEMU, "-device", "virtio-blk-pci,help")),
    "virtio-net": lambda: properties(said(QEMU, "-device", "virtio-net-pci,help")),
    "qemu-img format": lambda: formats(said("qemu-img", "--help")),
    "qemu-img command": lambda: re.findall(r"^  ([a-z]+) ", said("qemu-img", "--help"), re.MULTILINE),
    "module": lambda: (path.name for path in MODULES.glob("*.so")),
    "program": lambda: (path.name for path in Path("/usr/bin").glob("qemu-*")),
    "domain capabilities": domain_capabilities,
    "libvirt flag": libvirt_flags,
}


def collect(folder: Path) -> None:
    """Write each topic's words."""
    folder.mkdir(parents=True, exist_ok=True)
    for topic, words in TOPICS.items():
        (folder / topic).write_text("".join(f"{word}\n" for word in sorted(set(words()))))


def read(file: Path) -> set[str]:
    """The words of a topic."""
    return set(file.read_text().split("\n")) - {""}


def known_removals(file: Path | None) -> list[tuple[str, str, str]]:
    """Topic, pattern and reason of each line."""
    lines = file.read_text().splitlines() if file else []
    found = [re.fullmatch(r"([^:#]+): (\S+)  +(.+)", line) for line in lines]
    return [(match[1], match[2], match[3]) for match in found if match]


def compare(old: Path, new: Path, removals: list[tuple[str, str, str]]) -> int:
    """Print the differences; the number of those that are wrong."""
    wrong = 0
    used = set()
    for topic in TOPICS:
        before, after = read(old / topic), read(new / topic)
        if not before and topic not in ("run-with",):
            print(f"error: {topic}: the distribution's QEMU says nothing: this comparison does not see it")
            wrong += 1
        print(f"{topic}: {len(before)} before, {len(after)} now")
        for word in sorted(after - before):
            print(f"   + {word}")
        for word in sorted(before - after):
            reason = next((item for item in removals if item[0] == topic and fnmatchcase(word, item[1])), None)
            used.add(reason)
            print(f"   - {word}" + (f"  ({reason[2]})" if reason else "  error: gone, and not listed as removed upstream"))
            wrong += reason is None
    for item in removals:
        if item not in used:
            print(f"error: {item[0]}: {item[1]} is listed as removed, and is not: remove the line")
            wrong += 1
    return wrong


def main() -> int:
    """Exit status: 1 where something is gone."""
    command, *arguments = sys.argv[1:]
    if command == "collect":
        collect(Path(arguments[0]))
        return 0
    removed = Path(arguments[2]) if len(arguments) > 2 else None
    wrong = compare(Path(arguments[0]), Path(arguments[1]), known_removals(removed))
    print(f"{wrong} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
