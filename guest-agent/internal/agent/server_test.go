// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"idletime.org/guest-agent/internal/whiletest"
	"idletime.org/guest-agent/internal/wire"
)

// serve answers calls with a handler, on a socket in a folder that anybody may enter.
func serve(t *testing.T, handle Handler) string {
	t.Helper()
	server, path := makeServer(t, handle)
	whiletest.Run(t, server.Serve)
	return path
}

// makeServer is a server that does not serve yet.
func makeServer(t *testing.T, handle Handler) (*Server, string) {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "idletime-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "agent.sock")
	server, err := Listen(path, 0o666, handle)
	if err != nil {
		t.Fatal(err)
	}
	return server, path
}

// tellPeer answers calls with who the kernel says has called.
func tellPeer(_ context.Context, peer Peer, _ *wire.Call) (any, *wire.Error) { return peer, nil }

func dial(t *testing.T, path string) (*net.UnixConn, *wire.Lines) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn, wire.NewLines(conn)
}

func answer(t *testing.T, lines *wire.Lines) wire.Reply {
	t.Helper()
	line, err := lines.Next()
	if err != nil {
		t.Fatal(err)
	}
	reply := wire.Reply{}
	if err := json.Unmarshal(line, &reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestConversation(t *testing.T) {
	conn, lines := dial(t, serve(t, tellPeer))
	_, _ = conn.Write([]byte("\n" + `{"version":1,"type":"status","id":3}` + "\n" + `{"version":1,"id":4,"type":"x"}` + "\nrubbish\n" +
		`{"version":8,"id":5}` + "\n" + strings.Repeat("a", 2*wire.MaxLine) + "\n" + `{"version":1,"type":"status","id":6}` + "\n"))
	for _, want := range []struct {
		id   int64
		code string
	}{{3, ""}, {4, "unknown-type"}, {0, "malformed"}, {5, "version"}, {0, "too-long"}, {6, ""}} {
		reply := answer(t, lines)
		got := ""
		if reply.Error != nil {
			got = reply.Error.Code
		}
		if reply.ID != want.id || got != want.code || reply.OK != (got == "") {
			t.Errorf("got %+v (%s), want %+v", reply, got, want)
		}
	}
}

func TestASecondAgentIsRefused(t *testing.T) {
	path := serve(t, tellPeer)
	if _, err := Listen(path, 0o666, nil); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("%v", err)
	}
}

func TestADeadSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	server, err := Listen(path, 0o666, nil)
	if err != nil {
		t.Fatal(err)
	}
	server.listener.Close()
}

// TestFoldersOfOthersAreRefused: who can write to the folder could put a link in the socket's place.
func TestFoldersOfOthersAreRefused(t *testing.T) {
	open, link := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "link")
	err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o777), os.Symlink(t.TempDir(), link))
	if err != nil {
		t.Fatal(err)
	}
	folders := []string{open, link}
	if os.Geteuid() == 0 {
		theirs := t.TempDir()
		if err := os.Chown(theirs, 4242, 4242); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, theirs)
	}
	for _, folder := range folders {
		if _, err := Listen(filepath.Join(folder, "s"), 0o666, nil); err == nil || !strings.Contains(err.Error(), "only uid") {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

func TestIdleConnectionsEnd(t *testing.T) {
	server, path := makeServer(t, tellPeer)
	server.Idle = 20 * time.Millisecond
	whiletest.Run(t, server.Serve)
	for what, bytes := range map[string]string{"silent": "", "a line that never ends": `{"version":1,`} {
		conn, lines := dial(t, path)
		_, _ = conn.Write([]byte(bytes))
		if line, err := lines.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %q (%v)", what, line, err)
		}
	}
}
