// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/dscp"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

// Group is one marked cgroup. Its processes have records of their own, with the origin "cgroup PATH".
type Group struct {
	Path   string            `json:"path"`
	Before cgroup.Attributes `json:"before"`
	// Unit is the unit of systemd that it is the cgroup of, "" for a group that is none.
	Unit string `json:"unit"`
	// Whole: nobody marked it, but all of its processes are marked, each by itself.
	Whole bool `json:"whole"`
	// Until is when the mark is taken back, in seconds since 1970; 0 is never.
	Until int64 `json:"until,omitempty"`
}

func groupOrigin(path string) string { return "cgroup " + path }

// Resolve finds the cgroup of a target: a path, or a unit by the name of its folder. Root only.
func (b *Book) Resolve(uid uint32, target wire.Target) (string, *wire.Error) {
	if uid != 0 {
		return "", wire.Errorf(wire.CodeNotPermitted, "uid %d may not mark cgroups and units: only root may", uid)
	}
	if b.Tree == nil {
		return "", wire.Errorf(wire.CodeNotFound, "cgroup v2 is not mounted: mark processes by pid")
	}
	path := filepath.Clean("/" + target.Cgroup)
	if target.Unit != "" {
		var problem *wire.Error
		if path, problem = b.unitPath(target.Unit); problem != nil {
			return "", problem
		}
	}
	if path == "/" || !b.Tree.Has(path) {
		return "", wire.Errorf(wire.CodeNotFound, "there is no cgroup %s below %s", path, b.Tree.Mount)
	}
	return path, nil
}

// unitPath is the cgroup of a unit; a name without a suffix is a service. Where systemd runs it is asked: a user can give a
// cgroup any name.
func (b *Book) unitPath(unit string) (path string, problem *wire.Error) {
	if !strings.Contains(unit, ".") {
		unit += ".service"
	}
	var err error
	if b.Units != nil {
		path, err = b.Units.ControlGroup(unit)
	} else {
		path = b.findUnit(unit)
	}
	switch {
	case errors.Is(err, systemd.ErrNoUnit), err == nil && path == "":
		return "", wire.Errorf(wire.CodeNotFound, "unit %s has no cgroup: is it running?", unit)
	case err != nil:
		return "", wire.Errorf(wire.CodeFailed, "%v", err)
	}
	return path, nil
}

// findUnit looks for a folder with the unit's name; "" if there is none.
func (b *Book) findUnit(unit string) (found string) {
	_ = filepath.WalkDir(b.Tree.Mount, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == unit {
			found = strings.TrimPrefix(path, strings.TrimSuffix(b.Tree.Mount, "/"))
			return filepath.SkipAll
		}
		return nil
	})
	return found
}

// MarkGroup makes all processes of a cgroup and below it background, and the group itself give way. Nothing is moved.
func (b *Book) MarkGroup(path string) (wire.Marked, *wire.Error) { return b.MarkGroupUntil(path, 0) }

// MarkGroupUntil is MarkGroup until a time, in seconds since 1970; 0 is for good.
func (b *Book) MarkGroupUntil(path string, until int64) (wire.Marked, *wire.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	processes, problem := b.members(path)
	if problem != nil {
		return wire.Marked{}, problem
	}
	lacks, err := b.quiet(Group{Path: path, Until: until})
	if err != nil {
		return wire.Marked{}, wire.Errorf(wire.CodeFailed, "%v", err)
	}
	done := b.markMembers(path, processes)
	b.refreshPackets("")
	done.Lacks = append(append([]string{}, lacks...), present(b.packetLack, b.liftLack)...)
	return done, nil
}

// members are the processes of a group that are to be marked; it is an error if one must not be marked and is not left out.
func (b *Book) members(path string) ([]facts.Process, *wire.Error) {
	pids, err := b.Tree.Processes(path)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailed, "%v", err)
	}
	processes := make([]facts.Process, 0, len(pids))
	for _, pid := range pids {
		process, err := b.Root.Process(pid)
		if err != nil || process.LeftOut() {
			continue
		}
		if words := process.Protected(b.self); words != "" {
			return nil, wire.Errorf(wire.CodeProtected, "cgroup %s cannot be marked: %s", path, words)
		}
		processes = append(processes, process)
	}
	return processes, nil
}

// markMembers marks what is not marked yet, one process after the other; who ends meanwhile is left out, and processes of users
// beyond what is left to root.
func (b *Book) markMembers(path string, processes []facts.Process) (done wire.Marked) {
	full := false
	for _, process := range processes {
		record := b.records[process.PID]
		fresh := record == nil || record.Start != process.Start
		if !fresh && record.Origin != groupOrigin(path) {
			continue
		}
		if fresh && !process.Owned(0) {
			if full = full || b.room(maxMemberMarks, maxMemberThreads, "") != nil; full {
				continue
			}
		}
		if threads, problem := b.markProcess(process, groupOrigin(path), ""); problem == nil {
			done.Processes++
			done.Threads += threads
		}
	}
	return done
}

// UnmarkGroup takes a mark of a cgroup back.
func (b *Book) UnmarkGroup(path string) (wire.Marked, *wire.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unmarkGroup(path)
}

func (b *Book) unmarkGroup(path string) (wire.Marked, *wire.Error) {
	group := b.groups[path]
	switch {
	case group == nil:
		return wire.Marked{}, wire.Errorf(wire.CodeNotMarked, "cgroup %s is not marked", path)
	case group.Whole:
		return wire.Marked{}, wire.Errorf(wire.CodeNotMarked, "cgroup %s is not marked, its processes are: unmark them by their pids", path)
	}
	done := wire.Marked{Lacks: []string{}}
	for pid, record := range b.records {
		if record.Origin == groupOrigin(path) {
			one := b.unmarkTree(record, pid, record.Start)
			done.Processes += one.Processes
			done.Threads += one.Threads
		}
	}
	err := b.restore(group)
	b.refreshPackets("")
	if err != nil {
		return done, wire.Errorf(wire.CodeFailed, "cgroup %s: %v", path, err)
	}
	return done, nil
}

// Follow marks the processes that have come into marked cgroups from elsewhere; children need no help.
func (b *Book) Follow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for path, group := range b.groups {
		if group.Whole {
			continue
		}
		if processes, problem := b.members(path); problem == nil {
			b.markMembers(path, processes)
		}
	}
}

func (b *Book) loadGroups() {
	b.store.load("cgroup", func(data []byte) error {
		group := &Group{}
		if err := json.Unmarshal(data, group); err != nil {
			return err
		}
		if b.Tree == nil || group.Unit != "" && b.Units == nil {
			return facts.ErrGone
		}
		// One that has ended meanwhile is pruned as others are: its unit gets back what it had.
		b.groups[group.Path] = group
		return nil
	})
}

func (b *Book) forgetGroup(path string) {
	delete(b.groups, path)
	b.store.remove(groupFile(path))
}

func (b *Book) pruneGroups() (ended int) {
	for path, group := range maps.Clone(b.groups) {
		if b.Tree == nil || b.Tree.Gone(path) {
			// The properties of a unit would be there when it starts again.
			if b.restore(group) == nil {
				ended++
			}
		}
	}
	return ended
}

// packetGroups are the cgroups whose packets are to be marked now: the marked ones, and these.
func (b *Book) packetGroups(moved []string) (groups []dscp.Group) {
	if b.Tree == nil {
		return nil
	}
	paths := append(slices.Collect(maps.Keys(b.groups)), moved...)
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if id, err := b.Tree.ID(path); err == nil {
			groups = append(groups, dscp.Group{Path: path, ID: id})
		}
	}
	return groups
}

// refreshPackets writes the table when the groups have changed; `moved` is where a process was moved to, or "". The rules for
// groups of ours stay until restPackets: while one is empty they do nothing, and the kernel waits for all its processors at
// each change of a table.
func (b *Book) refreshPackets(moved string) {
	paths := []string{}
	for _, group := range b.packetsOf {
		if ours(group.Path) {
			paths = append(paths, group.Path)
		}
	}
	if moved != "" {
		paths = append(paths, moved)
	}
	b.setPackets(paths, false)
}

// restPackets is refreshPackets without rules that nobody needs any more. What failed is tried again, and tables that somebody
// has removed are written again; NICs that came since are looked at, too.
func (b *Book) restPackets() {
	if b.Inherit && (b.inheritLack != "" || b.lost(dscp.InheritTable)) {
		b.tellInherit()
	}
	moved := b.populated()
	for _, record := range b.records {
		if record.Group != "" {
			moved = append(moved, record.Group)
		}
	}
	again := b.packetsFailed || len(b.packetsOf) > 0 && b.lost(dscp.Table)
	if !b.setPackets(moved, again) {
		b.lift()
	}
}

// setPackets writes the table when the groups have changed, or `again`; tells whether it has.
func (b *Book) setPackets(moved []string, again bool) bool {
	groups := b.packetGroups(moved)
	if !again && slices.Equal(groups, b.packetsOf) {
		return false
	}
	b.tellPackets(groups)
	b.lift()
	return true
}

func (b *Book) tellPackets(groups []dscp.Group) {
	err := b.Hands.Packets(groups)
	b.packetsOf, b.packetsFailed = groups, err != nil
	if err != nil {
		b.packetLack = fmt.Sprintf("network packets are not marked: %v", err)
	} else if len(groups) > 0 {
		b.packetLack = ""
	}
}

// lost tells whether somebody has removed a table of ours.
func (b *Book) lost(table string) bool {
	if b.Hands.HasTable(table) {
		return false
	}
	slog.Warn("somebody has removed rules for packets: they are written again", "table", table)
	return true
}

// StartInherit makes answers inherit, or takes back what a killed agent has left. What fails leaves all else as it is.
func (b *Book) StartInherit(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Inherit = on
	b.tellInherit()
	if b.inheritLack != "" {
		slog.Warn(b.inheritLack)
	}
}

func (b *Book) tellInherit() {
	b.inheritLack = ""
	if err := b.Hands.Inherit(b.Inherit); err != nil && b.Inherit {
		b.inheritLack = fmt.Sprintf("answers do not inherit the class of what they answer: %v", err)
	}
}

// lift has packets that wait at the host not count as on their way while any are marked; of NICs that came since, too.
func (b *Book) lift() {
	b.liftLack = ""
	if err := b.Hands.Lift(len(b.packetsOf) > 0 || b.Inherit); err != nil {
		b.liftLack = fmt.Sprintf("packets that wait at the host keep out this guest's own foreground: %v", err)
	}
}

// Close takes the network rules away, the limits of page caches, and the background group if it is empty. Marks of processes
// and units stay.
func (b *Book) Close() error {
	limits := b.Hands.Lift(false)
	if b.Inherit {
		limits = errors.Join(limits, b.Hands.Inherit(false))
	}
	if b.Tree == nil {
		return limits
	}
	b.liftCaches()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Tree.Remove()
	b.packetsOf = nil
	return errors.Join(limits, b.Hands.Packets(nil))
}
