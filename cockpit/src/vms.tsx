// SPDX-License-Identifier: GPL-2.0-or-later
// Virtual machines, and the switch of their class.

import { Button } from "@patternfly/react-core/dist/esm/components/Button/index.js";
import { FormSelect, FormSelectOption } from "@patternfly/react-core/dist/esm/components/FormSelect/index.js";
import { Label } from "@patternfly/react-core/dist/esm/components/Label/index.js";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table/dist/esm/components/Table/index.js";

import type { Class, Vm } from "./api";
import { known, ownClass, sum } from "./model";

const _ = cockpit.gettext;

export const CLASSES: Record<Class, () => string> = {
    foreground: () => _("Foreground"),
    background: () => _("Background"),
    guest: () => _("As its guest says"),
};

interface Props {
    vms: Vm[];
    /** By UUID: what was asked for and has not come yet. */
    pending: Record<string, string>;
    admin: boolean;
    setClass: (vm: Vm, class_: Class | "") => void;
    edit: (vm: Vm) => void;
}

export const Vms = ({ vms, pending, admin, setClass, edit }: Props) => (
    <Table variant="compact" aria-label={_("Virtual machines")} className="idle-vms" gridBreakPoint="grid-lg">
        <Thead>
            <Tr>
                <Th modifier="wrap">{_("Name")}</Th>
                <Th modifier="wrap">{_("State")}</Th>
                <Th modifier="wrap">{_("Class")}</Th>
                <Th modifier="wrap">{_("In force")}</Th>
                <Th modifier="wrap">{_("Resources")}</Th>
                <Th modifier="wrap">{_("Held requests")}</Th>
                <Th modifier="wrap">{_("In service")}</Th>
                <Th screenReaderText={_("Actions")} />
            </Tr>
        </Thead>
        <Tbody>
            {vms.map(vm => (
                <Tr key={vm.uuid || vm.name} data-vm={vm.name}>
                    <Td dataLabel={_("Name")}><strong>{vm.name}</strong></Td>
                    <Td dataLabel={_("State")}>
                        {vm.stopped ? <>{_("stopped by idletimed")}<div className="idle-problem">{vm.stopped}</div></> : vm.state}
                    </Td>
                    <Td dataLabel={_("Class")}>
                        {vm.libvirt
                            ? <ClassSwitch vm={vm} value={pending[vm.uuid] ?? ownClass(vm)} busy={vm.uuid in pending} admin={admin}
                                           setClass={setClass} />
                            : named(vm.class)}
                    </Td>
                    <Td dataLabel={_("In force")}><InForce vm={vm} pending={vm.uuid in pending} /></Td>
                    <Td dataLabel={_("Resources")}>{vm.resources.map(each => each.name).join(", ") || "–"}</Td>
                    <Td dataLabel={_("Held requests")} className="idle-held">{known(sum(vm, "held"))}</Td>
                    <Td dataLabel={_("In service")}>{known(sum(vm, "in_service"))}</Td>
                    <Td isActionCell>
                        {vm.libvirt && admin &&
                            <Button variant="secondary" size="sm" onClick={() => edit(vm)}
                                    aria-label={cockpit.format(_("Policy of $0"), vm.name)}>{_("Policy…")}</Button>}
                    </Td>
                </Tr>
            ))}
        </Tbody>
    </Table>
);

const named = (class_: Class | null) => class_ ? CLASSES[class_]() : _("None");

const ClassSwitch = ({ vm, value, busy, admin, setClass }:
                     { vm: Vm; value: string; busy: boolean; admin: boolean; setClass: Props["setClass"] }) => {
    const byHost = vm.by === "rule" || vm.by === "default";
    const none = byHost ? cockpit.format(_("By the host's rules: $0"), named(vm.class)) : _("None");
    return (
        <FormSelect value={value} isDisabled={!admin || busy} aria-label={cockpit.format(_("Class of $0"), vm.name)}
                    onChange={(_event, wanted) => setClass(vm, wanted as Class | "")}>
            <FormSelectOption value="" label={ownClass(vm) ? _("None of its own") : none} />
            {(Object.keys(CLASSES) as Class[]).map(each => <FormSelectOption key={each} value={each} label={CLASSES[each]()} />)}
        </FormSelect>
    );
};

const InForce = ({ vm, pending }: { vm: Vm; pending: boolean }) => {
    if (pending)
        return <Label isCompact status="info" variant="outline">{_("being carried out")}</Label>;
    if (vm.state === "shut off")
        return <>{vm.class ? _("when it starts") : "–"}</>;
    if (vm.in_force)
        return <Label isCompact status="success" variant="outline">{_("in force")}</Label>;
    if (!vm.problems.length)
        return <>{vm.class ? _("not yet") : "–"}</>;
    return (
        <>
            <Label isCompact status="warning" variant="outline">{_("not in force")}</Label>
            {vm.problems.map(each => <div key={each} className="idle-problem">{each}</div>)}
        </>
    );
};
