// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"idletime/guest-agent/rules"
	"idletime/guest-agent/wire"
)

// Status is all that the agent tells about itself; people and --json get the same struct.
type Status struct {
	Agent Agent `json:"agent"`
	Host  Host  `json:"host"`
	Marks Marks `json:"marks"`
	// Lacks says in plain words what marks do not reach in this guest.
	Lacks []string `json:"lacks"`
	Rules Rules    `json:"rules"`
}

// Agent is the program itself.
type Agent struct {
	wire.Program
	PID int `json:"pid"`
}

// Host is what is known of the host's end. Policy is null unless the host answers.
type Host struct {
	Connected bool         `json:"connected"`
	Answers   bool         `json:"answers"`
	Reason    string       `json:"reason"`
	Request   wire.Request `json:"request"`
	Policy    *wire.Policy `json:"policy"`
}

// Marks is what is marked now. List has the first ones by pid.
type Marks struct {
	wire.Counts
	List []Mark `json:"list"`
}

// Mark is one marked process.
type Mark struct {
	PID    int    `json:"pid"`
	Name   string `json:"name"`
	Origin string `json:"origin"`
	// Moved: it is in the background group, so packets, processor time and write-back are marked, too, where the kernel can.
	Moved bool `json:"moved"`
}

// Rules is the state of the rules file.
type Rules struct {
	File string `json:"file"`
	// Count is the number of rules in force, refused ones included.
	Count int `json:"count"`
	// Error is what is wrong with the file as it is now; the rules in force are then those of before.
	Error   string          `json:"error"`
	Refused []rules.Refusal `json:"refused"`
}
