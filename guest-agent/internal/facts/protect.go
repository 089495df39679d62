// SPDX-License-Identifier: GPL-2.0-or-later

package facts

import (
	"fmt"
	"path"
	"strings"
)

// Protected says in words why a process must never be marked, "" when it may be. `self` is the agent's own pid.
//
// A guest whose init, whose way in for the administrator or whose agent waits for idle time can be lost for people.
func (p Process) Protected(self int) string {
	switch {
	case p.PID == 1:
		return "pid 1 is the guest's init: it is never marked"
	case p.Kernel || p.PID == 2:
		return fmt.Sprintf("pid %d (%s) is a thread of the kernel: these are never marked", p.PID, p.Comm)
	case p.PID == self:
		return fmt.Sprintf("pid %d is the agent itself: it is never marked", p.PID)
	case p.isSSHD():
		return fmt.Sprintf("pid %d (%s) is sshd: it is never marked, so that you can still log in", p.PID, p.Comm)
	}
	return ""
}

// LeftOut tells an sshd of another user than root, or of a login session, where root has one, too: it is protected, but it
// protects nothing else that a rule or a cgroup has. Everybody has both with each login by ssh, and can name a program so.
func (p Process) LeftOut() bool {
	return p.isSSHD() && (p.UIDs[0] != 0 || strings.HasPrefix(p.Cgroup, userSlices))
}

const userSlices = "/user.slice/"

// isSSHD knows OpenSSH's server by its program, and since 9.8 by those that it is split into.
func (p Process) isSSHD() bool {
	name := path.Base(p.Exe)
	if p.Exe == "" {
		name = p.Comm
	}
	return name == "sshd" || strings.HasPrefix(name, "sshd-") || name == "dropbear"
}
