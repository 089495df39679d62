// SPDX-License-Identifier: GPL-2.0-or-later

// Package actuate decides what marking and unmarking a process takes. It reads and changes nothing: facts come in, steps
// go out, and package marks carries them out.
package actuate

import (
	"maps"

	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/actuate/sched"
)

// Thread is what is known of one thread.
type Thread struct {
	TID, IOPrio, Nice, Policy int
}

// Before is what a thread had before it was marked.
type Before struct {
	IOPrio int `json:"ioprio"`
	Policy int `json:"policy"`
}

// Kind of a step.
type Kind string

// Kinds of steps; Value is a priority, a policy, or nothing.
const (
	SetIOPrio Kind = "ioprio"
	SetPolicy Kind = "sched"
	MoveTo    Kind = "cgroup"
)

// Step is one act on a thread, or on the process.
type Step struct {
	Kind  Kind
	TID   int
	Value int
	Group string
}

// Wish says how far a mark goes. Group is where the process goes, "" to leave it; SchedIdle adds SCHED_IDLE.
type Wish struct {
	Group     string
	SchedIdle bool
}

// Mark plans what is still to be done so that a process with these threads is background.
func Mark(threads []Thread, group string, wish Wish) (steps []Step) {
	if wish.Group != "" && group != wish.Group {
		steps = append(steps, Step{Kind: MoveTo, Group: wish.Group})
	}
	for _, thread := range threads {
		if !ioprio.Is(thread.IOPrio) {
			steps = append(steps, Step{Kind: SetIOPrio, TID: thread.TID, Value: ioprio.Idle})
		}
		if wish.SchedIdle && (thread.Policy == sched.Other || thread.Policy == sched.Batch) {
			steps = append(steps, Step{Kind: SetPolicy, TID: thread.TID, Value: sched.Idle})
		}
	}
	return steps
}

// Remember says what the threads of a process have before a plan is carried out. Threads that are known keep their entry, and
// those that have ended lose it; that of the leader stays, it is the fallback of Unmark.
//
// A thread that is idle at the first look was so by its owner's wish and stays so; later it has inherited that from us.
func Remember(known map[int]Before, leader int, threads []Thread) {
	first := len(known) == 0
	here := map[int]bool{leader: true}
	for _, thread := range threads {
		here[thread.TID] = true
		if _, found := known[thread.TID]; !found && (first || !ioprio.Is(thread.IOPrio)) {
			known[thread.TID] = Before{ioprio.Before(thread.IOPrio, thread.Nice), thread.Policy}
		}
	}
	maps.DeleteFunc(known, func(tid int, _ Before) bool { return !here[tid] })
}

// Unmark plans the way back. Threads and children that came after the mark take what `fallback` says: what the leader had.
//
// What somebody else has changed meanwhile is left: a priority that is not idle any more, a group that is not ours.
func Unmark(threads []Thread, group string, known map[int]Before, fallback Before, home string, wish Wish) (steps []Step) {
	for _, thread := range threads {
		before, found := known[thread.TID]
		if !found {
			before = fallback
		}
		if ioprio.Is(thread.IOPrio) && !ioprio.Is(before.IOPrio) {
			steps = append(steps, Step{Kind: SetIOPrio, TID: thread.TID, Value: before.IOPrio})
		}
		if thread.Policy == sched.Idle && before.Policy != sched.Idle {
			steps = append(steps, Step{Kind: SetPolicy, TID: thread.TID, Value: before.Policy})
		}
	}
	if wish.Group != "" && group == wish.Group && home != "" {
		steps = append(steps, Step{Kind: MoveTo, Group: home})
	}
	return steps
}
