// SPDX-License-Identifier: GPL-2.0-or-later

// Package systemd makes units of systemd give way, and puts processes of login sessions into scopes that do, by asking
// systemd over D-Bus. Where systemd runs it alone writes the cgroup tree: a process that somebody else takes out of its
// unit's cgroup is not stopped, counted or limited with its unit any more.
package systemd

import (
	"path"
	"strings"
)

const (
	// prefix begins the names of our scopes; the name of the session's scope follows.
	prefix      = "idletime-"
	scopeSuffix = ".scope"
	sliceSuffix = ".slice"
	// formerPrefix begins the name of the scope of an unmarked process whose session has ended; its pid follows.
	formerPrefix = "unmarked-"
	// Scopes is the pattern of the cgroups of all scopes of ours, as of path.Match.
	Scopes = "/user.slice/user-*" + sliceSuffix + "/" + prefix + "session-*" + scopeSuffix
)

// Unit is the unit of the system's manager that a cgroup belongs to: its name and its own cgroup, "" for the root.
//
// A unit is the first part of the path that is no slice, or the last slice. What is below it belongs to somebody else: a
// user's own manager, a container's.
func Unit(group string) (name, unitGroup string) {
	for _, part := range strings.Split(strings.Trim(group, "/"), "/") {
		if part == "" {
			break
		}
		unitGroup += "/" + part
		// systemd puts a _ before names that the kernel could mistake for a file of the group.
		name = strings.TrimPrefix(part, "_")
		if !strings.HasSuffix(part, sliceSuffix) {
			break
		}
	}
	return name, unitGroup
}

// Scope is where a marked process of this cgroup goes: a scope of ours in the slice of its user, so that the limits of the
// slice still hold. It is "" for a process that stays: all but those of login sessions are their unit's.
func Scope(group string) string {
	name, unitGroup := Unit(group)
	slice := path.Dir(unitGroup)
	if unitGroup != group || !isUserSlice(slice) || !strings.HasPrefix(name, "session-") || !strings.HasSuffix(name, scopeSuffix) {
		return ""
	}
	return path.Join(slice, prefix+name)
}

// Session is the cgroup of the login session that a scope of ours was made for, "" if it is none.
func Session(group string) string {
	name, unitGroup := Unit(group)
	session := path.Join(path.Dir(unitGroup), strings.TrimPrefix(name, prefix))
	if group == "" || unitGroup != group || Scope(session) != group {
		return ""
	}
	return session
}

// Made tells the scopes that Move makes: those of ours, and those that Former names.
func Made(group string) bool {
	return Session(group) != "" || strings.HasPrefix(path.Base(group), formerPrefix)
}

// isUserSlice tells the slices that logind makes, /user.slice/user-1000.slice.
func isUserSlice(group string) bool {
	user, found := strings.CutPrefix(group, "/user.slice/user-")
	return found && strings.HasSuffix(user, sliceSuffix) && !strings.Contains(user, "/")
}
