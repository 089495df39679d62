// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"idletime.org/guest-agent/internal/whiletest"
	"idletime.org/guest-agent/internal/wire"
)

// uidNobody is the user of that name, in Debian and elsewhere.
const uidNobody = 65534

const ask = `{"version":1,"type":"status","UID":0,"uid":0}` + "\n"

// TestMain lets this program be a client, as another user: the first argument after "client" says what it does.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "client" {
		clients[os.Args[2]](os.Args[3])
		return
	}
	os.Exit(m.Run())
}

var clients = map[string]func(path string){"hold": hold, "flood": flood, "tell": tell}

// hold opens connections until one is refused, prints their number, and keeps them until its input ends.
func hold(path string) {
	kept := []net.Conn{}
	for len(kept) < 500 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		_, _ = conn.Write([]byte(ask))
		line, _ := bufio.NewReader(conn).ReadString('\n')
		if !strings.Contains(line, `"ok":true`) {
			break
		}
		kept = append(kept, conn)
	}
	fmt.Println(len(kept))
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, conn := range kept {
		conn.Close()
	}
}

// flood opens and closes connections, and asks, until its input ends.
func flood(path string) {
	fmt.Println("begins")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		if conn, err := net.Dial("unix", path); err == nil {
			_, _ = conn.Write([]byte(ask))
			conn.Close()
		}
	}
}

// tell prints what the server says about who asks.
func tell(path string) {
	conn, err := net.Dial("unix", path)
	if err == nil {
		_, err = conn.Write([]byte(ask))
	}
	line := ""
	if err == nil {
		line, err = bufio.NewReader(conn).ReadString('\n')
	}
	fmt.Print(line, err, "\n")
}

// as runs this program as another user; gives the first line that it prints. It ends with the test.
func as(t *testing.T, uid uint32, what, path string) string {
	t.Helper()
	program := filepath.Join(filepath.Dir(path), "client")
	if _, err := os.Stat(program); err != nil {
		self, err := os.ReadFile("/proc/self/exe")
		if err == nil {
			err = os.WriteFile(program, self, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(program, "client", what, path)
	command.Dir, command.Env = "/", []string{}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	input, err1 := command.StdinPipe()
	output, err2 := command.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("uid %d, %s: %v", uid, what, err)
	}
	return strings.TrimSpace(line)
}

// needRoot skips tests that become other users.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
}

// expectRoot has root ask, and wants an answer soon.
func expectRoot(t *testing.T, path, when string) {
	t.Helper()
	begin := time.Now()
	conn, lines := dial(t, path)
	defer conn.Close()
	_, _ = conn.Write([]byte(ask))
	if reply := answer(t, lines); !reply.OK {
		t.Errorf("%s: root gets %+v", when, reply.Error)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("%s: root waited %v", when, took)
	}
}

// TestNobodyLocksOut: one user has at most 16 connections, all but root together 64; root gets in.
func TestNobodyLocksOut(t *testing.T) {
	needRoot(t)
	path := serve(t, tellPeer)
	if got := as(t, uidNobody, "hold", path); got != strconv.Itoa(maxUser) {
		t.Errorf("nobody has %s connections, not %d", got, maxUser)
	}
	expectRoot(t, path, "beside nobody")
	for uid := range uint32(3) {
		if got := as(t, 4242+uid, "hold", path); got != strconv.Itoa(maxUser) {
			t.Errorf("user %d has %s connections, not %d", 4242+uid, got, maxUser)
		}
	}
	if got := as(t, 5000, "hold", path); got != "0" {
		t.Errorf("one user too many has %s connections", got)
	}
	expectRoot(t, path, "beside all users")
}

// TestRootHasALimitOfItsOwn: a leak of root's programs does not grow for ever either.
func TestRootHasALimitOfItsOwn(t *testing.T) {
	needRoot(t)
	path := serve(t, tellPeer)
	for range maxRoot {
		conn, lines := dial(t, path)
		_, _ = conn.Write([]byte(ask))
		if reply := answer(t, lines); !reply.OK {
			t.Fatalf("%+v", reply)
		}
	}
	_, last := dial(t, path)
	if reply := answer(t, last); reply.OK || reply.Error.Code != wire.CodeBusy {
		t.Errorf("%+v", reply)
	}
	if _, err := last.Next(); err == nil {
		t.Error("it stays open")
	}
	if got := as(t, uidNobody, "hold", path); got != strconv.Itoa(maxUser) {
		t.Errorf("root's connections leave nobody %s", got)
	}
}

// TestSlotsAreGivenBack: connections that end make room for others, however often.
func TestSlotsAreGivenBack(t *testing.T) {
	server, path := makeServer(t, tellPeer)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { server.Serve(ctx); close(done) }()
	for range 3 * maxRoot {
		conn, lines := dial(t, path)
		_, _ = conn.Write([]byte(ask))
		_ = answer(t, lines)
		conn.Close()
	}
	cancel()
	<-done
	if server.slots.others != 0 || len(server.slots.users) != 0 {
		t.Errorf("%d others and %d users are left", server.slots.others, len(server.slots.users))
	}
}

// TestRootBesideAFlood: users that connect and go as fast as they can fill the queue of their socket, and not that of root's.
func TestRootBesideAFlood(t *testing.T) {
	needRoot(t)
	path := serve(t, tellPeer)
	own, err := Listen(filepath.Join(filepath.Dir(path), wire.RootSocketName), 0o600, tellPeer)
	if err != nil {
		t.Fatal(err)
	}
	whiletest.Run(t, own.Serve)
	if got := as(t, uidNobody, "tell", filepath.Join(filepath.Dir(path), wire.RootSocketName)); !strings.Contains(got, "permission denied") {
		t.Errorf("nobody opens root's socket: %s", got)
	}
	for _, uid := range []uint32{uidNobody, uidNobody, 4242, 4243} {
		as(t, uid, "flood", path)
	}
	for range 50 {
		expectRoot(t, filepath.Join(filepath.Dir(path), wire.RootSocketName), "beside a flood")
	}
}

// TestOneCallOfAUserAtATime: however many connections a user has, one call is answered at a time, and root's beside it.
func TestOneCallOfAUserAtATime(t *testing.T) {
	slots := newSlots()
	var answering sync.Mutex
	var all sync.WaitGroup
	for range maxUser {
		user, problem := slots.enter(uidNobody)
		if problem != nil {
			t.Fatal(problem)
		}
		all.Add(1)
		go func() {
			defer all.Done()
			defer user.wait(context.Background())()
			if !answering.TryLock() {
				t.Error("two calls of one user are answered at a time")
				return
			}
			for range 1000 {
				runtime.Gosched()
			}
			answering.Unlock()
		}()
	}
	all.Wait()
	user, _ := slots.enter(uidNobody + 1)
	ended, cancel := context.WithCancel(context.Background())
	done := user.wait(ended)
	cancel()
	user.wait(ended)()
	done()
}

// TestTheKernelTellsWhoItIs connects as another user; what a client says about itself is not asked.
func TestTheKernelTellsWhoItIs(t *testing.T) {
	needRoot(t)
	if got := as(t, 4242, "tell", serve(t, tellPeer)); !strings.Contains(got, `"UID":4242`) {
		t.Errorf("%s", got)
	}
}
