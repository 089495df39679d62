// SPDX-License-Identifier: GPL-2.0-or-later
// The page: resources, the timeline of one of them, virtual machines.

import { useCallback, useEffect, useRef, useState } from "react";
import { Alert, AlertActionCloseButton } from "@patternfly/react-core/dist/esm/components/Alert/index.js";
import { Card, CardBody, CardHeader, CardTitle } from "@patternfly/react-core/dist/esm/components/Card/index.js";
import { EmptyState, EmptyStateBody } from "@patternfly/react-core/dist/esm/components/EmptyState/index.js";
import { Page, PageSection } from "@patternfly/react-core/dist/esm/components/Page/index.js";
import { Title } from "@patternfly/react-core/dist/esm/components/Title/index.js";
import { Stack, StackItem } from "@patternfly/react-core/dist/esm/layouts/Stack/index.js";

import * as api from "./api";
import type { Class, Host, Vm } from "./api";
import { Interval } from "./interval";
import { Jobs } from "./jobs";
import { heldBack, looked, saysMore, settled } from "./model";
import { PolicyEditor } from "./policy";
import { RemovePolicy } from "./remove";
import { Resources } from "./resources";
import { Timeline } from "./timeline";
import { Vms } from "./vms";

const _ = cockpit.gettext;

const POLL_MS = 1000;

export const App = () => {
    const { host, failure, again } = useHost();
    const admin = useAdmin();
    const [chosen, choose] = useState<string | null>(null);
    const [pending, setPending] = useState<Record<string, string>>({});
    const [edited, edit] = useState<Vm | null>(null);
    const [removed, setRemoved] = useState<{ vm: Vm; policy: string } | null>(null);
    const [refused, setRefused] = useState<{ title: string; says: string } | null>(null);

    useEffect(() => {
        const left = Object.entries(pending).filter(([uuid, wanted]) => host && !settled(host.vms.find(vm => vm.uuid === uuid), wanted));
        if (left.length < Object.keys(pending).length)
            setPending(Object.fromEntries(left));
    }, [host, pending]);

    async function setInterval(vms: Vm[], resource: string, us: number | null) {
        setRefused(null);
        let written = true;
        for (const vm of vms) {
            try {
                await api.setInterval(vm.uuid, resource, us);
            } catch (error) {
                written = false;
                setRefused(refusal(cockpit.format(_("The interval of $0 was not changed"), vm.name), error as api.ApiError));
            }
        }
        again();
        return written;
    }

    /** A policy that says more than a class is not taken away without a question. */
    async function chooseClass(vm: Vm, class_: Class | "") {
        setRefused(null);
        try {
            const policy = class_ ? null : (await api.policy(vm.uuid)).policy;
            if (saysMore(policy))
                setRemoved({ vm, policy: policy ?? "" });
            else
                await setClass(vm, class_);
        } catch (error) {
            setRefused(refusal(cockpit.format(_("The class of $0 was not changed"), vm.name), error as api.ApiError));
        }
    }

    async function setClass(vm: Vm, class_: Class | "") {
        setRefused(null);
        setPending(before => ({ ...before, [vm.uuid]: class_ }));
        const giveUp = () => setPending(before => Object.fromEntries(Object.entries(before).filter(([uuid]) => uuid !== vm.uuid)));
        try {
            const done = await (class_ ? api.setClass(vm.uuid, class_) : api.removePolicy(vm.uuid));
            if (class_ && done.class && done.class !== class_) {
                giveUp();
                setRefused({ title: cockpit.format(_("$0 stays $1"), vm.name, done.class), says: done.why });
            }
        } catch (error) {
            giveUp();
            setRefused(refusal(cockpit.format(_("The class of $0 was not changed"), vm.name), error as api.ApiError));
        }
        again();
    }

    if (!host)
        return <Nothing failure={failure} />;

    const resource = looked(host, chosen);
    const shown = host.resources.find(each => each.name === resource);
    const heldVms = resource ? heldBack(host, resource) : [];
    return (
        <Page isContentFilled className="no-masthead-sidebar">
            <PageSection hasBodyWrapper={false} aria-label={_("Idle load")}>
                <Stack hasGutter>
                    <StackItem>
                        <Title headingLevel="h1" size="2xl">{_("Idle load")}</Title>
                        <p>{_("Background virtual machines use what foreground ones leave idle.")}</p>
                    </StackItem>
                    <StackItem aria-live="polite">
                        {failure && <Alert isInline component="h2" variant="danger" title={_("idletimed does not answer; this is what it said last")}>
                            {failure.message}</Alert>}
                        {host.problems.map(each => <Alert key={each} isInline component="h2" variant="warning" title={each} />)}
                        {admin === false && <Alert isInline component="h2" variant="info"
                            title={_("Only administrators change classes: get administrative access in Cockpit's menu.")} />}
                        {refused && <Alert isInline component="h2" variant="danger" title={refused.title}
                            actionClose={<AlertActionCloseButton onClose={() => setRefused(null)} />}>{refused.says}</Alert>}
                    </StackItem>
                    <StackItem>
                        <Card>
                            <CardHeader><CardTitle component="h2">{_("Resources")}</CardTitle></CardHeader>
                            <CardBody>
                                {host.resources.length
                                    ? <Resources resources={host.resources} chosen={resource} choose={choose} />
                                    : <p>{_("None is used: make a virtual machine foreground or background.")}</p>}
                            </CardBody>
                        </Card>
                    </StackItem>
                    {resource && <StackItem>
                        <Card id="timeline">
                            <CardHeader>
                                <CardTitle component="h2">{cockpit.format(_("The last ten seconds of $0"), resource)}</CardTitle>
                            </CardHeader>
                            <CardBody><Timeline resource={resource} /></CardBody>
                            {shown && admin && heldVms.length > 0 && <CardBody>
                                <Interval key={resource} resource={shown} set={us => setInterval(heldVms, shown.name, us)} />
                            </CardBody>}
                        </Card>
                    </StackItem>}
                    <StackItem>
                        <Card id="jobs">
                            <CardHeader><CardTitle component="h2">{_("Block jobs")}</CardTitle></CardHeader>
                            <CardBody><Jobs /></CardBody>
                        </Card>
                    </StackItem>
                    <StackItem>
                        <Card>
                            <CardHeader><CardTitle component="h2">{_("Virtual machines")}</CardTitle></CardHeader>
                            <CardBody>
                                {host.vms.length
                                    ? <Vms vms={host.vms} pending={pending} admin={admin === true} setClass={(vm, class_) => void chooseClass(vm, class_)} edit={edit} />
                                    : <p>{_("There is none.")}</p>}
                            </CardBody>
                        </Card>
                    </StackItem>
                </Stack>
            </PageSection>
            {removed && <RemovePolicy vm={removed.vm} policy={removed.policy} close={agreed => {
                setRemoved(null);
                if (agreed)
                    void setClass(removed.vm, "");
            }} />}
            {edited && <PolicyEditor vm={edited} close={saved => {
                if (saved)
                    again();
                edit(null);
            }} />}
        </Page>
    );
};

const refusal = (title: string, error: api.ApiError) => ({
    title: `${title}: ${error.message}`,
    says: error.findings.map(each => `${each.message}; ${each.remedy}`).join(" ") || error.remedy,
});

const Nothing = ({ failure }: { failure: api.ApiError | null }) => (
    <Page isContentFilled className="no-masthead-sidebar">
        <PageSection hasBodyWrapper={false} aria-label={_("Idle load")}>
            {failure
                ? <EmptyState titleText={_("idletimed does not answer")} headingLevel="h1" status="danger">
                    <EmptyStateBody>
                        {failure.gone ? _("Nobody listens at its socket. Start it: systemctl start idletimed") : failure.message}
                    </EmptyStateBody>
                </EmptyState>
                : <EmptyState titleText={_("Idle load")} headingLevel="h1"><EmptyStateBody>{_("Asking idletimed…")}</EmptyStateBody></EmptyState>}
        </PageSection>
    </Page>
);

/** What idletimed says of the host, kept up to date while the page is seen. */
function useHost() {
    const [host, setHost] = useState<Host | null>(null);
    const [failure, setFailure] = useState<api.ApiError | null>(null);
    const look = useRef<() => void>(() => {});

    useEffect(() => {
        let timer = 0;
        let asking = false;

        async function ask() {
            window.clearTimeout(timer);
            if (!asking && !cockpit.hidden) {
                asking = true;
                try {
                    setHost(await api.host());
                    setFailure(null);
                } catch (error) {
                    setFailure(error as api.ApiError);
                }
                asking = false;
            }
            window.clearTimeout(timer);
            timer = window.setTimeout(ask, POLL_MS);
        }

        const seen = () => void ask();
        look.current = seen;
        cockpit.addEventListener("visibilitychange", seen);
        seen();
        return () => {
            window.clearTimeout(timer);
            cockpit.removeEventListener("visibilitychange", seen);
        };
    }, []);

    return { host, failure, again: useCallback(() => look.current(), []) };
}

/** Whether Cockpit has administrative access; null is not known yet. */
function useAdmin(): boolean | null {
    const [allowed, setAllowed] = useState<boolean | null>(null);
    useEffect(() => {
        const permission = cockpit.permission({ admin: true });
        const changed = () => setAllowed(permission.allowed);
        permission.addEventListener("changed", changed);
        changed();
        return () => permission.removeEventListener("changed", changed);
    }, []);
    return allowed;
}

