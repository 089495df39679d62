// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

const (
	// maxDescent bounds walks along parents; deeper trees of processes are nobody's.
	maxDescent = 1000
	// maxTree bounds walks along children: more processes than Linux has by default.
	maxTree = 65536
)

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
		return wire.Marked{}, b.notMarked(pid)
	}
	return b.takeBack(record, process), nil
}

// notMarked says so, and what helps where a process is background all the same: `idletime run` needs no agent for that.
func (b *Book) notMarked(pid int) *wire.Error {
	remedy := ""
	if b.Hands.Idle(pid) {
		remedy = fmt.Sprintf("; it has the idle priority by itself: ionice -c 0 -p %d", pid)
	}
	return wire.Errorf(wire.CodeNotMarked, "pid %d is not marked%s", pid, remedy)
}

// takeBack unmarks a process that has a record, or has inherited from one.
func (b *Book) takeBack(record *Record, process facts.Process) wire.Marked {
	done := b.unmarkTree(record, process.PID, process.Start)
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
		if !over(record.Until) {
			continue
		}
		if process, err := b.Root.Process(pid); err == nil && process.Start == record.Start {
			b.takeBack(record, process)
			ended++
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

// Release takes back all marks: no other agent comes that could. What failed stays written down, and is in the error.
func (b *Book) Release() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var problems []error
	for path, group := range maps.Clone(b.groups) {
		if group.Whole {
			continue
		}
		if _, problem := b.unmarkGroup(path); problem != nil {
			problems = append(problems, problem)
		}
	}
	// Ancestors first: what has a mark of its own is then left to that, which knows better how it was.
	for _, record := range slices.SortedFunc(maps.Values(b.records), func(x, y *Record) int {
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.PID, y.PID))
	}) {
		process, err := b.Root.Process(record.PID)
		switch {
		case err == nil && process.Start == record.Start:
			b.takeBack(record, process)
		case err == nil || errors.Is(err, facts.ErrGone):
			b.forget(record.PID)
		default:
			problems = append(problems, err)
		}
	}
	for _, group := range maps.Clone(b.groups) {
		if !group.Whole {
			continue
		}
		if err := b.restore(group); err != nil {
			problems = append(problems, fmt.Errorf("cgroup %s: %w", group.Path, err))
		}
	}
	return errors.Join(problems...)
}

// recordFor is the record of a process, or that of the nearest ancestor from which it has inherited its mark.
func (b *Book) recordFor(process facts.Process) *Record {
	child := uint64(math.MaxUint64)
	for range maxDescent {
		if record := b.records[process.PID]; record != nil && record.Start == process.Start && record.inherits(child) {
			return record
		}
		parent, err := b.Root.Process(process.Parent)
		if err != nil {
			return nil
		}
		child, process = process.Start, parent
	}
	return nil
}

// unmarkTree goes from a process down to all that inherited from it; who has a record of its own keeps its mark.
func (b *Book) unmarkTree(record *Record, pid int, start uint64) (done wire.Marked) {
	todo := []facts.Process{{PID: pid, Start: start}}
	for len(todo) > 0 && done.Processes < maxTree {
		next := todo[0]
		todo = todo[1:]
		if b.same(next.PID, next.Start) != nil {
			continue
		}
		for _, child := range b.Root.Children(next.PID) {
			if start, err := b.Root.Start(child); err == nil && b.records[child] == nil && record.inherits(start) {
				todo = append(todo, facts.Process{PID: child, Start: start})
			}
		}
		if threads := b.undo(record, next.PID); threads > 0 {
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
	ended := b.pruneRecords() + b.pruneGroups()
	b.restPackets()
	return ended
}

// pruneRecords forgets processes that have ended, and gives their marks to those that they leave.
func (b *Book) pruneRecords() (ended int) {
	left := map[string][]*Record{}
	for pid, record := range b.records {
		// One that cannot be looked at now, as where there are no more descriptors, has not ended.
		if errors.Is(b.same(pid, record.Start), facts.ErrGone) {
			b.forget(pid)
			ended++
			if group := cmp.Or(record.Group, record.Stays); group != "" {
				left[group] = append(left[group], record)
			}
		}
	}
	for group, records := range left {
		b.handOver(group, records)
	}
	return ended
}

// handOver gives the marks of processes of a group that have ended to those that inherited them, and have no mark of their own
// or of an ancestor: until when they are marked, and how they go back, is not lost.
func (b *Book) handOver(group string, ended []*Record) {
	slices.SortFunc(ended, func(x, y *Record) int { return cmp.Compare(y.Start, x.Start) })
	for _, process := range b.unrecorded(group) {
		if b.recordFor(process) != nil {
			continue
		}
		if b.room(maxUserMarks, maxUserThreads, "") != nil {
			return
		}
		i := slices.IndexFunc(ended, func(record *Record) bool { return b.left(record, process, group) })
		if i >= 0 {
			b.handOverTo(process, ended[i])
		}
	}
}

// left tells whether a process of a group has inherited from one that has ended there. The scope of a session has one way back; in
// the background group are marks of all users. Where a process was not moved there are others, too: nobody knows their parents
// any more, so what has the idle priority and came after the mark is taken for a child.
func (b *Book) left(ended *Record, process facts.Process, group string) bool {
	own := ended.UID == process.UIDs[0]
	if ended.Group == "" {
		return own && ended.inherits(process.Start) && b.Hands.Idle(process.PID)
	}
	return ended.Start <= process.Start && (own || systemd.Session(group) != "")
}

// unrecorded are the processes of a group without a record, parents before their children.
func (b *Book) unrecorded(group string) (found []facts.Process) {
	if b.Tree == nil {
		return nil
	}
	pids, _ := b.Tree.Processes(group)
	for _, pid := range pids {
		if b.records[pid] != nil {
			continue
		}
		if process, err := b.Root.Process(pid); err == nil {
			found = append(found, process)
		}
	}
	slices.SortFunc(found, func(x, y facts.Process) int {
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.PID, y.PID))
	})
	return found
}

// handOverTo gives a process the mark of one that has ended. It is not the rule's any more that made it: that may not want this
// process, and would unmark it.
func (b *Book) handOverTo(process facts.Process, ended *Record) {
	record := *ended
	record.PID, record.Start, record.UID, record.Comm = process.PID, process.Start, process.UIDs[0], process.Comm
	record.Known = map[int]actuate.Before{process.PID: ended.fallback()}
	if strings.HasPrefix(record.Origin, RuleOrigin) {
		record.Origin = LeftOrigin + record.Origin
	}
	b.records[record.PID] = &record
	if err := b.store.save(processFile(record.PID), &record); err != nil {
		slog.Warn("an inherited mark is not written down", "pid", record.PID, "error", err)
	}
}
