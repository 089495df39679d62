# SPDX-License-Identifier: GPL-2.0-or-later
"""Scratch disks of background VMs by libvirt and their files: what they take, trimming, and dropping what is in them.

    look    statvfs of each file system, blocks of each overlay; whether guests can trim
    trim    fstrim by the guest agent
    drop    all checks; the record; the VM is destroyed; each overlay is emptied in place, the same image with nothing in it

The file is opened before the VM is destroyed, and only that file is emptied. Its QEMU has it locked before, and nobody after:
so it is the file that this VM wrote, whatever was put in its place meanwhile, and nobody else uses it. We lock it until it is
an image again, so nobody can start with half of one. The header is written last.
That we dropped it is in the persistent XML (metadata urn:idletime:space:1), before the act. A later start removes that.
Context: a thread of hands.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import libvirt
from lxml import etree

from .. import scratch
from ..domains import HostLookup
from ..policy.parse import parse_tree
from ..resolve import qcow2
from ..resolve.qcow2 import Image
from ..resolve.tree import Tree
from ..scratch import Scratch, Unfit
from ..xmltree import Element, get, read
from . import kept, stopped

NAMESPACE, PREFIX = "urn:idletime:space:1", "idletimex"
RESERVED = 1 << 20
"""Blocks that an empty overlay may have: dropping less gains nothing."""

ENDS_SECONDS = 120.0
"""A VM that is destroyed has ended within so long: a file that was written later has been used since."""

LARGEST = 32 << 20
"""Of an empty overlay: its L1 table. 64 KiB clusters need 16 KiB of it for 1 TiB."""

QEMU_IMG, QEMU_IMG_SECONDS = "qemu-img", 30.0
_BLOCK = 4096

_CONFIG = libvirt.VIR_DOMAIN_AFFECT_CONFIG
_RUNS = (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED)
_TEXTS, _SWITCHES = ("backing", "backing_format"), ("encrypted", "zstd")
_LOCK = struct.Struct("@hhqqi4x")  # struct flock


# ---- records

@dataclass(frozen=True)
class Record:
    """run: libvirt's id of the run that was ended. files: "device:inode" of each overlay by target; images: what they are,
    needed where an idletimed ended while it wrote. done: they are empty. at: when the run was ended, in seconds since 1970."""

    run: int
    files: Mapping[str, str]
    why: str
    done: bool = False
    images: Mapping[str, Image] = field(default_factory=dict)
    at: int = 0

    def __str__(self) -> str:
        disks = ", ".join(self.files)
        return f"scratch disk {disks} {'was' if self.done else 'is being'} dropped: {self.why}"


def of_domain(root: Element) -> Record | None:
    """The record in a domain's persistent XML."""
    element = root.find(f"./metadata/{{{NAMESPACE}}}space")
    return None if element is None else _record(element)


def _record(element: Element) -> Record:
    disks = {one.get("target", ""): one for one in element.iter("{*}disk")}
    return Record(kept.number(element, "run"), {target: one.get("file", "") for target, one in disks.items()},
                  element.get("why", ""), element.get("done") == "yes", {target: _image(one) for target, one in disks.items()},
                  kept.number(element, "at"))


def _image(element: Element) -> Image:
    """Kept by the names of its fields."""
    def value(name: str) -> str | int | bool:
        if name in _TEXTS:
            return str(element.get(name, ""))
        return bool(kept.number(element, name)) if name in _SWITCHES else kept.number(element, name)

    return Image(**{one.name: value(one.name) for one in fields(Image)})  # type: ignore[arg-type]


def record_of(domain: Any) -> Record | None:
    """The same of a domain. Raises libvirtError for all but that there is none."""
    element = kept.element_of(domain, NAMESPACE, _CONFIG)
    return None if element is None else _record(element)


def dropped_of(domain: Any) -> Record | None:
    """That we dropped a disk of a domain; None if we did not, or if it has been started since: then that is forgotten."""
    if not domain.isPersistent() or (record := record_of(domain)) is None:
        return None
    if domain.isActive() and domain.ID() != record.run:
        _keep(domain, None)
        return None
    return record


def _keep(domain: Any, record: Record | None) -> None:
    element = None
    if record is not None:
        element = etree.Element("space", {"run": str(record.run), "why": record.why, "done": "yes" if record.done else "no",
                                          "at": str(record.at)})
        for target, file in record.files.items():
            image = asdict(record.images[target]) if target in record.images else {}
            etree.SubElement(element, "disk", {"target": target, "file": file} | {
                name: value if isinstance(value, str) else str(int(value)) for name, value in image.items()})
    kept.keep(domain, element, PREFIX, NAMESPACE, _CONFIG)


def forget(connection: Any, uuid: str) -> bool:
    """Of a VM that runs although we were to drop its disk: an idletimed ended before it did."""
    domain = connection.lookupByUUIDString(uuid)
    if domain.isActive():
        _keep(domain, None)
    return True


# ---- facts

@dataclass(frozen=True)
class Place:
    """A file system, bytes. free: as an unprivileged user may use it."""

    free: int
    size: int


@dataclass(frozen=True)
class Has:
    """A VM's overlays on one file system. allocated: beyond what an empty overlay has. agent: a guest agent is there, and
    answers, or will when idletimed, which has stopped its VM, lets it go on."""

    allocated: int
    agent: bool = False


@dataclass(frozen=True)
class Seen:
    """places: by device number; disks: by that and UUID."""

    places: Mapping[int, Place]
    disks: Mapping[tuple[int, str], Has]


def look(connection: Any, members: Mapping[str, Sequence[Scratch]], low: float) -> Seen:
    """Where disks are. libvirt is asked only of those whose file system is short. A file that is gone is left out."""
    places: dict[int, Place] = {}
    found: dict[tuple[int, str], Has] = {}
    for uuid, disks in members.items():
        for disk in disks:
            try:
                status = os.lstat(disk.file)
                if status.st_dev not in places:
                    places[status.st_dev] = _place(os.statvfs(disk.file))
            except OSError:
                continue
            key = status.st_dev, uuid
            before = found.get(key, Has(0))
            found[key] = Has(before.allocated + max(0, status.st_blocks * 512 - RESERVED), before.agent or disk.discard)
    short = {number for number, place in places.items() if place.free < int(place.size * low)}
    return Seen(places, {key: Has(has.allocated, has.agent and key[0] in short and _agent(connection, key[1]))
                         for key, has in found.items()})


def _place(status: os.statvfs_result) -> Place:
    return Place(status.f_bavail * status.f_frsize, (status.f_blocks - status.f_bfree + status.f_bavail) * status.f_frsize)


def _agent(connection: Any, uuid: str) -> bool:
    try:
        domain = connection.lookupByUUIDString(uuid)
        runs = domain.state()[0] in _RUNS or stopped.record_of(domain) is not None
        return runs and scratch.can_trim(read(domain.XMLDesc(0)))
    except libvirt.libvirtError as error:
        if error.get_error_code() not in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID):
            raise
        return False  # it has ended meanwhile


# ---- acts

def trim(connection: Any, uuid: str) -> bool:
    """Have a guest trim its file systems. It may take for ever: a guest says what it likes, or nothing. False: idletimed has
    stopped the VM, and libvirt asks no agent of such a one. Raises libvirtError."""
    domain = connection.lookupByUUIDString(uuid)
    if domain.state()[0] not in _RUNS and stopped.record_of(domain) is not None:
        return False
    domain.fSTrim(None, 0, 0)
    return True


@dataclass
class _Open:
    """A file that is to be emptied: all that the act needs, so that nothing is looked up after the VM has ended."""

    disk: Scratch
    descriptor: int
    id: str
    image: Image
    fresh: bytes
    half: bool = False


def drop(connection: Any, uuid: str, place: int, low: float, why: str, folder: str) -> bool:
    """Stop a VM and drop its scratch disks on a file system. Raises Unfit where one must not be dropped: before the VM is
    stopped, or where another has it meanwhile. Raises OSError, libvirtError."""
    domain = connection.lookupByUUIDString(uuid)
    if not domain.isActive():
        return False
    with contextlib.ExitStack() as stack:
        files = _ready(connection, domain, place, stack, folder)
        for one in files:
            if not _lock_of(one.descriptor):
                raise Unfit(f"'{one.disk.file}' is not locked by its QEMU, so it is not known to be its file",
                            "let QEMU lock it: a file system with locks, and no other file in its place")
        there = _place(os.fstatvfs(files[0].descriptor))
        if there.free >= int(there.size * low):
            return False  # it took until now, and is not short any more
        record = Record(domain.ID(), {one.disk.target: one.id for one in files}, why,
                        images={one.disk.target: one.image for one in files}, at=int(time.time()))
        _keep(domain, record)
        try:
            domain.destroy()
        except libvirt.libvirtError:
            _keep(domain, None)
            raise
        _empty(domain, files, record)
    return True


def finish(connection: Any, uuid: str, folder: str) -> bool:
    """What an idletimed began that ended in the middle: the VM has been stopped. Only the files of the record are emptied."""
    domain = connection.lookupByUUIDString(uuid)
    record = None if domain.isActive() else record_of(domain)
    if record is None or record.done:
        return False
    with contextlib.ExitStack() as stack:
        files = [one for one in _ready(connection, domain, None, stack, folder, record)
                 if record.files.get(one.disk.target) == one.id]
        if len(files) != len(record.files):
            raise Unfit("its scratch disks are other files by now", "look at them, and remove what is not needed")
        if any(not one.half and os.fstat(one.descriptor).st_mtime > record.at + ENDS_SECONDS for one in files):
            raise Unfit("it has run and written since", "nothing: it is left alone")
        _empty(domain, files, record)
    return True


def _empty(domain: Any, files: Iterable[_Open], record: Record) -> None:
    for one in files:
        _lock(one)
        if domain.isActive() or domain.hasManagedSaveImage():
            raise Unfit("it was started or saved meanwhile", "nothing: it is left alone")
    for one in files:
        write(one.descriptor, one.fresh)
    _keep(domain, replace(record, done=True))


def _ready(connection: Any, domain: Any, place: int | None, stack: contextlib.ExitStack, folder: str,
           record: Record | None = None) -> list[_Open]:
    """The overlays that may be dropped, open, with what is to be written. place None: all. record: of a drop that was begun.
    Raises Unfit."""
    disks = _allowed(domain)
    tree = Tree("/")
    found = []
    for disk in disks:
        descriptor = _opened(disk)
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if place is not None and status.st_dev != place:
            continue
        scratch.check_file(tree, disk.file, status)
        id_ = f"{status.st_dev}:{status.st_ino}"
        half = _half_written(record, disk, descriptor, id_)
        image = half or scratch.check_image(disk.file, functools.partial(os.pread, descriptor))
        found.append(_Open(disk, descriptor, id_, image, fresh(image, folder), half is not None))
    if not found:
        raise Unfit("it has no scratch disk there any more", "nothing: it is looked at anew")
    _used(connection, domain, {one.id: one.disk for one in found}, tree)
    return found


def _half_written(record: Record | None, disk: Scratch, descriptor: int, id_: str) -> Image | None:
    """What an overlay is to be that has no header yet, because an idletimed ended while it wrote it."""
    if record is None or record.files.get(disk.target) != id_ or os.pread(descriptor, _BLOCK, 0).strip(b"\0"):
        return None
    return record.images.get(disk.target)


def _allowed(domain: Any) -> list[Scratch]:
    """The disks that live and persistent XML both mark, in the same file. Raises Unfit for what libvirt knows against it."""
    if not domain.isPersistent():
        raise Unfit("the domain is transient, and would be gone", "define it")
    if domain.hasManagedSaveImage():
        raise Unfit("it has a managed save, which needs its disks as they were", "virsh managedsave-remove DOMAIN")
    if domain.snapshotNum() or _checkpoints(domain):
        raise Unfit("it has snapshots or checkpoints", "remove them, or the mark")
    config = read(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    disks = scratch.all_marked(config, parse_tree(config))
    if domain.isActive():
        if domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
            raise Unfit("a job of it is under way, such as a migration or a backup", "wait for its end")
        live = read(domain.XMLDesc(0))
        now = scratch.all_marked(live, parse_tree(live))
        disks = {target: one for target, one in now.items() if target in disks and disks[target].file == one.file}
        for target, one in disks.items():
            if domain.blockJobInfo(target, 0):
                raise Unfit(f"a block job of '{one.file}' is under way, which may copy what is in it", "wait for its end")
    if not disks:
        raise Unfit("its persistent XML does not mark the same disks, with the same files, as the live one",
                    "write the mark and the disk into both: virsh metadata and attach-disk have --live and --config")
    return list(disks.values())


def _checkpoints(domain: Any) -> bool:
    with contextlib.suppress(libvirt.libvirtError, AttributeError):  # a libvirt that knows none
        return bool(domain.listAllCheckpoints())
    return False


def _opened(disk: Scratch) -> int:
    try:
        return os.open(disk.file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise Unfit(f"'{disk.file}' cannot be written: {error.strerror}",
                    "let idletimed write there: ReadWritePaths= in a drop-in of its unit") from error


# ---- who else

def _used(connection: Any, own: Any, files: Mapping[str, Scratch], tree: Tree) -> None:
    """Raises Unfit where another disk or domain, running or not, has one of these files, itself or below what it has."""
    for domain in connection.listAllDomains():
        mine = {one.target for one in files.values()} if domain.UUIDString() == own.UUIDString() else set()
        for text in _texts(domain):
            for path in _paths(connection, read(text), mine, tree):
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    if (disk := files.get(f"{status.st_dev}:{status.st_ino}")) is not None:
                        raise Unfit(f"'{disk.file}' is used by domain '{domain.name()}' as well, as '{path}'",
                                    "give each its own overlay")


def _texts(domain: Any) -> list[str]:
    """All descriptions of a domain; one that goes meanwhile has none."""
    try:
        found = [domain.XMLDesc(0), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)]
        return found + [one.getXMLDesc(0) for one in domain.listAllSnapshots()]
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return []
        raise


def _paths(connection: Any, root: Element, mine: set[str], tree: Tree) -> Iterator[str]:
    """Files of all disks, and what is below them. Of the marked ones only what is below."""
    for disk in root.iter("disk"):
        for source in disk.iter("source"):
            path = source.get("file") or source.get("dev") or _volume(connection, source)
            if not path or "\0" in path:
                continue
            if source.getparent() is not disk or get(disk, "target", "dev") not in mine:
                yield path
            if (get(disk, "driver", "type") or "qcow2") != "raw":  # a guest may write any header into a raw image
                yield from qcow2.chain(tree, path)


def _volume(connection: Any, source: Element) -> str:
    pool, volume = source.get("pool"), source.get("volume")
    if not pool or not volume:
        return ""
    found = HostLookup(connection).volume(pool, volume)
    if found is None:
        raise Unfit(f"it is not known what volume '{volume}' of pool '{pool}' is", "start the pool, or remove that disk")
    return found.name


# ---- the file

def _flock(kind: int) -> bytes:
    return _LOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _lock_of(descriptor: int) -> bool:
    """Whether another process has locked a part of a file."""
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
    return bool(_LOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _lock(one: _Open) -> None:
    """The whole file, as QEMU's own locks are: nobody can open it until we close it."""
    try:
        fcntl.fcntl(one.descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
    except OSError as error:
        raise Unfit(f"'{one.disk.file}' is used by another process ({error.strerror})", "end that one") from error


def fresh(image: Image, folder: str) -> bytes:
    """The same image with nothing in it. Nothing is opened that the old one names. Raises Unfit."""
    program = shutil.which(QEMU_IMG)
    if program is None:
        raise Unfit(f"there is no {QEMU_IMG}", "install qemu-utils (qemu-img)")
    options = [f"compat={'0.10' if image.version == 2 else '1.1'}", f"cluster_size={image.cluster}"]
    if image.version > 2:
        options.append(f"refcount_bits={image.refcount_bits}")
        options += ["lazy_refcounts=on"] if image.compatible & qcow2.LAZY_REFCOUNTS else []
        options += ["extended_l2=on"] if image.incompatible & qcow2.EXTENDED_L2 else []
        options += ["compression_type=zstd"] if image.zstd else []
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=folder) as place:
        file = os.path.join(place, "image")
        argv = [program, "create", "-q", "-u", "-f", "qcow2", "-o", ",".join(options), "-F", image.backing_format,
                "-b", image.backing, file, str(image.size)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=QEMU_IMG_SECONDS, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise Unfit(f"{QEMU_IMG} does not come to an end", "look at its log") from error
        if done.returncode:
            raise Unfit(f"an empty overlay cannot be made: {done.stderr.strip()[:500]}", "make the overlay anew by hand")
        if os.stat(file).st_size > LARGEST:
            raise Unfit(f"an empty overlay would take {os.stat(file).st_size >> 20} MiB", "use larger clusters")
        with open(file, "rb") as made:
            content = made.read()
    if scratch.check_image(file, lambda size, offset: content[offset:offset + size]).size != image.size:
        raise Unfit("an empty overlay has another size", "make the overlay anew by hand")
    return content


def write(descriptor: int, content: bytes) -> None:
    """Replace what is in a file. Zeros are holes; the first block comes last: until then it is no image."""
    os.ftruncate(descriptor, 0)
    os.ftruncate(descriptor, len(content))
    for at in (*range(_BLOCK, len(content), _BLOCK), 0):
        block = content[at:at + _BLOCK]
        if at == 0:
            os.fsync(descriptor)
        if block.strip(b"\0") and os.pwrite(descriptor, block, at) != len(block):
            raise OSError(5, "an empty overlay could not be written as a whole")
    os.fsync(descriptor)
