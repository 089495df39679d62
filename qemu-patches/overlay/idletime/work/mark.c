/*
 * Idletime mark: the code point of what a connection sends.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include <netinet/in.h>
#include <netinet/ip.h>
#include "idletime/work/mark.h"
#include "io/channel-socket.h"
#include "io/channel-tls.h"

/* Above the two bits of ECN. */
#define CLASS_LOWER_EFFORT  (1 << 2)
#define CLASS_DEFAULT       0

/* A UNIX socket has no such option, and sends nothing by an uplink. */
void idletime_mark_socket(int fd, bool background)
{
    int class = background ? CLASS_LOWER_EFFORT : CLASS_DEFAULT;

    setsockopt(fd, IPPROTO_IP, IP_TOS, &class, sizeof(class));
    setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class));
}

int idletime_mark_channel(QIOChannel *ioc)
{
    while (object_dynamic_cast(OBJECT(ioc), TYPE_QIO_CHANNEL_TLS)) {
        ioc = QIO_CHANNEL_TLS(ioc)->master;
    }
    return object_dynamic_cast(OBJECT(ioc), TYPE_QIO_CHANNEL_SOCKET) ?
           QIO_CHANNEL_SOCKET(ioc)->fd : -1;
}

void idletime_mark_follow_slow(IdletimeMark *mark, QIOChannel *ioc)
{
    int fd = idletime_mark_channel(ioc);

    mark->is = !mark->is;
    if (fd >= 0) {
        idletime_mark_socket(fd, mark->is);
    }
}
