// SPDX-License-Identifier: GPL-2.0-or-later
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Bins, Host, Vm } from "../src/api";
import { extended, heldBack, looked, outline, ownClass, saysMore, settled, shares, STEPS_US, stepOf } from "../src/model";

const bins = (first: number, count: number, of: Partial<Bins> = {}): Bins => {
    const fill = (value: number) => Array<number>(count).fill(value);
    return { resource: "sda", problem: "", bin_ms: 20, first, foreground: fill(0), interval: fill(0), background: fill(0),
             in_service: fill(0), waiting: fill(0), interval_us: 5000, ...of };
};

const vm = (of: Partial<Vm>): Vm =>
    ({ name: "ci", uuid: "0", state: "running", class: "background", by: "domain", in_force: true, libvirt: true, problems: [],
       devices: [], resources: [], ...of });

test("a strip is ten seconds long, and new bins come at its end", () => {
    const one = extended(null, bins(1000, 3, { foreground: [1000, 500, 0] }));
    assert.equal(one.foreground.length, 500);
    assert.deepEqual(one.foreground.slice(-4), [null, 1000, 500, 0]);
    const two = extended(one, bins(1003, 1, { foreground: [250] }));
    assert.deepEqual(two.foreground.slice(-5), [null, 1000, 500, 0, 250]);
    assert.equal(two.end, 1004);
});

test("a hole is not known, and another resource begins anew", () => {
    const one = extended(null, bins(1000, 1, { foreground: [1000] }));
    assert.deepEqual(extended(one, bins(1002, 1)).foreground.slice(-3), [1000, null, 0]);
    assert.deepEqual(extended(one, bins(1001, 1, { resource: "sdb" })).foreground.slice(-2), [null, 0]);
    assert.deepEqual(extended(one, bins(5, 1)).foreground.slice(-2), [null, 0], "the host was started anew");
});

test("shares are of the time that is known", () => {
    // Two bins: 25 % foreground, 25 % interval; three requests in 40 ms are 75 a second.
    const strip = extended(null, bins(0, 2, { foreground: [500, 0], interval: [500, 0], background: [0, 3], waiting: [1, 1],
                                         in_service: [0, 1] }));
    assert.deepEqual(shares(strip), { foreground: 0.25, interval: 0.25, free: 0.5, started: 75, held: 0.5 });
    const unseen = extended(null, bins(0, 1, { background: [null], waiting: [null] }));
    assert.equal(shares(unseen).started, null);
});

test("an outline has a corner where the value changes", () => {
    assert.equal(outline([0, 1000, 1000, 500], 1000, 10), "M0 10H1V0H3V5H4V10Z");
    assert.equal(outline([null, 0], 1000, 10), "M0 10H2V10Z");
});

test("a change has come when idletimed says so, or why not", () => {
    assert.equal(settled(vm({}), "background"), true);
    assert.equal(settled(vm({ in_force: false }), "background"), false);
    assert.equal(settled(vm({ in_force: false, problems: ["its QEMU is stock"] }), "background"), true);
    assert.equal(settled(vm({ by: "rule" }), "background"), false);
    assert.equal(settled(vm({ by: null, class: null, in_force: null }), ""), true);
    assert.equal(settled(vm({ state: "shut off", in_force: null }), "background"), true);
    assert.equal(settled(undefined, "background"), true);
});

test("the class of a rule is not its own", () => {
    assert.equal(ownClass(vm({ by: "rule" })), "");
    assert.equal(ownClass(vm({})), "background");
});

test("the chosen resource is looked at while somebody uses it", () => {
    const host = { resources: [{ name: "a", vms: [] }, { name: "b", vms: ["x"] }, { name: "c", vms: ["x"] }] } as unknown as Host;
    assert.equal(looked(host, "c"), "c");
    assert.equal(looked(host, "a"), "b");
    assert.equal(looked({ resources: [] } as unknown as Host, "c"), null);
});

test("a slider stands at an interval, or below it", () => {
    STEPS_US.forEach((us, step) => assert.equal(stepOf(us), step));
    assert.equal(stepOf(null), 0);
    assert.equal(stepOf(4999), stepOf(2000));
    assert.equal(stepOf(3600000000), STEPS_US.length - 1);
});

test("an interval is set where a background VM's own policy says it", () => {
    const on = { resources: [{ id: "idletime-sda", name: "sda" }] };
    const host = { vms: [vm({ ...on, name: "own" }), vm({ ...on, by: "rule" }), vm({ ...on, class: "foreground" }), vm({}),
                         vm({ ...on, libvirt: false })] } as Host;
    assert.deepEqual(heldBack(host, "sda").map(each => each.name), ["own"]);
});

test("a policy says more than its class", () => {
    for (const text of [null, `<policy xmlns="urn:idletime:policy:1" class="background"/>`,
                        `<idletime:policy xmlns:idletime='urn:idletime:policy:1' class='guest'></idletime:policy>\n`])
        assert.equal(saysMore(text), false, String(text));
    for (const text of [`<policy xmlns="urn:idletime:policy:1" class="background" by="06:00"/>`,
                        `<policy xmlns="urn:idletime:policy:1" class="background">\n  <interval us="1"/>\n</policy>`])
        assert.equal(saysMore(text), true, text);
});
