// SPDX-License-Identifier: GPL-2.0-or-later

// Package sched puts threads into SCHED_IDLE and back: they then get processor time that nobody else in the guest wants.
package sched

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Policies of sched(7). Threads of any other one (real time, deadline) are left as they are.
const (
	Other = 0
	Batch = 3
	Idle  = 5
)

// Get reads the policy of a thread.
func Get(tid int) (int, error) {
	value, _, errno := unix.Syscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("sched_getscheduler of thread %d: %w", tid, errno)
	}
	return int(value), nil
}

// Set gives a thread one of the three policies.
func Set(tid, policy int) error {
	attributes, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return fmt.Errorf("sched_getattr of thread %d: %w", tid, err)
	}
	attributes.Policy, attributes.Priority = uint32(policy), 0
	if err := unix.SchedSetAttr(tid, attributes, 0); err != nil {
		return fmt.Errorf("sched_setattr of thread %d: %w", tid, err)
	}
	return nil
}
