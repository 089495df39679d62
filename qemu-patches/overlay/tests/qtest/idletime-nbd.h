/*
 * Idletime machine tests: a client of an NBD export, byte by byte.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_NBD_H
#define IDLETIME_NBD_H

#include "idletime-machine.h"

#define NBD_READ            0
#define NBD_WRITE           1
#define NBD_DISCONNECT      2
#define NBD_FLUSH           3
#define NBD_TRIM            4
#define NBD_CACHE           5
#define NBD_WRITE_ZEROES    6
#define NBD_BLOCK_STATUS    7

typedef struct TestNbd {
    int fd;
    bool structured;        /* replies; and asks for base:allocation */
    uint64_t size;          /* of the export */
    GPtrArray *requests;
    unsigned completed;
} TestNbd;

typedef struct TestNbdRequest {
    TestNbd *client;
    uint16_t type;
    uint64_t from;
    uint32_t bytes;
    uint8_t *data;          /* of a read */
    bool done;
    uint32_t error;         /* of the protocol: EPERM is 1 */
    unsigned order;         /* among the client's replies, from 1 */
} TestNbdRequest;

/** nbd_serve: start QEMU's server. */
void nbd_serve(TestMachine *m);
/** nbd_export: @node as "e", with more members of JSON in @options. */
void nbd_export(TestMachine *m, const char *node, const char *options);
/** nbd_attach: "e" to RESOURCE; nbd_number: its member in query-idletime */
void nbd_attach(TestMachine *m);
int64_t nbd_number(TestMachine *m, const char *member);
/** nbd_await: wait for it, in real time. */
void nbd_await(TestMachine *m, const char *member, int64_t value);
bool nbd_is_attached(TestMachine *m);

/** nbd_connect: to "e". */
TestNbd *nbd_connect(TestMachine *m, bool structured);
void nbd_close(TestNbd *client);
/** nbd_await_eof: the server cuts the connection; replies are not looked at. */
void nbd_await_eof(TestNbd *client);

/** nbd_send: a write has bytes of @value. */
TestNbdRequest *nbd_send(TestNbd *client, uint16_t type, uint64_t from,
                         uint32_t bytes, uint8_t value);
TestNbdRequest *nbd_read(TestNbd *client, uint64_t from, uint32_t bytes);
TestNbdRequest *nbd_write(TestNbd *client, uint64_t from, uint32_t bytes,
                          uint8_t value);
/** nbd_done: has its reply come?  nbd_wait: until it has; the error */
bool nbd_done(TestNbdRequest *r);
uint32_t nbd_wait(TestNbdRequest *r);
/** nbd_ok: wait, and it must have succeeded; a read has bytes of @value. */
void nbd_ok(TestNbdRequest *r, uint8_t value);

#endif
