#!/bin/bash
# mesh-up-spark1.sh: makes this host what the plan of its ring says.
#
# Host: spark1
# Ring: spark1 spark2 spark3 spark4 (along the cables, and from the last back to the first)
#
# Run it as root. It is made from plan.json: do not edit it. The tables of this host are at the end.
# Uses ip, tc and systemctl, and mkdir, rmdir and rm for the records in /run/dsv41-mesh.
#
# Does nothing when nothing is to do. Checks everything before the first change; when a change
# fails, what this run had changed is undone, in reverse.
#
# It waits for nothing, sets no hairpin queue size and does not see open queue pairs, whose traffic
# the replacing of a rule interrupts: `hairpin-mesh up` does all three.
#
# Exit code: 0 the host is as planned; 1 something is in the way or an MTU or address is wrong,
# nothing was changed; 2 not root, not this host, or a tool is missing, nothing was changed; 3 failed,
# the host is as it was; 4 failed, and the host could not be restored; 75 a link is not up, nothing
# was changed.

# shellcheck disable=SC2317,SC2329 # the tables call functions by name
set -efuo pipefail
trap '' PIPE
export LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
IFS=$' \t\n'
umask 077

HOST='spark1'
ROUTE_PROTOCOL='141'
MTU='9000'

# Where a clsact qdisc that we made is recorded: clsact-DEV.
RECORDS=/run/dsv41-mesh

VERDICT='' CHANGES=0 ERROR=''
KNOWN=0 MISSING=0 STRANGE=()

# --- Messages ---------------------------------------------------------------------------------

# A closed pipe must not end the script half-way: SIGPIPE is ignored and a failed write is no error.
say() { printf '%s: %s\n' "$HOST" "$*" || :; }
complain() { printf '%s: %s\n' "$HOST" "$*" >&2 || :; }

# leave CODE: ends the script. An exit that did not come this way is unforeseen; on_exit says so.
leave() {
    VERDICT=$1
    exit "$1"
}

# One line of several, for a message.
one_line() {
    local words
    read -r -d '' -a words <<<"$1" || :
    LINE="${words[*]}"
}

# --- What is there ----------------------------------------------------------------------------
#
# Each NAME_state reads the kernel afresh and sets
#   STATE   absent; right: exactly what the plan says; stale: ours by identity, with another
#           content (a route: by its protocol number); adopt: a route that differs from ours in
#           its protocol alone
#   FOUND   what is at our place when STATE is stale
#   OTHERS  what is at our place and not ours
# and returns 1, with the reason said, when it cannot read.
#
# Output is captured whole and compared as a whole, word by word. (`tc | grep -q` is wrong twice:
# grep ends at the first match, tc dies of SIGPIPE and the rule counts as absent; and `in_hw` is
# also found in `not_in_hw`.) -N: numbers, so that no name in /etc/iproute2 changes the text.

# captured COMMAND...: its output in TEXT.
captured() {
    if ! TEXT=$("$@"); then
        complain "cannot read the present state: $* failed"
        return 1
    fi
}

here() { [[ -e /sys/class/net/$1 ]]; }

# mac_of NETDEV: in MAC_NOW.
mac_of() {
    MAC_NOW=''
    read -r MAC_NOW 2>/dev/null <"/sys/class/net/$1/address" || [[ -n $MAC_NOW ]]
}

# clsact_state DEV
clsact_state() {
    local line
    STATE=absent OTHERS=()
    captured tc -N qdisc show dev "$1" || return 1
    while read -r line; do
        case $line in
            'qdisc clsact ffff: parent ffff:fff1') STATE=right ;;
            # A plain ingress qdisc, or a clsact whose filters are in a shared block.
            'qdisc clsact '* | 'qdisc ingress '*) OTHERS+=("$line") ;;
        esac
    done <<<"$TEXT"
}

# filters_at PREF: the filters of chain 0 at that preference in TEXT (`tc -N filter show`), one a
# line in FILTERS: their words joined by one space, without those that say nothing about the rule
# (indices and reference counts of the actions, kinds of statistics, how many devices hold it,
# which action is in hardware: the state of the filter itself is what counts).
filters_at() {
    local line words i filter='' in_actions=no
    FILTERS=()
    while read -r line; do
        read -ra words <<<"$line"
        if [[ ${words[0]-} == filter ]]; then
            keep_filter "$filter"
            filter='' in_actions=no
            # filter protocol P pref N KIND chain C ...
            [[ "${words[*]:3:2} ${words[*]:6:2}" == "pref $1 chain 0" ]] || continue
            filter="${words[*]:1}"
            continue
        fi
        [[ -n $filter ]] || continue
        for ((i = 0; i < ${#words[@]}; i++)); do
            case ${words[i]} in
                index | ref | bind | in_hw_count | used_hw_stats) i=$((i + 1)) ;;
                in_hw | not_in_hw) [[ $in_actions == yes ]] || filter+=" ${words[i]}" ;;
                action) in_actions=yes filter+=' action' ;;
                *) filter+=" ${words[i]}" ;;
            esac
        done
    done <<<"$TEXT"
    keep_filter "$filter"
}

# tc shows a head line for the preference and then its filters; the head counts when it is alone.
keep_filter() {
    if ((${#FILTERS[@]} > 0)) && [[ $1 == "${FILTERS[-1]} "* ]]; then
        FILTERS[-1]=$1
    elif [[ -n $1 ]]; then
        FILTERS+=("$1")
    fi
}

# rule_text DEV PREF HANDLE PROTOCOL SRC DST TYPE NEW_DST OUT: in WANTED how filters_at shows this
# rule, in IDENTITY what every filter at its preference has to begin with, in HANDLE how its handle
# is shown. The pedit keys are 32-bit words of the Ethernet header; a mask bit of 1 keeps the bit.
rule_text() {
    local pref=$2 protocol=$4 src=$5 dst=$6 type=${7#0x} new=${8//:/} out=$9
    printf -v HANDLE '0x%x' "$3"
    IDENTITY="protocol [$((protocol))] pref $pref flower chain 0"
    WANTED="$IDENTITY handle $HANDLE dst_mac $dst src_mac $src eth_type ${protocol#0x} skip_sw in_hw"
    WANTED+=" action order 1: pedit action pipe keys 1 key #0 at eth+12: val ${type}0000 mask 0000ffff"
    WANTED+=" action order 2: pedit action pipe keys 2 key #0 at eth+0: val ${new:0:8} mask 00000000"
    WANTED+=" key #1 at eth+4: val ${new:8:4}0000 mask 0000ffff"
    WANTED+=" action order 3: mirred (Egress Redirect to device $out) stolen"
}

# rule_state DEV PREF HANDLE PROTOCOL SRC DST TYPE NEW_DST OUT
rule_state() {
    local filter
    STATE=absent FOUND='' OTHERS=()
    captured tc -N filter show dev "$1" ingress || return 1
    rule_text "$@"
    filters_at "$2"
    for filter in "${FILTERS[@]}"; do
        case $filter in
            "$WANTED") STATE=right ;;
            "$IDENTITY") ;; # a head line alone
            "$IDENTITY handle $HANDLE "*) STATE=stale FOUND=$filter ;;
            *) OTHERS+=("filter $filter") ;;
        esac
    done
}

# route_state DESTINATION GATEWAY DEV SRC; PROTOCOL_NOW is the protocol of a route to adopt.
# GATEWAY is - for a route of scope link. Kernel's numbers: type 1 unicast; scope 0 global, 253 link.
route_state() {
    local line route words head tail
    STATE=absent FOUND='' OTHERS=() PROTOCOL_NOW=''
    captured ip -o -4 -N -d route show table main exact "$1/32" || return 1
    if [[ $2 == - ]]; then
        head="1 $1 dev $3 proto" tail="scope 253 src $4"
    else
        head="1 $1 via $2 dev $3 proto" tail="scope 0 src $4"
    fi
    while read -r line; do
        read -ra words <<<"$line"
        route="${words[*]}"
        # What the kernel and the driver note at the end is no part of the route.
        while [[ $route =~ ^(.*)' '(dead|linkdown|offload|trap|rt_offload|rt_trap|rt_offload_failed)$ ]]; do
            route=${BASH_REMATCH[1]}
        done
        if [[ -z $route ]]; then
            :
        elif [[ $route == "$head $ROUTE_PROTOCOL $tail" ]]; then
            # Beside it, what could have been taken over is in the way.
            case $STATE in stale | adopt) OTHERS+=("route $FOUND") ;; esac
            STATE=right
        elif [[ $STATE == absent && $route == "$head "*" $tail" && ${route#"$head "} =~ ^[0-9]+' '"$tail"$ ]]; then
            STATE=adopt FOUND=${route#* } PROTOCOL_NOW=${route#"$head "} PROTOCOL_NOW=${PROTOCOL_NOW%% *}
        elif [[ $STATE == absent && $route == "1 $1 "* && $route == *" proto $ROUTE_PROTOCOL "* &&
            $route != *' metric '* && $route != *' tos '* && $route != *nexthop* ]]; then
            # Of another plan: what ip shows of it after its type, it takes again.
            STATE=stale FOUND=${route#* }
        else
            OTHERS+=("route ${route#* }")
            if [[ ${route%% *} != 1 ]]; then OTHERS[-1]+=" (of type ${route%% *})"; fi
        fi
    done <<<"$TEXT"
}

# neighbour_state DEV ADDRESS MAC. An entry that the kernel learnt is no obstacle: it may go at any
# time by itself.
neighbour_state() {
    local words entry
    STATE=absent OTHERS=()
    captured ip -o -4 -N neigh show to "$2" dev "$1" nud all || return 1
    read -ra words <<<"$TEXT"
    entry="${words[*]}"
    case $entry in
        "$2 lladdr $3 PERMANENT" | "$2 lladdr $3 PERMANENT proto "*) STATE=right ;;
        *PERMANENT* | *NOARP*) OTHERS=("neighbour $entry") ;;
    esac
}

# marker_state DEVICE: STATE is right when it runs, absent when it does not, changing between them.
marker_state() {
    UNIT="dsv41-mesh-marker@$1.service"
    # is-active fails when the unit is not active; its word is the answer.
    TEXT=$(systemctl is-active "$UNIT") || :
    case $TEXT in
        active) STATE=right ;;
        inactive | failed | unknown) STATE=absent ;;
        ?*) STATE=changing ;;
        *)
            complain "cannot read the present state: systemctl is-active $UNIT answered nothing"
            return 1
            ;;
    esac
}

# --- Changes ----------------------------------------------------------------------------------

# tried COMMAND...: runs it; what it says goes to ERROR.
tried() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    one_line "$output"
    ERROR=$LINE
    return "$status"
}

# delete_rule DEV PREF HANDLE PROTOCOL ...
delete_rule() { tried tc filter del dev "$1" ingress protocol "$4" pref "$2" handle "$3" flower; }

# a_route VERB PROTOCOL DESTINATION GATEWAY DEV SRC
a_route() {
    if [[ $4 == - ]]; then
        tried ip -4 route "$1" "$3/32" dev "$5" src "$6" proto "$2" scope link table main
    else
        tried ip -4 route "$1" "$3/32" via "$4" dev "$5" src "$6" proto "$2" scope global table main
    fi
}

# remove_clsact DEV: removes the clsact qdisc that a mesh-up made (it left a record), unless it holds
# filters. 1: cannot; 2: holds filters, so it stays and its record with it.
remove_clsact() {
    local record=$RECORDS/clsact-$1
    [[ -e $record ]] || return 0
    if here "$1"; then
        clsact_state "$1" || return 1
        if [[ $STATE == right ]]; then
            captured tc -N filter show dev "$1" ingress || return 1
            [[ -z $TEXT ]] || return 2
            captured tc -N filter show dev "$1" egress || return 1
            [[ -z $TEXT ]] || return 2
            tried tc qdisc del dev "$1" clsact || return 1
        fi
    fi
    tried rm -f -- "$record" || return 1
}

# --- Whether this is the host -----------------------------------------------------------------

# identify NETDEV MAC ADDRESS
identify() {
    if ! here "$1"; then
        STRANGE+=("$1: no such network device, one with MAC $2 wanted")
        MISSING=$((MISSING + 1))
    elif mac_of "$1" && [[ $MAC_NOW == "$2" ]]; then
        KNOWN=$((KNOWN + 1))
    else
        STRANGE+=("$1: MAC is ${MAC_NOW:-not readable}, $2 wanted")
    fi
}

# start NAME ARGUMENTS...: what both scripts do first.
start() {
    local tool
    if (($# > 1)); then
        complain "usage: $1 (it takes no arguments)"
        leave 2
    fi
    if ((EUID != 0)); then
        complain "must run as root"
        leave 2
    fi
    for tool in ip tc systemctl mkdir rmdir rm; do
        if ! command -v "$tool" >/dev/null; then
            complain "$tool is not installed"
            leave 2
        fi
    done
    ports identify
}

refuse_host() {
    local line
    for line in "${STRANGE[@]}"; do complain "$line"; done
    complain "this is not $HOST of this plan; nothing was changed"
    leave 2
}

PROBLEMS=0 NOT_READY=0
UNDO=()
declare -A OLD_RULE=() OLD_ROUTE=()

# --- Checks before the first change -----------------------------------------------------------

# problem TEXT: something that only a person can put right.
problem() {
    complain "$*"
    PROBLEMS=$((PROBLEMS + 1))
}

in_the_way() {
    local other
    for other in "${OTHERS[@]}"; do problem "$1: in the way and not ours, left alone: $other"; done
}

# link_of NETDEV: LINK (yes, no) and MTU_NOW.
link_of() {
    local words i
    LINK=no MTU_NOW=''
    captured ip -o link show dev "$1" || return 1
    read -ra words <<<"$TEXT"
    # 8: enp1s0f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 ...
    for ((i = 0; i + 1 < ${#words[@]}; i++)); do
        case ${words[i]} in
            # UP: set up by the administrator; LOWER_UP: carrier.
            '<'*'>') [[ ${words[i]} == *[\<,]UP[,\>]* && ${words[i]} == *[\<,]LOWER_UP[,\>]* ]] && LINK=yes ;;
            mtu) MTU_NOW=${words[i + 1]} ;;
        esac
    done
    return 0
}

# addresses_of NETDEV: its IPv4 addresses in ADDRESSES, each with a space before it. (The prefix is
# not compared: a plan made from a topology document knows none.)
addresses_of() {
    local line words
    ADDRESSES=''
    captured ip -o -4 addr show dev "$1" || return 1
    while read -r line; do
        read -ra words <<<"$line"
        # 8: enp1s0f0np0    inet 10.10.0.10/24 ...
        [[ ${words[2]-} != inet ]] || ADDRESSES+=" ${words[3]%%/*}"
    done <<<"$TEXT"
}

# check_port NETDEV MAC ADDRESS
check_port() {
    link_of "$1" || leave 2
    addresses_of "$1" || leave 2
    if [[ $LINK != yes ]]; then
        complain "$1: the link is not up"
        NOT_READY=$((NOT_READY + 1))
    fi
    [[ $MTU_NOW == "$MTU" ]] || problem "$1: MTU is $MTU_NOW, $MTU wanted"
    [[ "$ADDRESSES " == *" $3 "* ]] || problem "$1: address is${ADDRESSES:- absent}, $3 wanted"
}

check_clsact() {
    clsact_state "$1" || leave 2
    in_the_way "$1"
}

check_rule() {
    rule_state "$@" || leave 2
    in_the_way "$1 preference $2"
}

check_neighbour() {
    neighbour_state "$@" || leave 2
    in_the_way "$1"
}

check_route() {
    route_state "$@" || leave 2
    in_the_way "$1/32"
}

# --- Changes, each with its way back ----------------------------------------------------------
#
# The way back is noted in UNDO before the change, and looks at what is there: it is right whether
# the change happened or not.

failed() {
    complain "$*"
    leave 3
}

changed() {
    say "$*"
    CHANGES=$((CHANGES + 1))
}

make_clsact() {
    if ! clsact_state "$1" || ((${#OTHERS[@]} > 0)); then failed "$1: the qdiscs changed meanwhile"; fi
    [[ $STATE == absent ]] || return 0
    if [[ ! -d $RECORDS ]]; then
        UNDO+=("undo_records")
        tried mkdir -p -- "$RECORDS" || failed "cannot make $RECORDS: $ERROR"
    fi
    # The record first: a clsact without one would stay for ever.
    UNDO+=("undo_clsact $1")
    : >"$RECORDS/clsact-$1" || failed "cannot write $RECORDS/clsact-$1"
    if ! tried tc qdisc add dev "$1" clsact; then
        # Not made by us: without the record it is not taken for ours.
        rm -f -- "$RECORDS/clsact-$1"
        failed "$1: cannot add the clsact qdisc: $ERROR"
    fi
    changed "$1: added the clsact qdisc"
}

undo_records() { [[ ! -d $RECORDS ]] || tried rmdir -- "$RECORDS"; }
undo_clsact() { remove_clsact "$1"; }

# a_rule VERB DEV PREF HANDLE PROTOCOL SRC DST TYPE NEW_DST OUT
a_rule() {
    tried tc filter "$1" dev "$2" ingress protocol "$5" pref "$3" handle "$4" \
        flower skip_sw src_mac "$6" dst_mac "$7" \
        action pedit ex munge eth type set "$8" pipe \
        action pedit ex munge eth dst set "$9" pipe \
        action mirred egress redirect dev "${10}"
}

make_rule() {
    local rule="$1: rule at preference $2" keys
    if ! rule_state "$@" || ((${#OTHERS[@]} > 0)); then failed "$rule: its place changed meanwhile"; fi
    case $STATE in
        right) return 0 ;;
        absent)
            UNDO+=("undo_rule $*")
            a_rule add "$@" || failed "$rule: cannot add it: $ERROR"
            changed "$rule: added"
            ;;
        stale)
            OLD_RULE["$1 $2"]=$FOUND
            UNDO+=("undo_stale $*")
            say "$rule: is ours with another content: $FOUND"
            # Same keys, both with the full mask: the new rule enters before the old one leaves.
            keys='handle [^ ]+ dst_mac [0-9a-f:]+ src_mac [0-9a-f:]+ eth_type [^ ]+ (skip_sw |skip_hw )?(not_)?in_hw '
            if [[ $FOUND =~ $keys ]]; then
                if a_rule replace "$@"; then
                    changed "$rule: replaced"
                    keys=''
                # The NIC may refuse two rules with one match: then the old one has to leave first.
                elif [[ $ERROR != *'File exists'* ]]; then
                    failed "$rule: cannot replace it: $ERROR"
                fi
            fi
            if [[ -n $keys ]]; then
                delete_rule "$@" || failed "$rule: cannot delete the old one: $ERROR"
                a_rule add "$@" || failed "$rule: the old one is deleted; cannot add the new one: $ERROR"
                changed "$rule: replaced, with a moment without a rule"
            fi
            ;;
    esac
    if ! rule_state "$@" || [[ $STATE != right ]]; then failed "$rule: reads back as: ${FOUND:-absent}"; fi
}

undo_rule() {
    rule_state "$@" || return 1
    case $STATE in
        absent) return 0 ;;
        # Also when it reads back wrong: its place was empty when this run began.
        *) delete_rule "$@" ;;
    esac
}

# Puts an old rule back: one of ours with other addresses or another device.
undo_stale() {
    local old=${OLD_RULE["$1 $2"]} shape type new keys=()
    rule_state "$@" || return 1
    [[ $FOUND != "$old" ]] || return 0
    shape='^protocol [^ ]+ pref [0-9]+ flower chain 0 handle [^ ]+( dst_mac ([^ ]+))?( src_mac ([^ ]+))? eth_type [^ ]+'
    shape+='( (skip_sw|skip_hw))? (not_)?in_hw'
    shape+=' action order 1: pedit action pipe keys 1 key #0 at eth\+12: val ([0-9a-f]{4})0000 mask 0000ffff'
    shape+=' action order 2: pedit action pipe keys 2 key #0 at eth\+0: val ([0-9a-f]{8}) mask 00000000'
    shape+=' key #1 at eth\+4: val ([0-9a-f]{4})0000 mask 0000ffff'
    shape+=' action order 3: mirred \(Egress Redirect to device ([^ *]+)\) stolen$'
    if ! [[ $old =~ $shape ]]; then
        complain "$1: the rule that was at preference $2 cannot be made again: $old"
        return 1
    fi
    [[ -z ${BASH_REMATCH[6]} ]] || keys+=("${BASH_REMATCH[6]}")
    [[ -z ${BASH_REMATCH[4]} ]] || keys+=(src_mac "${BASH_REMATCH[4]}")
    [[ -z ${BASH_REMATCH[2]} ]] || keys+=(dst_mac "${BASH_REMATCH[2]}")
    type=0x${BASH_REMATCH[8]} new=${BASH_REMATCH[9]}${BASH_REMATCH[10]}
    local out=${BASH_REMATCH[11]}
    new=${new:0:2}:${new:2:2}:${new:4:2}:${new:6:2}:${new:8:2}:${new:10:2}
    if [[ $STATE != absent ]]; then delete_rule "$@" || return 1; fi
    tried tc filter add dev "$1" ingress protocol "$4" pref "$2" handle "$3" flower "${keys[@]}" \
        action pedit ex munge eth type set "$type" pipe action pedit ex munge eth dst set "$new" pipe \
        action mirred egress redirect dev "$out" || return 1
    # Whether it is in the hardware again is the driver's to say, when the rule leaves it the choice.
    rule_state "$@" && [[ ${FOUND/ not_in_hw / in_hw } == "${old/ not_in_hw / in_hw }" ]]
}

start_marker() {
    marker_state "$1" || failed "$1: the marker cannot be started"
    [[ $STATE != right ]] || return 0
    # One that is on its way (restarted by systemd, say) is not ours to stop again.
    [[ $STATE != absent ]] || UNDO+=("undo_marker $1")
    tried systemctl start "$UNIT" || failed "$1: cannot start $UNIT: $ERROR"
    if ! marker_state "$1" || [[ $STATE != right ]]; then failed "$1: $UNIT was started and is ${TEXT:-unknown}"; fi
    changed "$1: started $UNIT"
}

undo_marker() {
    marker_state "$1" || return 1
    [[ $STATE != absent ]] || return 0
    tried systemctl stop "$UNIT" && marker_state "$1" && [[ $STATE == absent ]]
}

make_neighbour() {
    if ! neighbour_state "$@" || ((${#OTHERS[@]} > 0)); then failed "$1: the neighbours changed meanwhile"; fi
    [[ $STATE == absent ]] || return 0
    UNDO+=("undo_neighbour $*")
    tried ip -4 neigh replace "$2" lladdr "$3" dev "$1" nud permanent || failed "$1: cannot add the neighbour $2: $ERROR"
    if ! neighbour_state "$@" || [[ $STATE != right ]]; then failed "$1: the neighbour $2 reads back as: ${TEXT:-absent}"; fi
    changed "$1: added the neighbour $2"
}

undo_neighbour() {
    neighbour_state "$@" || return 1
    [[ $STATE == right ]] || return 0
    tried ip -4 neigh del "$2" dev "$1"
}

make_route() {
    local route="route $1/32"
    if ! route_state "$@" || ((${#OTHERS[@]} > 0)); then failed "$route: its place changed meanwhile"; fi
    case $STATE in
        right) return 0 ;;
        absent)
            UNDO+=("undo_route $*")
            a_route add "$ROUTE_PROTOCOL" "$@" || failed "$route: cannot add it: $ERROR"
            changed "$route: added"
            ;;
        adopt)
            UNDO+=("undo_adoption $PROTOCOL_NOW $*")
            a_route replace "$ROUTE_PROTOCOL" "$@" || failed "$route: cannot adopt it: $ERROR"
            changed "$route: adopted (protocol was $PROTOCOL_NOW)"
            ;;
        stale)
            OLD_ROUTE["$1"]=$FOUND
            UNDO+=("undo_stale_route $*")
            say "$route: is ours with another content: $FOUND"
            a_route replace "$ROUTE_PROTOCOL" "$@" || failed "$route: cannot replace it: $ERROR"
            changed "$route: replaced"
            ;;
    esac
    if ! route_state "$@" || [[ $STATE != right ]]; then failed "$route: reads back as: ${TEXT:-absent}"; fi
}

undo_route() {
    route_state "$@" || return 1
    [[ $STATE == right ]] || return 0
    a_route del "$ROUTE_PROTOCOL" "$@"
}

undo_adoption() {
    local protocol=$1
    shift
    route_state "$@" || return 1
    [[ $STATE == right ]] || return 0
    a_route replace "$protocol" "$@" && route_state "$@" && [[ $STATE == adopt && $PROTOCOL_NOW == "$protocol" ]]
}

undo_stale_route() {
    local words
    route_state "$@" || return 1
    [[ $STATE == right ]] || return 0
    read -ra words <<<"${OLD_ROUTE["$1"]}"
    tried ip -4 -N route replace "${words[@]}" table main && route_state "$@" && [[ $FOUND == "${OLD_ROUTE["$1"]}" ]]
}

# --- The end, whichever way -------------------------------------------------------------------

on_exit() {
    local i words restored=yes
    trap '' INT TERM HUP
    trap - EXIT
    set +e
    case $VERDICT in
        0 | 1 | 2 | 75) exit "$VERDICT" ;;
        3) ;;
        *)
            complain "interrupted or ended unforeseen"
            ((${#UNDO[@]} > 0)) || exit 2
            ;;
    esac
    for ((i = ${#UNDO[@]} - 1; i >= 0; i--)); do
        read -ra words <<<"${UNDO[i]}"
        ERROR=''
        if ! "${words[@]}"; then
            complain "cannot undo: ${UNDO[i]#undo_}${ERROR:+: $ERROR}"
            restored=no
        fi
    done
    if [[ $restored == yes ]]; then
        complain "what this run had changed is undone: the host is as it was"
        exit 3
    fi
    complain "the host could not be restored as it was"
    exit 4
}

main() {
    start "$@"
    ((${#STRANGE[@]} == 0)) || refuse_host
    ports check_port
    clsacts check_clsact
    rules check_rule
    neighbours check_neighbour
    routes check_route
    if ((PROBLEMS > 0)); then
        complain "nothing was changed"
        leave 1
    fi
    if ((NOT_READY > 0)); then
        complain "nothing was changed; try again when the links are up"
        leave 75
    fi
    # A route without a marker would let unmarked packets out, for the neighbour's kernel to forward;
    # a marker without the rules, packets that nobody takes. So: rules, markers, routes.
    clsacts make_clsact
    rules make_rule
    markers start_marker
    neighbours make_neighbour
    routes make_route
    if ((CHANGES > 0)); then say "done, $CHANGES changed"; else say "nothing to do"; fi
    leave 0
}

trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# --- This host, row by row as in plan.json ----------------------------------------------------

ports() {
    #    device          MAC                 address
    "$1" 'enp1s0f0np0'   '4c:bb:47:4a:eb:e8' '10.10.0.10'
    "$1" 'enp1s0f1np1'   '4c:bb:47:b1:bd:d1' '10.10.3.11'
    "$1" 'enP2p1s0f0np0' '4c:bb:47:6b:ce:ec' '10.20.0.10'
    "$1" 'enP2p1s0f1np1' '4c:bb:47:94:ad:af' '10.20.3.11'
}
clsacts() {
    #    device
    "$1" 'enP2p1s0f0np0'
    "$1" 'enP2p1s0f1np1'
}
rules() {
    #    device          pref    handle  protocol source MAC          destination MAC     set type set destination MAC redirect to
    "$1" 'enP2p1s0f0np0' '49159' '49159' '0x88b5' '4c:bb:47:8d:c0:52' '4c:bb:47:6b:ce:ec' '0x0800' '4c:bb:47:40:1a:7e' 'enP2p1s0f1np1'
    "$1" 'enP2p1s0f1np1' '49165' '49165' '0x88b5' '4c:bb:47:40:1a:7e' '4c:bb:47:94:ad:af' '0x0800' '4c:bb:47:8d:c0:52' 'enP2p1s0f0np0'
}
markers() {
    #    RDMA device
    "$1" 'rocep1s0f0'
    "$1" 'roceP2p1s0f1'
}
neighbours() { :; } # none
routes() {
    #    destination  gateway      device          source
    "$1" '10.10.1.11' '10.10.0.11' 'enp1s0f0np0'   '10.10.0.10'
    "$1" '10.20.2.10' '10.20.3.10' 'enP2p1s0f1np1' '10.20.3.11'
}

main "$0" "$@"
