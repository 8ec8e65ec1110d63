#!/bin/sh
# Hosts on one machine: `hosts.sh make N FOLDER` makes N of them, each with a network, mounts and shared memory of
# its own, connected by a bridge, and FOLDER/shell, which runs a command on one as ssh does;
# `hosts.sh drop FOLDER` removes them. Only root can.
set -eu

make() {
    n=$1 folder=$2
    mkdir -p "$folder"
    tag=b$$
    echo "$tag" > "$folder/tag"
    echo "127.0.0.1 localhost" > "$folder/hosts"
    for i in $(seq "$n"); do echo "10.79.0.$i h$i"; done >> "$folder/hosts"
    ip netns add "${tag}s"
    ip -n "${tag}s" link add br0 type bridge
    ip -n "${tag}s" link set br0 up
    for i in $(seq "$n"); do
        ip netns add "${tag}h$i"
        ip link add "${tag}v$i" netns "${tag}h$i" type veth peer name "p$i" netns "${tag}s"
        ip -n "${tag}s" link set "p$i" master br0
        ip -n "${tag}s" link set "p$i" up
        ip -n "${tag}h$i" link set lo up
        ip -n "${tag}h$i" addr add "10.79.0.$i/24" dev "${tag}v$i"
        ip -n "${tag}h$i" link set "${tag}v$i" up
        ip netns exec "${tag}h$i" unshare -m -u -i sh -c "
            mount -t tmpfs tmpfs /dev/shm
            mount --bind '$folder/hosts' /etc/hosts
            hostname h$i
            touch '$folder/h$i.up'
            exec sleep 100000" < /dev/null > /dev/null 2>&1 &
        echo $! > "$folder/h$i.pid"
    done
    for i in $(seq "$n"); do
        until [ -e "$folder/h$i.up" ]; do sleep 0.05; done
    done
    cat > "$folder/shell" <<END
#!/bin/sh
# Options of ssh are skipped.
while true; do
    case \$1 in
    -o | -p | -l) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
host=\${1#*@}
shift
exec nsenter -t \$(cat '$folder'/\$host.pid) -n -m -u -i sh -c "\$*"
END
    chmod +x "$folder/shell"
}

drop() {
    folder=$1
    tag=$(cat "$folder/tag")
    for keeper in "$folder"/h*.pid; do kill "$(cat "$keeper")" 2> /dev/null || true; done
    for name in $(ip netns list | cut -d' ' -f1); do
        case $name in "$tag"[sh]*) ip netns del "$name" ;; esac
    done
}

"$@"
