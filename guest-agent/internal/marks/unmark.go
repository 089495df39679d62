// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"maps"
	"time"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

// maxDescent bounds walks along parents and children; deeper trees of processes are nobody's.
const maxDescent = 1000

// Unmark makes a process what it was before, with the children that inherited the mark and have none of their own.
func (b *Book) Unmark(uid uint32, pid int) (wire.Marked, *wire.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	process, problem := b.examine(uid, pid)
	if problem != nil {
		return wire.Marked{}, problem
	}
	record := b.recordFor(process)
	if record == nil {
		return wire.Marked{}, wire.Errorf(wire.CodeNotMarked, "pid %d is not marked", pid)
	}
	return b.takeBack(record, process), nil
}

// takeBack unmarks a process that has a record, or has inherited from one.
func (b *Book) takeBack(record *Record, process facts.Process) wire.Marked {
	done := b.unmarkTree(record, process.PID)
	done.Lacks = []string{}
	for _, group := range []string{process.Cgroup, b.Root.Cgroup(process.PID)} {
		_, unitGroup := systemd.Unit(group)
		b.settleAfter(unitGroup)
	}
	return done
}

// keepUntil writes down until when a process is marked.
func (b *Book) keepUntil(record *Record, until int64) *wire.Error {
	if record.Until == until {
		return nil
	}
	record.Until = until
	if err := b.store.save(processFile(record.PID), record); err != nil {
		return wire.Errorf(wire.CodeFailed, "%v", err)
	}
	return nil
}

// Expire takes back the marks whose time is over; returns how many. What fails is tried again at the next call.
func (b *Book) Expire(now time.Time) (ended int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	over := func(until int64) bool { return until != 0 && until <= now.Unix() }
	for pid, record := range maps.Clone(b.records) {
		if over(record.Until) && b.same(record) == nil {
			if process, err := b.Root.Process(pid); err == nil {
				b.takeBack(record, process)
				ended++
			}
		}
	}
	for path, group := range maps.Clone(b.groups) {
		if over(group.Until) {
			if _, problem := b.unmarkGroup(path); problem == nil {
				ended++
			}
		}
	}
	return ended
}

// recordFor is the record of a process, or that of the nearest ancestor from which it has inherited its mark.
func (b *Book) recordFor(process facts.Process) *Record {
	for range maxDescent {
		if record := b.records[process.PID]; record != nil && record.Start == process.Start {
			return record
		}
		parent, err := b.Root.Process(process.Parent)
		if err != nil {
			return nil
		}
		process = parent
	}
	return nil
}

// unmarkTree goes from a process down to all that inherited from it; who has a record of its own keeps its mark.
func (b *Book) unmarkTree(record *Record, pid int) (done wire.Marked) {
	todo := []int{pid}
	for len(todo) > 0 && done.Processes < maxMarks {
		next := todo[0]
		todo = todo[1:]
		for _, child := range b.Root.Children(next) {
			if b.records[child] == nil {
				todo = append(todo, child)
			}
		}
		if threads := b.undo(record, next); threads > 0 {
			done.Processes++
			done.Threads += threads
		}
	}
	if pid == record.PID {
		b.forget(pid)
	}
	return done
}

// undo takes one process back; returns the number of its threads, 0 if it has ended. What fails is left as it is: the
// process has ended, or somebody else has taken it over.
func (b *Book) undo(record *Record, pid int) int {
	threads, err := b.Hands.Threads(pid)
	if err != nil {
		return 0
	}
	known := record.Known
	if pid != record.PID {
		known = nil
	}
	for _, step := range actuate.Unmark(threads, b.Root.Cgroup(pid), known, record.fallback(), record.Home, record.wish()) {
		if step.Kind == actuate.MoveTo {
			b.goHome(pid, step.Group)
		} else {
			_ = b.Hands.Do(pid, step)
		}
	}
	return len(threads)
}

// Prune forgets processes and groups that have ended, and takes away network rules without use; returns how many ended.
func (b *Book) Prune() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	ended := 0
	for pid, record := range b.records {
		if b.same(record) != nil {
			b.forget(pid)
			ended++
		}
	}
	ended += b.pruneGroups()
	b.restPackets()
	return ended
}
