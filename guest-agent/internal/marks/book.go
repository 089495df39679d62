// SPDX-License-Identifier: GPL-2.0-or-later

// Package marks keeps the book of what is marked background in this guest: who asked, what was there before, and how to
// go back. It joins facts, plans and the hands that carry them out.
package marks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/dscp"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

const (
	// maxMarks and maxThreads bound the memory that marks take, which users decide by what they start: a mark takes some 7 KiB
	// with its file on the tmpfs, each thread of it 0.1 KiB, in all some 41 MiB of the 64 MiB that the unit may have.
	maxMarks   = 4096
	maxThreads = 128 << 10
	// maxUserMarks and maxUserThreads are what all marks together may come to by marks of users: the rest is for root and its
	// rules. No process may have more threads than the latter.
	maxUserMarks   = maxMarks / 4
	maxUserThreads = maxThreads / 4
	// maxMemberMarks and maxMemberThreads are the same for users' processes in cgroups that root has marked.
	maxMemberMarks   = maxMarks - maxUserMarks
	maxMemberThreads = maxThreads - maxUserThreads
	// maxPasses bounds the hunt for threads that a process makes while it is being marked. Each pass finds only those that
	// came from threads not marked in the one before, so two are enough but for a process that does nothing else.
	maxPasses = 20
)

const (
	// RuleOrigin begins the origin of marks that a rule made.
	RuleOrigin = "rule "
	// LeftOrigin begins that of marks that were inherited from a process that a rule had marked, and that has ended.
	LeftOrigin = "left by "
)

// Record is one marked process.
type Record struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`
	UID    uint32 `json:"uid"`
	Origin string `json:"origin"`
	Comm   string `json:"comm"`
	// Home is the cgroup that a process that was moved came from; Stays is where one that was not moved is.
	Home  string                 `json:"home"`
	Stays string                 `json:"stays,omitempty"`
	Known map[int]actuate.Before `json:"known"`
	// Whole: it gives way in all respects, moved or with its unit. Only in copies.
	Whole bool `json:"-"`
	// Group and SchedIdle are what of the wish was carried out; Group is the cgroup that it was moved to, "" if it stayed.
	Group     string `json:"group"`
	SchedIdle bool   `json:"sched_idle"`
	// Until is when the mark is taken back, in seconds since 1970; 0 is never.
	Until int64 `json:"until,omitempty"`
	// Since is when it was marked, as Start; 0 is not known.
	Since uint64 `json:"since,omitempty"`
}

func (r *Record) wish() actuate.Wish { return actuate.Wish{Group: r.Group, SchedIdle: r.SchedIdle} }

// inherits tells whether a child that began at `start` has the mark from its parent: older ones were left as they are.
func (r *Record) inherits(start uint64) bool { return start >= r.Since }

// fallback is for threads and children that came after the mark.
func (r *Record) fallback() actuate.Before { return r.Known[r.PID] }

// Book holds all marks. Its methods may be called from any goroutine.
type Book struct {
	Root  facts.Root
	Hands Hands
	// Tree is nil without cgroup v2.
	Tree *cgroup.Tree
	// Units is nil without systemd.
	Units Units
	// SchedIdle adds SCHED_IDLE to each mark.
	SchedIdle bool
	// CachePercent of the guest's memory is the page cache that a cgroup of background work keeps; 100: no limit.
	CachePercent int
	// Inherit says that packets are marked without a group, too: see StartInherit.
	Inherit bool
	// Marked gets a word when something was marked.
	Marked chan struct{}

	self  int
	store store
	// limited are cgroups whose page cache is limited. Context: who calls LimitCache.
	limited map[string]limit
	// lifted: those of an earlier agent are gone, where there is to be no limit.
	lifted sync.Once
	// cacheLimits is how many that are.
	cacheLimits atomic.Int32

	mu          sync.Mutex
	records     map[int]*Record
	groups      map[string]*Group
	treeLacks   []string
	moveLack    string
	packetLack  string
	inheritLack string
	liftLack    string
	// packetsOf are the groups whose packets were asked to be marked; packetsFailed: the kernel did not do it.
	packetsOf     []dscp.Group
	packetsFailed bool
	prepared      bool
}

// New makes an empty book that keeps its files in a folder ("" for none). The agent's own pid is never marked.
func New(root facts.Root, hands Hands, tree *cgroup.Tree, folder string, self int) (*Book, error) {
	if folder != "" {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	return &Book{
		Root: root, Hands: hands, Tree: tree, self: self, store: store(folder),
		records: map[int]*Record{}, groups: map[string]*Group{}, limited: map[string]limit{}, CachePercent: 100,
		Marked: make(chan struct{}, 1),
	}, nil
}

// Load takes up what an earlier agent has marked and what still lives.
func (b *Book) Load() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store.load("process", func(data []byte) error {
		record := &Record{}
		if err := json.Unmarshal(data, record); err != nil {
			return err
		}
		b.records[record.PID] = record
		return nil
	})
	b.pruneRecords()
	b.loadGroups()
	b.probe()
	b.restPackets()
}

// probe finds out what this kernel has by doing it once, so that status can tell before the first mark. What a unit of
// systemd can give up is told at the first mark.
func (b *Book) probe() {
	if b.Tree == nil {
		return
	}
	group := cgroup.Background
	if b.Units != nil {
		group = b.Root.Cgroup(b.self)
	} else {
		b.prepare()
	}
	if id, err := b.Tree.ID(group); err == nil && strings.Trim(group, "/") != "" {
		b.tellPackets([]dscp.Group{{Path: group, ID: id}})
	}
}

// May says whether a user may mark or unmark a process; nil is yes.
func May(uid uint32, process facts.Process) *wire.Error {
	if uid == 0 || process.Owned(uid) {
		return nil
	}
	return wire.Errorf(wire.CodeNotPermitted, "uid %d may not mark pid %d of uid %d: only root may mark processes of others",
		uid, process.PID, process.UIDs[0])
}

// examine finds a process that this user may mark or unmark.
func (b *Book) examine(uid uint32, pid int) (facts.Process, *wire.Error) {
	process, err := b.Root.Process(pid)
	if err != nil {
		return process, notFound(pid, err)
	}
	if words := process.Protected(b.self); words != "" {
		return process, wire.Errorf(wire.CodeProtected, "%s", words)
	}
	return process, May(uid, process)
}

func notFound(pid int, err error) *wire.Error {
	if errors.Is(err, facts.ErrGone) {
		return wire.Errorf(wire.CodeNotFound, "there is no process %d", pid)
	}
	return wire.Errorf(wire.CodeFailed, "%v", err)
}

// Mark makes a process background, with all its threads and the children that it will have.
//
// It is moved to where all of it gives way only if it keeps its limits; root may mark it out of those where no systemd runs.
func (b *Book) Mark(uid uint32, pid int, origin string) (wire.Marked, *wire.Error) {
	return b.MarkUntil(uid, pid, origin, 0)
}

// MarkUntil is Mark until a time, in seconds since 1970; 0 is for good, also if the process was marked until a time before.
func (b *Book) MarkUntil(uid uint32, pid int, origin string, until int64) (wire.Marked, *wire.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	done, process, own, problem := b.mark(uid, pid, origin, uid != 0)
	if problem == nil {
		problem = b.keepUntil(b.records[pid], until)
	}
	if problem != nil {
		return done, problem
	}
	if b.Units != nil && b.records[pid].Group == "" {
		_, unitGroup := systemd.Unit(process.Cgroup)
		if lack := b.settle(unitGroup, true); lack == "" {
			own = ""
		} else if own == "" {
			own = fmt.Sprintf(stays, pid, lack)
		}
	}
	done.Lacks = b.lacks(own)
	return done, nil
}

// MarkByRule is Mark for a rule, which frees nobody of limits: who starts a program that a rule names has chosen no more than
// that. Nor does that take room which is kept for root. Settle makes whole units give way.
func (b *Book) MarkByRule(pid int, rule string) (wire.Marked, *wire.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	done, _, own, problem := b.mark(0, pid, RuleOrigin+rule, true)
	done.Lacks = b.lacks(own)
	return done, problem
}

// mark does it; `own` says what of this process is not marked because it was not moved. Context: mu held.
func (b *Book) mark(
	uid uint32, pid int, origin string, keepsLimits bool,
) (done wire.Marked, process facts.Process, own string, problem *wire.Error) {
	process, problem = b.examine(uid, pid)
	byUser := uid != 0 || strings.HasPrefix(origin, RuleOrigin) && !process.Owned(0)
	if problem == nil && byUser {
		problem = b.room(maxUserMarks, maxUserThreads, " for all but root")
	}
	if problem != nil {
		return done, process, "", problem
	}
	group, own := b.place(process, keepsLimits)
	if group == cgroup.Background {
		b.prepare()
	}
	done.Threads, problem = b.markProcess(process, origin, group)
	if problem != nil {
		return done, process, own, problem
	}
	done.Processes = 1
	b.refreshPackets(group)
	return done, process, own, nil
}

// room says why no more processes may be marked, if so.
func (b *Book) room(marks, threads int, whose string) *wire.Error {
	if len(b.records) >= marks {
		return wire.Errorf(wire.CodeBusy, "%d processes are marked: that is the limit%s; unmark some first", len(b.records), whose)
	}
	known := 0
	for _, record := range b.records {
		known += len(record.Known)
	}
	if known >= threads {
		return wire.Errorf(wire.CodeBusy, "processes with %d threads are marked: that is the limit%s; unmark some first", known, whose)
	}
	return nil
}

// markProcess does it, and writes it down first: a crash in the middle can then be undone.
func (b *Book) markProcess(process facts.Process, origin, group string) (int, *wire.Error) {
	record := b.records[process.PID]
	if record == nil || record.Start != process.Start {
		if problem := b.room(maxMarks, maxThreads, ""); problem != nil {
			return 0, problem
		}
		record = &Record{
			PID: process.PID, Start: process.Start, UID: process.UIDs[0], Since: b.Root.Now(), Known: b.inherited(process, origin),
		}
	}
	if group != record.Group {
		// Somebody may have moved it since it was marked first: it must not go back to where we had it.
		record.Group, record.Home = group, b.home(process)
	}
	if record.Stays = ""; record.Group == "" {
		record.Stays = process.Cgroup
	}
	record.Origin, record.Comm, record.SchedIdle = origin, process.Comm, record.SchedIdle || b.SchedIdle
	threads, err := b.hunt(record)
	if err == nil {
		err = b.same(record.PID, record.Start)
	}
	if err != nil {
		if !errors.Is(err, facts.ErrGone) {
			b.undo(record, process.PID)
		}
		b.forget(record.PID)
		return 0, failed(process.PID, err)
	}
	return threads, nil
}

// inherited is what a process had before its mark, where it has that from an ancestor and nobody asks for its own: a rule, or a
// cgroup, that finds it later does not make it its owner's wish to be idle.
func (b *Book) inherited(process facts.Process, origin string) map[int]actuate.Before {
	known := map[int]actuate.Before{}
	if !strings.HasPrefix(origin, RuleOrigin) && !strings.HasPrefix(origin, groupOrigin("")) {
		return known
	}
	if record := b.recordFor(process); record != nil && record.Since != 0 && b.Hands.Idle(process.PID) {
		known[process.PID] = record.fallback()
	}
	return known
}

func failed(pid int, err error) *wire.Error {
	if errors.Is(err, facts.ErrGone) {
		return notFound(pid, err)
	}
	return wire.Errorf(wire.CodeFailed, "%v", err)
}

// same makes sure that the number still is that of the process that was examined: numbers are used again.
func (b *Book) same(pid int, start uint64) error {
	now, err := b.Root.Start(pid)
	if err == nil && now != start {
		err = fmt.Errorf("process %d: %w", pid, facts.ErrGone)
	}
	return err
}

// hunt repeats look, plan and act until nothing is left to do; threads may come while it goes on.
func (b *Book) hunt(record *Record) (count int, err error) {
	for pass := 0; pass < maxPasses; pass++ {
		threads, err := b.Hands.Threads(record.PID)
		if err != nil {
			return 0, err
		}
		steps := actuate.Mark(threads, b.Root.Cgroup(record.PID), record.wish())
		if len(steps) == 0 && pass > 0 {
			return len(threads), nil
		}
		actuate.Remember(record.Known, record.PID, threads)
		if len(record.Known) > maxUserThreads {
			return 0, fmt.Errorf("process %d has %d threads: want at most %d", record.PID, len(record.Known), maxUserThreads)
		}
		b.records[record.PID] = record
		b.note()
		if err := b.store.save(processFile(record.PID), record); err != nil {
			return 0, err
		}
		if err := b.doAll(record, steps); err != nil {
			return 0, err
		}
		count = len(threads)
	}
	return count, nil
}

// doAll carries out steps on the process of a record. Another one that gets its number meanwhile goes back: it has just begun, in
// the cgroup of its parent.
func (b *Book) doAll(record *Record, steps []actuate.Step) error {
	if err := b.same(record.PID, record.Start); err != nil {
		return err
	}
	err := b.doEach(record, steps)
	if gone := b.same(record.PID, record.Start); gone != nil {
		if other, err := b.Root.Process(record.PID); err == nil && other.Start != record.Start {
			record.Home = b.Root.Cgroup(other.Parent)
			b.undo(record, record.PID)
		}
		return gone
	}
	return err
}

// doEach carries out steps. A process that systemd does not move stays, and its requests are marked all the same.
func (b *Book) doEach(record *Record, steps []actuate.Step) error {
	for _, step := range steps {
		err := b.Hands.Do(record.PID, step)
		if step.Kind == actuate.MoveTo && b.Units != nil {
			b.noteMove(record, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the background group once.
func (b *Book) prepare() {
	if b.prepared && b.Tree.Has(cgroup.Background) {
		return
	}
	lacks, err := b.Tree.Prepare()
	if err != nil {
		lacks = []string{fmt.Sprintf("processes are not moved to %s: %v", cgroup.Background, err)}
	}
	b.treeLacks, b.prepared = lacks, true
}

func (b *Book) forget(pid int) {
	delete(b.records, pid)
	b.store.remove(processFile(pid))
}

// Count says how much is marked.
func (b *Book) Count() wire.Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := wire.Counts{Processes: len(b.records)}
	for _, group := range b.groups {
		if !group.Whole {
			counts.Cgroups++
		}
	}
	return counts
}

// List gives copies of at most `limit` records, by pid; a negative limit is none, and leaves units out of what is Whole.
func (b *Book) List(limit int) []Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	pids := make([]int, 0, len(b.records))
	for pid := range b.records {
		pids = append(pids, pid)
	}
	sort.Ints(pids)
	result := []Record{}
	if limit >= 0 && limit < len(pids) {
		pids = pids[:limit]
	}
	for _, pid := range pids {
		record := *b.records[pid]
		record.Whole = record.Group != "" || limit >= 0 && b.inGroup(pid)
		result = append(result, record)
	}
	return result
}

// inGroup tells whether a process is in a unit that gives way.
func (b *Book) inGroup(pid int) bool {
	_, unitGroup := systemd.Unit(b.Root.Cgroup(pid))
	return b.groups[unitGroup] != nil
}

// Lacks says in plain words what marks do not reach in this guest.
func (b *Book) Lacks() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(b.lacks(""), present(b.inheritLack)...)
}

func (b *Book) lacks(own string) []string {
	result := append([]string{}, present(own)...)
	if b.Tree == nil {
		result = append(result, "packets, processor time and write-back are not marked: cgroup v2 is not mounted")
		return result
	}
	result = append(result, b.treeLacks...)
	return append(result, present(b.moveLack, b.packetLack, b.liftLack)...)
}

// present leaves out what is not lacking.
func present(lacks ...string) []string {
	return slices.DeleteFunc(lacks, func(lack string) bool { return lack == "" })
}
