// SPDX-License-Identifier: GPL-2.0-or-later

// Package alone marks processes where there is no agent: what a user can do to own processes, the I/O priority.
package alone

import (
	"os"

	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/marks"
	"idletime.org/guest-agent/internal/wire"
)

// lack says what is not marked where there is no agent.
const lack = "only disk requests are marked: no agent is running"

// book is one without files and cgroups: what a user can do to own processes.
func book() (*marks.Book, error) {
	root := facts.Root("/")
	return marks.New(root, marks.Kernel{Root: root}, nil, "", os.Getpid())
}

// Mark makes the disk requests of an own process background without the agent. Errors: a *wire.Error.
func Mark(pid int) (wire.Marked, error) {
	own, err := book()
	if err != nil {
		return wire.Marked{}, err
	}
	result, problem := own.Mark(uint32(os.Geteuid()), pid, "")
	if problem != nil {
		return wire.Marked{}, problem
	}
	result.Lacks = []string{lack}
	return result, nil
}

// Unmark takes the idle priority from all threads of an own process; what they had before nobody has written down.
func Unmark(pid int) (result wire.Marked, err error) {
	kernel := marks.Kernel{Root: facts.Root("/")}
	process, err := kernel.Root.Process(pid)
	if err != nil {
		return result, wire.Errorf(wire.CodeNotFound, "there is no process %d", pid)
	}
	if problem := marks.May(uint32(os.Geteuid()), process); problem != nil {
		return result, problem
	}
	threads, err := kernel.Threads(pid)
	for _, thread := range threads {
		if ioprio.Is(thread.IOPrio) && err == nil {
			err = ioprio.Set(thread.TID, ioprio.None)
			result.Threads++
		}
	}
	if err == nil && result.Threads == 0 {
		return result, wire.Errorf(wire.CodeNotMarked, "pid %d is not marked", pid)
	}
	result.Processes = 1
	return result, err
}
