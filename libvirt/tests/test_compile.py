# SPDX-License-Identifier: GPL-2.0-or-later
"""The compiler on golden domains: output, idempotence, the way back, libvirt's own schema."""

from __future__ import annotations

import re
import shutil
import subprocess

import libvirt
import pytest
from lxml import etree

from conftest import DATA
from idletime import compiler, resolve
from idletime.compiler.want import MIN_SHARES
from idletime.errors import Kind, PolicyError
from idletime.policy import edit

CASES = sorted(path for path in (DATA / "compile" / "rack").glob("*.xml") if not path.name.endswith(".out.xml"))
DEVICES = sorted(
    path for path in (DATA / "device").glob("*.xml") if path.stem != "domain" and not path.name.endswith(".out.xml")
)
ERRORS = sorted((DATA / "compile-errors").glob("*.xml"))


def read(path):
    return path.read_bytes().decode()


def compiled(xml, root, lookup):
    return compiler.compile(xml, resolve.gather(xml, root, lookup))


@pytest.fixture
def compile_case(host, lookup):
    return lambda xml: compiled(xml, host("rack"), lookup)


def by_name(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def test_there_are_enough_domains():
    assert len(CASES) >= 25


@by_name(CASES)
def test_golden(path, compile_case, golden):
    result = compile_case(read(path))
    golden(path.with_suffix(".out.xml"), result.xml)
    golden(path.with_suffix(".findings"), "".join(f"{finding}\n" for finding in result.findings))


@by_name(CASES)
def test_twice_gives_the_same_bytes(path, compile_case):
    once = compile_case(read(path)).xml
    assert compile_case(once).xml == once


@by_name(CASES)
def test_undone_to_the_byte(path, compile_case):
    assert compiler.decompile(compile_case(read(path)).xml) == read(path)


@by_name(CASES)
def test_removing_the_policy_restores_the_original(path, compile_case):
    """The original is the domain without a policy, however that was cut out of the text."""
    original = edit.without(read(path))
    with_policy = compile_case(read(path)).xml
    removed = edit.without(with_policy)
    assert "urn:idletime:compiled" not in compile_case(removed).xml
    assert canonical(compile_case(removed).xml) == canonical(original)
    if "<metadata" in original:  # else the policy was alone in it, and it goes as well
        assert compile_case(removed).xml == original


def canonical(xml):
    """The tree without an empty <metadata>, which the compiler does not take away, as it did not add it."""
    root = etree.fromstring(xml.encode(), etree.XMLParser(remove_blank_text=True))
    for metadata in root.findall("metadata"):
        if not len(metadata):
            root.remove(metadata)
    for element in root.iter(etree.Element):
        if not len(element) and not (element.text or "").strip():
            element.text = None
    return etree.tostring(root, method="c14n")


@by_name(CASES)
def test_only_additions(path, compile_case):
    """Each byte of the original is there, in order, but for the slash of an opened tag and a replaced name."""
    rest = iter(compile_case(read(path)).xml)
    lost = [character for character in read(path) if not _found(rest, character)]
    assert not lost or "vhost" in read(path) or "id='7'" in read(path)


def _found(rest, character):
    return any(one == character for one in rest)


@by_name(CASES)
def test_after_libvirt_has_written_it_anew(path, compile_case):
    """libvirt drops comments, changes quotes and order of attributes, and moves the qemu namespace to the root."""
    once = compile_case(read(path)).xml
    anew = rewritten(once)
    assert canonical(compiler.decompile(anew)) == canonical(rewritten(read(path), qemu="qemu/1.0" in once))


def rewritten(xml, qemu=False):
    parser = etree.XMLParser(remove_comments=True, remove_blank_text=True)
    old = etree.fromstring(xml.encode(), parser)
    spaces = {
        **old.nsmap,
        **({"qemu": "http://libvirt.org/schemas/domain/qemu/1.0"} if qemu or "qemu/1.0" in xml else {}),
    }
    new = etree.Element(old.tag, dict(sorted(old.attrib.items())), nsmap=spaces)
    new.extend(list(old))
    etree.indent(new)
    return etree.tostring(new, encoding="unicode")


@pytest.mark.schema
@by_name(CASES)
def test_libvirts_schema(path):
    validate(path.with_suffix(".out.xml"), "domain")


def validate(path, kind):
    program = shutil.which("virt-xml-validate")
    assert program, "virt-xml-validate is missing: run 'make deps'"
    done = subprocess.run([program, str(path), kind], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_smallest_share_is_libvirts_smallest():
    """When libvirt accepts less, so shall we: 2 is a fiftieth of the usual weight on cgroup v2."""
    connection = libvirt.open("test:///default")
    text = """<domain type='test'><name>s</name><memory>65536</memory><cputune><shares>{}</shares></cputune>
      <os><type>hvm</type></os></domain>"""
    connection.defineXML(text.format(MIN_SHARES))
    with pytest.raises(libvirt.libvirtError, match="'shares' must be in range"):
        connection.defineXML(text.format(MIN_SHARES - 1))


# ---- devices that are plugged in


@by_name(DEVICES)
def test_device(path, host, lookup, golden):
    facts = resolve.gather(read(path), host("rack"), lookup)
    result = compiler.compile_device(read(path), read(DATA / "device" / "domain.xml"), facts)
    plan = "".join(f"<!-- {resource.id} {resource.path} -->\n" for resource in result.plan.resources) + "".join(
        f"<!-- {device.alias}: {device.class_.value} on {device.resource} -->\n" for device in result.plan.devices
    )
    golden(
        path.with_suffix(".out.xml"),
        result.xml + plan + "".join(f"<!-- {finding} -->\n" for finding in result.findings),
    )
    assert compiler.compile_device(result.xml, read(DATA / "device" / "domain.xml"), facts).xml == result.xml


# ---- errors


@by_name(ERRORS)
def test_errors(path, compile_case, golden):
    with pytest.raises(PolicyError) as raised:
        compile_case(read(path))
    golden(path.with_suffix(".error"), f"{raised.value}\n")


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "<",
        "<domain>",
        "<domain></dom>",
        "<domain/><domain/>",
        "<domain a='1' a='2'/>",
        "<!DOCTYPE domain [<!ENTITY a 'b'>]><domain>&a;</domain>",
        "<domain>&nbsp;</domain>",
        "<domain>\0</domain>",
    ],
)
def test_not_xml(xml):
    with pytest.raises(PolicyError) as raised:
        compiler.compile(xml, compiler.HostFacts())
    assert raised.value.kind is Kind.SYNTAX


@pytest.mark.parametrize(
    "path",
    [
        "devices/disk",
        "devices",
        "os",
        "/domain/name",
        "//*",
        "metadata",
        "devices/disk[1]/source",
        "cputune/*",
        "qemu:override/qemu:device[@alias=''] | //*",
    ],
)
def test_a_record_cannot_name_other_places(path):
    """The record is text in metadata that people edit: it may only name what the compiler adds."""
    from xml.sax.saxutils import quoteattr

    xml = f"""<domain type='kvm'><name>a</name><metadata>
      <c:compiled xmlns:c='urn:idletime:compiled:1'><c:added path={quoteattr(path)}/></c:compiled></metadata>
      <os><type>hvm</type></os><devices><disk type='file'><source file='/a'/></disk></devices></domain>"""
    try:
        result = compiler.decompile(xml)
    except PolicyError as error:
        assert error.kind is Kind.SYNTAX
    else:
        assert "<disk type='file'><source file='/a'/></disk>" in result
        assert "<name>a</name>" in result


def test_what_people_put_into_ours_stays(compile_case):
    """A foreign argument in a qemu:commandline that we made keeps it there."""
    once = compile_case(read(DATA / "compile" / "rack" / "crypt.xml")).xml
    own = once.replace("</qemu:commandline>", "  <qemu:arg value='-snapshot'/>\n  </qemu:commandline>")
    undone = compiler.decompile(own)
    assert "<qemu:arg value='-snapshot'/>" in undone
    assert "idletime-resource" not in undone
    assert compile_case(own).xml.count("-snapshot") == 1


def test_what_people_have_removed_is_no_error(compile_case):
    once = compile_case(read(DATA / "compile" / "rack" / "crypt.xml")).xml
    cut = re.sub(r"\n  <qemu:override.*</qemu:override>", "", once, flags=re.S)
    assert compiler.decompile(cut) == read(DATA / "compile" / "rack" / "crypt.xml")
    assert compile_case(cut).xml == once


def test_a_changed_policy_leaves_nothing_behind(compile_case):
    base = read(DATA / "compile" / "rack" / "idle-everything.xml")
    other = base.replace("class='idle'", "class='minimal'").replace("control='demote'", "control='none'")
    through = (
        compile_case(base)
        .xml.replace("class='idle'", "class='minimal'")
        .replace("control='demote'", "control='none'")
    )
    assert compile_case(through).xml == compile_case(other).xml


def test_no_policy_changes_nothing(compile_case):
    xml = edit.without(read(DATA / "compile" / "rack" / "nova.xml"))
    assert compile_case(xml).xml == xml


def test_an_emulator_that_lacks_a_property(host, lookup):
    """Probed: the NIC is left out with a warning; what the policy names, or what cannot be left out, is refused."""
    xml = read(DATA / "compile" / "rack" / "virt-install.xml")
    facts = resolve.gather(xml, host("rack"), lookup)
    old = compiler.HostFacts(facts.resolutions, facts.run_dir, frozenset({"virtio-blk-pci.idletime"}))
    result = compiler.compile(xml, old)
    assert [device.kind for device in result.plan.devices] == ["disk"]
    assert "virtio-net-pci.idletime" in str(result.findings[0])
    auto = xml.replace('class="background"/>', 'class="background"><idletime:interval auto="yes"/></idletime:policy>')
    with pytest.raises(PolicyError, match="idletime-resource.auto"):
        compiler.compile(auto, old)


def test_plan_of_a_running_domain_has_its_aliases(host, lookup):
    xml = read(DATA / "compile" / "rack" / "transient.xml")
    plan = compiler.plan(xml, resolve.gather(xml, host("rack"), lookup))
    assert [(device.alias, device.resource) for device in plan.devices] == [
        ("virtio-disk0", "idletime-sda"),
        ("net0", "idletime-eth0"),
    ]


def test_a_document_type_in_a_comment_is_none():
    xml = "<!-- <!DOCTYPE a> --><domain type='kvm'><name>a</name></domain>"
    assert compiler.compile(xml, compiler.HostFacts()).xml == xml


def test_a_clone_is_compiled_anew(compile_case):
    """virt-clone gives new MAC addresses and paths, and keeps all else: nothing of the original's stays."""
    original = read(DATA / "compile" / "rack" / "several-nics.xml")

    def clone(xml):
        return re.sub(r"'52:54:00:00:00:(0\d)'", r"'52:54:00:77:77:\1'", xml).replace(
            "/srv/images/a", "/srv/mirror/b"
        )

    assert compile_case(clone(compile_case(original).xml)).xml == compile_case(clone(original)).xml
    assert "525400000001" not in compile_case(clone(original)).xml


def test_a_running_domain_may_lack_what_the_policy_names(host, lookup):
    """Unplugged from the running domain only, or attached to the persistent one only."""
    xml = read(DATA / "compile-errors" / "no-such-disk.xml")
    facts = resolve.gather(xml, host("rack"), lookup)
    assert [device.target for device in compiler.plan(xml, facts).devices] == ["vda"]
