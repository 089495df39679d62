// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"idletime/guest-agent/wire"
)

const (
	// maxConnections bounds what all users of the guest together can make the agent hold.
	maxConnections = 64
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

	listener *net.UnixListener
	slots    chan struct{}
	busy     sync.WaitGroup
}

// Listen makes the socket. One that nobody listens on is replaced; one that somebody does is an error.
func Listen(path string, handle Handler) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, errors.New(path + ": another agent listens there")
	}
	_ = os.Remove(path)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		listener.Close()
		return nil, err
	}
	return &Server{Handle: handle, listener: listener, slots: make(chan struct{}, maxConnections)}, nil
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

// start serves a connection, or refuses it when there are too many.
func (s *Server) start(ctx context.Context, conn *net.UnixConn) {
	select {
	case s.slots <- struct{}{}:
		s.busy.Add(1)
		go func() {
			defer s.busy.Done()
			defer func() { <-s.slots }()
			s.converse(ctx, conn)
		}()
	default:
		reply(conn, 0, nil, wire.Errorf(wire.CodeBusy, "%d connections are open: that is the limit", maxConnections))
		conn.Close()
	}
}

// converse answers the calls of one connection, one after the other.
func (s *Server) converse(ctx context.Context, conn *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	peer, err := peerOf(conn)
	if err != nil {
		reply(conn, 0, nil, wire.Errorf(wire.CodeFailed, "%v", err))
		return
	}
	lines := wire.NewLines(conn)
	for {
		line, err := lines.Next()
		if err == wire.ErrTooLong {
			err = reply(conn, 0, nil, wire.TooLong())
		} else if err == nil {
			err = s.answer(ctx, conn, peer, line)
		}
		if err != nil {
			return
		}
	}
}

func (s *Server) answer(ctx context.Context, conn *net.UnixConn, peer Peer, line []byte) error {
	call, problem := wire.ParseCall(line)
	if problem == nil && call.Type == "" {
		return nil
	}
	var result any
	if problem == nil {
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
