// SPDX-License-Identifier: GPL-2.0-or-later

// Package idletime lets a program of the guest mark itself, or others, as background.
//
//	err := idletime.Background(func() error { return backUp(ctx) })
//
// does without the agent, for the disk requests of one function. With the agent, whole processes are marked, and their
// packets, processor time and write-back, too, where the kernel can:
//
//	agent, err := idletime.Dial(idletime.Socket)
//	...
//	result, err := agent.Mark(idletime.Process(os.Getpid()))
package idletime

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"idletime/guest-agent/actuate/ioprio"
	"idletime/guest-agent/wire"
)

// Socket is where the agent listens.
const Socket = wire.SocketPath

// callTime is how long the agent may take; it waits for the host for up to five seconds.
const callTime = 15 * time.Second

// Target says what to mark.
type Target = wire.Target

// Process is the target of one process, all its threads and the children that it will have.
func Process(pid int) Target { return Target{PID: pid} }

// Client is a connection to the agent, for one goroutine at a time.
type Client struct {
	conn  *net.UnixConn
	lines *wire.Lines
	id    int64
}

// Dial connects to the agent. Errors: none listens there.
func Dial(path string) (*Client, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("no agent listens on %s (%w): is idletime-agent running?", path, err)
	}
	return &Client{conn: conn, lines: wire.NewLines(conn)}, nil
}

// Close ends the connection; marks stay.
func (c *Client) Close() error { return c.conn.Close() }

// Mark makes a target background. Errors: a *wire.Error with a code, or that of the connection.
func (c *Client) Mark(target Target) (result wire.Marked, err error) {
	err = c.call(wire.Call{Head: head(wire.TypeMark), Target: &target}, &result)
	return result, err
}

// Unmark makes a target what it was before.
func (c *Client) Unmark(target Target) (result wire.Marked, err error) {
	err = c.call(wire.Call{Head: head(wire.TypeUnmark), Target: &target}, &result)
	return result, err
}

// VM asks the host for the class of the whole VM, wire.Background or wire.Foreground. Root only.
func (c *Client) VM(class string) (result wire.Asked, err error) {
	err = c.call(wire.Call{Head: head(wire.TypeVM), Class: class}, &result)
	return result, err
}

// Queue asks the host for the class of queues of a device. Root only.
func (c *Client) Queue(device, queues, class string) (result wire.Asked, err error) {
	err = c.call(wire.Call{Head: head(wire.TypeQueue), Device: device, Queues: queues, Class: class}, &result)
	return result, err
}

// Status reads the agent's status into a struct, or into a json.RawMessage.
func (c *Client) Status(into any) error {
	return c.call(wire.Call{Head: head(wire.TypeStatus)}, into)
}

func head(kind string) wire.Head { return wire.Head{Version: wire.Version, Type: kind} }

func (c *Client) call(call wire.Call, into any) error {
	c.id++
	call.ID = c.id
	if err := c.conn.SetDeadline(time.Now().Add(callTime)); err != nil {
		return err
	}
	if _, err := c.conn.Write(wire.Encode(call)); err != nil {
		return fmt.Errorf("the agent is gone: %w", err)
	}
	for {
		line, err := c.lines.Next()
		if err != nil {
			return fmt.Errorf("the agent gave no answer: %w", err)
		}
		reply := wire.Reply{}
		if err := json.Unmarshal(line, &reply); err != nil {
			return fmt.Errorf("the agent's answer is not to be read: %w", err)
		}
		if reply.Type != wire.TypeReply || reply.ID != 0 && reply.ID != call.ID {
			continue
		}
		return take(reply, into)
	}
}

func take(reply wire.Reply, into any) error {
	switch {
	case reply.Error != nil:
		return reply.Error
	case !reply.OK:
		return errors.New("the agent says neither yes nor why not")
	}
	return json.Unmarshal(reply.Result, into)
}

// Background runs a function whose disk requests are background, without the agent and without any right.
//
// It holds for what the function does itself, in this goroutine; goroutines that it starts run elsewhere. Programs that it
// starts inherit it. Errors: the function's own, or that of the kernel.
func Background(work func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := ioprio.Get(0)
	if err != nil {
		return err
	}
	if err := ioprio.Set(0, ioprio.Idle); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ioprio.Set(0, ioprio.Before(before, 0))) }()
	return work()
}
