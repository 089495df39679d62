// SPDX-License-Identifier: GPL-2.0-or-later

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"idletime.org/guest-agent/idletime"
	"idletime.org/guest-agent/internal/alone"
	"idletime.org/guest-agent/internal/wire"
)

// targetFlags adds the three ways to say what; exactly one is needed, and not an empty one.
func targetFlags(command *cobra.Command, target *wire.Target) {
	flags := command.Flags()
	flags.IntVar(&target.PID, "pid", 0, "a process, all its threads and the children that it will have")
	flags.StringVar(&target.Cgroup, "cgroup", "", "all processes of a cgroup, by its path below the root (as root)")
	flags.StringVar(&target.Unit, "unit", "", "all processes of a systemd unit (as root)")
	command.MarkFlagsOneRequired("pid", "cgroup", "unit")
	command.MarkFlagsMutuallyExclusive("pid", "cgroup", "unit")
	command.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case flags.Changed("pid") && target.PID <= 0:
			return fmt.Errorf("--pid %d is no process: write its number, such as 4242", target.PID)
		case flags.Changed("cgroup") && target.Cgroup == "":
			return errors.New("--cgroup is empty: write a path, such as /system.slice/backup.service")
		case flags.Changed("unit") && target.Unit == "":
			return errors.New("--unit is empty: write a name, such as backup.service")
		}
		return nil
	}
}

func markCommand(opts *options) *cobra.Command {
	target, by := wire.Target{}, ""
	command := &cobra.Command{
		Use: "mark {--pid N | --cgroup PATH | --unit NAME}", Short: "Make running processes background",
		Example: "  idletime mark --unit backup.service",
		Args:    cobra.NoArgs, DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			until, err := next(by)
			if err != nil {
				return fail(exitUsage, "%w", err)
			}
			itself := alone.Mark
			if !until.IsZero() {
				itself = nil
			}
			mark := func(agent *idletime.Client, target wire.Target) (wire.Marked, error) {
				return agent.MarkUntil(target, until)
			}
			return change(opts.socket, target, mark, itself, command.OutOrStdout())
		},
	}
	targetFlags(command, &target)
	byFlag(command, &by)
	return command
}

func unmarkCommand(opts *options) *cobra.Command {
	target := wire.Target{}
	command := &cobra.Command{
		Use: "unmark {--pid N | --cgroup PATH | --unit NAME}", Short: "Make processes what they were before",
		Example: "  idletime unmark --pid 4242",
		Args:    cobra.NoArgs, DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			return change(opts.socket, target, (*idletime.Client).Unmark, alone.Unmark, command.OutOrStdout())
		},
	}
	targetFlags(command, &target)
	return command
}

// change asks the agent; without one, a process can still be changed by its owner, where it may be so (byItself).
func change(
	socket string, target wire.Target, ask func(*idletime.Client, wire.Target) (wire.Marked, error),
	byItself func(pid int) (wire.Marked, error), out io.Writer,
) error {
	agent, err := idletime.Dial(socket)
	var result wire.Marked
	switch {
	case err == nil:
		defer agent.Close()
		result, err = ask(agent, target)
	case target.PID != 0 && byItself != nil:
		result, err = byItself(target.PID)
	}
	if err != nil {
		return fail(exitFailed, "%w", err)
	}
	fmt.Fprintf(out, "%s, %s\n", count(result.Processes, "process", "processes"), count(result.Threads, "thread", "threads"))
	for _, lack := range result.Lacks {
		fmt.Fprintln(plain{os.Stderr}, "idletime: "+lack)
	}
	return nil
}

func count(number int, one, many string) string {
	if number == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", number, many)
}
