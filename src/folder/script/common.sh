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
