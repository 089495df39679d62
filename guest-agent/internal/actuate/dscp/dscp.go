// SPDX-License-Identifier: GPL-2.0-or-later

// Package dscp marks the packets of some cgroups as background: DSCP 1, the lower-effort service of RFC 8622.
//
// It keeps nftables tables of its own, `inet idletime` and, where answers inherit their class, `inet idletime-inherit`, each
// written in one transaction and removed in one. It talks to the kernel itself (netlink), so that a guest needs no nft program.
package dscp

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// Table is the name of our table, in family inet.
	Table = "idletime"
	// LE is the code point of the lower-effort service.
	LE = 1

	// outgoing is the chain in each of our tables whose rules mark.
	outgoing = "outgoing"

	register = 1
	// bulk is the kernel's TC_PRIO_BULK, which pfifo_fast, prio and mqprio send after all else.
	bulk = 2
	// The two bytes at the start of either IP header hold version, DSCP and ECN; both are rewritten as a pair, because the
	// IPv4 header checksum goes by pairs. The checksum is at byte 10.
	headerBytes    = 2
	checksumOffset = 10

	// answerTime is how long the kernel has for all answers on one socket. It answers at once, but for a change of a table, which
	// waits for all processors; a module may have to be loaded first.
	answerTime = 30 * time.Second
)

// options are those of each connection: an answer that never comes is an error, and nobody waits for it for ever.
var options = []nftables.ConnOption{nftables.WithSockOptions(within(answerTime))}

func within(duration time.Duration) nftables.SockOption {
	return func(conn *netlink.Conn) error { return conn.SetReadDeadline(time.Now().Add(duration)) }
}

// Group is a cgroup whose sockets are marked: its place in the tree. ID is the inode number of its folder.
type Group struct {
	Path string
	ID   uint64
}

// level is the depth of a group below the root, which nftables compares at.
func (g Group) level() uint32 {
	return uint32(strings.Count(strings.Trim(g.Path, "/"), "/") + 1)
}

// family says how DSCP lies in the first two bytes of a header.
type family struct {
	protocol byte
	mask     []byte
	value    []byte
	checksum expr.PayloadCsumType
}

var families = []family{
	// version(4) length(4) | DSCP(6) ECN(2)
	{unix.NFPROTO_IPV4, []byte{0xff, 0x03}, []byte{0x00, LE << 2}, expr.CsumTypeInet},
	// version(4) DSCP(4 upper) | DSCP(2 lower) ECN(2) flow label
	{unix.NFPROTO_IPV6, []byte{0xf0, 0x3f}, []byte{LE >> 2, LE << 6 & 0xff}, expr.CsumTypeNone},
}

// rule is the nft rule `meta nfproto F socket cgroupv2 level N ID`, and setLE.
func rule(f family, g Group) []expr.Any {
	exprs := append(isFamily(f),
		&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: g.level(), Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binaryutil.NativeEndian.PutUint64(g.ID)})
	return append(exprs, setLE(f)...)
}

// isFamily is `meta nfproto F`.
func isFamily(f family) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{f.protocol}},
	}
}

// setLE is `meta priority set 0:2 ip[6] dscp set le`: in queues of the guest's own it goes after what is not marked.
func setLE(f family) []expr.Any {
	write := &expr.Payload{
		OperationType: expr.PayloadWrite, Base: expr.PayloadBaseNetworkHeader, Offset: 0, Len: headerBytes,
		SourceRegister: register, CsumType: f.checksum,
	}
	if f.checksum != expr.CsumTypeNone {
		write.CsumOffset = checksumOffset
	}
	return []expr.Any{
		&expr.Immediate{Register: register, Data: binaryutil.NativeEndian.PutUint32(bulk)},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: register},
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 0, Len: headerBytes},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: headerBytes, Mask: f.mask, Xor: f.value},
		write,
	}
}

// Set makes the packets of exactly these groups be marked, in one transaction; no group removes the table, if there is one.
//
// Needs CAP_NET_ADMIN. The network namespace is the agent's own. Sockets that exist keep the cgroup in which they were made.
func Set(groups []Group) error {
	return replace(Table, func(conn *nftables.Conn, table *nftables.Table) { fill(conn, table, groups) }, len(groups) > 0)
}

// Has tells whether the rules of one of our tables are there: whoever loads rules of his own may have flushed all tables. Where
// the kernel does not say they count as there.
func Has(name string) bool {
	conn, err := nftables.New(options...)
	if err != nil {
		return true
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: name}
	rules, err := conn.GetRules(table, &nftables.Chain{Name: outgoing, Table: table})
	return err != nil || len(rules) > 0
}

// replace writes one of our tables anew, or removes it where nobody wants it, in one transaction.
func replace(name string, fill func(*nftables.Conn, *nftables.Table), wanted bool) error {
	conn, err := nftables.New(options...)
	if err == nil {
		// A kernel without nf_tables answers all messages of a transaction with one error, and Flush waits for one each. It is
		// asked with a single message first.
		_, err = conn.ListTablesOfFamily(nftables.TableFamilyINet)
	}
	if !wanted && isAbsent(err) {
		return nil // a kernel without nftables never had one
	}
	if err != nil {
		return explain(err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: name}
	// Adding what may exist makes deleting it safe.
	conn.AddTable(table)
	conn.DelTable(table)
	if wanted {
		fill(conn, conn.AddTable(table))
	}
	return explain(conn.Flush())
}

// isAbsent tells the errors of a kernel without nftables: it has no nfnetlink, or no nf_tables and may not load it.
func isAbsent(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// fill adds a chain with a rule for each group and family.
func fill(conn *nftables.Conn, table *nftables.Table, groups []Group) {
	chain := conn.AddChain(&nftables.Chain{
		Name: outgoing, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle,
	})
	for _, group := range groups {
		for _, each := range families {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(each, group)})
		}
	}
}

// explain says what a kernel lacks where its errno does not.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case isAbsent(err):
		return fmt.Errorf("this kernel has no nftables (nf_tables): %w", err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("this kernel's nftables has no `socket cgroupv2` (5.13 and nft_socket): %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("the agent may not change nftables (CAP_NET_ADMIN): %w", err)
	}
	return fmt.Errorf("nftables: %w", err)
}
