// SPDX-License-Identifier: GPL-2.0-or-later
// A VM's own policy as XML; idletimed says what is wrong in it while it is written.

import { useEffect, useState } from "react";
import { Alert } from "@patternfly/react-core/dist/esm/components/Alert/index.js";
import { Button } from "@patternfly/react-core/dist/esm/components/Button/index.js";
import { Form, FormGroup } from "@patternfly/react-core/dist/esm/components/Form/index.js";
import { Modal, ModalBody, ModalFooter, ModalHeader } from "@patternfly/react-core/dist/esm/components/Modal/index.js";
import { TextArea } from "@patternfly/react-core/dist/esm/components/TextArea/index.js";

import * as api from "./api";
import type { Finding, Vm } from "./api";

const _ = cockpit.gettext;

const CHECK_MS = 400;
const NEW = `<policy xmlns="urn:idletime:policy:1" class="background">\n  <interval us="20000"/>\n</policy>\n`;

interface Verdict {
    text: string;
    good: boolean;
    says: string;
    findings: Finding[];
}

export const PolicyEditor = ({ vm, close }: { vm: Vm; close: (saved: boolean) => void }) => {
    const [text, setText] = useState<string | null>(null);
    const [verdict, setVerdict] = useState<Verdict | null>(null);
    const [saving, setSaving] = useState(false);
    const [failed, setFailed] = useState("");

    useEffect(() => {
        api.policy(vm.uuid)
            .then(found => setText(found.policy ?? NEW))
            .catch((error: Error) => setFailed(error.message));
    }, [vm.uuid]);

    useEffect(() => {
        if (text === null)
            return;
        let over = false;
        const timer = window.setTimeout(() => {
            judged(vm.uuid, text).then(found => over || setVerdict(found));
        }, CHECK_MS);
        return () => {
            over = true;
            window.clearTimeout(timer);
        };
    }, [text, vm.uuid]);

    const good = verdict !== null && verdict.text === text && verdict.good;

    function save() {
        if (text === null)
            return;
        setSaving(true);
        api.setPolicy(vm.uuid, text)
            .then(() => close(true))
            .catch((error: Error) => {
                setFailed(error.message);
                setSaving(false);
            });
    }

    // What is being saved is waited for: its end would close another editor, or be told nowhere.
    function leave() {
        if (!saving)
            close(false);
    }

    return (
        <Modal isOpen variant="medium" onClose={leave} aria-labelledby="policy-title" aria-describedby="policy-body">
            <ModalHeader labelId="policy-title" title={cockpit.format(_("Policy of $0"), vm.name)}
                         description={_("It is a part of the virtual machine's definition; idletime-policy(5) describes it.")} />
            <ModalBody id="policy-body">
                <Form onSubmit={event => event.preventDefault()}>
                    <FormGroup label={_("Policy")} fieldId="policy-text">
                        <TextArea id="policy-text" className="idle-policy" value={text ?? ""} rows={10} spellCheck="false" resizeOrientation="vertical"
                                  isDisabled={text === null} validated={verdict && !verdict.good ? "error" : "default"}
                                  onChange={(_event, value) => setText(value)} />
                    </FormGroup>
                    <div aria-live="polite" id="policy-verdict">
                        {verdict && <Alert isInline isPlain component="h2" variant={verdict.good ? "success" : "danger"} title={verdict.says} />}
                        {verdict?.findings.map((each, number) => <FindingLine key={number} finding={each} />)}
                        {failed && <Alert isInline component="h2" variant="danger" title={failed} />}
                    </div>
                </Form>
            </ModalBody>
            <ModalFooter>
                <Button variant="primary" onClick={save} isDisabled={!good || saving} isLoading={saving}>{_("Save")}</Button>
                <Button variant="link" onClick={leave} isDisabled={saving}>{_("Cancel")}</Button>
            </ModalFooter>
        </Modal>
    );
};

const FindingLine = ({ finding }: { finding: Finding }) => {
    const where = [finding.line === null ? "" : cockpit.format(_("line $0"), finding.line), finding.element].filter(Boolean).join(", ");
    return (
        <Alert isInline isPlain component="h2" variant={finding.severity === "error" ? "danger" : finding.severity === "warning" ? "warning" : "info"}
               title={where ? `${where}: ${finding.message}` : finding.message}>
            {finding.remedy}
        </Alert>
    );
};

async function judged(uuid: string, text: string): Promise<Verdict> {
    try {
        const found = await api.check(uuid, text);
        return { text, good: true, says: found.why, findings: found.findings };
    } catch (error) {
        const said = error as api.ApiError;
        return { text, good: false, says: said.message, findings: said.findings ?? [] };
    }
}
