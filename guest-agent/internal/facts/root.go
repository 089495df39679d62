// SPDX-License-Identifier: GPL-2.0-or-later

// Package facts reads what is the case in this guest: processes, their threads and cgroups, users, devices. It changes
// nothing. All paths go through a Root, so that tests run on fixture trees.
package facts

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is the folder below which /proc, /sys, /dev and /etc are looked for; "/" is the running system.
type Root string

// Path is a path below the root.
func (r Root) Path(elements ...string) string {
	return filepath.Join(append([]string{string(r)}, elements...)...)
}

// ErrNoCgroup2 says that this guest has no cgroup v2 hierarchy.
var ErrNoCgroup2 = errors.New("cgroup v2 is not mounted")

// CgroupMount is the path of the cgroup v2 hierarchy, below the root.
//
// Errors: ErrNoCgroup2, or that of reading /proc/self/mounts.
func (r Root) CgroupMount() (string, error) {
	file, err := os.Open(r.Path("proc/self/mounts"))
	if err != nil {
		return "", err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 2 && fields[2] == "cgroup2" && r.isGroup(fields[1]) {
			return r.Path(fields[1]), nil
		}
	}
	return "", ErrNoCgroup2
}

// isGroup tells whether a mount can be seen: another one may lie over it.
func (r Root) isGroup(mount string) bool {
	_, err := os.Stat(r.Path(mount, "cgroup.procs"))
	return err == nil
}

// Systemd tells whether systemd runs this guest, as sd_booted(3) does.
func (r Root) Systemd() bool {
	info, err := os.Lstat(r.Path("run/systemd/system"))
	return err == nil && info.IsDir()
}

// Memory is how much this guest has, in bytes; 0 if that cannot be read.
func (r Root) Memory() int64 {
	data, err := os.ReadFile(r.Path("proc/meminfo"))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(data), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Now is the time since boot in the ticks of Process.Start, a hundredth of a second; 0 if that cannot be read.
func (r Root) Now() uint64 {
	text, _, _ := strings.Cut(readWord(r.Path("proc/uptime")), " ")
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || seconds < 0 {
		return 0
	}
	return uint64(seconds*100 + 0.5)
}

// UserID is the number of a user: itself a number, or a name in /etc/passwd.
func (r Root) UserID(user string) (uint32, error) {
	if number, err := strconv.ParseUint(user, 10, 32); err == nil {
		return uint32(number), nil
	}
	data, err := os.ReadFile(r.Path("etc/passwd"))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[0] == user {
			number, err := strconv.ParseUint(fields[2], 10, 32)
			return uint32(number), err
		}
	}
	return 0, fmt.Errorf("there is no user %q in /etc/passwd", user)
}
