// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/dscp"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

// Group is one marked cgroup. Its processes have records of their own, with the origin "cgroup PATH".
type Group struct {
	Path   string            `json:"path"`
	Before cgroup.Attributes `json:"before"`
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
		path = b.findUnit(target.Unit)
		if path == "" {
			return "", wire.Errorf(wire.CodeNotFound, "unit %s has no cgroup: is it running?", target.Unit)
		}
	}
	if path == "/" || !b.Tree.Has(path) {
		return "", wire.Errorf(wire.CodeNotFound, "there is no cgroup %s below %s", path, b.Tree.Mount)
	}
	return path, nil
}

// findUnit looks for a folder with the unit's name; "" if there is none. A name without a suffix is a service.
func (b *Book) findUnit(unit string) (found string) {
	if !strings.Contains(unit, ".") {
		unit += ".service"
	}
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
func (b *Book) MarkGroup(path string) (wire.Marked, *wire.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	processes, problem := b.members(path)
	if problem != nil {
		return wire.Marked{}, problem
	}
	group, known := b.groups[path]
	before, lacks := b.Tree.Quiet(path)
	if !known {
		group = &Group{Path: path, Before: before}
		b.groups[path] = group
	}
	if err := b.store.save(groupFile(path), group); err != nil {
		return wire.Marked{}, wire.Errorf(wire.CodeFailed, "%v", err)
	}
	done := b.markMembers(path, processes)
	b.refreshPackets(false)
	if b.packetLack != "" {
		lacks = append(lacks, b.packetLack)
	}
	done.Lacks = append([]string{}, lacks...)
	return done, nil
}

// members are the processes of a group; it is an error if one of them must not be marked.
func (b *Book) members(path string) ([]facts.Process, *wire.Error) {
	pids, err := b.Tree.Processes(path)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailed, "%v", err)
	}
	processes := make([]facts.Process, 0, len(pids))
	for _, pid := range pids {
		process, err := b.Root.Process(pid)
		if err != nil {
			continue
		}
		if words := process.Protected(b.self); words != "" {
			return nil, wire.Errorf(wire.CodeProtected, "cgroup %s cannot be marked: %s", path, words)
		}
		processes = append(processes, process)
	}
	return processes, nil
}

// markMembers marks what is not marked yet, one process after the other; who ends meanwhile is left out.
func (b *Book) markMembers(path string, processes []facts.Process) (done wire.Marked) {
	for _, process := range processes {
		if record := b.records[process.PID]; record != nil && record.Start == process.Start && record.Origin != groupOrigin(path) {
			continue
		}
		if threads, problem := b.markProcess(process, groupOrigin(path), false); problem == nil {
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
	group := b.groups[path]
	if group == nil {
		return wire.Marked{}, wire.Errorf(wire.CodeNotMarked, "cgroup %s is not marked", path)
	}
	done := wire.Marked{Lacks: []string{}}
	for pid, record := range b.records {
		if record.Origin == groupOrigin(path) {
			one := b.unmarkTree(record, pid)
			done.Processes += one.Processes
			done.Threads += one.Threads
		}
	}
	err := b.Tree.Restore(path, group.Before)
	b.forgetGroup(path)
	b.refreshPackets(false)
	if err != nil {
		return done, wire.Errorf(wire.CodeFailed, "cgroup %s: %v", path, err)
	}
	return done, nil
}

// Follow marks the processes that have come into marked cgroups from elsewhere; children need no help.
func (b *Book) Follow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for path := range b.groups {
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
		if b.Tree == nil || !b.Tree.Has(group.Path) {
			return facts.ErrGone
		}
		b.groups[group.Path] = group
		return nil
	})
}

func (b *Book) forgetGroup(path string) {
	delete(b.groups, path)
	b.store.remove(groupFile(path))
}

func (b *Book) pruneGroups() (ended int) {
	for path := range b.groups {
		if b.Tree == nil || !b.Tree.Has(path) {
			b.forgetGroup(path)
			ended++
		}
	}
	return ended
}

// packetGroups are the cgroups whose packets are to be marked now; `background` says whether ours is one of them.
func (b *Book) packetGroups(background bool) (groups []dscp.Group) {
	if b.Tree == nil {
		return nil
	}
	paths := slices.Sorted(maps.Keys(b.groups))
	if background {
		paths = append([]string{cgroup.Background}, paths...)
	}
	for _, path := range paths {
		if id, err := b.Tree.ID(path); err == nil {
			groups = append(groups, dscp.Group{Path: path, ID: id})
		}
	}
	return groups
}

// refreshPackets writes the table when the groups have changed. The rule for our own group stays until restPackets: while
// the group is empty it does nothing, and the kernel waits for all its processors at each change of a table.
func (b *Book) refreshPackets(moved bool) {
	b.setPackets(moved || slices.ContainsFunc(b.packetsOf, func(group dscp.Group) bool { return group.Path == cgroup.Background }))
}

// restPackets is refreshPackets without rules that nobody needs any more.
func (b *Book) restPackets() {
	moved := false
	for _, record := range b.records {
		moved = moved || record.Moved
	}
	b.setPackets(moved)
}

func (b *Book) setPackets(background bool) {
	if groups := b.packetGroups(background); !slices.Equal(groups, b.packetsOf) {
		b.tellPackets(groups)
	}
}

func (b *Book) tellPackets(groups []dscp.Group) {
	err := b.Hands.Packets(groups)
	b.packetsOf = groups
	if err != nil {
		b.packetLack = fmt.Sprintf("network packets are not marked: %v", err)
	} else if len(groups) > 0 {
		b.packetLack = ""
	}
}

// Close takes the network rules away, and the background group if it is empty. Marks of processes stay.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Tree == nil {
		return nil
	}
	b.Tree.Remove()
	b.packetsOf = nil
	return b.Hands.Packets(nil)
}
