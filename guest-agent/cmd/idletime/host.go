// SPDX-License-Identifier: GPL-2.0-or-later

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"idletime.org/guest-agent/idletime"
	"idletime.org/guest-agent/internal/wire"
)

var classes = []string{wire.Background, wire.Foreground}

func vmCommand(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "vm {background|foreground}", Short: "Ask the host to make the whole VM background, or take that back (as root)",
		Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: classes,
		RunE: func(command *cobra.Command, args []string) error {
			return ask(opts.socket, command.OutOrStdout(), args[0], func(agent *idletime.Client) (wire.Asked, error) {
				return agent.VM(args[0])
			})
		},
	}
}

func queueCommand(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "queue DEVICE LIST {background|foreground}", Short: "The same for queues of a device (as root)",
		Long: "Ask the host to make queues of a device background, or take that back.\n\n" +
			"DEVICE is a name of this guest (vdb, eth0) or serial:, pci:, mac:, target: and a value. LIST is such as 2-3,6.",
		Example: "  idletime queue vdb 2-3 background",
		Args:    cobra.ExactArgs(3),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 2 {
				return classes, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			return ask(opts.socket, command.OutOrStdout(), args[2], func(agent *idletime.Client) (wire.Asked, error) {
				return agent.Queue(args[0], args[1], args[2])
			})
		},
	}
}

// ask passes a request to the host by way of the agent; the exit status tells the answer.
func ask(socket string, out io.Writer, class string, request func(*idletime.Client) (wire.Asked, error)) error {
	agent, err := idletime.Dial(socket)
	if err != nil {
		return fail(exitFailed, "%w", err)
	}
	defer agent.Close()
	answer, err := request(agent)
	switch {
	case err != nil:
		return fail(exitFailed, "%w", err)
	case !answer.Answered:
		return fail(exitUnanswered, "%s", answer.Reason)
	case !answer.Granted:
		return fail(exitFailed, "the host refused: %s", answer.Reason)
	}
	if class == wire.Foreground {
		fmt.Fprintln(out, "taken back")
	} else {
		fmt.Fprintln(out, "granted")
	}
	return nil
}
