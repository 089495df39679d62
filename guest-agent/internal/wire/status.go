// SPDX-License-Identifier: GPL-2.0-or-later

package wire

// Status is all that the agent tells about itself; people and --json get the same struct.
type Status struct {
	Agent AgentStatus `json:"agent"`
	Host  HostStatus  `json:"host"`
	Marks Marks       `json:"marks"`
	// Lacks says in plain words what marks do not reach in this guest.
	Lacks []string    `json:"lacks"`
	Rules RulesStatus `json:"rules"`
}

// AgentStatus is the program itself.
type AgentStatus struct {
	Program
	PID int `json:"pid"`
}

// HostStatus is what is known of the host's end. Policy is null unless the host answers.
type HostStatus struct {
	Connected bool    `json:"connected"`
	Answers   bool    `json:"answers"`
	Reason    string  `json:"reason"`
	Request   Request `json:"request"`
	Policy    *Policy `json:"policy"`
}

// Marks is what is marked now. List has the first ones by pid.
type Marks struct {
	Counts
	List  []Mark `json:"list"`
	Cache Cache  `json:"cache"`
}

// Cache is the page cache that each cgroup of background work keeps, and how many are limited so now.
type Cache struct {
	Bytes   int64 `json:"bytes"`
	Cgroups int   `json:"cgroups"`
}

// Mark is one marked process.
type Mark struct {
	PID    int    `json:"pid"`
	Name   string `json:"name"`
	Origin string `json:"origin"`
	// Moved: it is in the background group, so packets, processor time and write-back are marked, too, where the kernel can.
	Moved bool `json:"moved"`
}

// RulesStatus is the state of the rules file.
type RulesStatus struct {
	File string `json:"file"`
	// Count is the number of rules in force, refused ones included.
	Count int `json:"count"`
	// Error is what is wrong with the file as it is now; the rules in force are then those of before.
	Error   string        `json:"error"`
	Refused []RuleRefusal `json:"refused"`
}

// RuleRefusal is a rule that is not followed, because it would mark a process that must not be marked.
type RuleRefusal struct {
	Rule   string `json:"rule"`
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}
