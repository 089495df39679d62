// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/marks"
	"idletime.org/guest-agent/internal/rules"
	"idletime.org/guest-agent/internal/wire"
)

const (
	// scanPeriod is how often processes are held against the rules.
	scanPeriod = 5 * time.Second
	// prunePeriod is how often ended processes are forgotten where there are no rules.
	prunePeriod = 30 * time.Second
	// scanShare keeps scans below a two-thousandth of a processor, however many processes and marks there are: half of the
	// 0.1 % that the agent may take in all. But none is later than longestPeriod.
	scanShare     = 2000
	longestPeriod = 10 * time.Minute
)

// Watch follows the rules file: it marks what a rule wants, and unmarks what no rule wants any more.
type Watch struct {
	Root facts.Root
	Book *marks.Book
	// File is the rules file; it may be absent.
	File string
	Self int

	mu      sync.Mutex
	rules   []rules.Rule
	problem string
	refused []wire.RuleRefusal
	reload  chan struct{}
	// partly are the rules of which not all processes could be marked at the last scan. Context: who calls Scan.
	partly map[string]bool
}

// NewWatch reads the file for the first time.
func NewWatch(root facts.Root, book *marks.Book, file string, self int) *Watch {
	watch := &Watch{Root: root, Book: book, File: file, Self: self, reload: make(chan struct{}, 1), refused: []wire.RuleRefusal{}}
	watch.Load()
	return watch
}

// Reload has the file read again soon.
func (w *Watch) Reload() {
	select {
	case w.reload <- struct{}{}:
	default:
	}
}

// Load reads the file. A bad one changes nothing but the status; an absent one is no rules.
func (w *Watch) Load() {
	data, err := os.ReadFile(w.Root.Path(w.File))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = nil, nil
	}
	var fresh []rules.Rule
	if err == nil {
		fresh, err = rules.Parse(w.File, data, w.Root.UserID)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.problem = err.Error()
		slog.Warn("the rules of before stay in force", "file", w.File, "error", err)
		return
	}
	w.rules, w.problem = fresh, ""
	slog.Info("rules are read", "file", w.File, "rules", len(fresh))
}

// Run scans until the context ends. Marks whose time is over do not wait for a scan.
func (w *Watch) Run(ctx context.Context) {
	expiry := time.NewTicker(prunePeriod)
	defer expiry.Stop()
	for {
		next := time.After(w.Scan())
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return
			case <-w.reload:
				w.Load()
				due = true
			case <-expiry.C:
				w.Book.Expire(time.Now())
			case <-next:
				due = true
			}
		}
	}
}

// Scan holds all processes against the rules once; returns how long to wait before the next scan.
func (w *Watch) Scan() time.Duration {
	begin := used()
	period := w.scan()
	return max(period, min(scanShare*(used()-begin), longestPeriod))
}

// used is the processor time of this program so far. A wait, for a lock or for systemd, is none.
func used() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// scan does it; returns the usual period.
func (w *Watch) scan() time.Duration {
	w.Book.Prune()
	w.Book.Expire(time.Now())
	w.Book.Follow()
	defer w.Book.Settle()
	w.mu.Lock()
	current := w.rules
	w.mu.Unlock()
	if len(current) == 0 && !w.hasRuleMarks() {
		w.note(nil)
		return prunePeriod
	}
	processes, err := w.Root.Processes()
	if err != nil {
		slog.Error("processes cannot be read", "error", err)
		return prunePeriod
	}
	decision := rules.Decide(current, processes, w.Self)
	w.note(decision.Refused)
	w.apply(decision.Wanted, processes)
	return scanPeriod
}

// note keeps the refused rules for the status, and logs those that are new.
func (w *Watch) note(refused []wire.RuleRefusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := map[string]bool{}
	for _, each := range w.refused {
		known[each.Rule] = true
	}
	for _, each := range refused {
		if !known[each.Rule] {
			slog.Warn("a rule is refused", "file", w.File, "line", each.Line, "rule", each.Rule, "reason", each.Reason)
		}
	}
	w.refused = append([]wire.RuleRefusal{}, refused...)
}

func (w *Watch) hasRuleMarks() bool {
	for _, record := range w.Book.List(-1) {
		if strings.HasPrefix(record.Origin, marks.RuleOrigin) {
			return true
		}
	}
	return false
}

// apply goes from what is marked by rules to what is wanted. Marks that people made are left alone.
func (w *Watch) apply(wanted map[int]string, processes []facts.Process) {
	marked := map[int]bool{}
	for _, record := range w.Book.List(-1) {
		rule, byRule := strings.CutPrefix(record.Origin, marks.RuleOrigin)
		switch {
		case byRule && wanted[record.PID] != rule:
			_, _ = w.Book.Unmark(0, record.PID)
		case strings.HasPrefix(record.Origin, marks.LeftOrigin):
			// A rule that wants it marks it anew.
		default:
			marked[record.PID] = true
		}
	}
	w.markAll(wanted, slices.DeleteFunc(processes, func(process facts.Process) bool {
		return wanted[process.PID] == "" || marked[process.PID]
	}))
}

// markAll marks processes for their rules, until there is no room: that for processes of users ends first. Then each rule is told
// of once, and not each process at each scan.
func (w *Watch) markAll(wanted map[int]string, processes []facts.Process) {
	full := map[bool]*wire.Error{}
	left := map[string]int{}
	for _, process := range processes {
		rule, ofRoot := wanted[process.PID], process.Owned(0)
		if full[ofRoot] == nil {
			_, problem := w.Book.MarkByRule(process.PID, rule)
			switch {
			case problem == nil:
				continue
			case problem.Code != wire.CodeBusy:
				slog.Warn("a process is not marked", "rule", rule, "pid", process.PID, "error", problem)
				continue
			}
			full[ofRoot] = problem
		}
		left[rule]++
	}
	partly := map[string]bool{}
	for rule, count := range left {
		if partly[rule] = true; !w.partly[rule] {
			slog.Warn(fmt.Sprintf("rule %s: %d processes are not marked", rule, count), "error", cmp.Or(full[false], full[true]))
		}
	}
	w.partly = partly
}

// Status is the watch's part of the agent's status.
func (w *Watch) Status() wire.RulesStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return wire.RulesStatus{File: w.File, Count: len(w.rules), Error: w.problem, Refused: w.refused}
}
