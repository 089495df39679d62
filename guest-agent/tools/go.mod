// What checks the agent, pinned. No part of it: the agent's own go.mod does not know of it.
module idletime.org/guest-agent/tools

go 1.23.0

require honnef.co/go/tools v0.6.1

require (
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.23.0 // indirect
	golang.org/x/sync v0.11.0 // indirect
	golang.org/x/tools v0.30.0 // indirect
)
