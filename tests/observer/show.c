/*
 * Prints an observer's page, where there is no Python: show ARENA [end].
 * With a second word it waits for the observer's end first.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "idletime/arena/observed.h"

int main(int argc, char **argv)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = { &byte, 1 };
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control, .msg_controllen = sizeof(control),
    };
    int fd, line = socket(AF_UNIX, SOCK_STREAM, 0);
    const IdletimeObserved *page;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
             argc > 1 ? argv[1] : ".", IDLETIME_OBSERVED_SOCKET);
    if (connect(line, (void *)&address, sizeof(address)) < 0 ||
        recvmsg(line, &message, 0) != 1) {
        perror(address.sun_path);
        return 1;
    }
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    while (argc > 2 && read(line, &byte, 1) > 0) {
    }
    printf("%s in_service %u started %llu bytes %llu unpaired %llu healed %llu "
           "missed %llu\n",
           page->label, page->in_service, (unsigned long long)page->started,
           (unsigned long long)page->bytes, (unsigned long long)page->unpaired,
           (unsigned long long)page->healed, (unsigned long long)page->missed);
    return 0;
}
