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
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/wire"
)

// Socket is where the agent listens.
const Socket = wire.Folder + "/" + wire.SocketName

// callTime is how long the agent may take; it waits for the host for up to five seconds.
const callTime = 15 * time.Second

// What the calls take and give.
type (
	// Target says what to mark; exactly one of its fields is set.
	Target = wire.Target
	// Marked says how much was marked or unmarked, and in plain words what the marking does not reach.
	Marked = wire.Marked
	// Asked says whether the host has answered, and what.
	Asked = wire.Asked
	// Status is all that the agent tells about itself.
	Status = wire.Status
	// Error is a refusal of the agent; Code is one of the protocol's, such as "not-permitted".
	Error = wire.Error
)

// Classes that VM and Queue take.
const (
	ClassForeground = wire.Foreground
	ClassBackground = wire.Background
)

// Process is the target of one process, all its threads and the children that it will have.
func Process(pid int) Target { return Target{PID: pid} }

// Client is a connection to the agent, for one goroutine at a time. It may be kept: the agent closes a connection that says
// nothing for a minute, and the next call makes a new one.
type Client struct {
	path  string
	conn  *net.UnixConn
	lines *wire.Lines
	id    int64
}

// Dial connects to the agent. Root takes the socket beside it that only root can open, where nobody else can keep it
// waiting. Errors: none listens there.
func Dial(path string) (*Client, error) {
	client := &Client{path: path}
	if err := client.dial(); err != nil {
		return nil, err
	}
	return client, nil
}

func (c *Client) dial() error {
	var conn *net.UnixConn
	err := fs.ErrNotExist
	if os.Geteuid() == 0 {
		conn, err = dialUnix(filepath.Join(filepath.Dir(c.path), wire.RootSocketName))
	}
	if err != nil {
		conn, err = dialUnix(c.path)
	}
	if err != nil {
		return fmt.Errorf("no agent listens on %s (%w): is idletime-agent running?", c.path, err)
	}
	c.conn, c.lines = conn, wire.NewLines(conn)
	return nil
}

func dialUnix(path string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
}

// Close ends the connection; marks stay.
func (c *Client) Close() error { return c.conn.Close() }

// Mark makes a target background. Errors: an *Error with a code, or that of the connection.
func (c *Client) Mark(target Target) (Marked, error) { return c.MarkUntil(target, time.Time{}) }

// MarkUntil makes a target background until a time, after which the agent takes the mark back within half a minute. The zero
// time is for good.
func (c *Client) MarkUntil(target Target, until time.Time) (result Marked, err error) {
	call := wire.Call{Head: head(wire.TypeMark), Target: &target}
	if !until.IsZero() {
		call.Until = until.Unix()
	}
	err = c.call(call, &result)
	return result, err
}

// Unmark makes a target what it was before.
func (c *Client) Unmark(target Target) (result Marked, err error) {
	err = c.call(wire.Call{Head: head(wire.TypeUnmark), Target: &target}, &result)
	return result, err
}

// VM asks the host for the class of the whole VM, ClassBackground or ClassForeground. Root only.
func (c *Client) VM(class string) (result Asked, err error) {
	err = c.call(wire.Call{Head: head(wire.TypeVM), Class: class}, &result)
	return result, err
}

// Queue asks the host for the class of queues of a device. Root only.
func (c *Client) Queue(device, queues, class string) (result Asked, err error) {
	err = c.call(wire.Call{Head: head(wire.TypeQueue), Device: device, Queues: queues, Class: class}, &result)
	return result, err
}

// Status asks for the agent's status.
func (c *Client) Status() (result Status, err error) {
	err = c.call(wire.Call{Head: head(wire.TypeStatus)}, &result)
	return result, err
}

func head(kind string) wire.Head { return wire.Head{Version: wire.Version, Type: kind} }

// call makes a request. On a connection that the agent has closed meanwhile it is made once more: each may be made twice.
func (c *Client) call(call wire.Call, into any) error {
	c.id++
	call.ID = c.id
	reply, err := c.exchange(call)
	if c.id > 1 && isClosed(err) {
		c.conn.Close()
		if err := c.dial(); err != nil {
			return err
		}
		reply, err = c.exchange(call)
	}
	if err != nil {
		return err
	}
	return take(reply, into)
}

func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// exchange sends a request and reads lines until its reply comes.
func (c *Client) exchange(call wire.Call) (reply wire.Reply, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(callTime)); err != nil {
		return reply, err
	}
	if _, err := c.conn.Write(wire.Encode(call)); err != nil {
		return reply, fmt.Errorf("the agent is gone: %w", err)
	}
	for {
		line, err := c.lines.Next()
		if err != nil {
			return reply, fmt.Errorf("the agent gave no answer: %w", err)
		}
		reply = wire.Reply{}
		if err := json.Unmarshal(line, &reply); err != nil {
			return reply, fmt.Errorf("the agent's answer is not to be read: %w", err)
		}
		if reply.Type == wire.TypeReply && (reply.ID == 0 || reply.ID == call.ID) {
			return reply, nil
		}
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
