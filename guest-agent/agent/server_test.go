// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"idletime/guest-agent/internal/whiletest"
	"idletime/guest-agent/wire"
)

// serve answers calls with a handler, on a socket in a folder that anybody may enter.
func serve(t *testing.T, handle Handler) string {
	folder, err := os.MkdirTemp("/tmp", "idletime-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "agent.sock")
	server, err := Listen(path, handle)
	if err != nil {
		t.Fatal(err)
	}
	whiletest.Run(t, server.Serve)
	return path
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

func TestTooManyConnections(t *testing.T) {
	path := serve(t, tellPeer)
	var last *wire.Lines
	for range maxConnections {
		conn, lines := dial(t, path)
		_, _ = conn.Write([]byte(`{"version":1,"type":"status"}` + "\n"))
		if reply := answer(t, lines); !reply.OK {
			t.Fatalf("%+v", reply)
		}
	}
	_, last = dial(t, path)
	if reply := answer(t, last); reply.OK || reply.Error.Code != wire.CodeBusy {
		t.Errorf("%+v", reply)
	}
	if _, err := last.Next(); err == nil {
		t.Error("it stays open")
	}
}

func TestASecondAgentIsRefused(t *testing.T) {
	path := serve(t, tellPeer)
	if _, err := Listen(path, nil); err == nil || !strings.Contains(err.Error(), "another agent") {
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
	server, err := Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	server.listener.Close()
}

// TestTheKernelTellsWhoItIs connects as another user; what a client says about itself is not asked.
func TestTheKernelTellsWhoItIs(t *testing.T) {
	if path := os.Getenv("IDLETIME_TEST_SOCKET"); path != "" {
		conn, lines := dial(t, path)
		_, _ = conn.Write([]byte(`{"version":1,"type":"status","UID":0,"uid":0}` + "\n"))
		os.Stdout.Write(answer(t, lines).Result)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	path := serve(t, tellPeer)
	program := filepath.Join(filepath.Dir(path), "agent.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, "-test.run", "^TestTheKernelTellsWhoItIs$")
	command.Env = []string{"IDLETIME_TEST_SOCKET=" + path}
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242}}
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), `"UID":4242`) {
		t.Errorf("%v: %s", err, output)
	}
}
