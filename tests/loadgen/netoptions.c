/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The command line of netload. */
#define _GNU_SOURCE
#include "netload.h"
#include "parse.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const struct option options[] = {
    { "protocol", required_argument, NULL, 'P' },
    { "host", required_argument, NULL, 'h' },
    { "port", required_argument, NULL, 'p' },
    { "seconds", required_argument, NULL, 's' },
    { "connections", required_argument, NULL, 'n' },
    { "block-bytes", required_argument, NULL, 'b' },
    { "buffer-bytes", required_argument, NULL, 'B' },
    { "back-off-ms", required_argument, NULL, 'o' },
    { "intensity", required_argument, NULL, 'i' },
    { "quantum-ms", required_argument, NULL, 'q' },
    { "quantum-bytes", required_argument, NULL, 'Q' },
    { "pace-mbit", required_argument, NULL, 'm' },
    { "dscp", required_argument, NULL, 'd' },
    { "priority", required_argument, NULL, 'y' },
    { "bucket-ms", required_argument, NULL, 'u' },
    { "every-ms", required_argument, NULL, 'e' },
    { "timeout-ms", required_argument, NULL, 't' },
    { "seed", required_argument, NULL, 'r' },
    { "latency-file", required_argument, NULL, 'l' },
    { NULL, 0, NULL, 0 },
};

static void parse_load(Net *net, int key, const char *text)
{
    switch (key) {
    case 'n':
        net->connections = number("connections", text, 1, CONNECTIONS_MAX);
        break;
    case 'b':
        net->block_bytes = number("block-bytes", text, sizeof(Stamp),
                                  DATAGRAM_MAX);
        break;
    case 'B':
        net->buffer_bytes = number("buffer-bytes", text, 4096, 1 << 26);
        break;
    case 'o': net->back_off_ms = number("back-off-ms", text, 1, 60000); break;
    case 'i': net->intensity = number("intensity", text, 1, 100); break;
    case 'q': net->quantum_ms = number("quantum-ms", text, 1, 60000); break;
    case 'Q':
        net->quantum_bytes = number("quantum-bytes", text, 0,
                                    (uint64_t)1 << 40);
        break;
    case 'm': net->pace_mbit = number("pace-mbit", text, 0, 100000); break;
    case 'd': net->dscp = number("dscp", text, 0, 63); break;
    case 'y':
        net->priority = choice("priority", text, "normal", "nice", "idle");
        break;
    case 'u': net->bucket_ms = number("bucket-ms", text, 1, 60000); break;
    case 'e': net->every_ms = number("every-ms", text, 0, 60000); break;
    case 't': net->timeout_ms = number("timeout-ms", text, 1, 60000); break;
    case 'r': net->seed = number("seed", text, 0, (uint64_t)1 << 62); break;
    case 'l': net->latency_file = text; break;
    default: exit(2);
    }
}

Net parse_net(int argc, char **argv)
{
    Net net = {
        .tcp = true, .port = 5001, .seconds = 10, .connections = 3,
        .block_bytes = 1400, .buffer_bytes = 128 << 10, .back_off_ms = 10,
        .intensity = 100, .quantum_ms = 100, .bucket_ms = 100, .every_ms = 20,
        .timeout_ms = 1000, .seed = 1, .priority = "normal",
    };
    int key;

    while ((key = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (key) {
        case 'P':
            net.tcp = strcmp(choice("protocol", optarg, "tcp", "udp",
                                    NULL),
                             "tcp") == 0;
            break;
        case 'h': net.host = optarg; break;
        case 'p': net.port = number("port", optarg, 1, 65535); break;
        case 's': net.seconds = duration(optarg); break;
        default: parse_load(&net, key, optarg);
        }
    }
    if (optind < argc) {
        fail("%s: unexpected argument", argv[optind]);
    }
    return net;
}
