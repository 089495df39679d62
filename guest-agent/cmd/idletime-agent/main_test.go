// SPDX-License-Identifier: GPL-2.0-or-later

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"idletime.org/guest-agent/idletime"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/rules"
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

// agentProgram is this program as the agent.
func agentProgram(args ...string) *exec.Cmd {
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), "IDLETIME_TEST_MAIN=1")
	return command
}

// TestCheckRefusesARuleForTheAgent, as the agent would.
func TestCheckRefusesARuleForTheAgent(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("rules:\n  - executable: "+program+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	output, err := agentProgram("--check", "--rules", file).CombinedOutput()
	if err == nil || !strings.Contains(string(output), "is the agent itself: it is never marked") {
		t.Errorf("%s", output)
	}
}

// TestWhoChecksStandsForTheAgent: for its user, and not for where the administrator is.
func TestWhoChecksStandsForTheAgent(t *testing.T) {
	process := facts.Process{PID: os.Getpid(), UIDs: [4]uint32{1000, 1000, 1000, 1000}, Cgroup: "/user.slice/session-1.scope"}
	for _, test := range []struct {
		rule    rules.Rule
		refused int
	}{
		{rules.Rule{Cgroups: []string{"/user.slice"}}, 0},
		{rules.Rule{Users: []string{"alice"}, UIDs: []uint32{1000}}, 0},
		{rules.Rule{Users: []string{"root"}, UIDs: []uint32{0}}, 1},
	} {
		decision := rules.Decide([]rules.Rule{test.rule}, asTheAgent([]facts.Process{process}), os.Getpid())
		if len(decision.Refused) != test.refused || len(decision.Wanted) != 0 {
			t.Errorf("%+v: %+v", test.rule, decision)
		}
	}
}

// initScript is the one that is installed, with a folder in place of the system's. Its agent is a script that notes its
// environment.
func initScript(t *testing.T) (script, folder string) {
	t.Helper()
	text, err := os.ReadFile("../../service/idletime-agent.init")
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	script = filepath.Join(folder, "init")
	agent := filepath.Join(folder, "sbin/idletime-agent")
	for path, content := range map[string]string{
		script: strings.NewReplacer(
			"@PREFIX@", folder, "/run/idletime", folder+"/run", "/var/log", folder, "/etc/default", folder+"/default",
		).Replace(string(text)),
		agent: "#!/bin/sh\nenv >" + folder + "/environment.new\nmv " + folder + "/environment.new " + folder + "/environment\n" +
			"trap 'exit 0' TERM\nwhile :; do sleep 0.1; done\n",
		filepath.Join(folder, "default/idletime-agent"): "IDLETIME_LOG_LEVEL=debug\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return script, folder
}

func TestInitScript(t *testing.T) {
	script, folder := initScript(t)
	output, err := exec.Command("sh", script, "reload").CombinedOutput()
	if err == nil || string(output) != "idletime-agent does not run: start it first\n" {
		t.Errorf("reload: %v, %s", err, output)
	}
	t.Cleanup(func() { do(t, "sh", script, "stop") })
	do(t, "sh", script, "start")
	environment := []byte{}
	systemdtest.Eventually(t, "the agent has noted its environment", func() bool {
		environment, err = os.ReadFile(filepath.Join(folder, "environment"))
		return err == nil
	})
	if !strings.Contains(string(environment), "IDLETIME_LOG_LEVEL=debug\n") {
		t.Errorf("what the defaults set is not the agent's: %s", environment)
	}
}

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
	release(t)
}

// release takes back what the last agent has left, and not beside one.
func release(t *testing.T) {
	t.Helper()
	if output, err := agentProgram("--release").CombinedOutput(); err == nil || !strings.Contains(string(output), "another agent listens") {
		t.Errorf("beside an agent: %v, %s", err, output)
	}
	do(t, "systemctl", "stop", "idletime-agent")
	if output, err := agentProgram("--release").CombinedOutput(); err != nil {
		t.Errorf("%v, %s", err, output)
	}
	if left, err := os.ReadDir("/run/idletime/marks"); err != nil || len(left) != 0 {
		t.Errorf("%d marks are left (%v)", len(left), err)
	}
	if got := do(t, "systemctl", "show", "--value", "-p", "CPUWeight", "backup"); got != "[not set]" {
		t.Errorf("backup.service has the weight %s", got)
	}
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
