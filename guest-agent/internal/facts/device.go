// SPDX-License-Identifier: GPL-2.0-or-later

package facts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"idletime.org/guest-agent/internal/wire"
)

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// Device turns what a person types into a device as the protocol names it.
//
// Text is a name of this guest (vdb, /dev/vdb, eth0) or has a prefix: serial:, pci:, mac:, target:.
// Errors: no such device here; an unknown prefix; a device that has neither serial nor address.
func (r Root) Device(text string) (wire.Device, error) {
	kind, value, found := strings.Cut(text, ":")
	if !found {
		return r.deviceByName(strings.TrimPrefix(text, "/dev/"))
	}
	switch kind {
	case "serial":
		return wire.Device{Serial: value}, nil
	case "pci":
		return wire.Device{PCI: strings.ToLower(value)}, nil
	case "mac":
		return wire.Device{MAC: strings.ToLower(value)}, nil
	case "target":
		return wire.Device{Target: value}, nil
	}
	return wire.Device{}, fmt.Errorf("device %q: write a name such as vdb, or serial:, pci:, mac: or target: and a value", text)
}

func (r Root) deviceByName(name string) (wire.Device, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return wire.Device{}, fmt.Errorf("device %q is no name of a device", name)
	}
	for _, class := range []string{"block", "net"} {
		folder := r.Path("sys/class", class, name)
		if _, err := os.Stat(folder); err != nil {
			continue
		}
		device := wire.Device{Kernel: name, PCI: pciOf(folder)}
		if class == "block" {
			device.Serial = readWord(filepath.Join(folder, "serial"))
		} else {
			device.MAC = readWord(filepath.Join(folder, "address"))
		}
		if device.PCI == "" && device.Serial == "" {
			return wire.Device{}, fmt.Errorf("device %s has no address that the host knows: is it virtual, or a partition?", name)
		}
		return device, nil
	}
	return wire.Device{}, fmt.Errorf("there is no device %s: see /sys/class/block and /sys/class/net", name)
}

// pciOf is the innermost PCI address on the way to a device; virtio devices hang below theirs.
func pciOf(folder string) string {
	target, err := filepath.EvalSymlinks(filepath.Join(folder, "device"))
	if err != nil {
		return ""
	}
	for ; target != "/" && target != "."; target = filepath.Dir(target) {
		if name := filepath.Base(target); pciAddress.MatchString(name) {
			return name
		}
	}
	return ""
}

func readWord(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Port is the device node of a virtio-serial port of this name, "" where there is none.
//
// The node comes from the port's name in /sys, because the link in /dev/virtio-ports needs udev.
func (r Root) Port(name string) string {
	names, _ := filepath.Glob(r.Path("sys/class/virtio-ports/*/name"))
	for _, each := range names {
		if readWord(each) == name {
			return r.Path("dev", filepath.Base(filepath.Dir(each)))
		}
	}
	return ""
}
