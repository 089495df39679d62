// SPDX-License-Identifier: GPL-2.0-or-later

// Package wire has the messages of the agent's two protocols, as PROTOCOL.md defines them, and reads and writes their
// lines. It does no I/O of its own.
package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
)

const (
	// Version is the only version of both protocols so far.
	Version = 1
	// MaxLine is the longest line in bytes, with its newline.
	MaxLine = 65536
	// PortName is the name of the virtio-serial port.
	PortName = "org.idletime.agent.0"
	// Folder is where the agent keeps its sockets and its state.
	Folder = "/run/idletime"
	// SocketName is the socket for every program of the guest.
	SocketName = "agent.sock"
	// RootSocketName is the socket that only root can open: nobody else can fill its queue.
	RootSocketName = "root.sock"

	// maxSession is the longest session name in characters: what is repeated in each message stays short.
	maxSession = 64
	// maxQueueEntries bounds what one request can make the host do.
	maxQueueEntries = 64
	// maxRequest is the longest request in bytes: a state with it is a line.
	maxRequest = MaxLine - 4096
)

// Class names. Guest appears only in what the host tells.
const (
	Foreground = "foreground"
	Background = "background"
	Guest      = "guest"
)

// What a host's policy allows a guest.
const (
	ControlNone   = "none"
	ControlDemote = "demote"
)

// Types of messages.
const (
	TypeState  = "state"
	TypePolicy = "policy"
	TypeError  = "error"
	TypeReply  = "reply"
	TypeStatus = "status"
	TypeMark   = "mark"
	TypeUnmark = "unmark"
	TypeVM     = "vm"
	TypeQueue  = "queue"
)

// Head is what every message has.
type Head struct {
	Version int    `json:"version"`
	Type    string `json:"type"`
}

// Program says who talks, for people.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Device names a device in as many ways as the guest knows; the host takes the first of target, serial, mac and pci.
type Device struct {
	Target string `json:"target,omitempty"`
	Serial string `json:"serial,omitempty"`
	MAC    string `json:"mac,omitempty"`
	PCI    string `json:"pci,omitempty"`
	Kernel string `json:"kernel,omitempty"`
}

// Name is the shortest name that a person knows.
func (d Device) Name() string { return cmp.Or(d.Kernel, d.Target, d.Serial, d.MAC, d.PCI) }

// Queues is a device with a list of its queues.
type Queues struct {
	Device Device `json:"device"`
	Queues string `json:"queues"`
}

// Request is the whole wish of a guest.
type Request struct {
	Class  string   `json:"class"`
	Queues []Queues `json:"queues"`
}

// Counts says how much is marked in the guest, for people.
type Counts struct {
	Processes int `json:"processes"`
	Cgroups   int `json:"cgroups"`
}

// State is what the agent repeats to the host.
type State struct {
	Head
	Session  string  `json:"session"`
	Sequence uint64  `json:"sequence"`
	Agent    Program `json:"agent"`
	Request  Request `json:"request"`
	Marks    *Counts `json:"marks,omitempty"`
}

// Answers names the state that a policy takes into account.
type Answers struct {
	Session  string `json:"session"`
	Sequence uint64 `json:"sequence"`
}

// Refusal is a part of a request that is not in force, and why.
type Refusal struct {
	What   string `json:"what"`
	Device Device `json:"device,omitempty"`
	Queues string `json:"queues,omitempty"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// Scheduled is a device that the host schedules, with its class and background queues in force.
type Scheduled struct {
	Device           Device `json:"device"`
	Class            string `json:"class"`
	BackgroundQueues string `json:"background_queues"`
}

// Policy is what the host repeats to the agent. Devices is nil where the host does not tell.
type Policy struct {
	Head
	Session string      `json:"session"`
	Answers *Answers    `json:"answers"`
	Host    Program     `json:"host"`
	Control string      `json:"control"`
	Class   string      `json:"class"`
	Granted Request     `json:"granted"`
	Refused []Refusal   `json:"refused"`
	Devices []Scheduled `json:"devices"`
}

// Error is a line that could not be used, or a request that was refused. It is a Go error, too.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Speaks  []int  `json:"speaks,omitempty"`
}

// Error gives the message alone; it is written for people.
func (e *Error) Error() string { return e.Message }

// Codes of errors.
const (
	CodeMalformed    = "malformed"
	CodeTooLong      = "too-long"
	CodeVersion      = "version"
	CodeUnknownType  = "unknown-type"
	CodeNotPermitted = "not-permitted"
	CodeProtected    = "protected"
	CodeNotFound     = "not-found"
	CodeNotMarked    = "not-marked"
	CodeBusy         = "busy"
	CodeFailed       = "failed"
)

// Errorf makes an Error with a formatted message.
func Errorf(code, format string, values ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, values...)}
}

// TooLong is the error about a line above MaxLine.
func TooLong() *Error {
	return Errorf(CodeTooLong, "a line of more than %d bytes was thrown away", MaxLine)
}

// ErrorLine is an Error as a message of the port.
type ErrorLine struct {
	Head
	Error
}

// Encode gives a message as one line. It panics on a value that JSON cannot hold, which no message of ours is.
func Encode(message any) []byte {
	data, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("wire: %v", err))
	}
	return append(data, '\n')
}

// ParseHead reads version and type of a line. An empty line has type "".
func ParseHead(line []byte) (Head, *Error) {
	var head struct {
		Version *int    `json:"version"`
		Type    *string `json:"type"`
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return Head{}, nil
	}
	if err := decode(line, &head); err != nil {
		return Head{}, err
	}
	switch {
	case head.Version == nil:
		return Head{}, Errorf(CodeMalformed, "version is missing: it must be %d", Version)
	case *head.Version != Version:
		err := Errorf(CodeVersion, "version %d is not spoken here", *head.Version)
		err.Speaks = []int{Version}
		return Head{}, err
	case head.Type == nil || *head.Type == "":
		return Head{}, Errorf(CodeMalformed, "type is missing")
	}
	return Head{*head.Version, *head.Type}, nil
}

// ParsePolicy reads a line of type policy.
func ParsePolicy(line []byte) (*Policy, *Error) {
	policy := &Policy{}
	if err := decode(line, policy); err != nil {
		return nil, err
	}
	return policy, policy.check()
}

// ParseState reads a line of type state; it is the host's part, and here for tests and for programs of hosts.
func ParseState(line []byte) (*State, *Error) {
	state := &State{}
	if err := decode(line, state); err != nil {
		return nil, err
	}
	return state, state.check()
}

// decode reads one JSON object; nothing may follow it.
func decode(line []byte, into any) *Error {
	if trimmed := bytes.TrimSpace(line); len(trimmed) == 0 || trimmed[0] != '{' {
		return Errorf(CodeMalformed, "not a JSON object")
	}
	if err := json.Unmarshal(line, into); err != nil {
		return Errorf(CodeMalformed, "not a message: %v", err)
	}
	return nil
}
