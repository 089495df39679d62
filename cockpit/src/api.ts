// SPDX-License-Identifier: GPL-2.0-or-later
// idletimed's API, as idletime-api(7) describes it. Reading needs no rights, or where [api] has a group that or root's; changes go through Cockpit's superuser bridge.

const SOCKET = "/run/idletime/.api.sock";

export type Class = "foreground" | "background" | "guest";

export interface Device {
    target: string;
    resource: string;
    class_wanted: Class;
    class_now: Class | null;
    held: number | null;
    in_service: number | null;
    promotions: number | null;
}

export interface Vm {
    name: string;
    uuid: string;
    state: string;
    class: Class | null;
    by?: "domain" | "rule" | "default" | null;
    why?: string | null;
    in_force?: boolean | null;
    libvirt: boolean;
    stopped?: string;
    problems: string[];
    devices: Device[];
    resources: { id: string; name: string }[];
}

export interface Resource {
    name: string;
    trail: string[];
    vms: string[];
    foreground: number | null;
    background: number | null;
    problem: string | null;
    observed: boolean;
    state: string | null;
    interval_us: number | null;
    auto: boolean;
    held: number | null;
    in_service: number | null;
    collisions: number | null;
    collision_cost_us: number | null;
    foreground_requests: number | null;
    background_requests: number | null;
}

export interface Host {
    version: string;
    uri: string;
    problems: string[];
    vms: Vm[];
    resources: Resource[];
}

export interface Bins {
    resource: string;
    problem: string;
    bin_ms: number;
    first: number;
    foreground: number[];
    interval: number[];
    background: (number | null)[];
    in_service: (number | null)[];
    waiting: (number | null)[];
    interval_us: number | null;
}

export interface Job {
    domain: string;
    disk: string;
    type: string;
    done_percent: number | null;
    /** Bytes a second. */
    rate: number | null;
    class_: "foreground" | "background" | null;
    resource: string | null;
    held: boolean | null;
    waited_percent: number | null;
    left_seconds: number | null;
    /** Its deadline, in seconds since 1970. */
    by: number | null;
    /** It is foreground now so as to be done in time. */
    urgent: boolean;
}

export interface Finding {
    severity: "error" | "warning" | "note";
    line: number | null;
    element: string;
    message: string;
    remedy: string;
}

export interface Outcome {
    changed: boolean;
    written: boolean;
    policy: string | null;
    class: Class | null;
    why: string;
    findings: Finding[];
}

/** What went wrong, in words; gone: nobody listens at the socket. */
export class ApiError extends Error {
    constructor(message: string, readonly remedy: string, readonly findings: Finding[], readonly gone: boolean) {
        super(message);
    }
}

const reader = cockpit.http(SOCKET, { superuser: "try" });
const writer = cockpit.http(SOCKET, { superuser: "require" });

function ask<T>(http: CockpitHttp, method: string, path: string, body = ""): Promise<T> {
    return new Promise((resolve, reject) => {
        http.request({ method, path, body, headers: {} })
            .then(data => resolve(JSON.parse(data) as T))
            .catch((error, data) => reject(failure(error, data)));
    });
}

function failure(error: CockpitError, data?: string): ApiError {
    let said: { problem?: string; remedy?: string; findings?: Finding[] } = {};
    try {
        said = JSON.parse(data ?? "") as typeof said;
    } catch {
        // Nobody answered, or somebody else did.
    }
    return new ApiError(said.problem ?? error.message, said.remedy ?? "", said.findings ?? [],
                        error.problem === "not-found" || error.problem === "no-host");
}

const own = (uuid: string, what: string) => `/v1/vms/${encodeURIComponent(uuid)}/${what}`;

export const host = () => ask<Host>(reader, "GET", "/v1/host");
export const jobs = () => ask<{ jobs: Job[]; silent: string[] }>(reader, "GET", "/v1/jobs");
export const timeline = (name: string, since: number) =>
    ask<Bins>(reader, "GET", `/v1/timeline/${encodeURIComponent(name)}?since=${since}`);
export const policy = (uuid: string) => ask<{ name: string; policy: string | null }>(writer, "GET", own(uuid, "policy"));
export const check = (uuid: string, text: string) => ask<Outcome>(writer, "PUT", own(uuid, "policy?check"), text);
export const setPolicy = (uuid: string, text: string) => ask<Outcome>(writer, "PUT", own(uuid, "policy"), text);
export const removePolicy = (uuid: string) => ask<Outcome>(writer, "DELETE", own(uuid, "policy"));
/** us: microseconds; null: learned. */
export const setInterval = (uuid: string, resource: string, us: number | null) =>
    ask<Outcome>(writer, "PUT", own(uuid, "interval"),
                 JSON.stringify({ resource, ...(us === null ? { auto: true } : { interval_us: us }) }));
export const setClass = (uuid: string, class_: Class) =>
    ask<Outcome>(writer, "PUT", own(uuid, "class"), JSON.stringify({ class: class_ }));
