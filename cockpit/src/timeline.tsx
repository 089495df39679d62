// SPDX-License-Identifier: GPL-2.0-or-later
// What a disk did in the last ten seconds: a lane each for foreground, interval and background.

import { useEffect, useState } from "react";
import { Alert } from "@patternfly/react-core/dist/esm/components/Alert/index.js";

import * as api from "./api";
import { extended, held, milliseconds, outline, percent, SECONDS, shares, type Strip } from "./model";

const _ = cockpit.gettext;

const POLL_MS = 500;
const HEIGHT = 36;

export const Timeline = ({ resource }: { resource: string }) => {
    const { strip, intervalUs, problem } = useStrip(resource);

    if (problem)
        return <Alert isInline isPlain component="h3" variant="warning" title={problem} />;
    if (!strip)
        return <p>{_("Looking at it…")}</p>;

    const seen = shares(strip);
    const started = seen.started === null ? _("not known yet") : cockpit.format(_("$0 requests a second"), Math.round(seen.started));
    const most = Math.max(1, ...strip.background.map(each => each ?? 0));
    return (
        <div className="idle-timeline">
            <Lane name="foreground" title={_("Foreground")} says={percent(seen.foreground)}
                  about={_("a request of it is in service")} values={strip.foreground} most={1000} />
            <Lane name="interval" title={_("Interval")} says={percent(seen.interval)}
                  about={intervalUs === null
                      ? _("none: nobody is background here")
                      : cockpit.format(_("$0 after it, in which background waits for more of it"), milliseconds(intervalUs))}
                  values={strip.interval} most={1000} />
            <Lane name="background" title={_("Background")} says={started}
                  about={cockpit.format(_("requests that start; the line below: all of it is held ($0 of the time)"), percent(seen.held))}
                  values={strip.background} most={most} below={held(strip)} />
            <div className="idle-axis" aria-hidden="true">
                {[10, 8, 6, 4, 2].map(ago => <span key={ago}>{cockpit.format(_("−$0 s"), ago)}</span>)}
                <span>{_("now")}</span>
            </div>
        </div>
    );
};

interface LaneProps {
    name: string;
    title: string;
    says: string;
    about: string;
    values: (number | null)[];
    most: number;
    below?: number[];
}

const Lane = ({ name, title, says, about, values, most, below }: LaneProps) => {
    const height = below ? HEIGHT - 8 : HEIGHT;
    const unknown = values.findIndex(each => each !== null);
    return (
        <div className="idle-lane" data-lane={name}>
            <div className="idle-lane-title">
                <strong>{title}</strong> <span className="idle-lane-says">{says}</span>
                <div className="idle-lane-about">{about}</div>
            </div>
            <svg role="img" aria-label={cockpit.format(_("$0 in the last $1 seconds: $2"), title, SECONDS, says)}
                 viewBox={`0 0 ${values.length} ${HEIGHT}`} preserveAspectRatio="none">
                <rect className="idle-unknown" width={unknown < 0 ? values.length : unknown} height={HEIGHT} />
                <path className={`idle-${name}`} d={outline(values, most, height)} />
                {below && <path className="idle-all-held" transform={`translate(0 ${HEIGHT - 4})`} d={outline(below, 1, 4)} />}
            </svg>
        </div>
    );
};

/** The last ten seconds of a resource, kept up to date while the page is seen. */
function useStrip(resource: string) {
    const [strip, setStrip] = useState<Strip | null>(null);
    const [intervalUs, setInterval] = useState<number | null>(null);
    const [problem, setProblem] = useState("");

    useEffect(() => {
        let last: Strip | null = null;
        let timer = 0;
        let over = false;

        async function look() {
            try {
                if (!cockpit.hidden) {
                    const bins = await api.timeline(resource, last?.end ?? 0);
                    if (over)
                        return;
                    last = extended(last, bins);
                    setStrip(last);
                    setInterval(bins.interval_us);
                    setProblem(bins.problem);
                }
            } catch (error) {
                if (!over)
                    setProblem((error as Error).message);
            }
            if (!over)
                timer = window.setTimeout(look, POLL_MS);
        }

        setStrip(null);
        setProblem("");
        void look();
        return () => {
            over = true;
            window.clearTimeout(timer);
        };
    }, [resource]);

    return { strip, intervalUs, problem };
}
