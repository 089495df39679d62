// SPDX-License-Identifier: GPL-2.0-or-later

package port

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"idletime.org/guest-agent/internal/whiletest"
	"idletime.org/guest-agent/internal/wire"
)

// events writes down what a port tells.
type events chan string

func (e events) HostHere()           { e <- "here" }
func (e events) HostGone(why string) { e <- "gone: " + why }
func (e events) Line(line []byte)    { e <- "line: " + string(line) }
func (e events) TooLong()            { e <- "too long" }

func (e events) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-e:
		if !strings.HasPrefix(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("nothing came, want %q", want)
	}
}

// loop is a FIFO as the device: what is sent comes back. The real device is that of the end-to-end tests.
func loop(t *testing.T) (*Port, events) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "port")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	told := make(events, 100)
	port := &Port{Find: func() string { return path }, Events: told}
	whiletest.Run(t, port.Run)
	told.expect(t, "here")
	return port, told
}

func TestLines(t *testing.T) {
	port, told := loop(t)
	for _, line := range []string{"one\n", "two\n"} {
		if err := port.Send([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	// The first line of a newcomer begins with an empty one.
	for _, want := range []string{"line: ", "line: one", "line: two"} {
		told.expect(t, want)
	}
}

func TestTooLong(t *testing.T) {
	port, told := loop(t)
	told.expectAfter(t, port, strings.Repeat("a", wire.MaxLine)+"\n", "line: ", "too long")
	told.expectAfter(t, port, "next\n", "line: next")
}

func (e events) expectAfter(t *testing.T, port *Port, line string, want ...string) {
	t.Helper()
	if err := port.Send([]byte(line)); err != nil {
		t.Fatal(err)
	}
	for _, each := range want {
		e.expect(t, each)
	}
}

func TestNoPort(t *testing.T) {
	for path, want := range map[string]string{"": "this guest has no virtio port", "/no/such": "open /no/such: no such file"} {
		port := &Port{Find: func() string { return path }}
		if got := port.serve(context.Background()); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s", path, got)
		}
		if err := port.Send([]byte("x\n")); err == nil {
			t.Error("it sends without a port")
		}
	}
}

// TestAPortOfOthersIsNotUsed: who could open it, too, could ask the host in the agent's place.
func TestAPortOfOthersIsNotUsed(t *testing.T) {
	folder := t.TempDir()
	open, regular, link := filepath.Join(folder, "open"), filepath.Join(folder, "regular"), filepath.Join(folder, "link")
	err := errors.Join(syscall.Mkfifo(open, 0o600), os.Chmod(open, 0o660), os.WriteFile(regular, nil, 0o600), os.Symlink(open, link))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{open: "only uid", regular: "only uid", link: "too many levels of symbolic links"} {
		port := &Port{Find: func() string { return path }}
		if got := port.serve(context.Background()); !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}
