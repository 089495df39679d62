// SPDX-License-Identifier: GPL-2.0-or-later

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"idletime.org/guest-agent/idletime"
	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/wire"
)

func runCommand(opts *options) *cobra.Command {
	verbose, by := false, ""
	command := &cobra.Command{
		Use: "run [flags] -- COMMAND [ARGUMENT...]", Short: "Run a command in the background class",
		Long:    "Run a command in the background class. Needs no rights, and no agent for its disk requests.",
		Example: "  idletime run -- restic backup /home\n  idletime run --by 06:00 -- restic backup /home",
		Args:    cobra.MinimumNArgs(1), DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return run(opts.socket, args, verbose, by)
		},
	}
	// Everything behind the command's name belongs to the command.
	command.Flags().SetInterspersed(false)
	byFlag(command, &by)
	command.Flags().BoolVarP(&verbose, "verbose", "v", false, "say what is not marked, on standard error")
	return command
}

// run turns this process into the command, so that pid, terminal, signals and exit status are the command's own.
func run(socket string, args []string, verbose bool, by string) error {
	until, err := next(by)
	if err != nil {
		return fail(exitRun, "%w", err)
	}
	path, err := exec.LookPath(args[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fail(exitNoProgram, "%s: there is no such command", args[0])
	} else if err != nil {
		return fail(exitCannotExec, "%s: %w", args[0], err)
	}
	// A priority belongs to a thread, and the thread that calls exec is the one that lives on.
	runtime.LockOSThread()
	lacks, err := markSelf(socket, until)
	if err != nil {
		return fail(exitRun, "%w", err)
	}
	for _, lack := range lacks {
		if verbose {
			fmt.Fprintln(plain{os.Stderr}, "idletime: "+lack)
		}
	}
	if err := ioprio.Set(0, ioprio.Idle); err != nil {
		return fail(exitRun, "%w", err)
	}
	return fail(exitCannotExec, "%s: %w", path, syscall.Exec(path, args, os.Environ()))
}

// markSelf asks the agent for all that needs rights; returns in words what is not marked. Nobody but the agent can take a mark
// back at a time, so that without it this is an error.
func markSelf(socket string, until time.Time) ([]string, error) {
	result, err := markBy(socket, wire.Target{PID: os.Getpid()}, until)
	switch {
	case err == nil:
		return result.Lacks, nil
	case !until.IsZero():
		return nil, fmt.Errorf("--by needs the agent: %w", err)
	}
	return []string{"only disk requests are marked: " + err.Error()}, nil
}

func markBy(socket string, target wire.Target, until time.Time) (result wire.Marked, err error) {
	agent, err := idletime.Dial(socket)
	if err != nil {
		return result, err
	}
	defer agent.Close()
	return agent.MarkUntil(target, until)
}

// byFlag adds the time of day at which a mark ends.
func byFlag(command *cobra.Command, by *string) {
	command.Flags().StringVar(by, "by", "", "background until this time of day, such as 06:00; then as before")
}

// next is the first time of day "HH:MM" from now on; the zero time for "".
func next(by string) (time.Time, error) {
	if by == "" {
		return time.Time{}, nil
	}
	clock, err := time.Parse("15:04", by)
	if err != nil {
		return time.Time{}, fmt.Errorf("--by %q is no time of day: write hours and minutes, such as 06:00", by)
	}
	now := time.Now()
	found := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, time.Local)
	if !found.After(now) {
		found = time.Date(now.Year(), now.Month(), now.Day()+1, clock.Hour(), clock.Minute(), 0, 0, time.Local)
	}
	return found, nil
}
