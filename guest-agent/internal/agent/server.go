// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"idletime.org/guest-agent/internal/wire"
)

const (
	// idleTime is how long a connection may go without a whole request before it is closed.
	idleTime = time.Minute
	// replyTime is how long a client may take to read a reply.
	replyTime = 5 * time.Second
)

// Handler answers one call of a peer.
type Handler func(ctx context.Context, peer Peer, call *wire.Call) (result any, problem *wire.Error)

// Peer is who the kernel says is at the other end.
type Peer struct {
	UID uint32
	PID int
}

// Server answers programs of the guest on a Unix socket.
type Server struct {
	Handle Handler
	// Idle is how long a connection may go without a whole request.
	Idle time.Duration

	listener *net.UnixListener
	slots    *slots
	busy     sync.WaitGroup
}

// Listen makes a socket with these permissions. One that nobody listens on is replaced; one that somebody does is an error.
func Listen(path string, mode os.FileMode, handle Handler) (*Server, error) {
	if err := ownFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", path)
	switch {
	case err == nil:
		conn.Close()
		return nil, errors.New(path + ": another agent listens there")
	case errors.Is(err, syscall.EAGAIN):
		return nil, errors.New(path + ": another agent listens there, and is overrun with connections")
	}
	_ = os.Remove(path)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// Nobody else can put a link there meanwhile: the folder is ours.
	if err := os.Chmod(path, mode); err != nil {
		listener.Close()
		return nil, err
	}
	return &Server{Handle: handle, Idle: idleTime, listener: listener, slots: newSlots()}, nil
}

// ownFolder makes the folder of the socket and of what is to be undone, or makes sure that only root can change one that is
// there: who can write to it could put a link, or marks of its own, in our files' place.
func ownFolder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if !info.IsDir() || owner != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is %v of uid %d: it must be a folder that only uid %d can write to (chmod 755, chown)",
			path, info.Mode(), owner, os.Geteuid())
	}
	return nil
}

// Serve accepts until the context ends, then waits for the connections' end.
func (s *Server) Serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { s.listener.Close() })
	defer stop()
	for {
		conn, err := s.listener.AcceptUnix()
		if ctx.Err() != nil {
			break
		} else if err != nil {
			// Out of descriptors: others may end soon.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		s.start(ctx, conn)
	}
	s.busy.Wait()
}

// start serves a connection, or refuses it when its user, or all users together, have too many.
func (s *Server) start(ctx context.Context, conn *net.UnixConn) {
	peer, err := peerOf(conn)
	if err != nil {
		refuse(conn, wire.Errorf(wire.CodeFailed, "%v", err))
		return
	}
	user, problem := s.slots.enter(peer.UID)
	if problem != nil {
		refuse(conn, problem)
		return
	}
	s.busy.Add(1)
	go func() {
		defer s.busy.Done()
		defer s.slots.leave(peer.UID)
		s.converse(ctx, conn, peer, user)
	}()
}

// refuse ends a connection that has just come; nothing has been written to it, so that it does not block.
func refuse(conn *net.UnixConn, problem *wire.Error) {
	_ = reply(conn, 0, nil, problem)
	conn.Close()
}

// converse answers the calls of one connection, one after the other.
func (s *Server) converse(ctx context.Context, conn *net.UnixConn, peer Peer, user *user) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	lines := wire.NewLines(conn)
	for {
		if err := conn.SetReadDeadline(time.Now().Add(s.Idle)); err != nil {
			return
		}
		line, err := lines.Next()
		if err == wire.ErrTooLong {
			err = reply(conn, 0, nil, wire.TooLong())
		} else if err == nil {
			err = s.answer(ctx, conn, peer, user, line)
		}
		if err != nil {
			return
		}
	}
}

// answer answers one line. Calls of root need not wait for each other.
func (s *Server) answer(ctx context.Context, conn *net.UnixConn, peer Peer, user *user, line []byte) error {
	call, problem := wire.ParseCall(line)
	if problem == nil && call.Type == "" {
		return nil
	}
	var result any
	if problem == nil {
		if peer.UID != 0 {
			defer user.wait(ctx)()
		}
		result, problem = s.Handle(ctx, peer, call)
	}
	return reply(conn, call.ID, result, problem)
}

func reply(conn *net.UnixConn, id int64, result any, problem *wire.Error) error {
	message := wire.Reply{Head: wire.Head{Version: wire.Version, Type: wire.TypeReply}, ID: id, OK: problem == nil, Error: problem}
	if problem == nil {
		line := wire.Encode(result)
		message.Result = line[:len(line)-1]
	}
	if err := conn.SetWriteDeadline(time.Now().Add(replyTime)); err != nil {
		return err
	}
	_, err := conn.Write(wire.Encode(message))
	return err
}

// peerOf asks the kernel who connected.
func peerOf(conn *net.UnixConn) (peer Peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer, err
	}
	var credentials *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		credentials, inner = unix.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return peer, err
	}
	return Peer{UID: credentials.Uid, PID: int(credentials.Pid)}, nil
}
