// SPDX-License-Identifier: GPL-2.0-or-later

package idletime

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/actuate/ioprio"
)

func priority(t *testing.T, tid int) int {
	t.Helper()
	value, err := ioprio.Get(tid)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// prioritize gives a thread a priority: a test run may be in the idle class itself, and its children inherit that.
func prioritize(t *testing.T, tid, value int) {
	t.Helper()
	if err := ioprio.Set(tid, value); err != nil {
		t.Fatal(err)
	}
}

func TestBackground(t *testing.T) {
	for _, before := range []int{ioprio.None, ioprio.Idle} {
		t.Run(fmt.Sprintf("%#x", before), func(t *testing.T) { background(t, before) })
	}
}

func background(t *testing.T, before int) {
	// Not unlocked: the thread ends with the goroutine, and its priority with it.
	runtime.LockOSThread()
	prioritize(t, 0, before)
	was := priority(t, 0)
	ours := errors.New("ours")
	err := Background(func() error {
		if got := priority(t, 0); !ioprio.Is(got) {
			t.Errorf("inside it is %#x", got)
		}
		return ours
	})
	if !errors.Is(err, ours) {
		t.Errorf("the function's error became %v", err)
	}
	if got := priority(t, 0); got != was {
		t.Errorf("before it was %#x, afterwards it is %#x", was, got)
	}
}

func TestNoAgent(t *testing.T) {
	_, err := Dial(filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "is idletime-agent running?") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// forgetful answers one call on each connection, and closes it.
func forgetful(t *testing.T, path, word string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			call := Target{}
			_ = json.Unmarshal([]byte(line), &struct {
				ID *int `json:"id"`
			}{&call.PID})
			fmt.Fprintf(conn, `{"version":1,"type":"reply","id":%d,"ok":true,"result":{"lacks":[%q]}}`+"\n", call.PID, word)
			conn.Close()
		}
	}()
}

// TestAClientMayBeKept: the agent closes idle connections, and the next call makes a new one.
func TestAClientMayBeKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	forgetful(t, path, "everybody's")
	agent, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	for range 3 {
		if result, err := agent.Mark(Process(1)); err != nil || result.Lacks[0] != "everybody's" {
			t.Fatalf("%+v (%v)", result, err)
		}
	}
}

// TestRootHasASocketOfItsOwn: nobody else can keep root waiting there.
func TestRootHasASocketOfItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root is root")
	}
	folder := t.TempDir()
	forgetful(t, filepath.Join(folder, "agent.sock"), "everybody's")
	forgetful(t, filepath.Join(folder, "root.sock"), "root's")
	agent, err := Dial(filepath.Join(folder, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	if result, err := agent.Mark(Process(1)); err != nil || result.Lacks[0] != "root's" {
		t.Fatalf("%+v (%v)", result, err)
	}
}

// A function whose disk requests are background; no agent and no right is needed.
func ExampleBackground() {
	err := Background(func() error {
		return os.WriteFile(filepath.Join(os.TempDir(), "idletime-example"), []byte("can wait"), 0o600)
	})
	os.Remove(filepath.Join(os.TempDir(), "idletime-example"))
	fmt.Println(err)
	// Output: <nil>
}
