// SPDX-License-Identifier: GPL-2.0-or-later
// The host's resources: what disks and uplinks do now. One of them is looked at in the timeline.

import { Label } from "@patternfly/react-core/dist/esm/components/Label/index.js";
import { Radio } from "@patternfly/react-core/dist/esm/components/Radio/index.js";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table/dist/esm/components/Table/index.js";

import type { Resource } from "./api";
import { known, milliseconds } from "./model";

const _ = cockpit.gettext;

const STATES: Record<string, () => string> = {
    foreground: () => _("foreground is in service"),
    preemption: () => _("the interval runs"),
    background: () => _("background is in service"),
    idle: () => _("idle"),
    lost: () => _("its arena is lost"),
    unknown: () => _("not known"),
};

export const Resources = ({ resources, chosen, choose }:
                          { resources: Resource[]; chosen: string | null; choose: (name: string) => void }) => (
    <Table variant="compact" aria-label={_("Resources")} className="idle-resources" gridBreakPoint="grid-lg">
        <Thead>
            <Tr>
                <Th modifier="wrap">{_("Resource")}</Th>
                <Th modifier="wrap">{_("State")}</Th>
                <Th modifier="wrap">{_("Virtual machines")}</Th>
                <Th modifier="wrap">{_("Held requests")}</Th>
                <Th modifier="wrap">{_("Interval in force")}</Th>
                <Th modifier="wrap">{_("Collisions")}</Th>
                <Th modifier="wrap">{_("Foreground waited")}</Th>
            </Tr>
        </Thead>
        <Tbody>
            {resources.map(each => (
                <Tr key={each.name} data-resource={each.name}>
                    <Td dataLabel={_("Resource")}>
                        {each.vms.length
                            ? <Radio id={`resource-${each.name}`} name="resource" label={each.name} isChecked={each.name === chosen}
                                     onChange={() => choose(each.name)} />
                            : each.name}
                    </Td>
                    <Td dataLabel={_("State")}>
                        {each.problem
                            ? <Label isCompact status="warning" variant="outline">{each.problem}</Label>
                            : (STATES[each.state ?? "unknown"] ?? STATES.unknown)?.()}
                    </Td>
                    <Td dataLabel={_("Virtual machines")}>{each.vms.join(", ") || _("none")}</Td>
                    <Td dataLabel={_("Held requests")} className="idle-held">{known(each.held)}</Td>
                    <Td dataLabel={_("Interval in force")}>
                        {milliseconds(each.interval_us)}{each.auto && ` (${_("learned")})`}
                    </Td>
                    <Td dataLabel={_("Collisions")}>{known(each.collisions)}</Td>
                    <Td dataLabel={_("Foreground waited")}>{milliseconds(each.collision_cost_us)}</Td>
                </Tr>
            ))}
        </Tbody>
    </Table>
);
