#!/bin/bash
# calibrate --only=network, on pretended GPUs and hosts: the lines that two ranks write, and what it refuses.
# Usage: calibrate_network.sh CALIBRATE
set -eu
calibrate=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# A rank as torchrun starts it, with a GPU of its own: its number, that on its host, ranks of its host, where rank 0 is.
rank() {
    env CUDA_VISIBLE_DEVICES="$1" RANK="$1" WORLD_SIZE=2 LOCAL_RANK="$2" LOCAL_WORLD_SIZE="$3" MASTER_ADDR="$4" \
        MASTER_PORT="$port" HEDDLE_TRUST_NETWORK=1 "$calibrate" --quick --only=network -o lines >"out$1" 2>&1
}
refused() { # MESSAGE FILE
    grep -qF -- "$1" "$2" || { echo "no '$1' in:"; cat "$2"; exit 1; }
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
address=0.0.0.0 # this host, by an address that is not one of loopback

rank 1 0 1 "$address" &
other=$!
rank 0 0 1 "$address" || { cat out0 out1; exit 1; }
wait "$other"
line='^(all_gather|reduce_scatter) network 2 1KiB:[0-9.]+ 4KiB:[0-9.]+$'
[ "$(grep -cE "$line" lines)" = 2 ] || { cat lines; exit 1; }

if rank 0 0 2 127.0.0.1; then exit 1; fi
refused "all 2 ranks are on this host: start one on each of several hosts" out0
if rank 1 1 1 "$address"; then exit 1; fi
refused "rank 1 is number 1 of its host: start one on each" out1
if "$calibrate" --quick --only=network >alone 2>&1; then exit 1; fi
refused "no launcher has started this process: start one process on each host by torchrun, mpirun or srun" alone
