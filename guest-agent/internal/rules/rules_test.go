// SPDX-License-Identifier: GPL-2.0-or-later

package rules

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/facts"
)

var update = flag.Bool("update", false, "write the golden files")

// users is a guest with two of them.
func users(name string) (uint32, error) {
	switch name {
	case "backup":
		return 34, nil
	case "0", "root":
		return 0, nil
	case "1":
		return 1, nil
	}
	return 0, fmt.Errorf("there is no user %q in /etc/passwd", name)
}

func describe(rules []Rule) string {
	text := ""
	for _, r := range rules {
		text += fmt.Sprintf("line %d %s: executable %v unit %v cgroup %v user %v\n", r.Line, r.Name, r.Executables, r.Units, r.Cgroups, r.UIDs)
	}
	return text
}

// golden runs a function over the files of a folder and compares with the files beside them.
func golden(t *testing.T, folder, suffix string, run func(data []byte) string) {
	files, _ := filepath.Glob("testdata/" + folder + "/*.yaml")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			expected := strings.TrimSuffix(file, ".yaml") + suffix
			got := run(data)
			if *update {
				_ = os.WriteFile(expected, []byte(got), 0o644)
			}
			want, err := os.ReadFile(expected)
			if err != nil || got != string(want) {
				t.Errorf("got\n%s\nwant (%v)\n%s", got, err, want)
			}
		})
	}
}

func TestValid(t *testing.T) {
	golden(t, "valid", ".out", func(data []byte) string {
		rules, err := Parse("rules.yaml", data, users)
		if err != nil {
			return err.Error()
		}
		return describe(rules)
	})
}

func TestInvalid(t *testing.T) {
	golden(t, "invalid", ".err", func(data []byte) string {
		rules, err := Parse("rules.yaml", data, users)
		if err == nil {
			return "taken for " + describe(rules)
		}
		return err.Error() + "\n"
	})
}

func TestTheExampleIsTheOneThatIsInstalled(t *testing.T) {
	ours, _ := os.ReadFile("testdata/valid/example.yaml")
	installed, err := os.ReadFile("../../../examples/guest/rules.yaml")
	if err != nil || string(ours) != string(installed) {
		t.Error("copy examples/guest/rules.yaml to testdata/valid/example.yaml")
	}
}

func TestTooLarge(t *testing.T) {
	if _, err := Parse("rules.yaml", make([]byte, maxBytes+1), users); err == nil {
		t.Error("a file of more than 1 MiB is read")
	}
}

var (
	restic = facts.Process{PID: 10, Exe: "/usr/bin/restic", Cgroup: "/system.slice/backup.service", UIDs: [4]uint32{34, 34, 34, 34}}
	nested = facts.Process{PID: 11, Exe: "/usr/bin/cc", Cgroup: "/system.slice/runner/job1", UIDs: [4]uint32{1, 1, 1, 1}}
	system = facts.Process{PID: 1, Exe: "/usr/lib/systemd/systemd", Cgroup: "/init.scope"}
	thread = facts.Process{PID: 9, Kernel: true, Comm: "kworker/0:1"}
	server = facts.Process{PID: 20, Exe: "/usr/sbin/sshd", Comm: "sshd", Cgroup: "/system.slice/ssh.service"}
	agent  = facts.Process{PID: 30, Exe: "/usr/sbin/idletime-agent", Cgroup: "/system.slice/idletime-agent.service"}
	all    = []facts.Process{system, thread, restic, nested, server, agent}
)

func TestMatch(t *testing.T) {
	for text, want := range map[string][]int{
		"executable: /usr/bin/restic":                  {10},
		"executable: /usr/bin/*":                       {10, 11},
		"executable: /usr/*":                           nil, // a star does not cross a slash
		"{executable: /usr/bin/*, user: backup}":       {10},
		"unit: backup.service":                         {10},
		"unit: 'back*'":                                {10},
		"cgroup: /system.slice/runner":                 {11}, // below it, too
		"cgroup: /system.slice/run":                    nil,
		"user: [backup, 1]":                            {10, 11},
		"{user: backup, cgroup: /system.slice/runner}": nil,
	} {
		decision := decide(t, text)
		var got []int
		for _, process := range all {
			if decision.Wanted[process.PID] != "" {
				got = append(got, process.PID)
			}
		}
		if !reflect.DeepEqual(got, want) || len(decision.Refused) != 0 {
			t.Errorf("%s marks %v, not %v (%v)", text, got, want, decision.Refused)
		}
	}
}

func decide(t *testing.T, rule string) Decision {
	rules, err := Parse("rules.yaml", []byte("rules: ["+flow(rule)+"]"), users)
	if err != nil {
		t.Fatal(rule, err)
	}
	return Decide(rules, all, agent.PID)
}

func flow(rule string) string {
	if strings.HasPrefix(rule, "{") {
		return rule
	}
	return "{" + rule + "}"
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"user: root":                             "pid 1 is the guest's init",
		"executable: /usr/lib/systemd/*":         "pid 1 is the guest's init",
		"unit: ssh.service":                      "is sshd",
		"executable: /usr/sbin/sshd":             "is sshd",
		"unit: idletime-agent.service":           "is the agent itself",
		"cgroup: '/system.slice'":                "is sshd",
		"executable: '/usr/sbin/idletime-agent'": "is the agent itself",
	} {
		decision := decide(t, text)
		if len(decision.Refused) != 1 || !strings.Contains(decision.Refused[0].Reason, want) || len(decision.Wanted) != 0 {
			t.Errorf("%s: %+v, want a refusal with %q and no marks", text, decision, want)
		}
	}
}

// TestAnSSHDOfAUserIsLeftOut: it is not marked, and the rule holds for the rest.
func TestAnSSHDOfAUserIsLeftOut(t *testing.T) {
	alice := [4]uint32{1000, 1000, 1000, 1000}
	processes := []facts.Process{
		{PID: 40, Exe: "/usr/bin/cc", UIDs: alice}, {PID: 41, Exe: "/home/alice/sshd", UIDs: alice},
		{PID: 42, Exe: "/usr/sbin/sshd-session", UIDs: alice},
	}
	decision := Decide([]Rule{{Name: "a", Users: []string{"1000"}, UIDs: []uint32{1000}}}, processes, agent.PID)
	if want := map[int]string{40: "a"}; len(decision.Refused) != 0 || !reflect.DeepEqual(decision.Wanted, want) {
		t.Errorf("%+v, want %v", decision, want)
	}
}

func TestTheFirstRuleWins(t *testing.T) {
	rules := []Rule{{Name: "a", Units: []string{"backup.service"}}, {Name: "b", Executables: []string{"/usr/bin/restic"}}}
	if got := Decide(rules, all, 0).Wanted[10]; got != "a" {
		t.Errorf("marked by %s", got)
	}
}

// FuzzParse: whatever the file holds, it is refused with its name or gives rules with conditions.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := Parse("rules.yaml", data, users)
		if err != nil && !strings.HasPrefix(err.Error(), "rules.yaml") {
			t.Errorf("an error without the file's name: %v", err)
		}
		for _, rule := range rules {
			if len(rule.Executables)+len(rule.Units)+len(rule.Cgroups)+len(rule.UIDs) == 0 {
				t.Errorf("a rule that marks everything: %+v", rule)
			}
		}
		Decide(rules, all, agent.PID)
	})
}
