// SPDX-License-Identifier: GPL-2.0-or-later

package port

import "golang.org/x/sys/unix"

// connected asks the kernel whether somebody has the host's end of the port open: it says "hang-up" while nobody has.
func connected(fd uintptr) bool {
	asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	_, err := unix.Poll(asked, 0)
	return err == nil && asked[0].Revents&unix.POLLHUP == 0
}
