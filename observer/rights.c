/*
 * Idletime observer: gives back the rights that are not needed any more.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What stays is what the socket needs: the arena's directory may belong to
 * the user of QEMU, and the socket gets the board's owner and mode.  The
 * programs run without us, their maps are memory and descriptors.
 */
#include "observer.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEPT (1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER)

bool rights_drop(bool net_admin)
{
    uint32_t kept = KEPT | (net_admin ? 1u << CAP_NET_ADMIN : 0);
    struct __user_cap_header_struct header = {
        .version = _LINUX_CAPABILITY_VERSION_3
    };
    struct __user_cap_data_struct data[2];
    int cap;

    for (cap = 0; cap < 64; cap++) {
        if (cap >= 32 || !(kept & 1u << cap)) {
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
        }
    }
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &header, data) < 0) {
        return fail("capget: %s", strerror(errno));
    }
    data[0].permitted &= kept;
    data[0].effective &= kept;
    data[0].inheritable = 0;
    memset(&data[1], 0, sizeof(data[1]));
    if (syscall(SYS_capset, &header, data) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return fail("capabilities cannot be dropped: %s", strerror(errno));
    }
    return true;
}
