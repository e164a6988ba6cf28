#!/bin/sh
# check.sh DIRECTORY: checks the stand-in for libmlx5.so.1 against Soft-RoCE on a fakehw port. As root on a machine
# of its own (a virtual one), with libmlx5.so.1 and marker-test of this Makefile in DIRECTORY, rdma-core, iproute2,
# tcpdump and setpriv. Ends 0 when every check held.
#
#   s0 (fakehw on ls0, RDMA device rs0) ---- w0 [w], where we look      x0 (plain veth, RDMA device rx0)
D=$(cd "$1" && pwd) || exit 2
T=$(mktemp -d)
export LC_ALL=C
bad=0 good=0
is() { # WHAT WANTED GOT
	if [ "$2" = "$3" ]; then good=$((good + 1)); echo "ok    $1"
	else bad=$((bad + 1)); echo "WRONG $1: wanted '$2', got '$3'"; fi
}
until_true() { # COMMAND...: waits up to 20 s
	end=$(($(date +%s) + 20))
	until "$@"; do [ "$(date +%s)" -lt $end ] || return 1; done
}
has() { grep -q -- "$2" "$1"; }		# FILE TEXT
marker() { LD_PRELOAD=$D/libmlx5.so.1 "$D/marker-test" "$@"; }		# README.md says why LD_PRELOAD
mark() { cat /sys/class/net/s0/fakehw/mark; }
tagged() { ethtool -S s0 | awk '$1 == "tx_tagged:" { print $2 }'; }
rdma_up() { # brings s0 and its RDMA device (back)
	ip link set s0 mtu 9000 up; ip addr add 10.0.0.1/24 dev s0
	ip neigh replace 10.0.0.9 lladdr 02:00:00:00:00:09 dev s0 nud permanent
	until_true rdma_add
}
rdma_add() { rdma link add rs0 type rxe netdev s0 2>/dev/null; }
start() { # MODE: a marker in the background; $pid, output in $T/out, ends when file descriptor 9 is closed
	rm -f "$T/in"; mkfifo "$T/in"; : > "$T/out"
	LD_PRELOAD=$D/libmlx5.so.1 "$D/marker-test" rs0 "$1" < "$T/in" > "$T/out" 2>&1 9>&- & pid=$!
	exec 9> "$T/in"
	until_true has "$T/out" attached || cat "$T/out"
}
finish() { exec 9>&-; wait $pid; }
wire() { # sends an RDMA write of 10000 bytes; the EtherTypes of its three packets as they pass the wire
	ip netns exec w tcpdump -Z root -i w0 -nn -e -l -c 3 --immediate-mode \
		'ether[34:2] = 65535 and ether[36:2] = 4791' > "$T/pcap" 2> "$T/dump" & dump=$!
	until_true has "$T/dump" listening || cat "$T/dump"
	marker rs0 send 10.0.0.9 10000 > "$T/send" 2>&1 || cat "$T/send"
	until_true has "$T/dump" "^3 packets captured" || kill $dump
	wait $dump
	sed -n 's/.*ethertype [^(]*(\(0x[0-9a-f]*\)).*/\1/p' "$T/pcap" | sort -u | xargs
}

echo "== set up"
for x in veth rdma_rxe ib_uverbs fakehw; do modprobe $x || exit 1; done
modprobe crc32_generic 2>/dev/null
dmesg -c > /dev/null
ip link add x0 type veth peer name x1; ip link set x0 up; ip link set x1 up; rdma link add rx0 type rxe netdev x0
if ls /usr/lib/*/libmlx5.so.1 > /dev/null 2>&1; then	# the real one, where it is installed, as a measure
	"$D/marker-test" rx0 hold > "$T/out" 2>&1 < /dev/null
	is "the real library has the symbols, and says EOPNOTSUPP to another NIC" "1 EOPNOTSUPP" "$? $(sed -n 's/.*install: //p' "$T/out")"
fi
ip netns add w
ip link add ls0 mtu 9000 type veth peer name w0 netns w mtu 9000
echo "ls0 s0" > /sys/module/fakehw/parameters/add
ip link set ls0 up; ip netns exec w ip link set w0 up
rdma_up

echo "== arguments"
marker rs0 mutate > "$T/mutate" 2> "$T/said"; is "every changed argument is refused with its errno" 0 $?
grep -v supported "$T/mutate" | tail -20
grep -o 'refused, [a-z0-9 ]*, errno [0-9]* ([^)]*)' "$T/said" | sort | uniq -c
marker rx0 hold > "$T/out" 2>&1 < /dev/null; is "another NIC: EOPNOTSUPP" "1 EOPNOTSUPP" "$? $(sed -n 's/.*install: //p' "$T/out")"
is "another NIC is no mlx5 device" 1 "$(grep -c 'supported 0' "$T/out")"
LD_PRELOAD=$D/libmlx5.so.1 setpriv --bounding-set -net_raw "$D/marker-test" rs0 hold > "$T/out" 2>&1 < /dev/null
is "without CAP_NET_RAW: EPERM" "1 EPERM" "$? $(sed -n 's/.*install: //p' "$T/out")"
MLX5_SHIM_RULE=65534:0x88b5 marker rs0 hold > "$T/out" 2>&1 < /dev/null
is "another rule is asked for: EINVAL" "1 EINVAL" "$? $(sed -n 's/.*install: //p' "$T/out")"
echo 95 > /sys/class/net/s0/fakehw/marker_errno
marker rs0 hold > "$T/out" 2>&1 < /dev/null; is "the driver's own refusal comes through" "1 EOPNOTSUPP" "$? $(sed -n 's/.*install: //p' "$T/out")"
echo 0 > /sys/class/net/s0/fakehw/marker_errno
is "nothing of all this is left" "0 0" "$(mark) $(tagged)"

echo "== packets"
is "without a marker, packets have 0x0800 on the wire" 0x0800 "$(wire)"
is "none is tagged" 0 "$(tagged)"
start hold; is "the marker is held" 1 "$(mark)"
[ ! -e /etc/libibverbs.d/mlx5.driver ] || is "also with the real provider in the process" 2 \
	"$(awk '/libmlx5/ { print $6 }' /proc/$pid/maps | sort -u | wc -l)"
is "with it, they have 0x88b5" 0x88b5 "$(wire)"
marker rs0 hold > "$T/out2" 2>&1 < /dev/null; is "a second marker: EEXIST" "1 EEXIST" "$? $(sed -n 's/.*install: //p' "$T/out2")"
finish; is "a marker that removes its rule ends well, and the rule is gone" "0 0" "$? $(mark)"
is "0x0800 again" 0x0800 "$(wire)"
start hold; kill -9 $pid; wait $pid 2>/dev/null; exec 9>&-; is "a killed marker's rule is gone" 0 "$(mark)"
start close; until_true has "$T/out" closed
gone() { [ "$(mark)" = 0 ]; }
until_true gone; is "closing the device removes the rule" 0 "$(mark)"; finish

echo "== re-initialisation of the driver"
reload() { timeout 60 devlink dev reload "$(devlink dev show | head -1)" action driver_reinit > "$T/reload" 2>&1; }
start hold; reload; is "a reload goes through while a marker runs" 0 $?
wait $pid; is "the marker ends with 3" 3 $?; exec 9>&-
is "it was told IBV_EVENT_DEVICE_FATAL" 1 "$(grep -c 'event local catastrophic error' "$T/out")"
is "commands and new rules fail with EIO" 1 "$(grep -c 'query EIO, a new rule: EIO' "$T/out")"
rdma_up
start deaf; reload; is "a reload goes through while a deaf marker runs" 0 $?
kill -0 $pid; is "it lives on" 0 $?
rdma_up; is "without its rule" 0 "$(mark)"
is "packets are unmarked" 0x0800 "$(wire)"
deaf=$pid; exec 8>&9; start hold; is "a new marker can be started beside it" 1 "$(mark)"
is "and marks" 0x88b5 "$(wire)"; finish; exec 8>&-; wait $deaf

echo "== tear down"
rdma link del rs0; rdma link del rx0
ip netns del w; ip link del x0; ip link del ls0 2>/dev/null
until_true rmmod fakehw 2>/dev/null; is "the module unloads" 0 $?
is "the kernel has no complaint" "" "$(dmesg | grep -iE 'bug|warn|oops|leak|unregister_netdevice: waiting|general protection' | head -3)"
rm -rf "$T"
echo "$good passed, $bad failed"
[ $bad = 0 ]
