/*
 * Idletime machine tests: network devices that are attached, detached and
 * migrated.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_NIC_LIVE_H
#define IDLETIME_NIC_LIVE_H

#include "idletime-nic.h"

#define LONG_INTERVAL_US    (60 * 1000 * MS)
/* No release but by the interval, which is a minute. */
#define LONG_INTERVAL       "interval-us=60000000,max-hold-ms=0"
#define NIC_HELD            3

/** nic_is_attached: does query-idletime show it? */
bool nic_is_attached(TestNic *nic);
/** nic_attach: to RESOURCE.  nic_detach: what can leave at once has left. */
void nic_attach(TestNic *nic, const char *class);
void nic_detach(TestNic *nic);
/** nic_await_detached: the event; then query-idletime does not show it. */
void nic_await_detached(TestNic *nic);
/** nic_move: migrate the machine of @from to that of @to, by a file. */
void nic_move(TestNic *from, TestNic *to);

/** nic_reset_queue: the guest resets one virtqueue (VIRTIO_F_RING_RESET) */
void nic_reset_queue(TestNic *nic, uint16_t index);

/** nic_step: time, and what it makes happen */
void nic_step(TestMachine *m, int64_t us);

/**
 * nic_stock_pair: "fg" is attached from the start, "vm" is a stock device with
 * @options; the interval is LONG_INTERVAL.
 */
TestMachine *nic_stock_pair(const char *options, TestNic **fg, TestNic **vm);
void nic_pair_done(TestMachine *m, TestNic *fg, TestNic *vm);

/** nic_marked: a packet for the background.  nic_plain: one that is not. */
void nic_marked(TestNic *nic, uint32_t number);
void nic_plain(TestNic *nic, uint32_t number);

/**
 * nic_send_some: of @vm, numbers 1 to NIC_HELD, marked, in the interval that a
 * packet of @fg begins.  nic_hold_some: none leaves.
 */
void nic_send_some(TestNic *fg, TestNic *vm);
void nic_hold_some(TestNic *fg, TestNic *vm);

#endif
