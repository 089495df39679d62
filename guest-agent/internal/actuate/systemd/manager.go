// SPDX-License-Identifier: GPL-2.0-or-later

package systemd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"idletime.org/guest-agent/internal/actuate/cgroup"
)

const (
	// socket is systemd's own, which only root may use.
	socket = "/run/systemd/private"
	// callTime is how long systemd may take for one request of ours, its job included.
	callTime = 5 * time.Second
	// pause is how long systemd is left alone after it did not answer in time: others wait for the book meanwhile.
	pause = 30 * time.Second

	// weightIdle stands for CPUWeight=idle; systemd before 252 does not know it, and takes the lowest weight.
	weightIdle   = uint64(0)
	weightLowest = uint64(1)
)

// ErrNoUnit says that systemd knows no such unit, or that it does not run.
var ErrNoUnit = errors.New("no such unit is running")

// Manager is the system's systemd. Its methods may be called from any goroutine.
type Manager struct {
	// socket and callTime are other ones in tests.
	socket   string
	callTime time.Duration

	mu sync.Mutex
	// silent is when systemd last did not answer in time.
	silent time.Time
}

// New is the manager of the running system.
func New() *Manager { return &Manager{socket: socket, callTime: callTime} }

// dial connects to systemd itself, as systemctl does for root: that needs no D-Bus daemon. It ends with the context.
func (m *Manager) dial(ctx context.Context) (*dbus.Conn, error) {
	return dbus.NewConnection(func() (*godbus.Conn, error) {
		conn, err := godbus.Dial("unix:path="+m.socket, godbus.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		if err := conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	})
}

// with makes a connection for one request. It ends in time.
func (m *Manager) with(request func(ctx context.Context, conn *dbus.Conn) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.silent) < pause {
		return fmt.Errorf("systemd did not answer within %v; it is asked again after %v", m.callTime, pause)
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.callTime)
	defer cancel()
	conn, err := m.dial(ctx)
	if err == nil {
		defer conn.Close()
		err = request(ctx, conn)
	}
	if ctx.Err() != nil && err != nil {
		m.silent = time.Now()
		err = fmt.Errorf("systemd did not answer within %v: %w", m.callTime, err)
	}
	return err
}

// named tells whether an error of D-Bus is one of these; names are given without their common beginning.
func named(err error, names ...string) bool {
	var known godbus.Error
	if !errors.As(err, &known) {
		return false
	}
	for _, name := range names {
		if strings.HasSuffix(known.Name, "."+name) {
			return true
		}
	}
	return false
}

// explain makes systemd's words about a unit ours.
func explain(unit string, err error) error {
	switch {
	case err == nil:
		return nil
	case named(err, "NoSuchUnit", "LoadFailed", "UnitInactive", "BadUnitSetting"):
		return fmt.Errorf("unit %s: %w: %v", unit, ErrNoUnit, err)
	}
	return fmt.Errorf("unit %s: systemd says: %w", unit, err)
}

// Move puts a process with all its threads into a scope of ours, or the one that Former names; it is made when it is not
// there. Errors: ErrNoUnit, or systemd's own.
func (m *Manager) Move(pid int, group string) error {
	unit := path.Base(group)
	return m.with(func(ctx context.Context, conn *dbus.Conn) error {
		err := conn.AttachProcessesToUnit(ctx, unit, "", []uint32{uint32(pid)})
		if named(err, "NoSuchUnit", "LoadFailed", "UnitInactive") {
			err = m.start(ctx, conn, group, pid)
		}
		return explain(unit, err)
	})
}

// Former is the cgroup for an unmarked process whose session has ended: it stays in the slice of its user.
func Former(session string, pid int) string {
	return path.Join(path.Dir(session), formerPrefix+strconv.Itoa(pid)+scopeSuffix)
}

// start makes a scope with a process in it. An old systemd does not know everything that we ask for.
func (m *Manager) start(ctx context.Context, conn *dbus.Conn, group string, pid int) error {
	err := startWith(ctx, conn, path.Base(group), scopeProperties(group, pid, true))
	if named(err, "PropertyReadOnly", "InvalidArgs", "UnknownProperty") {
		err = startWith(ctx, conn, path.Base(group), scopeProperties(group, pid, false))
	}
	return err
}

func startWith(ctx context.Context, conn *dbus.Conn, unit string, properties []dbus.Property) error {
	done := make(chan string, 1)
	if _, err := conn.StartTransientUnitContext(ctx, unit, "fail", properties, done); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("the job of scope %s is %s", unit, result)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scopeProperties are those of a session's scope, which logind makes, and those that make it give way.
func scopeProperties(group string, pid int, modern bool) []dbus.Property {
	properties := []dbus.Property{
		property("Description", "Background work of this guest"),
		property("Slice", path.Base(path.Dir(group))),
		property("PIDs", []uint32{uint32(pid)}),
		property("SendSIGHUP", true),
		property("TasksMax", uint64(math.MaxUint64)),
		property("CollectMode", "inactive-or-failed"),
	}
	session := Session(group)
	if session == "" {
		return properties
	}
	// systemd takes further processes only into a scope that is delegated.
	properties = append(properties, property("DelegateControllers", []string{"cpu", "io", "memory"}))
	// Who stops the session, stops what is of it here. That it becomes empty stops nothing, other than with BindsTo or
	// StopPropagatedFrom: a backup goes on after its user has logged out.
	properties = append(properties, property("PartOf", []string{path.Base(session)}))
	return append(properties, weights(modern)...)
}

func weights(modern bool) []dbus.Property {
	cpu := weightIdle
	if !modern {
		cpu = weightLowest
	}
	return []dbus.Property{property("CPUWeight", cpu), property("IOWeight", weightLowest)}
}

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

// weightNames are the properties that Quiet sets, and that Restore puts back.
var weightNames = []string{"CPUWeight", "IOWeight"}

// Quiet makes a unit give way until the next boot. What it had before, for Restore, it first hands to keep, whose error ends it.
func (m *Manager) Quiet(unit string, keep func(before cgroup.Attributes) error) error {
	return m.with(func(ctx context.Context, conn *dbus.Conn) error {
		before, err := readWeights(ctx, conn, unit)
		if err != nil {
			return explain(unit, err)
		}
		if err := keep(before); err != nil {
			return err
		}
		err = conn.SetUnitPropertiesContext(ctx, unit, true, weights(true)...)
		if named(err, "InvalidArgs") {
			err = conn.SetUnitPropertiesContext(ctx, unit, true, weights(false)...)
		}
		if err == nil {
			// systemd writes the cgroup before it answers what is asked next. If it does not, they are set all the same, and
			// they are on record.
			_, _ = readWeights(ctx, conn, unit)
		}
		return explain(unit, err)
	})
}

// Restore gives a unit the properties that it had. A unit that is gone for good needs nothing.
func (m *Manager) Restore(unit string, before cgroup.Attributes) error {
	properties := []dbus.Property{}
	for _, name := range weightNames {
		if value, err := strconv.ParseUint(before[name], 10, 64); err == nil {
			properties = append(properties, property(name, value))
		}
	}
	return m.with(func(ctx context.Context, conn *dbus.Conn) error {
		err := explain(unit, conn.SetUnitPropertiesContext(ctx, unit, true, properties...))
		if errors.Is(err, ErrNoUnit) {
			return nil
		}
		return err
	})
}

// ControlGroup is the cgroup of a unit that runs. Errors: ErrNoUnit.
func (m *Manager) ControlGroup(unit string) (group string, err error) {
	err = m.with(func(ctx context.Context, conn *dbus.Conn) error {
		found, err := conn.GetUnitTypePropertyContext(ctx, unit, kind(unit), "ControlGroup")
		if err == nil {
			group, _ = found.Value.Value().(string)
		}
		return explain(unit, err)
	})
	if err == nil && group == "" {
		err = fmt.Errorf("unit %s: %w", unit, ErrNoUnit)
	}
	return group, err
}

func readWeights(ctx context.Context, conn *dbus.Conn, unit string) (cgroup.Attributes, error) {
	values := cgroup.Attributes{}
	for _, name := range weightNames {
		found, err := conn.GetUnitTypePropertyContext(ctx, unit, kind(unit), name)
		if err != nil {
			return nil, err
		}
		if value, ok := found.Value.Value().(uint64); ok {
			values[name] = strconv.FormatUint(value, 10)
		}
	}
	return values, nil
}

// kind is the D-Bus interface of a unit by its suffix: Service for a.service.
func kind(unit string) string {
	suffix := strings.TrimPrefix(path.Ext(unit), ".")
	if suffix == "" {
		return "Service"
	}
	return strings.ToUpper(suffix[:1]) + suffix[1:]
}
