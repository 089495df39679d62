// SPDX-License-Identifier: GPL-2.0-or-later

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"idletime.org/guest-agent/idletime"
	"idletime.org/guest-agent/internal/wire"
)

func statusCommand(opts *options) *cobra.Command {
	command := &cobra.Command{
		Use: "status", Short: "Show what is marked, what the kernel lacks, and what the host says", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			client, err := idletime.Dial(opts.socket)
			if err != nil {
				return fail(exitFailed, "%w", err)
			}
			defer client.Close()
			status, err := client.Status()
			if err != nil {
				return fail(exitFailed, "%w", err)
			}
			if opts.json {
				return json.NewEncoder(command.OutOrStdout()).Encode(status)
			}
			printStatus(plain{command.OutOrStdout()}, status)
			return nil
		},
	}
	command.Flags().BoolVar(&opts.json, "json", false, "print the same as one line of JSON")
	return command
}

// printStatus says the same as --json, for people.
func printStatus(out io.Writer, status wire.Status) {
	fmt.Fprintf(out, "agent   %s, pid %d\n", status.Agent.Version, status.Agent.PID)
	printHost(out, status.Host)
	fmt.Fprintf(out, "marks   %s, %s\n", count(status.Marks.Processes, "process", "processes"),
		count(status.Marks.Cgroups, "cgroup", "cgroups"))
	for _, mark := range status.Marks.List {
		fmt.Fprintf(out, "        %-7d %-15s by %s%s\n", mark.PID, mark.Name, mark.Origin, onlyDisk(mark.Moved))
	}
	if more := status.Marks.Processes - len(status.Marks.List); more > 0 {
		fmt.Fprintf(out, "        and %d more\n", more)
	}
	if cache := status.Marks.Cache; cache.Cgroups > 0 {
		fmt.Fprintf(out, "cache   %s of background work: %d MB of page cache each\n", count(cache.Cgroups, "cgroup", "cgroups"), cache.Bytes>>20)
	}
	printLines(out, "lacks", status.Lacks)
	printRules(out, status.Rules)
}

func onlyDisk(moved bool) string {
	if moved {
		return ""
	}
	return ", I/O priority only"
}

func printHost(out io.Writer, host wire.HostStatus) {
	if !host.Answers {
		fmt.Fprintf(out, "host    does not answer: %s\n", host.Reason)
		printRequest(out, "asked", host.Request)
		return
	}
	policy := host.Policy
	fmt.Fprintf(out, "host    %s %s; it lets the guest %s\n", policy.Host.Name, policy.Host.Version, controls[policy.Control])
	if policy.Class != "" {
		fmt.Fprintf(out, "        this VM is %s\n", policy.Class)
	}
	printRequest(out, "asked", host.Request)
	printRequest(out, "granted", policy.Granted)
	for _, refusal := range policy.Refused {
		fmt.Fprintf(out, "        refused: %s\n", refusal.Reason)
	}
	for _, each := range policy.Devices {
		fmt.Fprintf(out, "        device %s: %s\n", each.Device.Name(), deviceClass(each))
	}
}

var controls = map[string]string{wire.ControlNone: "ask for nothing", wire.ControlDemote: "make itself background"}

func printRequest(out io.Writer, verb string, request wire.Request) {
	if request.Class == wire.Background {
		fmt.Fprintf(out, "        %s: the whole VM background\n", verb)
	}
	for _, each := range request.Queues {
		fmt.Fprintf(out, "        %s: queues %s of %s background\n", verb, each.Queues, each.Device.Name())
	}
}

func deviceClass(device wire.Scheduled) string {
	text := device.Class
	if device.BackgroundQueues != "" {
		text += ", queues " + device.BackgroundQueues + " background"
	}
	if device.Class == wire.Foreground {
		text += " (marks of processes do not reach it)"
	}
	return text
}

func printRules(out io.Writer, rules wire.RulesStatus) {
	fmt.Fprintf(out, "rules   %s in force, from %s\n", count(rules.Count, "rule", "rules"), rules.File)
	for _, each := range rules.Refused {
		fmt.Fprintf(out, "        line %d, rule %s is refused: %s\n", each.Line, each.Rule, each.Reason)
	}
	if rules.Error != "" {
		fmt.Fprintf(out, "        the file as it is now is not followed:\n        %s\n",
			strings.ReplaceAll(rules.Error, "\n", "\n        "))
	}
}

func printLines(out io.Writer, title string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(out, "%-7s %s\n", title, line)
		title = ""
	}
}
