/*
 * Idletime machine tests: a client of an NBD export, byte by byte.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The words are those of the protocol (doc/proto.md of the NBD project).
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qapi/error.h"
#include "idletime-nbd.h"
#include "qobject/qdict.h"
#include "qobject/qjson.h"
#include "qobject/qlist.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define WAIT_US             (60 * G_USEC_PER_SEC)
#define POLL_US             1000

#define CLIENT_FLAGS        3       /* fixed newstyle, no zeroes */
#define OPT_GO              7
#define OPT_STRUCTURED      8
#define OPT_META_CONTEXT    10
#define REP_ACK             1
#define REP_INFO            3
#define REQUEST_MAGIC       0x25609513
#define SIMPLE_MAGIC        0x67446698
#define CHUNK_MAGIC         0x668e33ef
#define CHUNK_DONE          1
#define CHUNK_DATA          1
#define CHUNK_HOLE          2
#define CHUNK_ERROR         0x8000

/* ---- bytes */

static void put(TestNbd *client, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        ssize_t n = send(client->fd, at, size, MSG_NOSIGNAL);

        g_assert_cmpint(n, >, 0);
        at += n;
        size -= n;
    }
}

static void get(TestNbd *client, void *data, size_t size)
{
    char *at = data;

    while (size) {
        ssize_t n = recv(client->fd, at, size, 0);

        g_assert_cmpint(n, >, 0);
        at += n;
        size -= n;
    }
}

static uint64_t get_number(TestNbd *client, unsigned bytes)
{
    uint8_t buffer[8] = { 0 };

    get(client, buffer + 8 - bytes, bytes);
    return ldq_be_p(buffer);
}

static void skip(TestNbd *client, size_t size)
{
    g_autofree char *buffer = g_malloc(size + 1);

    get(client, buffer, size);
}

/* ---- handshake */

static void add_u32(GByteArray *to, uint32_t value)
{
    uint8_t buffer[4];

    stl_be_p(buffer, value);
    g_byte_array_append(to, buffer, sizeof(buffer));
}

static void add_string(GByteArray *to, const char *text)
{
    add_u32(to, strlen(text));
    g_byte_array_append(to, (const uint8_t *)text, strlen(text));
}

/* Up to the server's word that it is done. */
static void option(TestNbd *client, uint32_t number, const GByteArray *data)
{
    uint8_t header[16];
    uint32_t type = 0;

    memcpy(header, "IHAVEOPT", 8);
    stl_be_p(header + 8, number);
    stl_be_p(header + 12, data->len);
    put(client, header, sizeof(header));
    put(client, data->data, data->len);
    while (type != REP_ACK) {
        uint32_t size;

        skip(client, 12);
        type = get_number(client, 4);
        g_assert_cmphex(type, <, 0x80000000);
        size = get_number(client, 4);
        if (type == REP_INFO && get_number(client, 2) == 0) {
            client->size = get_number(client, 8);
            skip(client, size - 10);
        } else {
            skip(client, size - (type == REP_INFO ? 2 : 0));
        }
    }
}

static void handshake(TestNbd *client)
{
    g_autoptr(GByteArray) none = g_byte_array_new();
    g_autoptr(GByteArray) context = g_byte_array_new();
    g_autoptr(GByteArray) go = g_byte_array_new();
    uint8_t flags[4];

    skip(client, 18);
    stl_be_p(flags, CLIENT_FLAGS);
    put(client, flags, sizeof(flags));
    if (client->structured) {
        option(client, OPT_STRUCTURED, none);
        add_string(context, "e");
        add_u32(context, 1);
        add_string(context, "base:allocation");
        option(client, OPT_META_CONTEXT, context);
    }
    add_string(go, "e");
    g_byte_array_append(go, (const uint8_t *)"\0", 2);
    option(client, OPT_GO, go);
}

static char *socket_of(TestMachine *m)
{
    return g_strdup_printf("%s/nbd", m->dir);
}

TestNbd *nbd_connect(TestMachine *m, bool structured)
{
    TestNbd *client = g_new0(TestNbd, 1);
    g_autofree char *path = socket_of(m);
    struct sockaddr_un addr = { .sun_family = AF_UNIX };

    client->requests = g_ptr_array_new();
    client->structured = structured;
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint(client->fd, >=, 0);
    g_assert_cmpint(strlen(path), <, sizeof(addr.sun_path));
    strcpy(addr.sun_path, path);
    g_assert_cmpint(connect(client->fd, (struct sockaddr *)&addr,
                            sizeof(addr)), ==, 0);
    handshake(client);
    return client;
}

void nbd_close(TestNbd *client)
{
    for (unsigned i = 0; i < client->requests->len; i++) {
        TestNbdRequest *r = client->requests->pdata[i];

        g_free(r->data);
        g_free(r);
    }
    g_ptr_array_free(client->requests, true);
    close(client->fd);
    g_free(client);
}

void nbd_await_eof(TestNbd *client)
{
    struct pollfd p = { .fd = client->fd, .events = POLLIN };
    char buffer[4096];

    do {
        g_assert_cmpint(poll(&p, 1, WAIT_US / 1000), ==, 1);
    } while (recv(client->fd, buffer, sizeof(buffer), 0) > 0);
}

/* ---- requests */

TestNbdRequest *nbd_send(TestNbd *client, uint16_t type, uint64_t from,
                         uint32_t bytes, uint8_t value)
{
    TestNbdRequest *r = g_new0(TestNbdRequest, 1);
    uint8_t header[28];

    *r = (TestNbdRequest) {
        .client = client, .type = type, .from = from, .bytes = bytes,
    };
    g_ptr_array_add(client->requests, r);
    stl_be_p(header, REQUEST_MAGIC);
    stw_be_p(header + 4, 0);
    stw_be_p(header + 6, type);
    stq_be_p(header + 8, client->requests->len - 1);
    stq_be_p(header + 16, from);
    stl_be_p(header + 24, bytes);
    put(client, header, sizeof(header));
    if (type == NBD_WRITE) {
        g_autofree char *data = g_malloc(bytes);

        memset(data, value, bytes);
        put(client, data, bytes);
    } else if (type == NBD_READ) {
        r->data = g_malloc0(bytes);
    }
    return r;
}

TestNbdRequest *nbd_read(TestNbd *client, uint64_t from, uint32_t bytes)
{
    return nbd_send(client, NBD_READ, from, bytes, 0);
}

TestNbdRequest *nbd_write(TestNbd *client, uint64_t from, uint32_t bytes,
                          uint8_t value)
{
    return nbd_send(client, NBD_WRITE, from, bytes, value);
}

static TestNbdRequest *request_of(TestNbd *client)
{
    uint64_t cookie = get_number(client, 8);

    g_assert_cmpint(cookie, <, client->requests->len);
    return client->requests->pdata[cookie];
}

static void note_done(TestNbdRequest *r)
{
    r->done = true;
    r->order = ++r->client->completed;
}

static void get_simple(TestNbd *client)
{
    uint32_t error = get_number(client, 4);
    TestNbdRequest *r = request_of(client);

    r->error = error;
    if (r->type == NBD_READ && !error) {
        get(client, r->data, r->bytes);
    }
    note_done(r);
}

static void get_chunk(TestNbd *client)
{
    uint16_t flags = get_number(client, 2);
    uint16_t type = get_number(client, 2);
    TestNbdRequest *r = request_of(client);
    uint32_t size = get_number(client, 4);

    if (type == CHUNK_DATA) {
        uint64_t from = get_number(client, 8);

        get(client, r->data + (from - r->from), size - 8);
    } else if (type & CHUNK_ERROR) {
        r->error = get_number(client, 4);
        skip(client, size - 4);
    } else {
        /* Of a hole the data are zeroes, which is what there is. */
        skip(client, size);
    }
    if (flags & CHUNK_DONE) {
        note_done(r);
    }
}

/* Returns false if none has begun to come within @wait_us. */
static bool get_reply(TestNbd *client, int64_t wait_us)
{
    struct pollfd p = { .fd = client->fd, .events = POLLIN };
    uint32_t magic;

    if (poll(&p, 1, wait_us / 1000) == 0) {
        return false;
    }
    magic = get_number(client, 4);
    if (magic == SIMPLE_MAGIC) {
        get_simple(client);
    } else {
        g_assert_cmphex(magic, ==, CHUNK_MAGIC);
        get_chunk(client);
    }
    return true;
}

bool nbd_done(TestNbdRequest *r)
{
    while (!r->done && get_reply(r->client, 0)) {
        /* perhaps of another one */
    }
    return r->done;
}

uint32_t nbd_wait(TestNbdRequest *r)
{
    while (!r->done) {
        if (!get_reply(r->client, WAIT_US)) {
            g_error("no reply to a request of type %d", r->type);
        }
    }
    return r->error;
}

void nbd_ok(TestNbdRequest *r, uint8_t value)
{
    g_assert_cmpint(nbd_wait(r), ==, 0);
    for (uint32_t i = 0; r->data && i < r->bytes; i++) {
        g_assert_cmphex(r->data[i], ==, value);
    }
}

/* ---- QEMU */

void nbd_serve(TestMachine *m)
{
    g_autofree char *path = socket_of(m);

    machine_ok(m, "nbd-server-start", "{'addr': {'type': 'unix', 'data':"
               " {'path': %s}}}", path);
}

void nbd_export(TestMachine *m, const char *node, const char *options)
{
    g_autofree char *json =
        g_strdup_printf("{'type': 'nbd', 'id': 'e', 'node-name': '%s',"
                        " 'name': 'e'%s}", node, options);
    QDict *response = qtest_qmp(m->qts, "{'execute': 'block-export-add',"
                                " 'arguments': %p}",
                                qobject_from_json(json, &error_abort));

    g_assert_true(qdict_haskey(response, "return"));
    qobject_unref(response);
}

void nbd_attach(TestMachine *m)
{
    machine_ok(m, "idletime-attach",
               "{'export': 'e', 'resource': '" RESOURCE "'}");
}

int64_t nbd_number(TestMachine *m, const char *member)
{
    g_autofree char *path = g_strdup_printf("exports.0.%s", member);

    return machine_number(m, RESOURCE, path);
}

void nbd_await(TestMachine *m, const char *member, int64_t value)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;

    while (nbd_number(m, member) != value) {
        if (g_get_monotonic_time() > until) {
            g_error("%s is %" PRId64 ", not %" PRId64, member,
                    nbd_number(m, member), value);
        }
        g_usleep(POLL_US);
    }
}

bool nbd_is_attached(TestMachine *m)
{
    QDict *response = qtest_qmp(m->qts, "{'execute': 'query-idletime'}");
    QList *resources = qdict_get_qlist(response, "return");
    const QListEntry *entry = qlist_first(resources);
    bool found = !qlist_empty(qdict_get_qlist(qobject_to(QDict, entry->value),
                                              "exports"));

    qobject_unref(response);
    return found;
}
