// SPDX-License-Identifier: GPL-2.0-or-later
// What is shown, from what idletimed says. Pure.

import type { Bins, Host, Vm } from "./api";

export const SECONDS = 10;

/** The last ten seconds of a resource. Bins that are not known are null. */
export interface Strip {
    resource: string;
    binMs: number;
    end: number;
    foreground: (number | null)[];
    interval: (number | null)[];
    background: (number | null)[];
    in_service: (number | null)[];
    waiting: (number | null)[];
}

const COLUMNS = ["foreground", "interval", "background", "in_service", "waiting"] as const;

/** A strip with the bins that have come since; what is older than ten seconds goes. */
export function extended(strip: Strip | null, bins: Bins): Strip {
    const count = SECONDS * 1000 / bins.bin_ms;
    const end = bins.first + bins.foreground.length;
    const same = strip !== null && strip.resource === bins.resource && strip.end <= end;
    const result: Strip = { resource: bins.resource, binMs: bins.bin_ms, end,
                            foreground: [], interval: [], background: [], in_service: [], waiting: [] };
    for (const name of COLUMNS) {
        for (let number = end - count; number < end; number++) {
            const at = number - bins.first;
            const before = same ? strip[name][number - (strip.end - count)] : null;
            result[name].push((at >= 0 ? bins[name][at] : before) ?? null);
        }
    }
    return result;
}

export interface Shares {
    foreground: number;
    interval: number;
    /** Neither: the time that background could have. */
    free: number;
    /** Background requests a second; null is not known. */
    started: number | null;
    /** In which background waited, and nothing of it was in service. */
    held: number;
}

/** A strip in numbers: shares of the time that is known. */
export function shares(strip: Strip): Shares {
    const known = strip.foreground.filter(each => each !== null).length;
    const sum = (values: (number | null)[]) => values.reduce<number>((all, each) => all + (each ?? 0), 0);
    const share = (total: number) => known ? total / known : 0;
    const foreground = share(sum(strip.foreground)) / 1000;
    const interval = share(sum(strip.interval)) / 1000;
    const seen = strip.background.filter(each => each !== null).length;
    const started = seen ? sum(strip.background) / (seen * strip.binMs / 1000) : null;
    return { foreground, interval, free: Math.max(0, 1 - foreground - interval), started,
             held: seen ? sum(held(strip)) / seen : 0 };
}

/** Bins in which background waited, and nothing of it was in service. */
export const held = (strip: Strip) => strip.waiting.map((waits, number) => waits && !strip.in_service[number] ? 1 : 0);

/** The outline of a lane as an SVG path: one unit wide a bin, `height` high for the value `most`. */
export function outline(values: (number | null)[], most: number, height: number): string {
    let path = `M0 ${height}`;
    let last = height;
    values.forEach((value, number) => {
        const y = height - Math.min(1, (value ?? 0) / most) * height;
        if (y !== last)
            path += `H${number}V${Math.round(y * 100) / 100}`;
        last = y;
    });
    return `${path}H${values.length}V${height}Z`;
}

/** A sum over the devices of a VM; null where none is known. */
export function sum(vm: Vm, of: "held" | "in_service"): number | null {
    const known = vm.devices.map(device => device[of]).filter((value): value is number => value !== null);
    return known.length ? known.reduce((all, each) => all + each, 0) : null;
}

/** Background VMs on a resource whose interval is their own policy's. */
export const heldBack = (host: Host, resource: string) => host.vms.filter(vm =>
    vm.libvirt && vm.class === "background" && ownClass(vm) && vm.resources.some(each => each.name === resource));

/** Where the slider stands for an interval: of the steps that are not beyond it, the last. */
export function stepOf(us: number | null): number {
    const beyond = STEPS_US.findIndex(each => each > (us ?? 0));
    return (beyond < 0 ? STEPS_US.length : beyond) - 1;
}

/** What is meant by a VM's class switch: its own class, or none. */
export const ownClass = (vm: Vm) => vm.by === "domain" || vm.by === undefined ? vm.class ?? "" : "";

/** Whether a policy says more than a class: who takes it away loses that, too. */
export const saysMore = (policy: string | null) =>
    policy !== null && !/^<(?:\w+:)?policy(?:\s+(?:xmlns(?::\w+)?|class)=(?:"[^"]*"|'[^']*'))*\s*(?:\/>|>\s*<\/(?:\w+:)?policy>)$/.test(policy.trim());

/** Whether what somebody asked for has come, or cannot. */
export function settled(vm: Vm | undefined, wanted: string): boolean {
    if (!vm)
        return true;
    if (ownClass(vm) !== wanted)
        return false;
    return vm.state === "shut off" || vm.class === null || Boolean(vm.in_force) || vm.problems.length > 0;
}

/** The resource that is looked at: the chosen one while it is there, else the first one that somebody uses. */
export function looked(host: Host, chosen: string | null): string | null {
    const used = host.resources.filter(each => each.vms.length);
    return used.find(each => each.name === chosen)?.name ?? used[0]?.name ?? null;
}

/** Microseconds; for disks and uplinks. */
export const STEPS_US = [0, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];

/** Bytes a second; null is not known. */
export const rate = (bytes: number | null) => bytes === null ? "–" : `${Math.round(bytes / 1e5) / 10} MB/s`;

export const percent = (share: number) => `${Math.round(share * 100)} %`;
export const milliseconds = (us: number | null) => us === null ? "–" : `${Math.round(us / 10) / 100} ms`;
export const known = (value: number | null | undefined) => value ?? "–";
