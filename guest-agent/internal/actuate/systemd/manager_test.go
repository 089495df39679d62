// SPDX-License-Identifier: GPL-2.0-or-later

package systemd

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"
)

// silent listens and reads, and never says anything.
func silent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "private")
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
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				conn.Close()
			}()
		}
	}()
	return path
}

// TestASilentSystemdIsNotWaitedFor: a call ends in time, and the next one does not wait at all.
func TestASilentSystemdIsNotWaitedFor(t *testing.T) {
	manager := &Manager{socket: silent(t), callTime: 50 * time.Millisecond}
	if _, err := manager.ControlGroup("a.service"); err == nil || !strings.Contains(err.Error(), "did not answer within 50ms") {
		t.Errorf("%v", err)
	}
	manager.callTime = time.Hour
	for range 3 {
		if err := manager.Move(1, "/user.slice/user-1.slice/session-1.scope"); err == nil || !strings.Contains(err.Error(), "asked again after") {
			t.Errorf("%v", err)
		}
	}
}

func TestNoSystemd(t *testing.T) {
	manager := &Manager{socket: filepath.Join(t.TempDir(), "none"), callTime: time.Hour}
	if err := manager.Quiet("a.service", nil); err == nil || errors.Is(err, ErrNoUnit) {
		t.Errorf("%v", err)
	}
}

func TestErrors(t *testing.T) {
	for name, want := range map[string]bool{
		"org.freedesktop.systemd1.NoSuchUnit": true, "org.freedesktop.systemd1.LoadFailed": true,
		"org.freedesktop.DBus.Error.AccessDenied": false,
	} {
		err := explain("a.service", godbus.Error{Name: name})
		if errors.Is(err, ErrNoUnit) != want || !strings.Contains(err.Error(), "a.service") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnOldSystemdIsAskedForWhatItKnows: CPUWeight=idle came with 252.
func TestAnOldSystemdIsAskedForWhatItKnows(t *testing.T) {
	for modern, want := range map[bool]uint64{true: 0, false: 1} {
		properties := scopeProperties("/user.slice/user-7.slice/idletime-session-1.scope", 9, modern)
		found := false
		for _, each := range properties {
			found = found || each.Name == "CPUWeight" && each.Value.Value() == want
		}
		if !found {
			t.Errorf("modern %v: %v", modern, properties)
		}
	}
}

func TestKind(t *testing.T) {
	for unit, want := range map[string]string{"a.service": "Service", "user-1.slice": "Slice", "a.b.scope": "Scope", "a": "Service"} {
		if got := kind(unit); got != want {
			t.Errorf("%s is a %s, not a %s", unit, got, want)
		}
	}
}
