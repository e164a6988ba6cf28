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
