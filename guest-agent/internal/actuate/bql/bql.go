// SPDX-License-Identifier: GPL-2.0-or-later

// Package bql lifts the kernel's Byte Queue Limits of virtio NICs, which count what the host holds as on its way.
//
// Since Linux 6.11 virtio_net stops a queue that has some packets' bytes outstanding. Packets that the host holds are among
// them, so a marked flood would keep out the foreground of the same guest, and the host would see a link that is idle.
package bql

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"idletime.org/guest-agent/internal/facts"
)

const (
	driver = "virtio_net"
	// lifted is a limit_min above all that a ring can hold (1,024 packets of 64 KiB).
	lifted = "1073741824"
	bound  = "0"
)

// Lift lifts the limits of all queues of all virtio NICs that are here now, or takes that back. A least limit that somebody
// else has set is left alone. A kernel without limits has nothing to lift. Needs root, and a /sys that can be written.
func Lift(root facts.Root, on bool) error {
	from, to := lifted, bound
	if on {
		from, to = bound, lifted
	}
	files, _ := filepath.Glob(root.Path("sys/class/net/*/queues/tx-*/byte_queue_limits/limit_min"))
	var problems []error
	for _, file := range files {
		if !isVirtio(file) {
			continue
		}
		// A NIC may be unplugged meanwhile.
		if err := replace(file, from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("byte queue limits: %w", err))
		}
	}
	return errors.Join(problems...)
}

// isVirtio: the file is class/net/NIC/queues/tx-N/byte_queue_limits/limit_min.
func isVirtio(file string) bool {
	nic := filepath.Join(filepath.Dir(file), "../../..")
	target, err := os.Readlink(filepath.Join(nic, "device/driver"))
	return err == nil && filepath.Base(target) == driver
}

func replace(file, from, to string) error {
	value, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(value)) != from {
		return err
	}
	return os.WriteFile(file, []byte(to), 0)
}
