// SPDX-License-Identifier: GPL-2.0-or-later

package systemd

import "testing"

func TestUnit(t *testing.T) {
	for group, want := range map[string][2]string{
		"/system.slice/backup.service":                                {"backup.service", "/system.slice/backup.service"},
		"/system.slice/docker-1.scope/a/b.service":                    {"docker-1.scope", "/system.slice/docker-1.scope"},
		"/user.slice/user-5.slice/user@5.service/app.slice/x.service": {"user@5.service", "/user.slice/user-5.slice/user@5.service"},
		"/user.slice/user-5.slice":                                    {"user-5.slice", "/user.slice/user-5.slice"},
		"/system.slice/_cpu.service":                                  {"cpu.service", "/system.slice/_cpu.service"},
		"/init.scope":                                                 {"init.scope", "/init.scope"},
		"/":                                                           {"", ""},
		"":                                                            {"", ""},
	} {
		if name, unitGroup := Unit(group); name != want[0] || unitGroup != want[1] {
			t.Errorf("%s: %s in %s, not %v", group, name, unitGroup, want)
		}
	}
}

// TestScope: only processes of login sessions are moved, and they stay in their user's slice.
func TestScope(t *testing.T) {
	for group, want := range map[string]string{
		"/user.slice/user-1000.slice/session-3.scope":                     "/user.slice/user-1000.slice/idletime-session-3.scope",
		"/user.slice/user-1000.slice/session-c1.scope":                    "/user.slice/user-1000.slice/idletime-session-c1.scope",
		"/user.slice/user-1000.slice/session-3.scope/below":               "",
		"/user.slice/user-1000.slice/idletime-session-3.scope":            "",
		"/user.slice/user-1000.slice/user@1000.service/session-3.scope":   "",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope": "",
		"/system.slice/backup.service":                                    "",
		"/system.slice/session-3.scope":                                   "",
		"/machine.slice/session-3.scope":                                  "",
		"/user.slice/user-1000.slice/user-1.slice/session-3.scope":        "",
		"/init.scope": "",
		"/":           "",
		"":            "",
		"/user.slice/user-1000.slice/user@1000.service/idletime-session-3.s": "",
	} {
		got := Scope(group)
		if got != want {
			t.Errorf("%s goes to %q, not %q", group, got, want)
		}
		if want != "" && Session(got) != group {
			t.Errorf("from %s it goes back to %q, not %q", got, Session(got), group)
		}
	}
}

func TestMade(t *testing.T) {
	session := "/user.slice/user-1000.slice/session-3.scope"
	for group, want := range map[string]bool{
		Scope(session): true, Former(session, 42): true, session: false, "/system.slice/a.service": false, "/": false,
	} {
		if got := Made(group); got != want {
			t.Errorf("%s is made by us: %v", group, got)
		}
	}
}

// TestSession: a cgroup that a user named like a scope of ours is none.
func TestSession(t *testing.T) {
	for _, group := range []string{
		"/user.slice/user-1000.slice/user@1000.service/idletime-session-3.scope", "/system.slice/idletime-session-3.scope",
		"/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice/idletime-x.scope", "/", "",
		"/user.slice/user-1000.slice/idletime-session-3.scope/below", "/user.slice/user-1000.slice/idletime-session-3.service",
	} {
		if got := Session(group); got != "" {
			t.Errorf("%s is taken for a scope of ours, of %s", group, got)
		}
	}
}
