// SPDX-License-Identifier: GPL-2.0-or-later

// Package agent is the daemon: it joins the port to the host, the socket for the guest's programs, the rules file and the
// book of marks. What each of them does is in their own files; here is only how they are joined.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/marks"
	"idletime.org/guest-agent/internal/port"
	"idletime.org/guest-agent/internal/wire"
)

// A status lists as many marks as fit into one line of the protocol with room for the rest.
const (
	listLimit = 200
	listBytes = wire.MaxLine / 2
	// cachePeriod is how often page caches are looked at, cacheDelay how long after a mark.
	cachePeriod = time.Second
	cacheDelay  = 200 * time.Millisecond
	// cacheShare keeps looks below a twentieth of a processor, however many marks come, and with the memory that the kernel
	// frees meanwhile. Not less: work that grows waits until its limit has followed.
	cacheShare = 20
)

// Config says where things are. The zero value of a path means that this part is left out.
type Config struct {
	Root facts.Root
	// Run is the folder of socket and state, on a tmpfs.
	Run string
	// RulesFile is the rules file.
	RulesFile string
	// SchedIdle adds SCHED_IDLE to each mark.
	SchedIdle bool
	// CachePercent: see marks.Book.
	CachePercent int
	// Inherit makes answers inherit DSCP 1: see dscp.Inherit.
	Inherit bool
	// Version is the program's.
	Version string
}

// Daemon is a running agent.
type Daemon struct {
	config Config
	book   *marks.Book
	link   *Link
	watch  *Watch
	// servers are the socket for everybody, and root's own.
	servers []*Server
	port    *port.Port
}

// New makes the parts and takes up what an earlier agent left. Errors: no right to make the folder or the socket.
func New(config Config) (*Daemon, error) {
	daemon := &Daemon{config: config}
	if err := daemon.listen(); err != nil {
		return nil, err
	}
	tree := findTree(config.Root)
	hands := marks.Kernel{Root: config.Root, Tree: tree}
	if config.Root.Systemd() && tree != nil {
		hands.Units = systemd.New()
	}
	book, err := marks.New(config.Root, hands, tree, filepath.Join(config.Run, "marks"), os.Getpid())
	if err != nil {
		return nil, err
	}
	book.SchedIdle, book.CachePercent, book.Units = config.SchedIdle, config.CachePercent, hands.Units
	book.Load()
	daemon.book = book
	daemon.watch = NewWatch(config.Root, book, config.RulesFile, os.Getpid())
	daemon.link = NewLink(filepath.Join(config.Run, requestFile), newSession(), daemon.program())
	daemon.port = &port.Port{Find: func() string { return config.Root.Port(wire.PortName) }, Events: daemon.link}
	daemon.link.Send, daemon.link.Counts = daemon.port.Send, book.Count
	return daemon, nil
}

// listen makes the sockets. Everybody can fill the queue of the one; that of root's own is root's.
func (d *Daemon) listen() error {
	for _, each := range []struct {
		name string
		mode os.FileMode
	}{{wire.SocketName, 0o666}, {wire.RootSocketName, 0o600}} {
		server, err := Listen(filepath.Join(d.config.Run, each.name), each.mode, d.handle)
		if err != nil {
			return err
		}
		d.servers = append(d.servers, server)
	}
	return nil
}

func findTree(root facts.Root) *cgroup.Tree {
	mount, err := root.CgroupMount()
	if err != nil {
		return nil
	}
	return &cgroup.Tree{Mount: mount}
}

func newSession() string {
	bytes := make([]byte, 8)
	_, _ = rand.Read(bytes)
	return hex.EncodeToString(bytes)
}

func (d *Daemon) program() wire.Program {
	return wire.Program{Name: "idletime-agent", Version: d.config.Version}
}

// Reload has the rules file read again.
func (d *Daemon) Reload() { d.watch.Reload() }

// Run works until the context ends, and leaves in good order.
func (d *Daemon) Run(ctx context.Context) error {
	// The port outlives the rest: the last word goes through it.
	portContext, closePort := context.WithCancel(context.Background())
	defer closePort()
	var parts, last sync.WaitGroup
	start := func(group *sync.WaitGroup, ctx context.Context, run func(context.Context)) {
		group.Add(1)
		go func() {
			defer group.Done()
			run(ctx)
		}()
	}
	d.book.StartInherit(d.config.Inherit)
	slog.Info("the agent begins", "version", d.config.Version, "folder", d.config.Run)
	start(&last, portContext, d.port.Run)
	for _, run := range []func(context.Context){d.link.Run, d.watch.Run, d.limitCaches, d.servers[0].Serve, d.servers[1].Serve} {
		start(&parts, ctx, run)
	}
	parts.Wait()
	d.link.Farewell()
	closePort()
	last.Wait()
	return d.book.Close()
}

// requestFile keeps what is asked of the host, in the folder of the sockets.
const requestFile = "agent.json"

// Release takes back all that agents before have marked, forgets what they have asked of the host, as no other one comes, and
// leaves in good order. It does not Run.
func (d *Daemon) Release() error {
	for _, server := range d.servers {
		defer server.listener.Close()
	}
	err := errors.Join(d.book.Release(), d.book.Close())
	if gone := os.Remove(filepath.Join(d.config.Run, requestFile)); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// limitCaches follows the page caches of what is marked until the context ends.
func (d *Daemon) limitCaches(ctx context.Context) {
	for {
		begin, period := used(), prunePeriod
		if d.book.LimitCache() > 0 {
			period = cachePeriod
		}
		rest := cacheShare * (used() - begin)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(period, rest)):
		case <-d.book.Marked:
			// It has to get into its cgroup first; and many marks are one look.
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(cacheDelay, rest)):
			}
		}
	}
}

// handle answers one call: it decides who may, and passes it to the part that does it.
func (d *Daemon) handle(ctx context.Context, peer Peer, call *wire.Call) (any, *wire.Error) {
	result, problem := d.carryOut(ctx, peer, call)
	if problem != nil {
		slog.Debug("a call is refused", "call", call.Type, "uid", peer.UID, "pid", peer.PID, "error", problem)
	} else {
		slog.Debug("a call is answered", "call", call.Type, "uid", peer.UID, "pid", peer.PID)
	}
	return result, problem
}

func (d *Daemon) carryOut(ctx context.Context, peer Peer, call *wire.Call) (any, *wire.Error) {
	switch call.Type {
	case wire.TypeStatus:
		return d.Status(), nil
	case wire.TypeMark:
		return d.mark(peer, *call.Target, call.Until)
	case wire.TypeUnmark:
		return d.unmark(peer, *call.Target)
	}
	if peer.UID != 0 {
		return nil, wire.Errorf(wire.CodeNotPermitted, "uid %d may not ask the host for anything: only root may", peer.UID)
	}
	if call.Type == wire.TypeVM {
		return asked(d.link.SetClass(ctx, call.Class))
	}
	return d.queue(ctx, call)
}

func asked(result wire.Asked, err error) (any, *wire.Error) {
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailed, "the request cannot be kept: %v", err)
	}
	return result, nil
}

func (d *Daemon) queue(ctx context.Context, call *wire.Call) (any, *wire.Error) {
	device, err := d.config.Root.Device(call.Device)
	if err != nil {
		return nil, wire.Errorf(wire.CodeNotFound, "%v", err)
	}
	queues := call.Queues
	if call.Class == wire.Foreground {
		queues = ""
	}
	return asked(d.link.SetQueues(ctx, device, queues))
}

func (d *Daemon) mark(peer Peer, target wire.Target, until int64) (any, *wire.Error) {
	if target.PID != 0 {
		if problem := d.counts(peer, target.PID); problem != nil {
			return nil, problem
		}
		return result(d.book.MarkUntil(peer.UID, target.PID, fmt.Sprintf("uid %d", peer.UID), until))
	}
	path, problem := d.book.Resolve(peer.UID, target)
	if problem != nil {
		return nil, problem
	}
	return result(d.book.MarkGroupUntil(path, until))
}

func (d *Daemon) unmark(peer Peer, target wire.Target) (any, *wire.Error) {
	if target.PID != 0 {
		if problem := d.counts(peer, target.PID); problem != nil {
			return nil, problem
		}
		return result(d.book.Unmark(peer.UID, target.PID))
	}
	path, problem := d.book.Resolve(peer.UID, target)
	if problem != nil {
		return nil, problem
	}
	return result(d.book.UnmarkGroup(path))
}

// counts makes sure that a pid means to the peer what it means here: in a container the same number is another process's. The
// kernel tells 0 of a peer that has no number here.
func (d *Daemon) counts(peer Peer, pid int) *wire.Error {
	if peer.PID != 0 && d.config.Root.SameNamespace(peer.PID, "pid") {
		return nil
	}
	return wire.Errorf(wire.CodeNotPermitted, "pid %d counts in another PID namespace: mark it from outside, or its cgroup", pid)
}

func result(marked wire.Marked, problem *wire.Error) (any, *wire.Error) {
	if problem != nil {
		return nil, problem
	}
	return marked, nil
}

// Status gathers what all parts tell.
func (d *Daemon) Status() wire.Status {
	status := wire.Status{
		Agent: wire.AgentStatus{Program: d.program(), PID: os.Getpid()}, Host: d.link.Status(),
		Marks: wire.Marks{Counts: d.book.Count(), List: []wire.Mark{}}, Lacks: d.book.Lacks(), Rules: d.watch.Status(),
	}
	status.Marks.Cache.Bytes, status.Marks.Cache.Cgroups = d.book.Cache()
	room := listBytes
	for _, record := range d.book.List(listLimit) {
		if room -= len(record.Origin) + 120; room < 0 {
			break
		}
		status.Marks.List = append(status.Marks.List, wire.Mark{
			PID: record.PID, Name: record.Comm, Origin: record.Origin, Moved: record.Whole,
		})
	}
	return status
}
