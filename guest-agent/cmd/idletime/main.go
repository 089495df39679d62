// SPDX-License-Identifier: GPL-2.0-or-later

// Command idletime marks work of this guest as background; see idletime(1).
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"idletime.org/guest-agent/idletime"
)

// version is set by the build.
var version = "0.1.0"

// Exit statuses beside 0; those of run are env(1)'s.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitUnanswered = 3
	exitRun        = 125
	exitCannotExec = 126
	exitNoProgram  = 127
)

// failure is an error with an exit status.
type failure struct {
	status int
	error
}

func fail(status int, format string, values ...any) error {
	return failure{status, fmt.Errorf(format, values...)}
}

// options are the ones of all subcommands.
type options struct {
	socket string
	json   bool
}

func main() {
	called, err := command().ExecuteC()
	if err == nil {
		return
	}
	text, status := err.Error(), exitUsage
	if known := (failure{}); errors.As(err, &known) {
		status = known.status
	} else {
		text += "; see '" + called.CommandPath() + " --help'"
	}
	fmt.Fprintln(plain{os.Stderr}, "idletime: "+text)
	os.Exit(status)
}

func command() *cobra.Command {
	opts := &options{}
	root := &cobra.Command{
		Use: "idletime", Short: "Mark work of this guest as background", Version: version,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.PersistentFlags().StringVar(&opts.socket, "socket", idletime.Socket, "socket of the agent")
	root.AddCommand(runCommand(opts), markCommand(opts), unmarkCommand(opts), vmCommand(opts), queueCommand(opts), statusCommand(opts))
	return root
}
