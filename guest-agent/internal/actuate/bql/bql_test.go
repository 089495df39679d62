// SPDX-License-Identifier: GPL-2.0-or-later

package bql

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/facts"
)

// nic makes a NIC with a queue for each least limit, and gives their files.
func nic(t *testing.T, root, name, driver string, limits ...string) (files []string) {
	t.Helper()
	folder := filepath.Join(root, "sys/class/net", name)
	for i, limit := range limits {
		queue := filepath.Join(folder, "queues", "tx-"+string(rune('0'+i)), "byte_queue_limits")
		if err := os.MkdirAll(queue, 0o755); err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(queue, "limit_min"))
		if err := os.WriteFile(files[i], []byte(limit+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if driver != "" {
		if err := os.MkdirAll(filepath.Join(folder, "device"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../../../bus/virtio/drivers/"+driver, filepath.Join(folder, "device/driver")); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestLift(t *testing.T) {
	root := t.TempDir()
	// The second queue has a limit of the operator's.
	ours := nic(t, root, "eth0", "virtio_net", "0", "3000", "0")
	others := append(nic(t, root, "eth1", "e1000", "0"), nic(t, root, "lo", "", "0")...)
	expect := func(when string, on bool, want ...string) {
		t.Helper()
		if err := Lift(facts.Root(root), on); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		for i, file := range append(ours, others...) {
			data, _ := os.ReadFile(file)
			if got := strings.TrimSpace(string(data)); got != append(want, "0", "0")[i] {
				t.Errorf("%s: %s has %s", when, file, got)
			}
		}
	}
	expect("lifted", true, lifted, "3000", lifted)
	expect("lifted again", true, lifted, "3000", lifted)
	expect("taken back", false, "0", "3000", "0")
	expect("taken back again", false, "0", "3000", "0")
}

func TestLiftSaysWhatCannotBeWritten(t *testing.T) {
	root := t.TempDir()
	file := nic(t, root, "eth0", "virtio_net", "0")[0]
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Lift(facts.Root(root), true); err == nil || !strings.Contains(err.Error(), "limit_min") {
		t.Errorf("the file is not named: %v", err)
	}
}

func TestLiftWithoutNICs(t *testing.T) {
	if err := Lift(facts.Root(t.TempDir()), true); err != nil {
		t.Error(err)
	}
}
