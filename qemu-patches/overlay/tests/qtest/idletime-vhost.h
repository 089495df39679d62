/*
 * Idletime machine tests: network devices whose tap has vhost, the host
 * kernel's.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Vhost works in real time, in a thread of the kernel that is named after the
 * QEMU: what it sends is waited for.
 */
#ifndef IDLETIME_VHOST_H
#define IDLETIME_VHOST_H

#include "idletime-nic-live.h"
#include "idletime-tap.h"

typedef struct VhostBench {
    TestMachine *m;
    TestNic *fg;            /* on a socket; attached */
    TestNic *vm;            /* on a tap with vhost */
    int watched;
} VhostBench;

/** vhost_possible: or a line that says why not; as tap_possible() */
bool vhost_possible(void);

/** vhost_bench: @options of the device "vm" */
VhostBench vhost_bench(const char *resource, const char *options);
/** vhost_nic: nic->host is to be closed when its machine runs. */
TestNic *vhost_nic(TestMachine *m, const char *tap_name, const char *options);
void vhost_done(VhostBench *b);

/** vhost_runs: as QEMU itself says, whether the device is attached or not */
bool vhost_runs(TestNic *nic);

void vhost_step(VhostBench *b, int64_t us);
/** vhost_send: of "vm", marked as background */
void vhost_send(VhostBench *b, uint32_t number);
/** vhost_seen: the number in the next packet on the tap; -1: none */
int64_t vhost_seen(VhostBench *b);
/** vhost_awaited: the same, in real time; 15 s at most */
int64_t vhost_awaited(VhostBench *b);
/** vhost_await_returned: the driver gets packets back after they were seen. */
void vhost_await_returned(VhostBench *b, unsigned count);

/** assert_by_vhost: @number leaves at once, and vhost's thread has worked. */
void assert_by_vhost(VhostBench *b, uint32_t number);
/**
 * assert_by_qemu: @first and those behind it, NIC_HELD of them, are held, and
 * vhost's thread sleeps.  assert_left_held: they leave, in order.
 */
void assert_by_qemu(VhostBench *b, uint32_t first);
void assert_left_held(VhostBench *b, uint32_t first);

#endif
