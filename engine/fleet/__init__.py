# SPDX-License-Identifier: GPL-2.0-or-later
"""A day of a fleet in simulation: what background work is done, and what the foreground pays, by each way to share hosts.

    day       how busy the foreground keeps each host's disk, minute by minute: made, or recorded     reads a file
    model     what a minute of a host brings and costs                                                none
    ways      static partitioning, cap-only, Idletime placed once, Idletime with eviction, an oracle  none
    __main__  plays a day each way, writes series, table and plot                                     files
"""
