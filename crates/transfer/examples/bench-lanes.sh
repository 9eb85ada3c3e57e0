#!/bin/sh
# Streams and lanes side by side: a file between two network namespaces joined by
# veth (MTU 1500), file to file on tmpfs, hash on. Needs root and a headroom binary:
#   crates/transfer/examples/bench-lanes.sh target/release/headroom [MIB] [ROUNDS]
# Prints for each transfer: carrier, direction, Gbit/s of content, CPU seconds per GiB
# of client and server.
set -e
program=$1 mib=${2:-1024} rounds=${3:-3}
work=$(mktemp -d /dev/shm/bench-lanes.XXXXXX)
a=lanes-a-$$ b=lanes-b-$$
clean() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    ip netns del $a 2>/dev/null || true
    ip netns del $b 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
ip netns add $a && ip netns add $b
ip -n $a link add va type veth peer name vb netns $b
ip -n $a addr add 192.0.2.1/24 dev va && ip -n $b addr add 192.0.2.2/24 dev vb
for end in "$a va" "$b vb"; do
    set -- $end
    ip -n $1 link set lo up && ip -n $1 link set $2 up
done
mkdir "$work/served" "$work/here"
head -c "$mib"M /dev/urandom >"$work/here/file"
export XDG_CONFIG_HOME="$work/config" HOME="$work"
mkdir -p "$work/config/headroom"
key=$("$program" identity --identity "$work/client" | head -1)
echo "$key" >"$work/keys"
fingerprint=$("$program" identity --identity "$work/server" | tail -1)
ip netns exec $b "$program" serve --root "$work/served" --listen 192.0.2.2:4860 \
    --authorized-keys "$work/keys" --identity "$work/server" >/dev/null &
server=$!
sleep 0.5
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' /proc/$server/stat; }
transfer() {
    name=$1
    shift
    before=$(ticks) start=$(date +%s%N)
    ip netns exec $a bash -c 'TIMEFORMAT="%U %S"; time "$@" >/dev/null' - "$program" "$@" \
        --identity "$work/client" --fingerprint "$fingerprint" 2>"$work/time"
    end=$(date +%s%N) after=$(ticks)
    awk -v name="$name" -v ns=$((end - start)) -v mib="$mib" -v ticks=$((after - before)) \
        -v hz="$(getconf CLK_TCK)" 'END {
            gib = mib / 1024
            printf "%-12s %6.2f Gbit/s  CPU s/GiB: client %.2f server %.2f\n",
                name, mib * 8388608 / ns, ($1 + $2) / gib, ticks / hz / gib }' "$work/time"
}
for round in $(seq "$rounds"); do
    for carrier in --streams ""; do
        rm -f "$work/served/file"
        transfer "put ${carrier:-lanes}" put $carrier "$work/here/file" 192.0.2.2:file
        cmp -s "$work/here/file" "$work/served/file" || { echo "DIFFERENT" && exit 1; }
        rm -f "$work/here/back"
        transfer "get ${carrier:-lanes}" get $carrier 192.0.2.2:file "$work/here/back"
        cmp -s "$work/here/file" "$work/here/back" || { echo "DIFFERENT" && exit 1; }
        rm -f "$work/here/back"
    done
done
