//! What to do about each kind of finding: commands for the node's user, never run by this program.

use crate::finding::Finding;

/// Adds what to do to a finding and to everything below it, where they do not say it themselves.
pub(super) fn add(finding: &mut Finding) {
    if finding.advice.is_none() {
        finding.advice = of(finding);
    }
    for consequence in &mut finding.consequences {
        add(consequence);
    }
}

fn of(finding: &Finding) -> Option<String> {
    let object = finding.object.as_deref().unwrap_or_default();
    // One device, or a word that stands for each of several.
    let dev = if object.is_empty() || object.contains([' ', '+']) {
        "DEVICE"
    } else {
        object
    };
    let again = "hairpin-mesh up on this node";
    Some(match finding.code {
        "nic-missing" => "see journalctl -k -g 'mlx5|AER|pcieport' for what took it away; a power cycle with the cord out brings a NIC back that an AER error took".into(),
        "function-missing" => "see journalctl -k -g 'mlx5|cx7-pcie-hotplug|AER' and the cable; echo 1 >/sys/bus/pci/rescan looks for it again".into(),
        "port-driver" => "see which driver holds the function: lspci -k; modprobe mlx5_core mlx5_ib".into(),
        "reload-failed" => "see journalctl -k -g mlx5; a power cycle of the node clears it".into(),
        "cable-down" => "seat the plugs at both ends, or change the cable; ethtool DEVICE says what the link sees; ip link set DEVICE up where an end was taken down".into(),
        "port-link" => format!("ip link set {dev} up; ethtool {dev}; then the plugs at both ends"),
        "port-carrier" => format!("ethtool {dev} at both ends of the cable"),
        "port-rdma" => "modprobe mlx5_ib; rdma link".into(),
        "port-rdma-state" | "port-rdma-phys" => format!("rdma link; ethtool {dev}; it follows the link of its network device"),
        "port-rate" => format!("ethtool {dev} at both ends: plug, cable and auto-negotiation"),
        "pcie-degraded" => "update the firmware of the board (one of before April 2026 wires the second controller with two lanes), then a power cycle; lspci -vv -s ADDRESS shows LnkSta".into(),
        "port-address" => format!("hairpin-mesh netplan HOST prints addresses for the second plane; for one port: nmcli connection modify NAME ipv4.method manual ipv4.addresses ADDRESS/24 802-3-ethernet.mtu 9000, then nmcli connection up NAME (nmcli -g GENERAL.CONNECTION device show {dev} tells NAME)"),
        "plane-subnet-shared" => "give each cable and domain a subnet of its own; hairpin-mesh netplan HOST prints one for the second plane".into(),
        "address-repeated" | "address-off-cable" | "address-prefix-differs" | "port-prefix" | "address-overlaps" | "port-in-two-subnets" => "change the address in the file or connection that gives it (netplan get, nmcli connection show), then netplan apply or nmcli connection up NAME".into(),
        "subnet-ends" => "look for a wrong octet at one end, or a port without address".into(),
        "cross-domain-cable" => "a cable joins equal domains: exchange the addresses of both functions of that socket at one end".into(),
        "self-cable" => "a cable from a node to itself, or two addresses of one cable on one node: plug one end into the neighbour, or correct one address".into(),
        "mac-repeated" => "find out which of the two was set by hand: ip link show DEVICE tells permaddr".into(),
        "address-answered-twice" => "find the second owner by its MAC (ip neigh, ethtool -P DEVICE), and change its address".into(),
        "cabling-stranger" => "follow that cable: it leads to another machine or to a switch".into(),
        "arp-flux" => "with a subnet for each port this goes; until then sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2".into(),
        "neighbour-mac" => format!("ip neigh flush dev {dev}, ping, look again; when it stays, the cable or an address is another"),
        "neighbour-silent" => format!("is the peer up, with that address on that cable? ip neigh show dev {dev}; arping -I {dev} ADDRESS"),
        "cabling-wire-differs" => "the plug is in another socket than the addresses are made for: move the plug, or the addresses".into(),
        "peer-route-missing" => format!("ip addr show {dev}: the connected route comes with address and link; nmcli connection up NAME"),
        "peer-route-elsewhere" => "take the more specific or cheaper route away, or the network that made it out of the fabric's range".into(),
        "port-mtu" => format!("nmcli connection modify NAME 802-3-ethernet.mtu 9000 (netplan: mtu: 9000), then nmcli connection up NAME; now, until the next boot: ip link set {dev} mtu 9000"),
        "port-rdma-mtu" => format!("it follows the MTU of the network device: set 9000 there, then ip link set {dev} down and up"),
        "gid-moved" | "gid-index-differs" => "pin no index: look it up by address. To pack the table, stop what holds RDMA devices open, then remove the address and give it again (nmcli connection down NAME, up NAME)".into(),
        "gid-stale" => "something still holds the entry: stop what has the RDMA device open (rdma resource show qp), and it goes".into(),
        "port-gid" | "gid-zero" => "GIDs follow from the address of the port: it comes first".into(),
        "devices-carry-nothing" => "first address and MTU, then the program's flags, then hairpin-mesh doctor again for the counters".into(),
        "function-idle" | "plane-idle" => "does the program list all four HCAs, and is the plane of this one addressed? NCCL_IB_HCA, B12X_ROCE_HCA".into(),
        "hairpin-queue-size" | "hairpin-queue-unknown" | "hairpin-queue-odd" => "while nothing uses the fabric: hairpin-mesh hairpin-queue 8192; until then no message above 81920 bytes".into(),
        "hairpin-queue-pending" => "the value is set and the driver runs with its default: while nothing uses the fabric, hairpin-mesh hairpin-queue 8192; it survives no boot, so the mesh's unit does it each time".into(),
        "hairpin-num-queues" => "while nothing uses the fabric: hairpin-mesh hairpin-queue --num-queues 4".into(),
        "port-tc-offload" => format!("ethtool -K {dev} hw-tc-offload on, before any rule; persist it (nmcli connection modify NAME ethtool.feature-hw-tc-offload on)"),
        "port-trust" => format!("dcb app show dev {dev} lists dscp-prio entries: dcb app flush dev {dev} dscp-prio takes them away (mlnx_qos -i {dev} --trust pcp)"),
        "port-steering" => "devlink dev param set pci/ADDRESS name flow_steering_mode value hmfs cmode runtime, before any rule".into(),
        "port-eswitch" => "devlink dev eswitch set pci/ADDRESS mode legacy".into(),
        "ingress-qdisc" => format!("find what made it (tc -s filter show dev {dev} ingress), let that use clsact; else tc qdisc del dev {dev} ingress"),
        "mesh-incomplete" | "marker-twice" => again.into(),
        "marker-left-over" => "stop it when nothing uses it: systemctl stop dsv41-mesh-marker@DEVICE.service".into(),
        "mesh-other-plan" | "mesh-plan-port" | "mesh-plan-address" | "mesh-plan-peer" | "mesh-plan-cap" | "mesh-plan-gid-index" => "make the plan again: hairpin-mesh plan --out ring-mesh HOST..., then hairpin-mesh deploy --plan ring-mesh HOST...".into(),
        "memory-cma" => "boot with kho=off (kernel command line: /etc/default/grub, update-grub), or the 6.17 kernel".into(),
        "memory-lock" => "ulimit -l unlimited (LimitMEMLOCK=infinity of a unit); in a container --ulimit memlock=-1 or --cap-add IPC_LOCK".into(),
        "module-mstflint" => "rmmod mstflint_access; run no mstflint after a cable was plugged".into(),
        "netplan-owned-twice" => "keep one; hairpin-mesh netplan HOST --remove prints the steps that take a plane away for good".into(),
        "parity-kernel" | "parity-driver" | "parity-firmware" | "parity-rdma-core" | "parity-bios" | "parity-architecture" => "bring it to what the others have before looking for anything finer".into(),
        "nccl-library-differs" | "nccl-library-other" => "put the same library of the switchless ring on all nodes, and look again with --nccl-library".into(),
        "management-on-fabric" => "move the default route to the management network".into(),
        "hca-names-differ" => "rename the RDMA devices alike on all nodes (udev), or fix the node whose function is missing".into(),
        "hairpin-queue-default" => "hairpin-mesh hairpin-queue 8192, while nothing uses the fabric".into(),
        _ => return None,
    })
}
