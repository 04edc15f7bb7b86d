#!/usr/bin/env bash
# One program for the GPU, on the pretended libraries of tests/fake_cuda, as launchers start it: 2 and 4 ranks end with
# one digest, whoever has started them and on however many hosts; when a rank is killed, the others leave, and one says
# which and at which step.
#
#   usage: tests/launchers.sh BUILD [CASE...]      all cases when none is named; status 77: none of them can run here
#
# Cases: ranks (--ranks), torchrun (its variables), mpirun (Open MPI), mpiexec (MPICH), srun and srun_pmi2 (Slurm's
# daemons, started here), and across two hosts, which are network namespaces with a cable between them: hosts
# (torchrun's variables), mpirun_hosts, mpiexec_hosts, srun_hosts, srun_pmi2_hosts. A case that lacks its launcher says
# so: apt-get install openmpi-bin mpich slurm-wlm munge iproute2
set -uo pipefail
build=$(realpath "${1:?usage: tests/launchers.sh BUILD [CASE...]}")
shift
root=$(realpath "$(dirname "$0")/..")
data=$root/README.md
all=(ranks torchrun mpirun mpiexec srun srun_pmi2 hosts mpirun_hosts mpiexec_hosts srun_hosts srun_pmi2_hosts)
openmpi=mpirun.openmpi # where MPICH may be installed too, else it has the plain name
if ! command -v $openmpi >/dev/null && mpirun --version 2>/dev/null | grep -q 'Open MPI'; then openmpi=mpirun; fi
name=launchers failed=0 ran=0 slurm= two=
stall=600 # seconds: what takes longer hangs, also on a busy machine
work=${LAUNCHERS_WORK:-$(mktemp -d "${TMPDIR:-/tmp}/heddle-launchers-XXXXXX")} # the second: inside the namespaces
cd "$work" || exit 1

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT HEDDLE_PORT HEDDLE_SECRET \
  HEDDLE_TRUST_NETWORK CUDA_VISIBLE_DEVICES "${!SLURM@}" "${!OMPI@}" "${!PMI@}" "${!PMIX@}"
export HEDDLE_CUDA_PATH=$build/fake_cuda FAKE_CUDA_DEVICES=4 FAKE_CUDA_MIX=1 FAKE_NCCL_FOLDER=$work
export HEDDLE_CACHE=off HEDDLE_CONNECT_SECONDS=300 HEDDLE_SILENCE_SECONDS=300 HEDDLE_GRACE_SECONDS=300

fail() { # WORDS: of the case at hand; shows what the ranks said
  echo "$name: $*"
  cat out out.two 2>/dev/null | tail -30 | sed 's/^/    /'
  failed=1
}

skip() { # WORDS
  echo "$name: skipped: $*"
  ran=$((ran - 1))
}

have() { # COMMAND... PACKAGE: else the case is skipped
  local c
  for c in "${@:1:$#-1}"; do command -v "$c" >/dev/null ||
    { skip "there is no $c (apt-get install ${*: -1})"; return 1; }; done
}

clean_up() {
  [ -z "$slurm" ] || stop_slurm
  [ -z "$two" ] || kill "$two"
  [ -n "${LAUNCHERS_WORK:-}" ] || rm -rf "$work"
}
trap clean_up EXIT

# --- the program and its processes

compile() { # for 2 and for 4 ranks; with 4, each axis of the mesh has two
  local n
  for n in 2 4; do
    [ -x p$n ] || "$build/bin/heddlec" "$root/examples/tiny/tiny.hd" --target=cuda --set layers=1 --set dim=32 \
      --set heads=2 --set seq=16 --set train.batch=2 --set schedule.mesh.shard=2 \
      --set schedule.mesh.replicate=$((n / 2)) --set schedule.fsdp=zero3 --set schedule.fsdp.unit=Block -o p$n || exit 1
  done
}

processes() { # of our programs, in the order of their start
  local p
  for p in /proc/[0-9]*; do
    case $(readlink "$p/exe") in "$work"/p[24]*) echo "${p#/proc/}" ;; esac
  done | sort -n
}

process_of() { # RANK: by what its launcher told it; --ranks tells nothing, and forks them in order
  local p
  for p in $(processes); do
    tr '\0' '\n' <"/proc/$p/environ" | grep -qE "^(RANK|OMPI_COMM_WORLD_RANK|PMI_RANK|SLURM_PROCID)=$1$" &&
      echo "$p" && return
  done
  processes | sed -n "$(($1 + 2))p"
}

nobody_left() {
  local until=$((SECONDS + stall))
  while [ -n "$(processes)" ]; do
    sleep 0.1
    [ $SECONDS -lt $until ] && continue
    fail "processes are left: $(processes | tr '\n' ' ')"
    kill -9 $(processes)
    return
  done
}

finish() { # PROCESS: its status, or that of a process that hangs
  local until=$((SECONDS + stall))
  while kill -0 "$1" 2>/dev/null; do
    sleep 0.05
    [ $SECONDS -lt $until ] && continue
    fail "it hangs"
    kill -9 $(processes)
    break
  done
  wait "$1" 2>/dev/null
}

# --- launchers: start_X RANKS ARGUMENTS

start_ranks() { "$work/p$1" --ranks="$1" "${@:2}"; }

free_port() {
  port=$((20000 + RANDOM % 12000))
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((20000 + RANDOM % 12000)); done
}

wait_all() { # the status of one that failed
  local status=0 p
  for p in "$@"; do wait "$p" || status=$?; done
  return $status
}

start_torchrun() {
  local r started=()
  free_port
  for ((r = 0; r < $1; r++)); do
    RANK=$r WORLD_SIZE=$1 LOCAL_RANK=$r LOCAL_WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$work/p$1" \
      "${@:2}" &
    started+=($!)
  done
  wait_all "${started[@]}"
}

start_mpirun() { "$openmpi" --allow-run-as-root --oversubscribe -n "$1" "$work/p$1" "${@:2}"; }
start_mpiexec() { mpiexec.hydra -n "$1" "$work/p$1" "${@:2}"; }
start_srun() { srun --mpi=none -n "$1" "$work/p$1" "${@:2}"; }
start_srun_pmi2() { srun --mpi=pmi2 -n "$1" "$work/p$1" "${@:2}"; }

# start_slurm HOST=ADDRESS...: a controller here, a daemon on each host; nothing is read from /etc but users
start_slurm() {
  local host me
  slurm=$work/slurm me=$(id -un)
  mkdir -p "$slurm/state"
  chmod 755 "$work" "$slurm"
  head -c 1024 /dev/urandom >"$slurm/key" && chmod 400 "$slurm/key"
  cat >"$slurm/slurm.conf" <<END
ClusterName=heddle
SlurmctldHost=$(hostname)(${1#*=})
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=$me
SlurmdUser=$me
AuthInfo=socket=$slurm/socket
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/%n
SlurmctldPidFile=$slurm/controller.pid
SlurmdPidFile=$slurm/%n.pid
SlurmctldLogFile=$slurm/controller.log
SlurmdLogFile=$slurm/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES State=UP
END
  for host in "$@"; do echo "NodeName=${host%=*} NodeAddr=${host#*=} CPUs=$((8 / $#))"; done >>"$slurm/slurm.conf"
  export SLURM_CONF=$slurm/slurm.conf
  munged --force --key-file="$slurm/key" --socket="$slurm/socket" --pid-file="$slurm/munged.pid" \
    --log-file="$slurm/munged.log" --seed-file="$slurm/seed" &&
    slurmctld -c && slurmd -N "$(hostname)" && { [ $# = 1 ] || on_two slurmd -N two; } ||
      { skip "Slurm does not start: $(tail -n 3 "$slurm"/*.log)"; return 1; }
  local until=$((SECONDS + stall))
  until [ "$(sinfo -h -o %T,%D 2>/dev/null)" = "idle,$#" ]; do
    sleep 0.2
    [ $SECONDS -lt $until ] || { skip "Slurm has no idle hosts: $(sinfo -h 2>&1; tail -n 3 "$slurm"/*.log)"; return 1; }
  done
}

stop_slurm() {
  kill $(cat "$slurm"/*.pid) 2>/dev/null
  local until=$((SECONDS + 5))
  while [ $SECONDS -lt $until ] && kill -0 $(cat "$slurm"/*.pid 2>/dev/null) 2>/dev/null; do sleep 0.1; done
  rm -rf "$slurm"
  slurm=
}

# --- what is checked of every launcher

same_digest() { # RANKS STARTER
  if [ ! -s "digest$1" ]; then
    FAKE_CUDA_DEVICES=4 start_ranks "$1" --data="$data" --format=bytes --steps=8 --digest="digest$1" >out 2>&1 ||
      { fail "--ranks=$1 fails"; return; }
  fi
  rm -f digest out.two
  "$2" "$1" --data="$data" --format=bytes --steps=8 --digest="$work/digest" >out 2>&1 &
  finish $! || fail "status $? with $1 ranks"
  cmp -s digest "digest$1" || fail "with $1 ranks it computes something else than with --ranks=$1"
  nobody_left
}

begin() { # RANKS STARTER: in the background, as $!, until it has taken some steps
  local until=$((SECONDS + stall))
  rm -f log out.two
  "$2" "$1" --data="$data" --format=bytes --steps=1000000000 --log="$work/log" >out 2>&1 &
  until [ -f log ] && [ "$(wc -l <log)" -gt 3 ]; do
    sleep 0.05
    [ $SECONDS -lt $until ] || { fail "$1 ranks take no step"; return 1; }
  done
}

says_once() { # PATTERN [FILE]: an error of a rank, and no other
  [ "$(grep -c '^error: rank' "${2:-out}")" = 1 ] && grep -qE "^error: $1" "${2:-out}" ||
    fail "expected one error, of this form: $1"
}

ends() { # PROCESS: after a rank was lost
  finish "$1" && fail "status 0 without a rank"
  nobody_left
}

killed() { # RANKS STARTER RANK
  begin "$1" "$2" || return
  kill -9 "$(process_of "$3")"
  ends $!
  case $2 in
    *mpiexec*) ;; # MPICH kills the others at once
    start_ranks) # and the process that looks after the ranks has its own word
      grep -q "^error: rank $3 (process [0-9]*) was ended by signal 9 (Killed)" out ||
        fail "the first process does not tell"
      sed -i '/^error: rank .* was ended by signal/d' out
      says_once "rank $3 died at step [0-9]+; " ;;
    *) says_once "rank $3 died at step [0-9]+; " ;;
  esac
}

check() { # STARTER
  same_digest 2 "$1"
  same_digest 4 "$1"
  killed 2 "$1" 1
  killed 4 "$1" 2
  killed 4 "$1" 0
}

case_ranks() { check start_ranks; }
case_torchrun() { check start_torchrun; }
case_mpirun() { have "$openmpi" openmpi-bin && check start_mpirun; }
case_mpiexec() { have mpiexec.hydra mpich && check start_mpiexec; }
case_srun() { have munged slurmctld slurmd srun "slurm-wlm munge" && start_slurm "$(hostname)=127.0.0.1" &&
  check start_srun; }
case_srun_pmi2() { have munged slurmctld slurmd srun "slurm-wlm munge" && start_slurm "$(hostname)=127.0.0.1" &&
  check start_srun_pmi2; }

# --- two hosts: `one` is where this runs, `two` is reached by on_two

on_two() { nsenter -t "$two" --net --uts --mount --wd="$work" "$@"; }

inside() { # CASE: once more in namespaces of its own, in which its user may do all this
  local user=()
  [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
  have ip unshare nsenter "iproute2 util-linux" || return
  unshare "${user[@]}" --net --uts --mount true 2>/dev/null || { skip "no network namespaces here"; return; }
  LAUNCHERS_WORK=$work unshare "${user[@]}" --net --uts --mount --fork --kill-child "$root/tests/launchers.sh" \
    "$build" "$1"
  case $? in 0) ;; 77) ran=$((ran - 1)) ;; *) failed=1 ;; esac
}

connect_hosts() {
  hostname one
  printf '127.0.0.1 localhost\n10.77.0.1 one\n10.77.0.2 two\nfd77::1 one6\n' >hosts.txt
  cat /proc/sys/kernel/random/uuid >boot_id
  mount --bind hosts.txt /etc/hosts
  unshare --net --uts --mount sleep infinity &
  two=$!
  until [ "$(readlink /proc/$two/exe)" = "$(realpath "$(command -v sleep)")" ]; do sleep 0.05; done
  on_two hostname two
  on_two mount --bind boot_id /proc/sys/kernel/random/boot_id # another machine
  ip link set lo up
  on_two ip link set lo up
  ip link add cable type veth peer name cable netns "$two"
  ip addr add 10.77.0.1/24 dev cable
  ip addr add fd77::1/64 dev cable nodad
  on_two ip addr add 10.77.0.2/24 dev cable
  on_two ip addr add fd77::2/64 dev cable nodad
  ip link set cable up
  on_two ip link set cable up
  export FAKE_CUDA_DEVICES=2 HEDDLE_SECRET=a-secret-of-the-two-hosts
}

# start_hosts RANKS ARGUMENTS: half of them on each host; `two` has a file of its own for what its ranks say
start_hosts() {
  local r half=$(($1 / 2)) started=() variables
  [ -n "$taken" ] && port=$taken || free_port
  : >out.two
  for ((r = 0; r < $1; r++)); do
    variables=(RANK=$r WORLD_SIZE="$1" LOCAL_RANK=$((r % half)) LOCAL_WORLD_SIZE=$half MASTER_ADDR="$master" \
      MASTER_PORT="$port")
    if [ $r -lt $half ]; then env "${variables[@]}" "$work/p$1" "${@:2}" &
    else on_two env "${variables[@]}" ${on_two_secret:+HEDDLE_SECRET=$on_two_secret} "$work/p$1" "${@:2}" 2>>out.two &
    fi
    started+=($!)
  done
  wait_all "${started[@]}"
}

no_run() { # PATTERN OF ONE [PATTERN OF TWO]: 4 ranks find no start, and each host says why once
  HEDDLE_CONNECT_SECONDS=${patience:-1} start_hosts 4 --data="$data" --format=bytes --steps=8 >out 2>&1 &
  finish $! && fail "status 0"
  grep -qE "^error: $1" out || fail "expected: error: $1"
  says_once "$2" out.two
  nobody_left
}

case_hosts() {
  [ -n "${LAUNCHERS_WORK:-}" ] || { inside hosts; return; }
  local master taken=
  connect_hosts
  for master in one6 fd77::1 one 10.77.0.1; do same_digest 4 start_hosts; done
  same_digest 2 start_hosts
  on_two hostname one # as in containers: GPUs of one number are not one GPU yet
  same_digest 4 start_hosts
  on_two hostname two
  killed 4 start_hosts 3
  grep -q error out.two && fail "rank 0 has told already"
  killed 4 start_hosts 0
  says_once "rank 0 died at step [0-9]+" out.two # who looks after `two` may not see what is said on `one`

  HEDDLE_SILENCE_SECONDS=6 begin 4 start_hosts && ip link set cable down && ends $!
  says_once "rank [23] does not answer \(for [0-9]+ s\) at step [0-9]+; "
  says_once "rank 0 does not answer \(for [0-9]+ s\) at step [0-9]+; " out.two
  ip link set cable up

  master=10.77.0.1 taken=29999
  python3 -c 'import socket, time; s = socket.socket(); s.bind(("", 29999)); s.listen(); time.sleep(600)' &
  local stranger=$!
  until (exec 3<>/dev/tcp/127.0.0.1/29999) 2>/dev/null; do sleep 0.05; done
  no_run "rank 0 cannot listen at 10.77.0.1:29999: Address already in use; " \
    "rank 2: no proper answer at 10.77.0.1:29999 within 1 s"
  kill $stranger
  local secret=$HEDDLE_SECRET # without it, with another one on the second host, and on a trusted network
  taken= master=10.77.0.1
  unset HEDDLE_SECRET
  start_hosts 4 --data="$data" --format=bytes --steps=8 >out 2>&1 &
  finish $! && fail "status 0 without a secret"
  grep -q '^error: torchrun has started ranks on several hosts' out && [ "$(grep -c ^error: out)" = 1 ] &&
    [ ! -s out.two ] || fail "expected one error, about the secret"
  HEDDLE_TRUST_NETWORK=1 same_digest 4 start_hosts
  export HEDDLE_SECRET=$secret
  patience=8 on_two_secret=another-secret-of-two no_run \
    "rank 2, 3 of 4 did not come to 10.77.0.1:[0-9]+ within 8 s; [0-9]+ conn" \
    "rank 2: no.* at 10.77.0.1:[0-9]+ within 8 s.*HEDDLE_SECRET must be the same"
  master=10.99.0.1
  no_run "rank 1, 2, 3 of 4 did not come to 10.99.0.1:[0-9]+ within 1 s" \
    "rank 2: nobody answers at 10.99.0.1:[0-9]+ within 1 s \(Network is unreachable\)"
  master=10.77.0.99
  no_run "rank 1, 2, 3 of 4 did not come to 10.77.0.99:[0-9]+ within 1 s" \
    "rank 2: nobody answers at 10.77.0.99:[0-9]+ within 1 s \("
  master=three
  no_run "rank 1, 2, 3 of 4 did not come to three:[0-9]+ within 1 s" \
    "rank 2: nobody answers at three:[0-9]+ within 1 s \(the name: "
}

agent() { # what a launcher takes for ssh
  {
    echo '#!/bin/bash'
    echo 'while [ "$1" != two ]; do shift; done; shift'
    printf 'exec nsenter -t %s --net --uts --mount --wd="%s" bash -c "$*"\n' "$two" "$work"
  } >agent
  chmod +x agent
}

passed_on=(HEDDLE_CUDA_PATH FAKE_CUDA_DEVICES FAKE_CUDA_MIX FAKE_NCCL_FOLDER HEDDLE_CACHE HEDDLE_CONNECT_SECONDS \
  HEDDLE_SILENCE_SECONDS)
start_mpirun_hosts() {
  local v options=()
  for v in "${passed_on[@]}" ${master:+MASTER_ADDR=$master}; do options+=(-x "$v"); done
  "$openmpi" --allow-run-as-root -mca plm_rsh_agent "$work/agent" -host "one:$(($1 / 2)),two:$(($1 / 2))" \
    "${options[@]}" -n "$1" "$work/p$1" "${@:2}"
}
start_mpiexec_hosts() {
  mpiexec.hydra -launcher ssh -launcher-exec "$work/agent" -hosts one,two -ppn $(($1 / 2)) \
    ${master:+-genv MASTER_ADDR $master} -n "$1" "$work/p$1" "${@:2}"
}
start_srun_hosts() { srun --mpi=none -N 2 --ntasks-per-node=$(($1 / 2)) -n "$1" "$work/p$1" "${@:2}"; }
start_srun_pmi2_hosts() { srun --mpi=pmi2 -N 2 --ntasks-per-node=$(($1 / 2)) -n "$1" "$work/p$1" "${@:2}"; }

check_hosts() { # STARTER
  same_digest 2 "$1"
  same_digest 4 "$1"
  killed 4 "$1" 2
}

check_mpi_hosts() { # STARTER LAUNCHER: it does not tell where rank 0 is
  local master=one
  connect_hosts
  [ "$2" != mpirun ] || unset HEDDLE_SECRET # Open MPI brings a secret itself
  agent
  check_hosts "$1"
  master=
  "$1" 4 --data="$data" --format=bytes --steps=8 >out 2>&1 &
  finish $! && fail "status 0"
  local line="error: $2 has started 4 ranks, 2 of them here, and does not say where rank 0 is"
  [ "$(grep -c '^error: ' out)" = 1 ] && grep -q "^$line: give all of them MASTER_ADDR=HOST" out ||
    fail "expected: MASTER_ADDR"
}

case_mpirun_hosts() {
  have "$openmpi" openmpi-bin || return
  if [ -n "${LAUNCHERS_WORK:-}" ]; then check_mpi_hosts start_mpirun_hosts mpirun; else inside mpirun_hosts; fi
}
case_mpiexec_hosts() {
  have mpiexec.hydra mpich || return
  if [ -n "${LAUNCHERS_WORK:-}" ]; then check_mpi_hosts start_mpiexec_hosts mpiexec; else inside mpiexec_hosts; fi
}
case_srun_hosts() {
  have munged slurmctld slurmd srun "slurm-wlm munge" || return
  [ -n "${LAUNCHERS_WORK:-}" ] || { inside srun_hosts; return; }
  connect_hosts && start_slurm one=10.77.0.1 two=10.77.0.2 && check_hosts start_srun_hosts
}
case_srun_pmi2_hosts() {
  have munged slurmctld slurmd srun "slurm-wlm munge" || return
  [ -n "${LAUNCHERS_WORK:-}" ] || { inside srun_pmi2_hosts; return; }
  connect_hosts && start_slurm one=10.77.0.1 two=10.77.0.2 && check_hosts start_srun_pmi2_hosts
}

# --- all of them

compile
[ $# -gt 0 ] || set -- "${all[@]}"
any_failed=0
for name in "$@"; do
  failed=0 ran=$((ran + 1)) before=$ran from=$SECONDS
  declare -F "case_$name" >/dev/null || { echo "there is no case $name; there are: ${all[*]}"; exit 2; }
  "case_$name"
  [ -z "$slurm" ] || stop_slurm
  [ $failed = 0 ] || any_failed=1
  [ $ran != $before ] || [ -n "${LAUNCHERS_WORK:-}" ] ||
    echo "$name: $([ $failed = 0 ] && echo ok || echo FAILED), $((SECONDS - from)) s"
done
[ $any_failed = 0 ] || exit 1
[ $ran -gt 0 ] || exit 77
