// SPDX-License-Identifier: GPL-2.0-or-later
// What this page uses of Cockpit's API, which base1/cockpit.js defines.

interface CockpitError {
    status?: number;
    problem?: string | null;
    message: string;
}

interface CockpitPromise extends Promise<string> {
    then(done: (data: string) => void): CockpitPromise;
    catch(failed: (error: CockpitError, data?: string) => void): CockpitPromise;
}

interface CockpitHttp {
    request(options: { method: string; path: string; body?: string; headers?: Record<string, string> }): CockpitPromise;
    close(): void;
}

interface CockpitPermission extends EventTarget {
    allowed: boolean | null;
    addEventListener(name: "changed", listener: () => void): void;
    removeEventListener(name: "changed", listener: () => void): void;
}

declare const cockpit: {
    hidden: boolean;
    gettext(text: string): string;
    format(template: string, ...values: unknown[]): string;
    http(endpoint: string, options?: { superuser?: "require" | "try" }): CockpitHttp;
    permission(options: { admin: boolean }): CockpitPermission;
    addEventListener(name: "visibilitychange", listener: () => void): void;
    removeEventListener(name: "visibilitychange", listener: () => void): void;
};
