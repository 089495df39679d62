/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * netload: the network load, and what it is pointed at.
 *
 *     netload send    greedy or quantum-wise sender, TCP or UDP
 *     netload sink    takes what send sends; counts bytes, loss, jitter
 *     netload ask     one small request at a time; keeps the latencies
 *     netload answer  answers what ask asks
 *
 * The sender is that of Eggert's dissertation ("Background Use of Idle
 * Resource Capacity", 2004): some connections with socket buffers of 128 KiB,
 * each filled in turn with writes of 1,400 bytes; when all are full it sleeps
 * for 10 ms. Time is cut into quanta of 100 ms; in each it sends for
 * `intensity` percent, and then sleeps until the next one:
 *
 *     quantum 0                     quantum 1                     quantum 2
 *     |SSSSSSSSS--------------------|SSSSSSSSS--------------------|SSS...
 *      intensity 30                  intensity 30
 *
 * What is in the socket buffers when the busy part ends is sent after it, as
 * with any real sender: on a link of 100 Mbit/s three full buffers take longer
 * than 30 ms. --quantum-bytes bounds what is written in one quantum, so that
 * `intensity` can mean a share of the link. Datagrams written faster than the
 * link takes them are lost: --pace-mbit sends those of a quantum at its rate.
 *
 * Output: one JSON line on stdout with every parameter and the result; ask
 * also writes the raw latencies (samples.h).
 */
#include "netload.h"

#include <stdio.h>
#include <string.h>

typedef struct Command {
    const char *name;
    void (*run)(const Net *net);
} Command;

static const Command commands[] = {
    { "send", net_send },
    { "sink", net_sink },
    { "ask", net_ask },
    { "answer", net_answer },
};

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : "";

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(wanted, commands[i].name) == 0) {
            Net net = parse_net(argc - 1, argv + 1);

            catch_stop();
            signal(SIGPIPE, SIG_IGN);
            commands[i].run(&net);
            return 0;
        }
    }
    fail("%s: use send, sink, ask or answer", *wanted ? wanted : "no command");
}
