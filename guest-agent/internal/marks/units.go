// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"fmt"
	"maps"

	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/systemd"
)

// Units is what the book needs of systemd, so that tests can have one of their own.
type Units interface {
	// Move puts a process into the unit of a cgroup.
	Move(pid int, group string) error
	// Quiet makes a unit give way, and before that hands what it has to keep, whose error ends it. Restore gives it that. A unit
	// that is gone for good needs no Restore.
	Quiet(unit string, keep func(before cgroup.Attributes) error) error
	Restore(unit string, before cgroup.Attributes) error
	// ControlGroup is the cgroup of a unit that runs. Errors: systemd.ErrNoUnit.
	ControlGroup(unit string) (string, error)
}

// Settle makes units give way whose processes are all marked, each by itself, and gives back what they had to those of which
// that is true no more.
func (b *Book) Settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Units == nil {
		return
	}
	found := map[string]bool{}
	for pid, record := range b.records {
		if record.Group == "" {
			_, unitGroup := systemd.Unit(b.Root.Cgroup(pid))
			found[unitGroup] = true
		}
	}
	for unitGroup := range found {
		b.settle(unitGroup, true)
	}
	// A child whose parent has ended keeps its mark, and its unit gives way still.
	for path, group := range maps.Clone(b.groups) {
		if group.Whole && !found[path] {
			b.settle(path, true)
		}
	}
}

// settle does it for one unit, in which some process is marked, or was; returns in words why it does not give way.
func (b *Book) settle(unitGroup string, marked bool) (lack string) {
	if unitGroup == "" {
		return "it belongs to no unit"
	}
	group := b.groups[unitGroup]
	if group != nil && !group.Whole {
		return ""
	}
	if !marked || !b.allMarked(unitGroup, group == nil) {
		if group != nil {
			_ = b.restore(group)
			b.refreshPackets("")
		}
		unit, _ := systemd.Unit(unitGroup)
		return fmt.Sprintf("it stays in %s, of which not all is marked; as root: idletime mark --unit %s", unit, unit)
	}
	if group != nil {
		return ""
	}
	lacks, err := b.quiet(Group{Path: unitGroup, Whole: true})
	if err != nil {
		return err.Error()
	}
	b.treeLacks = lacks
	b.refreshPackets("")
	return ""
}

// allMarked tells whether all processes of a group have the idle priority, which children inherit; of a `fresh` one, also
// whether they may be marked.
func (b *Book) allMarked(path string, fresh bool) bool {
	pids, err := b.Tree.Processes(path)
	if err != nil || len(pids) == 0 {
		return false
	}
	for _, pid := range pids {
		if !b.Hands.Idle(pid) {
			return false
		}
	}
	if !fresh {
		return true
	}
	_, problem := b.members(path)
	return problem == nil
}

// settleAfter settles the unit of a process that was unmarked.
func (b *Book) settleAfter(unitGroup string) {
	if b.Units == nil || b.groups[unitGroup] == nil {
		return
	}
	marked := false
	for pid := range b.records {
		_, other := systemd.Unit(b.Root.Cgroup(pid))
		marked = marked || other == unitGroup
	}
	b.settle(unitGroup, marked)
}

// quiet makes a group give way, by systemd where it is a unit's. It is written down before that, so that a crash in between can
// be undone; a group that gives way already keeps what it had before it did.
func (b *Book) quiet(group Group) (lacks []string, err error) {
	if b.Units != nil {
		if unit, unitGroup := systemd.Unit(group.Path); unitGroup == group.Path {
			group.Unit = unit
		}
	}
	known := b.groups[group.Path]
	keep := func(before cgroup.Attributes) error {
		group.Before = before
		if known != nil {
			group.Before = known.Before
		}
		return b.keepGroup(&group)
	}
	if group.Unit == "" {
		if err := keep(b.Tree.Before(group.Path)); err != nil {
			return nil, b.drop(&group, known, err)
		}
		return b.Tree.Quiet(group.Path), nil
	}
	err = b.Units.Quiet(group.Unit, func(before cgroup.Attributes) error {
		maps.Copy(before, b.Tree.BeforeUnit(group.Path))
		return keep(before)
	})
	if err != nil {
		return nil, b.drop(&group, known, err)
	}
	return b.Tree.QuietUnit(group.Path), nil
}

// drop takes what was written down of a group back to what was known of it, as it does not give way; returns why.
func (b *Book) drop(group, known *Group, why error) error {
	if known == nil {
		b.forgetGroup(group.Path)
		return why
	}
	return errors.Join(why, b.keepGroup(known))
}

// restore gives a group what it had, and forgets it. One that systemd has not given it back is kept, to be tried again.
func (b *Book) restore(group *Group) error {
	if group.Unit != "" {
		if err := b.Units.Restore(group.Unit, group.Before); err != nil {
			return err
		}
	}
	b.forgetGroup(group.Path)
	return b.Tree.Restore(group.Path, group.Before)
}

// keepGroup writes a group down.
func (b *Book) keepGroup(group *Group) error {
	b.groups[group.Path] = group
	b.note()
	return b.store.save(groupFile(group.Path), group)
}
