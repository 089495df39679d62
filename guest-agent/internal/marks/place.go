// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"fmt"
	"path"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/facts"
)

// maxScopes bounds the scopes that users can make the agent have: each costs every packet of the guest two rules.
const maxScopes = 64

// stays begins what is said of a process that is not moved.
const stays = "packets, processor time and write-back of pid %d are not marked: %s"

// ours tells the cgroups that the agent moves processes to.
func ours(group string) bool { return group == cgroup.Background || systemd.Session(group) != "" }

// place says to which cgroup a process goes when it is marked, "" where it stays, and what of it is then not marked.
//
// Where systemd runs, a process stays with its unit; one of a login session goes to a scope beside the session's, so that it
// keeps the limits of its user's slice. Elsewhere it goes to the background group, unless that would free it of a limit, or of the
// filter of devices that a container has.
func (b *Book) place(process facts.Process, keepsLimits bool) (group, lack string) {
	switch {
	case b.Tree == nil:
		return "", ""
	case ours(process.Cgroup):
		return process.Cgroup, ""
	case b.Units == nil && keepsLimits && b.Root.Contained(process.PID):
		return "", fmt.Sprintf(stays, process.PID, "it is in a container; root may mark its cgroup")
	case b.Units == nil:
		group = cgroup.Background
	default:
		group, keepsLimits = systemd.Scope(process.Cgroup), true
	}
	if group == "" {
		return "", ""
	}
	if limit := b.Tree.Limit(process.Cgroup, path.Dir(group)); keepsLimits && limit != "" {
		return "", fmt.Sprintf(stays, process.PID, "moving it would free it of "+limit+"; root may mark its cgroup")
	}
	if b.Units != nil && b.tooManyScopes(group) {
		return "", fmt.Sprintf(stays, process.PID, fmt.Sprintf("%d login sessions have background work: that is the limit", maxScopes))
	}
	return group, ""
}

// tooManyScopes tells whether one more would be; marked units are root's, and do not count.
func (b *Book) tooManyScopes(group string) bool {
	scopes := 0
	for _, each := range b.packetsOf {
		if each.Path == group {
			return false
		}
		if ours(each.Path) {
			scopes++
		}
	}
	return scopes >= maxScopes
}

// populated are the cgroups that processes are moved to, and in which there are some. They are found by their names: who is in
// one may have inherited a mark from a process that has ended.
func (b *Book) populated() (found []string) {
	if b.Tree == nil {
		return nil
	}
	pattern := cgroup.Background
	if b.Units != nil {
		pattern = systemd.Scopes
	}
	for _, path := range b.Tree.Find(pattern) {
		if b.Tree.Populated(path) {
			found = append(found, path)
		}
	}
	return found
}

// home is where a process goes back to; one that has inherited its mark goes where its ancestor came from.
func (b *Book) home(process facts.Process) string {
	if !ours(process.Cgroup) {
		return process.Cgroup
	}
	if ancestor := b.recordFor(process); ancestor != nil && ancestor.Home != "" {
		return ancestor.Home
	}
	if session := systemd.Session(process.Cgroup); session != "" {
		return session
	}
	return "/"
}

// goHome moves a process back. Its home may have ended meanwhile; then it goes to a scope beside it, or to the root.
func (b *Book) goHome(pid int, home string) {
	if b.Hands.Do(pid, actuate.Step{Kind: actuate.MoveTo, Group: home}) == nil {
		return
	}
	other := "/"
	if b.Units != nil {
		other = systemd.Former(home, pid)
	}
	_ = b.Hands.Do(pid, actuate.Step{Kind: actuate.MoveTo, Group: other})
}

// noteMove says what became of a process that systemd was asked to move.
func (b *Book) noteMove(record *Record, err error) {
	if err != nil {
		record.Group, record.Home, record.Stays = "", "", b.Root.Cgroup(record.PID)
		_ = b.store.save(processFile(record.PID), record)
		b.moveLack = fmt.Sprintf("processes of login sessions are not moved: %v", err)
		return
	}
	b.moveLack = ""
	if b.Tree.Has(record.Group) {
		b.treeLacks = b.Tree.QuietUnit(record.Group)
	}
}
