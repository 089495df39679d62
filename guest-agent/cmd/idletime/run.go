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

	"github.com/spf13/cobra"

	"idletime.org/guest-agent/idletime"
	"idletime.org/guest-agent/internal/actuate/ioprio"
)

func runCommand(opts *options) *cobra.Command {
	verbose := false
	command := &cobra.Command{
		Use: "run [flags] -- COMMAND [ARGUMENT...]", Short: "Run a command in the background class",
		Long:    "Run a command in the background class. Needs no rights, and no agent for its disk requests.",
		Example: "  idletime run -- restic backup /home",
		Args:    cobra.MinimumNArgs(1), DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return run(opts.socket, args, verbose)
		},
	}
	// Everything behind the command's name belongs to the command.
	command.Flags().SetInterspersed(false)
	command.Flags().BoolVarP(&verbose, "verbose", "v", false, "say what is not marked, on standard error")
	return command
}

// run turns this process into the command, so that pid, terminal, signals and exit status are the command's own.
func run(socket string, args []string, verbose bool) error {
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
	for _, lack := range markSelf(socket) {
		if verbose {
			fmt.Fprintln(plain{os.Stderr}, "idletime: "+lack)
		}
	}
	if err := ioprio.Set(0, ioprio.Idle); err != nil {
		return fail(exitRun, "%w", err)
	}
	return fail(exitCannotExec, "%s: %w", path, syscall.Exec(path, args, os.Environ()))
}

// markSelf asks the agent for all that needs rights; returns in words what is not marked.
func markSelf(socket string) []string {
	agent, err := idletime.Dial(socket)
	if err != nil {
		return []string{"only disk requests are marked: " + err.Error()}
	}
	defer agent.Close()
	result, err := agent.Mark(idletime.Process(os.Getpid()))
	if err != nil {
		return []string{"only disk requests are marked: " + err.Error()}
	}
	return result.Lacks
}
