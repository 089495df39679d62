// SPDX-License-Identifier: GPL-2.0-or-later
// Block jobs that run (backups, mirrors, commits), and migrations: how far each is, what holds it, and when it will be done.

import { useEffect, useState } from "react";
import { Progress } from "@patternfly/react-core/dist/esm/components/Progress/index.js";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table/dist/esm/components/Table/index.js";

import * as api from "./api";
import type { Job } from "./api";
import { percent, rate } from "./model";

const _ = cockpit.gettext;

const POLL_MS = 2000;

const TYPES: Record<string, () => string> = {
    backup: () => _("Backup"),
    copy: () => _("Copy"),
    commit: () => _("Commit"),
    pull: () => _("Pull"),
    export: () => _("NBD export"),
    migration: () => _("Migration"),
};

export const Jobs = () => {
    const { found, failure } = useJobs();

    if (failure)
        return <p>{failure}</p>;
    if (!found)
        return <p>{_("Looking…")}</p>;
    return (
        <>
            {found.silent.length > 0 &&
                <p>{cockpit.format(_("What runs of $0 is not known: QEMU does not answer."), found.silent.join(", "))}</p>}
            {found.jobs.length > 0 && <JobTable jobs={found.jobs} />}
            {!found.jobs.length && !found.silent.length && <p>{_("None runs.")}</p>}
        </>
    );
};

const JobTable = ({ jobs }: { jobs: Job[] }) => (
    <Table variant="compact" aria-label={_("Block jobs")} className="idle-jobs" gridBreakPoint="grid-lg">
        <Thead>
            <Tr>
                <Th modifier="wrap">{_("Job")}</Th>
                <Th modifier="wrap">{_("Class")}</Th>
                <Th modifier="wrap" width={25}>{_("Done")}</Th>
                <Th modifier="wrap">{_("Rate")}</Th>
                <Th modifier="wrap">{_("Waited")}</Th>
                <Th modifier="wrap">{_("Ends")}</Th>
            </Tr>
        </Thead>
        <Tbody>
            {jobs.map(each => (
                <Tr key={`${each.domain} ${each.disk} ${each.type}`} data-job={`${each.domain} ${each.disk}`}>
                    <Td dataLabel={_("Job")}>
                        {cockpit.format(each.disk ? _("$0 of $1, $2") : _("$0 of $1"), (TYPES[each.type] ?? (() => _("Job")))(),
                                        each.domain, each.disk)}
                    </Td>
                    <Td dataLabel={_("Class")}>{classOf(each)}</Td>
                    <Td dataLabel={_("Done")}>
                        {each.done_percent === null
                            ? "–"
                            : <Progress value={each.done_percent} measureLocation="outside" size="sm"
                                        aria-label={cockpit.format(_("Progress of $0, $1"), each.domain, each.disk || each.type)} />}
                    </Td>
                    <Td dataLabel={_("Rate")}>{rate(each.rate)}</Td>
                    <Td dataLabel={_("Waited")}>{each.waited_percent === null ? "–" : percent(each.waited_percent / 100)}</Td>
                    <Td dataLabel={_("Ends")}>{ends(each.left_seconds)}</Td>
                </Tr>
            ))}
        </Tbody>
    </Table>
);

function classOf(job: Job): string {
    if (job.urgent && job.by !== null)
        return cockpit.format(_("Foreground, to be done by $0"), clock(job.by));
    if (job.class_ === null)
        return _("not known");
    if (job.class_ === "foreground")
        return _("Foreground");
    return cockpit.format(job.held ? _("Background on $0, held") : _("Background on $0"), job.resource ?? "");
}

/** A time of day, by the browser's clock. */
function clock(seconds: number): string {
    return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** In how long, of seconds; null is not known. */
function ends(seconds: number | null): string {
    if (seconds === null)
        return "–";
    if (seconds < 90)
        return cockpit.format(_("in $0 s"), Math.round(seconds));
    return seconds < 5400
        ? cockpit.format(_("in $0 min"), Math.round(seconds / 60))
        : cockpit.format(_("in $0 h"), Math.round(seconds / 360) / 10);
}

/** What runs, kept up to date while the page is seen. */
function useJobs() {
    const [found, setFound] = useState<Awaited<ReturnType<typeof api.jobs>> | null>(null);
    const [failure, setFailure] = useState("");

    useEffect(() => {
        let timer = 0;
        let over = false;

        async function look() {
            try {
                if (!cockpit.hidden)
                    setFound(await api.jobs());
                setFailure("");
            } catch (error) {
                setFailure((error as Error).message);
            }
            if (!over)
                timer = window.setTimeout(look, POLL_MS);
        }

        void look();
        return () => {
            over = true;
            window.clearTimeout(timer);
        };
    }, []);

    return { found, failure };
}
