#!/bin/sh
# check.sh [DIRECTORY]: checks that fakehw does what README.md says. As root on a machine of its own (a virtual
# one: it loads the module and makes network namespaces), with roce-burst in DIRECTORY (default: this one),
# iproute2, ethtool and setpriv. Ends 0 when every check held.
#
#   s0 (here) ---- p0 [m] p1 ---- d0 [d]      [m] and [d] are network namespaces; s0, p0, p1 are fakehw ports
B=$(cd "${1:-$(dirname "$0")}" && pwd)
export NO_COLOR=1 LC_ALL=C
bad=0 good=0
is() { # WHAT WANTED GOT
	if [ "$2" = "$3" ]; then good=$((good + 1)); echo "ok    $1"
	else bad=$((bad + 1)); echo "WRONG $1: wanted '$2', got '$3'"; fi
}
says() { # WHAT TEXT COMMAND...: the command fails and its message has TEXT
	what=$1 text=$2; shift 2
	if out=$("$@" 2>&1); then is "$what" "a refusal" "success"
	else case $out in *"$text"*) is "$what" "" "";; *) is "$what" "$text" "$out";; esac; fi
}
within() { # SECONDS WHAT COMMAND...: the command comes true in that time
	end=$(($(date +%s) + $1)) what=$2; shift 2
	until "$@"; do [ "$(date +%s)" -lt $end ] || { is "$what" "true" "not in time"; return; }; done
	is "$what" "" ""
}
m() { ip netns exec m "$@"; }
sw() { m sh -c "echo $3 > /sys/class/net/$1/fakehw/$2"; }		# PORT SWITCH VALUE
hw() { m ethtool -S "$1" | awk -v n="$2:" '$1 == n { print $2 }'; }	# PORT COUNTER
mac() { [ "$1" = - ] && cat "/sys/class/net/$2/address" || ip netns exec "$1" cat "/sys/class/net/$2/address"; }
delivered() { ip netns exec d nstat -asz UdpNoPorts | awk '/UdpNoPorts/ { print $2 }'; }
forwarded() { m nstat -asz IpForwDatagrams | awk '/IpForw/ { print $2 }'; }
rule() { # PREFERENCE [DESTINATION-MAC]
	m tc filter add dev p0 ingress protocol 0x88b5 pref "$1" handle "$1" flower skip_sw src_mac "$S0" dst_mac "$P0" \
		action pedit ex munge eth type set 0x0800 pipe action pedit ex munge eth dst set "${2:-$D0}" pipe \
		action mirred egress redirect dev p1; }
unrule() { m tc filter del dev p0 ingress pref "$1"; }
counted() { m tc -s filter show dev p0 ingress pref "$1" | awk '/Sent hardware/ { n = $5 } END { print n + 0 }'; }
in_hw() { m tc filter show dev p0 ingress pref "$1" | awk '$1 == "in_hw" { n++ } END { print n + 0 }'; }
send() { # PACKETS: one message each, so no burst
	i=0; while [ $i -lt "$1" ]; do "$B/roce-burst" 10.0.1.3 64 >/dev/null; i=$((i + 1)); done; }
settle() { was=-1; while now=$(delivered)/$(forwarded)/$(hw p0 rx_out_of_buffer); [ "$now" != "$was" ]; do was=$now; done; }
burst() { "$B/roce-burst" 10.0.1.3 "$@" >/dev/null; settle; }
addresses() {
	m ip addr add 10.0.0.2/24 dev p0 2>/dev/null; m ip addr add 10.0.1.2/24 dev p1 2>/dev/null
	m ip link set p0 mtu 9000 up; m ip link set p1 mtu 9000 up; }
marked() { # runs a command while the marker is held on s0
	( exec 3>/dev/fakehw_marker; echo s0 >&3 || exit 9; "$@" ) }

echo "== set up"
for x in veth cls_flower act_pedit act_mirred sch_ingress; do modprobe $x || exit 1; done
modprobe fakehw || exit 1
dmesg -c >/dev/null
ip netns add m; ip netns add d
ip link add ls0 mtu 9000 type veth peer name lp0 netns m mtu 9000
ip link add d0 netns d mtu 9000 type veth peer name lp1 netns m mtu 9000
echo "ls0 s0" > /sys/module/fakehw/parameters/add
m sh -c 'echo "lp0 p0" > /sys/module/fakehw/parameters/add; echo "lp1 p1" > /sys/module/fakehw/parameters/add'
ip link set ls0 up; m ip link set lp0 up; m ip link set lp1 up; m ip link set lo up
ip netns exec d ip link set d0 up; ip netns exec d ip addr add 10.0.1.3/24 dev d0
ip link set s0 mtu 9000 up; ip addr add 10.0.0.1/24 dev s0
addresses
m sysctl -qw net.ipv4.ip_forward=1
ip netns exec d ip route add 10.0.0.0/24 via 10.0.1.2; ip route add 10.0.1.3/32 via 10.0.0.2
S0=$(mac - s0) P0=$(mac m p0) D0=$(mac d d0)
DEV0=$(m devlink dev show | sed -n 1p) DEV1=$(m devlink dev show | sed -n 2p)
ping -c 1 -W 5 -s 8900 -M 'do' 10.0.0.2 >/dev/null; is "a cable carries 8900 byte packets" 0 $?
ping -c 1 -W 5 10.0.1.3 >/dev/null; is "the kernel of the middle forwards" 0 $?
# From here on nothing comes back from d: its ICMP errors would be forwarded, and counted.
ip netns exec d ip route replace blackhole 10.0.0.0/24
m tc qdisc add dev p0 clsact

echo "== tc"
says "offload off: a rule is refused" "TC offload is disabled on net device" rule 101
m ethtool -K p0 hw-tc-offload on; is "offload can be switched on" 0 $?
says "another key is refused" "Unsupported key" m tc filter add dev p0 ingress protocol ip pref 7 flower skip_sw \
	src_mac "$S0" dst_mac "$P0" dst_ip 1.2.3.4 action mirred egress redirect dev p1
says "another action is refused" "Unsupported action" m tc filter add dev p0 ingress protocol 0x88b5 pref 7 flower \
	skip_sw src_mac "$S0" dst_mac "$P0" action drop
says "a rule without the rewrites is refused" "Only set eth type" m tc filter add dev p0 ingress protocol 0x88b5 \
	pref 7 flower skip_sw src_mac "$S0" dst_mac "$P0" action mirred egress redirect dev p1
says "a target that is no port is refused" "Redirect target" m tc filter add dev p0 ingress protocol 0x88b5 pref 7 \
	flower skip_sw src_mac "$S0" dst_mac "$P0" action mirred egress redirect dev lo
rule 101; is "the right rule is accepted" 0 $?
is "it is in_hw" 1 "$(in_hw 101)"
says "offload stays on while there are rules" "" m ethtool -K p0 hw-tc-offload off

echo "== packets"
f=$(forwarded) n=$(delivered)
send 20; settle
is "unmarked: all arrive" $((n + 20)) "$(delivered)"
is "unmarked: the kernel forwarded them" $((f + 20)) "$(forwarded)"
is "unmarked: the rule saw none" 0 "$(counted 101)"
exec 4>/dev/fakehw_marker; m sh -c 'echo p1 >&4'; n=$(delivered)
send 5; settle; exec 4>&-
is "what a kernel forwards is not marked" "$((n + 5)) 0" "$(delivered) $(hw p1 tx_tagged)"
f=$(forwarded) n=$(delivered) h=$(hw p0 hairpin_forwarded)
marked send 20; settle
is "marked: all arrive" $((n + 20)) "$(delivered)"
is "marked: the kernel forwarded none" "$f" "$(forwarded)"
is "marked: the hardware forwarded them" $((h + 20)) "$(hw p0 hairpin_forwarded)"
shown() { [ "$(counted 101)" = 20 ]; }
within 3 "the rule's counter shows them within two refreshes" shown
echo 600000 > /sys/module/fakehw/parameters/stats_ms
marked send 5; settle
is "between two refreshes the counter stands still" 20 "$(counted 101)"
echo 0 > /sys/module/fakehw/parameters/stats_ms
is "stats_ms 0: the counter is always fresh" 25 "$(counted 101)"

echo "== misbehaviour"
n=$(delivered) o=$(hw p0 rx_out_of_buffer)
sw p0 drop_nth 5; marked send 20; settle; sw p0 drop_nth 0
is "drop_nth 5: a fifth is lost" $((n + 16)) "$(delivered)"
is "drop_nth 5: counted as rx_out_of_buffer" $((o + 4)) "$(hw p0 rx_out_of_buffer)"
is "drop_nth 5: the rule counts all" 45 "$(counted 101)"
n=$(delivered) t=$(hw p0 rx_tag_miss)
sw p0 stop 1; marked send 5; settle; sw p0 stop 0
is "stop: nothing arrives" "$n" "$(delivered)"
is "stop: the packets miss the rule" $((t + 5)) "$(hw p0 rx_tag_miss)"
is "stop: still in_hw, not counted" "1 45" "$(in_hw 101) $(counted 101)"
sw p1 dead_egress 1; marked send 5; settle; sw p1 dead_egress 0
is "dead_egress: nothing arrives, the rule counts" "$n 50" "$(delivered) $(counted 101)"
sw p0 forget 1; marked send 5; settle
is "forget: nothing arrives, still in_hw, not counted" "$n 1 50" "$(delivered) $(in_hw 101) $(counted 101)"
unrule 101
sw p0 refuse 1; says "refuse: refused" "fault injection" rule 101; sw p0 refuse 0
sw p0 refuse_nth 2
rule 101; is "refuse_nth 2: the first rule is accepted" 0 $?
says "refuse_nth 2: the second is refused" "fault injection" rule 102 02:00:00:00:00:01
rule 102 02:00:00:00:00:01; is "refuse_nth 2: the third is accepted (and a second one with the same match)" 0 $?
says "a third one with the same match is refused" "File exists" rule 103 02:00:00:00:00:02
n=$(delivered); marked send 5; settle
is "of two with the same match the older one works" $((n + 5)) "$(delivered)"
unrule 102; sw p0 same_match 1
says "same_match 1: a second one is refused" "File exists" rule 102; sw p0 same_match 2
unrule 101
sw p0 lose 1; rule 101; is "lose: accepted" "0 1" "$? $(in_hw 101)"; sw p0 lose 0
n=$(delivered); marked send 5; settle
is "lose: nothing arrives" "$n" "$(delivered)"
unrule 101; rule 101

echo "== the hairpin queue"
param() { m devlink -j dev param show "$1" name "$2" | sed 's/.*"value": *"\{0,1\}\([a-z0-9]*\).*/\1/'; }
is "defaults" "1024 4 hmfs" "$(param "$DEV0" hairpin_queue_size) $(param "$DEV0" hairpin_num_queues) $(param "$DEV0" flow_steering_mode)"
setp() { m devlink dev param set "$DEV0" name "$1" value "$2" cmode "$3"; }
says "5000 is no queue size" "mlx5_core: Value is not power of two" setp hairpin_queue_size 5000 driverinit
says "16384 is too large" "mlx5_core: Maximum hairpin queue size is 8192" setp hairpin_queue_size 16384 driverinit
says "no queues is refused" "Invalid argument" setp hairpin_num_queues 0 driverinit
says "an unknown steering mode is refused" 'supported values are ["dmfs", "smfs", "hmfs"]' setp flow_steering_mode x runtime
setp flow_steering_mode smfs runtime; is "steering mode changes at once" smfs "$(param "$DEV0" flow_steering_mode)"
lost() { o=$(hw p0 rx_out_of_buffer); marked burst "$@"; echo $(($(hw p0 rx_out_of_buffer) - o)); }
is "1024: 60 KB pass" 0 "$(lost 61440)"
is "1024: the cap of 81920 passes" 0 "$(lost 81920)"
is "1024: 102400 lose a packet" 1 "$(lost 102400)"
is "1024: 240 KB lose half of the rest" 19 "$(lost 245760)"
is "1024: two messages of 60 KB at a time lose packets" 3 "$(lost 61440 2)"
marked burst 245760 1 0 50
is "1024: a sender that goes back finds the queue empty" 0 "$(lost 245760 1 40)"
setp hairpin_queue_size 8192 driverinit
is "a set value is shown before it is loaded" "8192 1024" "$(param "$DEV0" hairpin_queue_size) $(m cat /sys/class/net/p0/fakehw/loaded_queue_size)"
is "a pending 8192 changes nothing" 19 "$(lost 245760)"
reloads() { m devlink -j -s dev show "$1" | tr -d ' \n' | sed 's/.*"stats":{"reload":{[^}]*"driver_reinit":{"unspecified":\([0-9]*\).*/\1/'; }
is "no reload is counted yet" 0 "$(reloads "$DEV0")"
i=$(m cat /sys/class/net/p0/ifindex)
m devlink dev reload "$DEV0" action driver_reinit >/dev/null; is "reload" 0 $?
is "the reload is counted" 1 "$(reloads "$DEV0")"
is "8192 is loaded" "8192 8192" "$(param "$DEV0" hairpin_queue_size) $(m cat /sys/class/net/p0/fakehw/loaded_queue_size)"
is "the netdev is a new one" 1 "$([ "$i" != "$(m cat /sys/class/net/p0/ifindex)" ] && echo 1)"
is "its offload is off" "hw-tc-offload: off" "$(m ethtool -k p0 | grep hw-tc-offload)"
is "its addresses are gone" "" "$(m ip -4 -br addr show dev p0 | awk '{ print $3 }')"
is "its qdiscs are gone" "" "$(m tc qdisc show dev p0 clsact 2>/dev/null | grep clsact)"
is "its rules are gone" 0 "$(hw p0 rules)"
addresses; m ethtool -K p0 hw-tc-offload on; m tc qdisc add dev p0 clsact; rule 101
ping -c 1 -W 5 10.0.0.2 >/dev/null
is "8192: 240 KB pass" 0 "$(lost 245760)"
is "8192: 480 KB pass" 0 "$(lost 491520)"
is "8192: 960 KB lose packets" 26 "$(lost 983040)"

echo "== a reload of the redirect target"
n=$(delivered) c=$(counted 101)
m devlink dev reload "$DEV1" action driver_reinit >/dev/null; addresses
is "the rule still reads in_hw, its target is *" "1 *" "$(in_hw 101) $(m tc filter show dev p0 ingress pref 101 | sed -n 's/.*Redirect to device \([^ )]*\).*/\1/p')"
marked send 5; settle
is "nothing arrives, the rule counts" "$n $((c + 5))" "$(delivered) $(counted 101)"
unrule 101; rule 101
n=$(delivered); marked send 5; settle
is "a new rule works" $((n + 5)) "$(delivered)"

echo "== the marker"
hold() { echo "$*" | dd of=/dev/fakehw_marker; }		# dd says the errno, and lets go again
mark() { cat /sys/class/net/s0/fakehw/mark; }
is "no marker is held" 0 "$(mark)"
exec 3>/dev/fakehw_marker; echo s0 >&3
is "one marker is held" 1 "$(mark)"
says "a second one is refused" "File exists" hold s0
hold s0 65534 0x88b6 2>/dev/null; is "one for another port is not" 0 $?
exec 3>&-
is "it ends with its file" 0 "$(mark)"
says "not without CAP_NET_RAW" "not permitted" \
	setpriv --bounding-set -net_raw sh -c 'echo s0 | dd of=/dev/fakehw_marker'
echo 95 > /sys/class/net/s0/fakehw/marker_errno
says "marker_errno 95 refuses" "not supported" hold s0
echo 0 > /sys/class/net/s0/fakehw/marker_errno
says "not on another netdev" "No such device" hold ls0
exec 3>/dev/fakehw_marker; echo s0 >&3
devlink dev reload "$(devlink dev show | head -1)" action driver_reinit >/dev/null
is "a reload flushes it" 0 "$(mark)"
says "and its holder cannot put it back" "Input/output" sh -c 'echo s0 | dd >&3'
ip link set s0 mtu 9000 up; ip addr add 10.0.0.1/24 dev s0; ip route add 10.0.1.3/32 via 10.0.0.2
ping -c 1 -W 5 10.0.0.2 >/dev/null; f=$(forwarded); send 5; settle
is "while its holder lives on, packets go unmarked" $((f + 5)) "$(forwarded)"
exec 3>&-
exec 3>/dev/fakehw_marker; echo s0 >&3; echo 1 > /sys/class/net/s0/fakehw/flush_markers
is "flush_markers flushes it too" 0 "$(mark)"
exec 3>&-

echo "== the cable"
m ip link set lp0 down; within 5 "a pulled cable takes the carrier" grep -q 0 /sys/class/net/s0/carrier
m ip link set lp0 up; within 5 "it comes back" grep -q 1 /sys/class/net/s0/carrier

echo "== tear down"
ip netns del m; ip netns del d; ip link del ls0 2>/dev/null
within 20 "the module unloads" rmmod fakehw
is "the kernel has no complaint" "" "$(dmesg | grep -iE 'bug|warn|oops|leak|unregister_netdevice: waiting|general protection' | head -3)"
echo "$good passed, $bad failed"
[ $bad = 0 ]
