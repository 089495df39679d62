// SPDX-License-Identifier: GPL-2.0-or-later

package rules

import (
	"path"
	"slices"
	"strings"

	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

// Decision says which process is marked by which rule, and which rules are refused.
type Decision struct {
	// Wanted has the name of the first rule that matches, by pid.
	Wanted  map[int]string
	Refused []wire.RuleRefusal
}

// Decide applies the rules to the processes. `self` is the agent's pid.
//
// A rule that matches init, a thread of the kernel, the agent or root's sshd is refused as a whole: who wrote it meant something
// else. An sshd of another user, or of a login session, is left out.
func Decide(rules []Rule, processes []facts.Process, self int) Decision {
	decision := Decision{Wanted: map[int]string{}, Refused: []wire.RuleRefusal{}}
	for _, rule := range rules {
		matching, reason := rule.matches(processes, self)
		if reason != "" {
			decision.Refused = append(decision.Refused, wire.RuleRefusal{Rule: rule.Name, Line: rule.Line, Reason: reason})
			continue
		}
		for _, pid := range matching {
			if _, taken := decision.Wanted[pid]; !taken {
				decision.Wanted[pid] = rule.Name
			}
		}
	}
	return decision
}

// matches lists the pids that a rule marks, or says why it must not be followed.
func (r Rule) matches(processes []facts.Process, self int) (pids []int, reason string) {
	for _, process := range processes {
		if !r.Match(process) || process.LeftOut() {
			continue
		}
		if words := process.Protected(self); words != "" {
			return nil, "it would mark a process that is never marked: " + words
		}
		pids = append(pids, process.PID)
	}
	return pids, ""
}

// Match tells whether a process fulfils all conditions of the rule.
func (r Rule) Match(process facts.Process) bool {
	return (len(r.Executables) == 0 || process.Exe != "" && matchAny(r.Executables, process.Exe)) &&
		(len(r.Users) == 0 || slices.Contains(r.UIDs, process.UIDs[0])) &&
		(len(r.Cgroups) == 0 || slices.ContainsFunc(ancestors(process.Cgroup), anyOf(r.Cgroups))) &&
		(len(r.Units) == 0 || slices.ContainsFunc(strings.Split(process.Cgroup, "/"), anyOf(r.Units)))
}

func matchAny(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, text)
		return err == nil && matched
	})
}

func anyOf(patterns []string) func(string) bool {
	return func(text string) bool { return text != "" && matchAny(patterns, text) }
}

// ancestors are a cgroup and all above it, but not the root: a rule for a group holds for what is below it.
func ancestors(cgroup string) (result []string) {
	for ; cgroup != "" && cgroup != "/" && cgroup != "."; cgroup = path.Dir(cgroup) {
		result = append(result, cgroup)
	}
	return result
}
