#!/bin/sh
# A background flavor: a tenth of a disk's time, and of an uplink 50 Mbit/s. Its name is what rules.d looks at.
set -eu
openstack flavor create --vcpus 2 --ram 2048 --disk 20 bg.small
openstack flavor set bg.small --property resources:CUSTOM_IDLETIME_DISK_PERCENT=10 --property resources:CUSTOM_IDLETIME_UPLINK_KBPS=50000
