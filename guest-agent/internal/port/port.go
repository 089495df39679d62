// SPDX-License-Identifier: GPL-2.0-or-later

// Package port keeps the guest's end of the virtio-serial port: it finds the device, waits for the host, passes lines, and
// begins again when any of it goes away. What the lines mean is not its business.
package port

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"idletime.org/guest-agent/internal/wire"
)

const (
	// lookAgain is the time after which a missing or busy port is looked for again; plugging one in is rare.
	lookAgain = 10 * time.Second
	// hostAgain is the longest wait for the host between two looks; the kernel wakes us when it comes, this is the safety net.
	hostAgain = 10 * time.Second
	// writeTime is what the host may take to read a line. The device buffers far more than one.
	writeTime = 2 * time.Second
)

// Events is what the owner of a port is told, from the port's goroutine.
type Events interface {
	// HostHere says that the host may be listening: the whole state should be sent now.
	HostHere()
	// HostGone says that nobody is at the host's end; `reason` is for people.
	HostGone(reason string)
	// Line is one line from the host. The slice is good until the call returns.
	Line(line []byte)
	// TooLong says that a line was thrown away.
	TooLong()
}

// Port is one port by its name.
type Port struct {
	// Find gives the device node now, "" if there is none.
	Find func() string
	// Events is who listens.
	Events Events

	mu   sync.Mutex
	file *os.File
	// here: somebody may be at the host's end. While not, awaitHost has the file's write side for itself.
	here bool
	// fresh: the next line begins with an empty one, which ends what a predecessor may have left half-written.
	fresh bool
}

// Run serves the port until the context ends.
func (p *Port) Run(ctx context.Context) {
	for ctx.Err() == nil {
		p.Events.HostGone(p.serve(ctx))
		select {
		case <-ctx.Done():
		case <-time.After(lookAgain):
		}
	}
}

// serve opens the port and reads it until it fails; returns why, in words.
func (p *Port) serve(ctx context.Context) string {
	path := p.Find()
	if path == "" {
		return "this guest has no virtio port " + wire.PortName + ": the host has to add the channel"
	}
	file, err := open(path)
	if errors.Is(err, syscall.EBUSY) {
		return path + " is open in another process: is a second agent running?"
	} else if err != nil {
		return err.Error()
	}
	defer p.attach(nil)
	defer file.Close()
	stop := context.AfterFunc(ctx, func() { file.Close() })
	defer stop()
	p.attach(file)
	p.Events.HostHere()
	return p.read(ctx, file)
}

// open does not block, neither here nor later: Go's poller waits for the port together with everything else.
func open(path string) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	if err := onlyOurs(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// onlyOurs makes sure that nobody else can speak for the guest: who can open the port asks the host what root may ask, and
// keeps the agent out, since one process at a time has it open.
func onlyOurs(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if info.Mode().IsRegular() || owner != uint32(os.Geteuid()) || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is %v of uid %d: it must be a device that only uid %d can open (chmod 600, chown)",
			file.Name(), info.Mode(), owner, os.Geteuid())
	}
	return nil
}

func (p *Port) attach(file *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.file, p.here, p.fresh = file, file != nil, true
}

// setHere says whether somebody may be at the host's end; who comes anew gets an empty line first.
func (p *Port) setHere(here bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.here, p.fresh = here, true
}

// read passes lines on. EOF means that nobody is there yet.
func (p *Port) read(ctx context.Context, file *os.File) string {
	for {
		err := p.lines(file)
		if ctx.Err() != nil {
			return "the agent ends"
		}
		if err != io.EOF {
			return err.Error()
		}
		p.setHere(false)
		p.Events.HostGone("nobody has opened the channel on the host")
		if err := awaitHost(file); err != nil {
			return err.Error()
		}
		p.setHere(true)
		p.Events.HostHere()
	}
}

// lines reads until EOF or an error; a line that was cut is thrown away with the reader.
func (p *Port) lines(file *os.File) error {
	lines := wire.NewLines(file)
	for {
		line, err := lines.Next()
		switch err {
		case nil:
			p.Events.Line(line)
		case wire.ErrTooLong:
			p.Events.TooLong()
		default:
			return err
		}
	}
}

// awaitHost returns when the host may have come. The kernel wakes a poller when the host opens its end, and then the port
// can be written; it cannot be read before the host has sent something. HostHere on a false alarm is harmless.
func awaitHost(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	if err := file.SetWriteDeadline(time.Now().Add(hostAgain)); err != nil {
		return err
	}
	err = raw.Write(connected)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// Send writes one line (with its newline). Errors: no port, nobody there, or the host does not read.
func (p *Port) Send(line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil || !p.here {
		return os.ErrClosed
	}
	if p.fresh {
		line = append([]byte{'\n'}, line...)
	}
	if err := p.file.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	_, err := p.file.Write(line)
	p.fresh = err != nil
	return err
}
