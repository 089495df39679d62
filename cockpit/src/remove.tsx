// SPDX-License-Identifier: GPL-2.0-or-later
// Before a policy that says more than a class is taken away: it is kept nowhere else.

import { Button } from "@patternfly/react-core/dist/esm/components/Button/index.js";
import { Modal, ModalBody, ModalFooter, ModalHeader } from "@patternfly/react-core/dist/esm/components/Modal/index.js";

import type { Vm } from "./api";

const _ = cockpit.gettext;

export const RemovePolicy = ({ vm, policy, close }: { vm: Vm; policy: string; close: (agreed: boolean) => void }) => (
    <Modal isOpen variant="medium" onClose={() => close(false)} aria-labelledby="remove-title" aria-describedby="remove-body">
        <ModalHeader labelId="remove-title" title={cockpit.format(_("Remove the policy of $0?"), vm.name)}
                     description={_("It says more than a class, and is kept nowhere else:")} />
        <ModalBody id="remove-body"><pre className="idle-policy">{policy}</pre></ModalBody>
        <ModalFooter>
            <Button variant="danger" id="remove-policy" onClick={() => close(true)}>{_("Remove")}</Button>
            <Button variant="link" onClick={() => close(false)}>{_("Cancel")}</Button>
        </ModalFooter>
    </Modal>
);
