#!/bin/bash
# record.sh OUT -- records what iproute2 prints on a machine with two ports that offload flower rules
# (here: the test module fakehw, Linux 6.12), for tests/scripts.rs. Leaves its objects behind.
# shellcheck disable=SC2086 # words of $TYPE and so on are split on purpose
set -u
out=$1 in=enp1s0f0np0 to=enp1s0f1np1 block=enP2p1s0f0np0 plain=enP2p1s0f1np1
S=02:ca:fe:03:00:01 D=02:ca:fe:00:00:01 N=02:ca:fe:01:01:01
mkdir -p "$out"
save() { "${@:2}" >"$out/$1.txt" 2>&1; }
ethtool -K $in hw-tc-offload on
save qdisc-none tc -N qdisc show dev $in
tc qdisc add dev $in clsact
tc qdisc add dev $block ingress_block 5 clsact
tc qdisc add dev $plain ingress
save qdisc-clsact tc -N qdisc show dev $in
save qdisc-shared-block tc -N qdisc show dev $block
save qdisc-ingress tc -N qdisc show dev $plain
save filters-none tc -N filter show dev $in ingress

TYPE="action pedit ex munge eth type set 0x0800 pipe" DST="action pedit ex munge eth dst set $N pipe"
REDIRECT="action mirred egress redirect dev $to"
add() { tc filter add dev $in ingress "$@"; }
rule() { add protocol 0x88b5 pref "$1" handle "$1" flower "${@:2}"; }
rule 49152 skip_sw src_mac $S dst_mac $D $TYPE $DST $REDIRECT                  # right
rule 49153 skip_hw src_mac $S dst_mac $D $TYPE $DST $REDIRECT                  # not_in_hw
rule 49154 src_mac $S dst_mac $D $TYPE $DST $REDIRECT                          # in_hw, in software too
rule 49155 skip_hw src_mac $S/ff:ff:ff:ff:ff:00 dst_mac $D $TYPE $DST $REDIRECT # a MAC with a mask
rule 49156 skip_hw src_mac $S dst_mac $D $DST $TYPE $REDIRECT                  # another order
rule 49157 skip_hw src_mac $S dst_mac $D $TYPE $DST action mirred egress mirror dev $to
rule 49158 skip_sw src_mac $S dst_mac 02:ca:fe:00:00:02 $TYPE $DST $REDIRECT   # another MAC
add protocol ip pref 49159 flower skip_hw ip_proto udp action drop             # another protocol
add protocol 0x88b5 pref 49160 handle 7 flower skip_hw src_mac $S action drop  # another handle
add protocol 0x88b5 pref 49161 matchall action drop                            # another classifier
add protocol 0x88b5 pref 49162 chain 5 handle 49162 flower skip_hw src_mac $S action drop
rule 49163 skip_hw indev $in src_mac $S dst_mac $D $TYPE $DST $REDIRECT        # another key
rule 49164 skip_sw src_mac $S dst_mac $D $TYPE $DST $REDIRECT cookie aabb
add protocol ip pref 49165 u32 match ip dst 192.0.2.1/32 action drop
rule 49166 skip_hw src_mac $S dst_mac $D $TYPE $DST $REDIRECT
add protocol 0x88b5 pref 49166 handle 8 flower skip_hw src_mac $S action drop  # a second one
# The target is gone: what a re-initialised port leaves.
ip link add lower0 type veth peer name lower1
echo "lower0 spare0" >/sys/module/fakehw/parameters/add
ethtool -K spare0 hw-tc-offload on
rule 49167 skip_sw src_mac $S dst_mac 02:ca:fe:00:00:03 $TYPE $DST action mirred egress redirect dev spare0
ip link del lower0
save filters tc -N filter show dev $in ingress

route() { ip -4 route add "${@:2}"; save "route-$1" ip -o -4 -N -d route show table main exact 10.10.1.11/32; }
again() { ip -4 route flush 10.10.1.11/32 table main 2>/dev/null; ip -4 route flush 10.10.1.11/32 tos 0x10 table main 2>/dev/null; }
R="10.10.1.11/32 via 10.10.0.11 dev $in src 10.10.0.10"
save route-none ip -o -4 -N -d route show table main exact 10.10.1.11/32
route right $R proto 141
again; route todays $R
again; route other-gateway 10.10.1.11/32 via 10.10.0.12 dev $in src 10.10.0.10 proto 141
again; route other-source 10.10.1.11/32 via 10.10.0.11 dev $in proto 141
again; route onlink $R proto 141 onlink
again; route mtu $R proto 141 mtu 1500
again; route metric $R proto 141 metric 5
again; route tos 10.10.1.11/32 tos 0x10 via 10.10.0.11 dev $in src 10.10.0.10 proto 141
again; route blackhole blackhole 10.10.1.11/32
again; route multipath 10.10.1.11/32 proto 141 nexthop via 10.10.0.11 dev $in nexthop via 10.10.3.10 dev $to
again; route scope-link 10.10.1.11/32 dev $in src 10.10.0.10 proto 141 scope link
again; ip -4 route add $R proto 141; route two 10.10.1.11/32 via 10.10.0.12 dev $in metric 7
again

neighbour() { ip -4 neigh replace 10.10.1.11 dev $in "${@:2}"; save "neighbour-$1" ip -o -4 -N neigh show to 10.10.1.11 dev $in nud all; ip neigh del 10.10.1.11 dev $in; }
save neighbour-none ip -o -4 -N neigh show to 10.10.1.11 dev $in nud all
neighbour right lladdr $N nud permanent
neighbour right-with-protocol lladdr $N nud permanent protocol 141
neighbour other-mac lladdr $S nud permanent
neighbour noarp lladdr $N nud noarp
neighbour learnt lladdr $N nud reachable
ip link add peer0 type veth peer name peer1
ip link set peer0 up
save link-no-carrier ip -o link show dev peer0
save link-down ip -o link show dev peer1
save link-up ip -o link show dev $in
save addresses ip -o -4 addr show dev $in
save addresses-none ip -o -4 addr show dev peer0
ip -4 addr add 10.10.1.1 peer 10.10.1.2/32 dev peer0
ip -4 addr add 10.10.1.3/32 dev peer0
save addresses-two ip -o -4 addr show dev peer0
ip -V >"$out/version.txt"
