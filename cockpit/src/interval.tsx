// SPDX-License-Identifier: GPL-2.0-or-later
// The preemption interval of a resource's background VMs: set by a slider, or learned.

import { useEffect, useRef, useState } from "react";
import { Slider } from "@patternfly/react-core/dist/esm/components/Slider/index.js";
import { Switch } from "@patternfly/react-core/dist/esm/components/Switch/index.js";

import type { Resource } from "./api";
import { milliseconds, STEPS_US, stepOf } from "./model";

const _ = cockpit.gettext;

interface Props {
    resource: Resource;
    /** us: microseconds; null: learned. Resolves to whether it is written. */
    set: (us: number | null) => Promise<boolean>;
}

const STEPS = STEPS_US.map((us, value) => ({ value, label: `${us / 1000}` }));

export const Interval = ({ resource, set }: Props) => {
    const [asked, ask] = useState<number | null | undefined>(undefined); // until it is in force
    const next = useRef<number | null | undefined>(undefined);
    const writing = useRef(false);
    const learned = asked === undefined ? resource.auto : asked === null;
    const us = asked ?? resource.interval_us ?? 0;

    useEffect(() => {
        if (asked === null ? resource.auto : asked === resource.interval_us && !resource.auto)
            ask(undefined);
    }, [asked, resource.auto, resource.interval_us]);

    // A thumb that moves asks for many: one after the other, and of those that wait only the last.
    async function choose(wanted: number | null) {
        ask(wanted);
        next.current = wanted;
        if (writing.current)
            return;
        writing.current = true;
        while (next.current !== undefined) {
            const now = next.current;
            next.current = undefined;
            if (!await set(now))
                ask(undefined);
        }
        writing.current = false;
    }

    return (
        <div className="idle-interval">
            <Switch id="interval-auto" label={_("Learned")} isChecked={learned}
                    onChange={(_event, wanted) => void choose(wanted ? null : us)} />
            <span>{_("Interval, ms")}</span>
            <div className="idle-interval-slider">
                <Slider value={stepOf(us)} customSteps={STEPS} max={STEPS.length - 1} isDisabled={learned}
                        thumbAriaLabel={cockpit.format(_("Interval of $0 in milliseconds"), resource.name)}
                        onChange={(_event, step) => {
                            const wanted = STEPS_US[step];
                            if (wanted !== undefined && step !== stepOf(us))
                                void choose(wanted);
                        }} />
            </div>
            <span className="idle-interval-says">{cockpit.format(_("$0 in force"), milliseconds(resource.interval_us))}</span>
        </div>
    );
};
