/*
 * Idletime machine tests: network devices on taps, in a network namespace of
 * the test's own.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What the device writes to the tap is seen by a packet socket.  Nothing
 * holds it: the host takes each packet out of the send buffer at once, as
 * br_netfilter does.
 */
#ifndef IDLETIME_TAP_H
#define IDLETIME_TAP_H

#include "idletime-nic.h"
#include <linux/if_tun.h>

/**
 * tap_possible: enter a network namespace of the process's own, for the rest
 * of its life.  Returns false, after a line that says so, where that is not
 * allowed or there are no taps.
 */
bool tap_possible(void);
/** tap_open: a file of the tap @name, made if it is new; IFF_ flags in @more */
int tap_open(const char *name, short more);
/** tap_watch: set it up, and a packet socket that sees what it carries */
int tap_watch(const char *name);
/** tap_seen: the size of the next packet that the guest sent, 0: none. */
size_t tap_seen(int watched, uint8_t *buffer, size_t size);
/** tap_nic: start the machine with a device whose driver takes @features */
TestNic *tap_nic(TestMachine *m, const char *netdev, const char *options,
                 uint64_t features);
/**
 * tap_bridge: @name and an uplink on a bridge; what is sent to the tap leaves
 * by the uplink.  uplink_hold: after the next packet of @bytes the uplink
 * keeps all that come; uplink_drain: they leave, and so do all others.
 */
void tap_bridge(const char *name);
void uplink_hold(unsigned bytes);
void uplink_drain(void);
/** tap_bridge_possible: or a line that says why not */
bool tap_bridge_possible(void);
/** tap_sndbuf: in force for the queue @fd */
int tap_sndbuf(int fd);
/** tap_await: the size of the next packet, in real time; 15 s at most */
size_t tap_await(TestMachine *m, int watched, uint8_t *buffer, size_t size);
/** tap_done: the end of a test with one device */
void tap_done(TestMachine *m, TestNic *nic, int watched);

#endif
