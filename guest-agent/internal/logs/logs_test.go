// SPDX-License-Identifier: GPL-2.0-or-later

package logs

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fmt"
)

// written is what a logger writes to a file; `journal` says whether systemd has connected that to the journal.
func written(t *testing.T, journal bool, level slog.Level) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	stream := "1:2"
	if journal {
		stream = fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
	}
	t.Setenv("JOURNAL_STREAM", stream)
	logger := New(file, level).With("file", "a\x1b[2Jb\nc")
	logger.Debug("d")
	logger.Info("i", "n", 1)
	logger.Warn("two words")
	logger.Error("e")
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheJournalGetsPriorities, and no time; what others name things with cannot end a line or reach a terminal.
func TestTheJournalGetsPriorities(t *testing.T) {
	const file = ` file="a\x1b[2Jb\nc"`
	want := "<6>msg=i" + file + " n=1\n" + `<4>msg="two words"` + file + "\n<3>msg=e" + file + "\n"
	if got := written(t, true, slog.LevelInfo); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := written(t, true, slog.LevelDebug); !strings.HasPrefix(got, "<7>msg=d") {
		t.Errorf("got %s", got)
	}
}

func TestOtherFilesGetTimeAndLevel(t *testing.T) {
	got := written(t, false, slog.LevelWarn)
	if lines := strings.Split(got, "\n"); len(lines) != 3 || !strings.Contains(lines[0], "time=20") || !strings.Contains(lines[0], `level=WARN msg="two words"`) {
		t.Errorf("got %s", got)
	}
}

func TestLevels(t *testing.T) {
	for name, want := range map[string]slog.Level{"debug": slog.LevelDebug, "WARN": slog.LevelWarn} {
		if got, err := ParseLevel(name); err != nil || got != want {
			t.Errorf("%s is %v (%v)", name, got, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), `"loud" is unknown: use debug, info`) {
		t.Errorf("%v", err)
	}
}
