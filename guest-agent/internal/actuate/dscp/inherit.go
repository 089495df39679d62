// SPDX-License-Identifier: GPL-2.0-or-later

package dscp

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

const (
	// InheritTable is the name of our second table, in family inet.
	InheritTable = "idletime-inherit"
	// ConnectionMark is the bit of the connection mark (conntrack) that says: the other side's last packet was background.
	ConnectionMark = 0x2000

	// As the kernel's ip_conntrack_dir: of the packets of who began a connection, and of the answers.
	original, reply = 0, 1
)

// Inherit makes answers inherit the class of what they answer (Eggert, section 5.4.2): in a connection that another host has
// begun, packets get DSCP 1 while those that come have it. With off, the table goes, if there is one.
//
// Connections that this guest has begun are left alone: who answers does not say what a process here is. The kernel tracks
// connections for it, which each packet of the guest pays for. Needs CAP_NET_ADMIN; the network namespace is the agent's own.
func Inherit(on bool) error {
	return replace(InheritTable, func(conn *nftables.Conn, table *nftables.Table) {
		in := conn.AddChain(&nftables.Chain{
			Name: "incoming", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
		})
		out := conn.AddChain(&nftables.Chain{
			Name: outgoing, Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityMangle,
		})
		for _, each := range families {
			conn.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: remember(each, expr.CmpOpEq, ConnectionMark)})
			conn.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: remember(each, expr.CmpOpNeq, 0)})
			conn.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: answer(each)})
		}
	}, on)
}

// remember is the nft rule `ct direction original ip[6] dscp [!=] le ct mark set ct mark & ~M ^ V`, which has other bits stay.
func remember(f family, is expr.CmpOp, value uint32) []expr.Any {
	others := make([]byte, headerBytes)
	for i := range others {
		others[i] = ^f.mask[i]
	}
	exprs := append(of(f, original),
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 0, Len: headerBytes},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: headerBytes, Mask: others, Xor: make([]byte, headerBytes)},
		&expr.Cmp{Op: is, Register: register, Data: f.value},
	)
	return append(append(exprs, connectionMark(^uint32(ConnectionMark), value)...),
		&expr.Ct{Key: expr.CtKeyMARK, Register: register, SourceRegister: true})
}

// answer is the nft rule `ct direction reply ct mark & M == M`, and setLE.
func answer(f family) []expr.Any {
	exprs := append(of(f, reply), connectionMark(ConnectionMark, 0)...)
	exprs = append(exprs,
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binaryutil.NativeEndian.PutUint32(ConnectionMark)})
	return append(exprs, setLE(f)...)
}

// of matches packets of a family in one direction of a connection.
func of(f family, direction byte) []expr.Any {
	return append(isFamily(f),
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{direction}})
}

// connectionMark loads the mark: mark & mask ^ xor.
func connectionMark(mask, xor uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: register},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor)},
	}
}
