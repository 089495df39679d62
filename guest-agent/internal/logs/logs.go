// SPDX-License-Identifier: GPL-2.0-or-later

// Package logs writes the agent's log: to the journal with priorities and without times, which the journal has, and
// anywhere else as lines with time and level.
package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// Levels are the names that ParseLevel takes.
const Levels = "debug, info, warn or error"

// ParseLevel reads the name of a level.
func ParseLevel(name string) (level slog.Level, err error) {
	if level.UnmarshalText([]byte(name)) != nil {
		return level, fmt.Errorf("log level %q is unknown: use %s", name, Levels)
	}
	return level, nil
}

// New writes records of a level and above to a file.
func New(file *os.File, level slog.Level) *slog.Logger {
	if isJournal(file, os.Getenv("JOURNAL_STREAM")) {
		return slog.New(&journal{out: file, level: level, mu: &sync.Mutex{}})
	}
	return slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: level}))
}

// isJournal tells whether a file is the one that systemd has connected to the journal: device and inode, as it says.
func isJournal(file *os.File, stream string) bool {
	info, err := file.Stat()
	if err != nil {
		return false
	}
	stat := info.Sys().(*syscall.Stat_t)
	return stream == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// journal begins each line with its priority, as sd-daemon(3) says.
type journal struct {
	out   io.Writer
	level slog.Level
	attrs []slog.Attr
	mu    *sync.Mutex
}

func (j *journal) Enabled(_ context.Context, level slog.Level) bool { return level >= j.level }

func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *j
	with.attrs = append(append([]slog.Attr{}, j.attrs...), attrs...)
	return &with
}

// WithGroup does nothing: the agent's records have no groups.
func (j *journal) WithGroup(string) slog.Handler { return j }

func (j *journal) Handle(ctx context.Context, record slog.Record) error {
	var line bytes.Buffer
	fmt.Fprintf(&line, "<%d>", priority(record.Level))
	record.Time = time.Time{}
	text := slog.NewTextHandler(&line, &slog.HandlerOptions{Level: j.level, ReplaceAttr: withoutLevel})
	if err := text.WithAttrs(j.attrs).Handle(ctx, record); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err := j.out.Write(line.Bytes())
	return err
}

func withoutLevel(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) == 0 && attr.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return attr
}

// priority is that of syslog(3).
func priority(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return 3
	case level >= slog.LevelWarn:
		return 4
	case level >= slog.LevelInfo:
		return 6
	}
	return 7
}
