// SPDX-License-Identifier: GPL-2.0-or-later

// Command idletime-agent is the guest's daemon; see idletime-agent(8).
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"idletime.org/guest-agent/internal/actuate/bql"
	"idletime.org/guest-agent/internal/actuate/dscp"
	"idletime.org/guest-agent/internal/agent"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/logs"
	"idletime.org/guest-agent/internal/rules"
	"idletime.org/guest-agent/internal/wire"
)

// version is set by the build.
var version = "0.1.0"

// memoryLimit makes the collector work harder before the agent grows above what it promises (20 MiB in all).
const memoryLimit = 12 << 20

func main() {
	debug.SetMemoryLimit(memoryLimit)
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "idletime-agent: "+err.Error())
		os.Exit(1)
	}
}

func command() *cobra.Command {
	config := agent.Config{Version: version}
	var check, clean, release bool
	var level string
	root := &cobra.Command{
		Use: "idletime-agent", Short: "Marks background work of this guest, and asks the host for more", Version: version,
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			if err := setLog(level); err != nil {
				return err
			}
			if config.CachePercent < 1 || config.CachePercent > 100 {
				return fmt.Errorf("--page-cache %d: want 1 to 100 percent of the memory", config.CachePercent)
			}
			switch {
			case check:
				return checkRules(config)
			case clean:
				return errors.Join(dscp.Set(nil), dscp.Inherit(false), bql.Lift(config.Root, false))
			}
			return run(config, release)
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(called *cobra.Command, err error) error {
		return fmt.Errorf("%w; see '%s --help'", err, called.CommandPath())
	})
	flags := root.Flags()
	flags.StringVar(&config.RulesFile, "rules", "/etc/idletime/rules.yaml", "rules file; it may be absent")
	flags.StringVar(&config.Run, "run", wire.Folder, "folder of the socket and of what is to be undone")
	flags.BoolVar(&config.SchedIdle, "sched-idle", false, "give marked processes SCHED_IDLE, too")
	flags.IntVar(&config.CachePercent, "page-cache", 10, "percent of the memory that background work keeps as page cache; 100: no limit")
	flags.BoolVar(&config.Inherit, "inherit-dscp", false, "answer packets of DSCP 1 with DSCP 1, in connections that another host began")
	flags.BoolVar(&check, "check", false, "check the rules file, and exit")
	flags.BoolVar(&clean, "clean", false, "remove the network rules that a killed agent left, and exit")
	flags.BoolVar(&release, "release", false, "take back all marks that agents before have left, and exit")
	flags.StringVar(&level, "log-level", cmp.Or(os.Getenv("IDLETIME_LOG_LEVEL"), "info"), "what is logged: "+logs.Levels)
	config.Root = facts.Root("/")
	return root
}

// setLog begins the log, on standard error.
func setLog(name string) error {
	level, err := logs.ParseLevel(name)
	if err == nil {
		slog.SetDefault(logs.New(os.Stderr, level))
	}
	return err
}

// checkRules tells what is wrong with the rules file; an absent one is an error here.
func checkRules(config agent.Config) error {
	data, err := os.ReadFile(config.RulesFile)
	if err != nil {
		return err
	}
	found, err := rules.Parse(config.RulesFile, data, config.Root.UserID)
	if err != nil {
		return err
	}
	processes, err := config.Root.Processes()
	if err != nil {
		return err
	}
	decision := rules.Decide(found, asTheAgent(processes), os.Getpid())
	for _, each := range decision.Refused {
		err = errors.Join(err, fmt.Errorf("%s:%d: rule %s is refused: %s", config.RulesFile, each.Line, each.Rule, each.Reason))
	}
	if err == nil {
		fmt.Printf("%s: %d rules, %d processes match now\n", config.RulesFile, len(found), len(decision.Wanted))
	}
	return err
}

// asTheAgent has this process stand for the agent, which a rule must not match: the agent is root's, and is not where the
// administrator is who checks.
func asTheAgent(processes []facts.Process) []facts.Process {
	for i := range processes {
		if processes[i].PID == os.Getpid() {
			processes[i].UIDs, processes[i].Cgroup = [4]uint32{}, ""
		}
	}
	return processes
}

// run is the agent, or takes back what others have left.
func run(config agent.Config, release bool) error {
	if os.Geteuid() != 0 {
		return errors.New("the agent has to run as root: it marks processes of all users")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	daemon, err := agent.New(config)
	if err != nil {
		return err
	}
	if release {
		return daemon.Release()
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			daemon.Reload()
		}
	}()
	return daemon.Run(ctx)
}
