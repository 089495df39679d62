// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"idletime.org/guest-agent/internal/wire"
)

// TestThePythonExample lets the example mark itself at a server that writes down what it was asked.
func TestThePythonExample(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	var mu sync.Mutex
	asked := []string{}
	path := serve(t, func(_ context.Context, peer Peer, call *wire.Call) (any, *wire.Error) {
		mu.Lock()
		defer mu.Unlock()
		if call.Target.PID != peer.PID {
			t.Errorf("it names pid %d and is %d", call.Target.PID, peer.PID)
		}
		asked = append(asked, call.Type)
		return wire.Marked{Lacks: []string{"the server's words"}}, nil
	})
	for socket, want := range map[string]string{path: "background.py: the server's words\n", path + "x": "nothing is marked: no agent answers"} {
		command := exec.Command(python, "../../../examples/guest/background.py", "sh", "-c", "exit 7")
		command.Env = append(command.Environ(), "IDLETIME_SOCKET="+socket)
		output, _ := command.CombinedOutput()
		if command.ProcessState.ExitCode() != 7 || !strings.Contains(string(output), want) {
			t.Errorf("status %d, %s", command.ProcessState.ExitCode(), output)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(asked, " "); got != "mark unmark" {
		t.Errorf("it asked for %s", got)
	}
}
