// SPDX-License-Identifier: GPL-2.0-or-later

package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// TestMain lets the tests run this program as the command itself.
func TestMain(m *testing.M) {
	if os.Getenv("IDLETIME_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// call runs the command; gives its output and exit status.
func call(t *testing.T, args ...string) (string, int) {
	t.Helper()
	command := exec.Command(os.Args[0], append([]string{"--socket", filepath.Join(t.TempDir(), "none")}, args...)...)
	command.Env = append(os.Environ(), "IDLETIME_TEST_MAIN=1")
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output), command.ProcessState.ExitCode()
}

func TestRun(t *testing.T) {
	locked := filepath.Join(t.TempDir(), "locked")
	if err := os.WriteFile(locked, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   []string
		output string
		status int
	}{
		{[]string{"run", "--", "sh", "-c", "echo $0 $1; exit 7", "a", "-b"}, "a -b\n", 7},
		{[]string{"run", "sh", "-c", "exit 0"}, "", 0},
		{[]string{"run", "--", "sh", "-c", "kill -TERM $$"}, "", -1},
		{[]string{"run", "--", "no-such-command"}, "idletime: no-such-command: there is no such command\n", 127},
		{[]string{"run", "--", "/no/such"}, "idletime: /no/such: there is no such command\n", 127},
		{[]string{"run", "--", locked}, "idletime: " + locked + ": exec: \"" + locked + "\": permission denied\n", 126},
		{[]string{"run"}, "idletime: requires at least 1 arg(s), only received 0; see 'idletime run --help'\n", 2},
		{[]string{"run", "--by", "6", "--", "true"}, "idletime: --by \"6\" is no time of day: write hours and minutes, such as 06:00\n", 125},
		{[]string{"mark"}, "idletime: at least one of the flags in the group [pid cgroup unit] is required; see 'idletime mark --help'\n", 2},
		{[]string{"mark", "--pid", "1"}, "idletime: pid 1 is the guest's init: it is never marked\n", 1},
		{[]string{"mark", "--unit", ""}, "idletime: --unit is empty: write a name, such as backup.service; see 'idletime mark --help'\n", 2},
		{[]string{"unmark", "--cgroup", ""}, "idletime: --cgroup is empty: write a path, such as /system.slice/backup.service; see 'idletime unmark --help'\n", 2},
		{[]string{"mark", "--pid", "0"}, "idletime: --pid 0 is no process: write its number, such as 4242; see 'idletime mark --help'\n", 2},
		{[]string{"vm", "guest"}, "idletime: invalid argument \"guest\" for \"idletime vm\"; see 'idletime vm --help'\n", 2},
		{[]string{"nonsense"}, "idletime: unknown command \"nonsense\" for \"idletime\"; see 'idletime --help'\n", 2},
		{[]string{"run", "--nonsense"}, "idletime: unknown flag: --nonsense; see 'idletime run --help'\n", 2},
	} {
		output, status := call(t, test.args...)
		if output != test.output || status != test.status {
			t.Errorf("%q: status %d, output %q; want %d, %q", test.args, status, output, test.status, test.output)
		}
	}
}

func TestWithoutAnAgent(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"vm", "background"}, {"queue", "vda", "1", "background"}, {"mark", "--unit", "a"}} {
		output, status := call(t, args...)
		if status != 1 || !strings.Contains(output, "is idletime-agent running?") {
			t.Errorf("%q: status %d, %q", args, status, output)
		}
	}
	output, status := call(t, "run", "-v", "--", "true")
	if status != 0 || !strings.HasPrefix(output, "idletime: only disk requests are marked: no agent listens") {
		t.Errorf("status %d, %q", status, output)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if output, status := call(t, "completion", shell); status != 0 || len(output) < 1000 {
			t.Errorf("%s: status %d, %d bytes", shell, status, len(output))
		}
	}
}

// TestStatus compares what people read with golden files.
func TestStatus(t *testing.T) {
	vdb := wire.Device{Serial: "backup", PCI: "0000:00:05.0", Kernel: "vdb"}
	request := wire.Request{Class: wire.Background, Queues: []wire.Queues{{Device: vdb, Queues: "2-3"}}}
	quiet := wire.Status{
		Agent: wire.AgentStatus{Program: wire.Program{Name: "idletime-agent", Version: "0.1.0"}, PID: 321},
		Host:  wire.HostStatus{Reason: "nobody has opened the channel on the host", Request: wire.Request{Class: wire.Foreground}},
		Rules: wire.RulesStatus{File: "/etc/idletime/rules.yaml"},
	}
	busy := quiet
	busy.Host = wire.HostStatus{Connected: true, Answers: true, Request: request, Policy: &wire.Policy{
		Host: wire.Program{Name: "idletimed", Version: "0.1.0"}, Control: wire.ControlDemote, Class: wire.Background,
		Granted: wire.Request{Class: wire.Background},
		Refused: []wire.Refusal{{What: "queues", Device: vdb, Code: "no-such-queue", Reason: "disk vdb has 2 queues, 0 and 1; queue 3 does not exist"}},
		Devices: []wire.Scheduled{
			{Device: wire.Device{Target: "vda"}, Class: wire.Guest}, {Device: vdb, Class: wire.Foreground, BackgroundQueues: "1"},
		},
	}}
	busy.Marks = wire.Marks{Counts: wire.Counts{Processes: 3, Cgroups: 1}, List: []wire.Mark{
		{PID: 42, Name: "restic", Origin: "rule backups", Moved: true}, {PID: 43, Name: "dd", Origin: "uid 1000"},
	}}
	busy.Lacks = []string{"write-back of buffered writes is not marked: this kernel has no io.prio.class", "a second thing"}
	busy.Rules.Count, busy.Rules.Error = 2, "/etc/idletime/rules.yaml:3: one\n/etc/idletime/rules.yaml:5: two"
	busy.Rules.Refused = []wire.RuleRefusal{{Rule: "all", Line: 2, Reason: "it would mark a process that is never marked: pid 1 is the guest's init: it is never marked"}}
	for name, status := range map[string]wire.Status{"quiet": quiet, "busy": busy} {
		var out bytes.Buffer
		printStatus(&out, status)
		file := "testdata/" + name + ".txt"
		if *update {
			_ = os.MkdirAll("testdata", 0o755)
			_ = os.WriteFile(file, out.Bytes(), 0o644)
		}
		want, err := os.ReadFile(file)
		if err != nil || out.String() != string(want) {
			t.Errorf("got\n%s\nwant (%v)\n%s", out.String(), err, want)
		}
	}
}

// TestOutputDoesNotSteerATerminal: what the host says is printed, and nothing more.
func TestOutputDoesNotSteerATerminal(t *testing.T) {
	var out bytes.Buffer
	printStatus(plain{&out}, wire.Status{Host: wire.HostStatus{Reason: "a\x1b]0;b\a\u009bc\u00e9"}})
	if got := out.String(); !strings.Contains(got, "a?]0;b??c\u00e9\n") {
		t.Errorf("%q", got)
	}
}
