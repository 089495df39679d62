// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/bql"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/dscp"
	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/actuate/sched"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/facts"
)

// Hands is what the book needs of the kernel, so that tests can have one of their own.
type Hands interface {
	// Threads reads the threads of a process; the leader comes first. Errors: facts.ErrGone.
	Threads(pid int) ([]actuate.Thread, error)
	// Idle tells whether a process has the idle priority, or has ended.
	Idle(pid int) bool
	// Do carries out one step. A thread that has ended is no error.
	Do(pid int, step actuate.Step) error
	// Packets makes the packets of exactly these groups be marked.
	Packets(groups []dscp.Group) error
	// Inherit makes answers inherit the class of what they answer, or takes that back: see dscp.Inherit.
	Inherit(on bool) error
	// HasTable tells whether a table of Packets or Inherit is still there.
	HasTable(name string) bool
	// Lift lifts the Byte Queue Limits of the NICs that are here now, or takes that back.
	Lift(on bool) error
}

// Kernel is the running kernel.
type Kernel struct {
	Root facts.Root
	// Tree is nil without cgroup v2.
	Tree *cgroup.Tree
	// Units is nil without systemd.
	Units Units
}

// Threads reads threads; those that end meanwhile are left out.
func (k Kernel) Threads(pid int) ([]actuate.Thread, error) {
	tids, err := k.Root.Threads(pid)
	if err != nil {
		return nil, err
	}
	threads := make([]actuate.Thread, 0, len(tids))
	for _, tid := range tids {
		priority, err1 := ioprio.Get(tid)
		policy, err2 := sched.Get(tid)
		if errors.Is(err1, unix.ESRCH) || errors.Is(err2, unix.ESRCH) {
			continue
		}
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		threads = append(threads, actuate.Thread{TID: tid, IOPrio: priority, Nice: k.Root.Nice(pid, tid), Policy: policy})
	}
	if len(threads) == 0 {
		return nil, fmt.Errorf("process %d: %w", pid, facts.ErrGone)
	}
	return threads, nil
}

// Idle asks for the priority of the leader.
func (k Kernel) Idle(pid int) bool {
	priority, err := ioprio.Get(pid)
	return errors.Is(err, unix.ESRCH) || err == nil && ioprio.Is(priority)
}

// Do carries out one step.
func (k Kernel) Do(pid int, step actuate.Step) error {
	var err error
	switch step.Kind {
	case actuate.SetIOPrio:
		err = ioprio.Set(step.TID, step.Value)
	case actuate.SetPolicy:
		err = sched.Set(step.TID, step.Value)
	case actuate.MoveTo:
		err = k.move(pid, step.Group)
	default:
		err = fmt.Errorf("step %q is unknown", step.Kind)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// move has systemd move processes where that runs. Only the way back, into what somebody else has made, it does not offer.
func (k Kernel) move(pid int, group string) error {
	if k.Units == nil || !systemd.Made(group) {
		return k.Tree.Move(pid, group)
	}
	err := k.Units.Move(pid, group)
	if err != nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return unix.ESRCH
	}
	return err
}

// Packets writes the nftables table.
func (k Kernel) Packets(groups []dscp.Group) error {
	return dscp.Set(groups)
}

// Inherit writes the other nftables table.
func (k Kernel) Inherit(on bool) error {
	return dscp.Inherit(on)
}

// HasTable asks nftables.
func (k Kernel) HasTable(name string) bool {
	return dscp.Has(name)
}

// Lift writes limit_min of their queues.
func (k Kernel) Lift(on bool) error {
	return bql.Lift(k.Root, on)
}
