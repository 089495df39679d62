// SPDX-License-Identifier: GPL-2.0-or-later

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"idletime.org/guest-agent/idletime"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/systemdtest"
)

// TestMain lets the tests run this program as the agent itself.
func TestMain(m *testing.M) {
	if os.Getenv("IDLETIME_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestSystemd(t *testing.T) { systemdtest.Run(t, "^TestInside") }

// do runs a program that must succeed; gives its output.
func do(t *testing.T, words ...string) string {
	t.Helper()
	output, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", words, err, output)
	}
	return strings.TrimSpace(string(output))
}

// installUnit starts the agent by the unit that is installed, with all that it confines the agent to.
func installUnit(t *testing.T) {
	t.Helper()
	unit, err := os.ReadFile("../../service/idletime-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(unit), "@PREFIX@/sbin/idletime-agent", os.Args[0])
	text = strings.Replace(text, "[Service]\n", "[Service]\nEnvironment=IDLETIME_TEST_MAIN=1\n", 1)
	if err := os.WriteFile("/etc/systemd/system/idletime-agent.service", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	do(t, "systemctl", "daemon-reload")
	do(t, "systemctl", "start", "idletime-agent")
	t.Cleanup(func() { _ = exec.Command("systemctl", "stop", "idletime-agent").Run() })
	systemdtest.Eventually(t, "the agent answers", func() bool {
		_, err := idletime.Dial(idletime.Socket)
		return err == nil
	})
}

// TestInsideTheAgentHasTheRightsThatItNeeds: as its unit confines it, it moves, marks, and asks systemd; and nothing of what
// it keeps is open to others.
func TestInsideTheAgentHasTheRightsThatItNeeds(t *testing.T) {
	systemdtest.Inside(t)
	installUnit(t)
	agent, err := idletime.Dial(idletime.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()

	session := exec.Command("systemd-run", "--quiet", "--scope", "--unit", "session-1.scope", "--slice", "user-1000.slice",
		"-p", "TasksMax=infinity", "--uid", "1000", "sh", "-c", "sleep 1000; true")
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Process.Kill(); _ = session.Wait() }()
	pid := session.Process.Pid
	const slice = "/user.slice/user-1000.slice/"
	in := func(group string) func() bool {
		return func() bool { return facts.Root("/").Cgroup(pid) == slice+group }
	}
	systemdtest.Eventually(t, "the session has begun", in("session-1.scope"))
	if result, err := agent.Mark(idletime.Process(pid)); err != nil || !in("idletime-session-1.scope")() {
		t.Errorf("%+v (%v), it is in %s", result, err, facts.Root("/").Cgroup(pid))
	}
	if result, err := agent.Unmark(idletime.Process(pid)); err != nil || !in("session-1.scope")() {
		t.Errorf("%+v (%v), it is in %s", result, err, facts.Root("/").Cgroup(pid))
	}
	do(t, "systemd-run", "--quiet", "--unit", "backup", "sleep", "1000")
	if result, err := agent.Mark(idletime.Target{Unit: "backup"}); err != nil || result.Processes != 1 {
		t.Errorf("%+v (%v)", result, err)
	}
	if got := do(t, "systemctl", "show", "--value", "-p", "CPUWeight", "backup"); got != "idle" {
		t.Errorf("backup.service has the weight %s", got)
	}
	for path, want := range map[string]string{
		"/run/idletime": "drwxr-xr-x", "/run/idletime/marks": "drwx------", "/run/idletime/agent.sock": "Srw-rw-rw-",
		"/run/idletime/root.sock": "Srw-------",
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode().String() != want {
			t.Errorf("%s: %v (%v)", path, info, err)
		}
	}
	asNobody := exec.Command("setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", "cat /run/idletime/marks/* /run/idletime/agent.json")
	if output, err := asNobody.CombinedOutput(); err == nil {
		t.Errorf("nobody reads %s", output)
	}
	restart(t)
}

// restart ends the agent and begins another one, which knows the marks of the first.
func restart(t *testing.T) {
	t.Helper()
	do(t, "systemctl", "stop", "idletime-agent")
	if got := do(t, "systemctl", "show", "--value", "-p", "Result", "idletime-agent"); got != "success" {
		t.Errorf("the agent ended with %s", got)
	}
	do(t, "systemctl", "start", "idletime-agent")
	status := idletime.Status{}
	systemdtest.Eventually(t, "the next agent answers", func() bool {
		agent, err := idletime.Dial(idletime.Socket)
		if err == nil {
			defer agent.Close()
			status, err = agent.Status()
		}
		return err == nil
	})
	if status.Marks.Cgroups != 1 || status.Marks.Processes != 1 || !status.Marks.List[0].Moved {
		t.Errorf("the next agent knows of %+v", status.Marks)
	}
}
