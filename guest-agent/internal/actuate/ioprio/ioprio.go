// SPDX-License-Identifier: GPL-2.0-or-later

// Package ioprio sets the I/O priority of threads. Linux puts it into each request of a virtio disk, where the host's
// class `guest` reads it; children inherit it.
package ioprio

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// Idle is the idle class; its level means nothing.
	Idle = 3 << classShift
	// None is what a thread has that nobody gave a priority: the kernel derives one from its nice value.
	None = 0

	classShift = 13
	bestEffort = 2
	levelMask  = 7
	whoProcess = 1
)

// Is tells whether a priority is of the idle class. Bits between level and class are hints of newer kernels.
func Is(priority int) bool { return priority>>classShift == 3 }

// Get reads the priority of a thread; 0 is the caller's own. Context: any thread.
func Get(tid int) (int, error) {
	value, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, whoProcess, uintptr(tid), 0)
	if errno != 0 {
		return 0, fmt.Errorf("ioprio_get of thread %d: %w", tid, errno)
	}
	return int(value), nil
}

// Set gives a thread a priority; 0 is the caller's own, so callers lock their goroutine to its thread first.
//
// Errors: the thread has ended (ESRCH), or is another user's (EPERM).
func Set(tid, priority int) error {
	_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, uintptr(tid), uintptr(priority))
	if errno != 0 {
		return fmt.Errorf("ioprio_set of thread %d: %w", tid, errno)
	}
	return nil
}

// Before is what to write in order to have again what Get said, for a thread with this nice value.
//
// The kernel tells of a thread without a priority what it derives for it: best effort, level (nice + 20) / 5, or class 0
// with any level. Writing that back would pin it, so it becomes None.
func Before(priority, nice int) int {
	class, level := priority>>classShift, priority&levelMask
	if class == 0 || (class == bestEffort && level == (nice+20)/5) {
		return None
	}
	return priority
}
