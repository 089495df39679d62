// SPDX-License-Identifier: GPL-2.0-or-later

package wire

import "encoding/json"

// Target says what to mark; exactly one field is set.
type Target struct {
	PID    int    `json:"pid,omitempty"`
	Cgroup string `json:"cgroup,omitempty"`
	Unit   string `json:"unit,omitempty"`
}

// Call is a request of a program to the agent; which fields count depends on Type.
type Call struct {
	Head
	ID     int64   `json:"id"`
	Target *Target `json:"target,omitempty"`
	Class  string  `json:"class,omitempty"`
	Device string  `json:"device,omitempty"`
	Queues string  `json:"queues,omitempty"`
	// Until is when the agent takes a mark back by itself, in seconds since 1970; 0 is never.
	Until int64 `json:"until,omitempty"`
}

// Reply is the agent's answer to a Call.
type Reply struct {
	Head
	ID     int64           `json:"id"`
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Marked is the result of mark and unmark. Lacks says in plain words what the marking does not reach.
type Marked struct {
	Processes int      `json:"processes"`
	Threads   int      `json:"threads"`
	Lacks     []string `json:"lacks"`
}

// Asked is the result of vm and queue.
type Asked struct {
	Answered bool   `json:"answered"`
	Granted  bool   `json:"granted"`
	Reason   string `json:"reason"`
}

// ParseCall reads a line of the socket.
func ParseCall(line []byte) (*Call, *Error) {
	head, problem := ParseHead(line)
	call := &Call{Head: head}
	if problem != nil || head.Type == "" {
		// The id is worth having even where the rest is not.
		_ = json.Unmarshal(line, &struct {
			ID *int64 `json:"id"`
		}{&call.ID})
		return call, problem
	}
	if err := decode(line, call); err != nil {
		return &Call{}, err
	}
	return call, call.check()
}

func (c *Call) check() *Error {
	switch c.Type {
	case TypeStatus:
		return nil
	case TypeMark, TypeUnmark:
		if c.Until < 0 {
			return Errorf(CodeMalformed, "until is %d: it must be seconds since 1970", c.Until)
		}
		return c.Target.check()
	case TypeVM:
		return CheckClass("class", c.Class)
	case TypeQueue:
		return c.checkQueue()
	}
	return Errorf(CodeUnknownType, "type %q is unknown: use status, mark, unmark, vm or queue", c.Type)
}

func (c *Call) checkQueue() *Error {
	if c.Device == "" {
		return Errorf(CodeMalformed, "device is missing: name one, such as vdb or serial:backup")
	}
	if err := CheckClass("class", c.Class); err != nil {
		return err
	}
	numbers, err := ParseQueues(c.Queues)
	if err == nil && len(numbers) == 0 {
		return Errorf(CodeMalformed, "queues is empty: list queues, such as 2-3,6")
	}
	return err
}

func (t *Target) check() *Error {
	if t == nil {
		return Errorf(CodeMalformed, "target is missing: give it a pid, a cgroup or a unit")
	}
	set := 0
	for _, each := range []bool{t.PID != 0, t.Cgroup != "", t.Unit != ""} {
		if each {
			set++
		}
	}
	if set != 1 {
		return Errorf(CodeMalformed, "target must have exactly one of pid, cgroup and unit: it has %d", set)
	}
	if t.PID < 0 {
		return Errorf(CodeMalformed, "target.pid is %d: it must be positive", t.PID)
	}
	return nil
}
