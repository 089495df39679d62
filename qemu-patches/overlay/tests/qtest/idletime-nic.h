/*
 * Idletime machine tests: network devices, as a guest driver and the host see
 * them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The backend is a socket of this process.  Transmission is done by a bottom
 * half, after the kick: nic_settle() returns when it ran.
 */
#ifndef IDLETIME_NIC_H
#define IDLETIME_NIC_H

#include "idletime-machine.h"
#include "idletime-ring.h"
#include "standard-headers/linux/virtio_net.h"

#define NIC_HEADER      sizeof(struct virtio_net_hdr_mrg_rxbuf)
#define ETHERNET        14
#define IP4             20
#define UDP             8
#define TCP             20

#define DSCP_LE         1       /* RFC 8622 */

typedef struct TestNic {
    TestMachine *m;
    char *id;
    unsigned slot;
    int host;                   /* our end of the netdev */
    QVirtioPCIDevice *pci;
    const RingKind *kind;
    TestRing rx;
    TestRing tx;
    uint64_t more_features;
    bool adopted;               /* its rings are of a migrated machine */
} TestNic;

/* What the tests make: IPv4 and UDP, a number in the payload. */
typedef struct TestPacket {
    uint8_t dscp;
    uint16_t port;              /* source, tells flows apart; 0: 1000 */
    uint16_t dest_port;         /* 0: 9 */
    uint16_t payload;           /* bytes; at least 4, 0: 4 */
    uint32_t number;
    bool to_all;                /* broadcast */
} TestPacket;

/** machine_nic: a socket netdev; @options of virtio-net-pci */
TestNic *machine_nic(TestMachine *m, const char *id, const char *options);
/** machine_nic_on: a netdev of the test's own, e.g. "tap,fd=3" */
TestNic *machine_nic_on(TestMachine *m, const char *id, unsigned slot,
                        const char *netdev, const char *options);
/** machine_nic_at: in a PCI slot of the test's choice. */
TestNic *machine_nic_at(TestMachine *m, const char *id, unsigned slot,
                        const char *options);
/** nic_resource: one packet in service, INTERVAL_US; then @options */
void nic_resource(TestMachine *m, const char *options);
/** nic_pair: "fg" and "bg" on one resource, started and set up. */
TestMachine *nic_pair(const char *resource_options, TestNic **fg,
                      TestNic **bg);
void nic_free(TestNic *nic);
/** nic_init: reset and set up the device as a guest driver does. */
void nic_init(TestNic *nic);
void nic_forget(TestNic *nic);
/** nic_adopt: go on where @from was; same device in another machine. */
void nic_adopt(TestNic *nic, const TestNic *from);
void nic_unplug(TestNic *nic);

/** nic_settle: what was kicked is carried out. */
void nic_settle(TestMachine *m);

/** nic_send: and settle. */
void nic_send(TestNic *nic, TestPacket packet);
/** nic_send_raw: @size bytes in pieces of @split (0: one), header first. */
void nic_send_raw(TestNic *nic, const void *data, size_t size, size_t split);
/** nic_send_whole: with a virtio-net header of the test's own. */
void nic_send_whole(TestNic *nic, const void *data, size_t size);
/**
 * nic_send_on: the same on a ring of the test's choice, @split as above.
 * Returns where the guest has it.
 */
uint64_t nic_send_on(TestNic *nic, TestRing *ring, const void *data,
                     size_t size, size_t split);
/** packet_make: Ethernet, IPv4, UDP.  Returns the size. */
size_t packet_make(const TestPacket *packet, uint8_t *buffer);

/** nic_got: the size of the next packet that left, 0: none has. */
size_t nic_got(TestNic *nic, uint8_t *buffer, size_t size);
/** nic_next: the number in the next one that left; -1: none has. */
int64_t nic_next(TestNic *nic);
/** nic_returned: packets that the device gave back to the driver */
unsigned nic_returned(TestNic *nic);
/** nic_receive: a packet comes in for the guest. */
void nic_receive(TestNic *nic, TestPacket packet);

int64_t nic_number(TestNic *nic, const char *member);
/** nic_service: how the end of service is known. */
char *nic_service(TestNic *nic);
void nic_set_class(TestNic *nic, const char *class);

/* ---- the same test on all kinds of rings */

/**
 * nic_add, nic_add_data: add a test once for each kind of ring; the name of
 * the kind is added to @path.  nic_add_of: for those whose device gives
 * packets back in order, or for the others.  nic_in_order: is it one such?
 */
void nic_add(const char *path, GTestFunc test);
void nic_add_of(const char *path, bool in_order, GTestFunc test);
void nic_add_data(const char *path, const void *data, GTestDataFunc test);
bool nic_in_order(void);

/* Exactly these left, in this order; end with -1. */
#define assert_left(nic, ...)                                               \
    do {                                                                    \
        const int64_t expected_[] = { __VA_ARGS__, -1 };                    \
        for (unsigned i_ = 0; i_ < ARRAY_SIZE(expected_); i_++) {           \
            g_assert_cmpint(nic_next(nic), ==, expected_[i_]);              \
        }                                                                   \
    } while (0)

#define assert_none_left(nic) g_assert_cmpint(nic_next(nic), ==, -1)

#endif
