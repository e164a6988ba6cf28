TROUBLES=0 LEFT=0

# --- Removals: each goes on after an error ----------------------------------------------------

# trouble TEXT: something of ours could not be removed.
trouble() {
    complain "$*"
    TROUBLES=$((TROUBLES + 1))
}

# left PLACE: what is there and not exactly ours.
left() {
    local other
    for other in "${OTHERS[@]}"; do
        complain "$1: not exactly ours, left alone: $other"
        LEFT=$((LEFT + 1))
    done
}

removed() {
    say "$*: removed"
    CHANGES=$((CHANGES + 1))
}

remove_route() {
    local place="route $1/32"
    if ! route_state "$@"; then
        trouble "$place: not removed"
        return 0
    fi
    case $STATE in
        right) if a_route del "$ROUTE_PROTOCOL" "$@"; then removed "$place"; else trouble "$place: cannot delete it: $ERROR"; fi ;;
        adopt) OTHERS+=("route with protocol $PROTOCOL_NOW, not $ROUTE_PROTOCOL") ;;
        stale) OTHERS+=("route $FOUND (made by another plan)") ;;
    esac
    left "$place"
}

remove_neighbour() {
    local place="$1: neighbour $2"
    here "$1" || return 0
    if ! neighbour_state "$@"; then
        trouble "$place: not removed"
        return 0
    fi
    if [[ $STATE == right ]]; then
        if tried ip -4 neigh del "$2" dev "$1"; then removed "$place"; else trouble "$place: cannot delete it: $ERROR"; fi
    fi
    left "$place"
}

stop_marker() {
    if ! marker_state "$1"; then
        trouble "$1: the marker is not stopped"
        return 0
    fi
    [[ $STATE != absent ]] || return 0
    if tried systemctl stop "$UNIT" && marker_state "$1" && [[ $STATE == absent ]]; then
        say "$1: stopped $UNIT"
        CHANGES=$((CHANGES + 1))
    else
        trouble "$1: cannot stop $UNIT: ${ERROR:-it is $TEXT}"
    fi
}

remove_rule() {
    local place="$1: rule at preference $2" gone
    here "$1" || return 0
    if ! rule_state "$@"; then
        trouble "$place: not removed"
        return 0
    fi
    # Ours is also what becomes of our rule: out of the hardware, or with a target that was
    # re-initialised (the redirect then names no device).
    gone=${WANTED/"to device $9)"/"to device *)"}
    FOUND=${FOUND/ not_in_hw / in_hw }
    if [[ $STATE == stale && ($FOUND == "$WANTED" || $FOUND == "$gone") ]]; then STATE=right; fi
    case $STATE in
        right) if delete_rule "$@"; then removed "$place"; else trouble "$place: cannot delete it: $ERROR"; fi ;;
        stale) OTHERS+=("filter $FOUND") ;;
    esac
    left "$place"
}

drop_clsact() {
    local place="$1: clsact qdisc" status=0
    [[ -e $RECORDS/clsact-$1 ]] || return 0
    remove_clsact "$1" || status=$?
    case $status in
        0) removed "$place" ;;
        2) say "$place: stays, it holds filters" ;;
        *) trouble "$place: cannot remove it or its record: $ERROR" ;;
    esac
}

# --- The end ----------------------------------------------------------------------------------

on_exit() {
    trap '' INT TERM HUP
    trap - EXIT
    if [[ -z $VERDICT ]]; then
        complain "interrupted or ended unforeseen; run it again"
        exit 2
    fi
    exit "$VERDICT"
}

main() {
    start "$@"
    # Nothing of ours is on a device that is away, but its marker may still run.
    if ((KNOWN == 0 || ${#STRANGE[@]} > MISSING)); then refuse_host; fi
    routes remove_route
    neighbours remove_neighbour
    markers stop_marker
    rules remove_rule
    clsacts drop_clsact
    # The record folder too, unless something else is in it.
    rmdir -- "$RECORDS" 2>/dev/null || :
    if ((CHANGES > 0)); then say "done, $CHANGES removed"; fi
    if ((TROUBLES > 0)); then leave 2; fi
    if ((LEFT > 0)); then leave 1; fi
    if ((CHANGES == 0)); then say "nothing to do"; fi
    leave 0
}

trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
