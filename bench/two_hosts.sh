#!/bin/bash
# Two hosts that are not there: network namespaces of this machine, joined by a cable (veth) whose
# speed is limited both ways (tc tbf). Starts a program on both with Open MPI's mpirun.
#
#   bench/two_hosts.sh [--mbit 1000] [--counters FILE] RANKS_PER_HOST PROGRAM ARGUMENTS...
#
# FILE gets what the cable's interfaces counted while the program ran, as JSON: for each host the
# bytes it sent and received, headers included. Exits with the program's code; 77 if this machine
# does not permit it (it takes root). Leaves nothing behind.
set -u

mbit=1000
counters=""
while [[ ${1:-} == --* ]]; do
  case $1 in
    --mbit) mbit=${2:-} ;;
    --counters) counters=${2:-} ;;
    *) echo "two_hosts.sh: unknown flag $1" >&2; exit 2 ;;
  esac
  shift $(($# < 2 ? $# : 2))
done
if [[ ! $mbit =~ ^[1-9][0-9]*$ ]]; then
  echo "two_hosts.sh: --mbit wants a whole number from 1 on, not \"$mbit\"." >&2
  exit 2
fi
if [[ -n $counters ]] && ! : > "$counters"; then exit 2; fi # the shell says why
if [[ $# -lt 2 || ! $1 =~ ^[1-9][0-9]*$ ]]; then
  sed -n '2,10p' "$0" | cut -c3- >&2
  exit 2
fi
each=$1
shift

PATH=$PATH:/usr/sbin:/sbin
for tool in ip tc unshare mpirun.openmpi; do
  command -v "$tool" > /dev/null && continue
  echo "two_hosts.sh: there is no $tool here: install iproute2, util-linux and openmpi-bin." >&2
  exit 77
done

id=$$
a=ls$id-a
b=ls$id-b
folder=$(mktemp -d)
clean_up() {
  ip netns del "$a" 2> /dev/null
  ip netns del "$b" 2> /dev/null # and the cable with them
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

refuse() {
  echo "two_hosts.sh: this machine does not permit network namespaces: $(< "$folder/why")" >&2
  exit 77
}
unshare --uts true 2> "$folder/why" || refuse
ip netns add "$a" 2> "$folder/why" || refuse
ip netns exec "$a" true 2> "$folder/why" || refuse
ip netns add "$b" 2> "$folder/why" || refuse
ip link add "va$id" netns "$a" type veth peer name "vb$id" netns "$b" 2> "$folder/why" || refuse
for end in a b; do
  host=ls$id-$end
  address=10.213.7.$([[ $end == a ]] && echo 1 || echo 2)
  ip -n "$host" addr add "$address/24" dev "v$end$id" &&
    ip -n "$host" link set lo up &&
    ip -n "$host" link set "v$end$id" up &&
    tc -n "$host" qdisc add dev "v$end$id" root tbf rate "${mbit}mbit" burst 128kb latency 100ms
done 2> "$folder/why" || refuse

# What mpirun calls in ssh's place: AGENT HOST COMMAND...
cat > "$folder/agent" << 'AGENT'
#!/bin/bash
host=$1
shift
exec ip netns exec "$host" unshare --uts bash -c "hostname $host; $*"
AGENT
chmod +x "$folder/agent"

count() { # HOST END DIRECTION
  ip netns exec "$1" cat "/sys/class/net/v$2$id/statistics/$3_bytes"
}
before=($(count "$a" a tx) $(count "$a" a rx) $(count "$b" b tx) $(count "$b" b rx))

# In a process of its own, so that a signal to this script reaches it and the trap still runs.
TMPDIR=$folder ip netns exec "$a" unshare --uts bash -c 'hostname "$1"; shift; exec "$@"' _ "$a" \
  mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none \
  --host "$a:$each,$b:$each" -n $((2 * each)) \
  --mca plm_rsh_agent "$folder/agent" --mca btl tcp,self \
  --mca btl_tcp_if_include 10.213.7.0/24 --mca oob_tcp_if_include 10.213.7.0/24 \
  "$@" &
job=$!
trap 'kill -TERM $job 2> /dev/null' TERM
trap 'kill -INT $job 2> /dev/null' INT
wait $job
code=$?
while kill -0 $job 2> /dev/null; do # a signal ended the wait, not the job
  wait $job
  code=$?
done

if [[ -n $counters ]]; then
  after=($(count "$a" a tx) $(count "$a" a rx) $(count "$b" b tx) $(count "$b" b rx))
  printf '{"a": {"sent": %d, "received": %d}, "b": {"sent": %d, "received": %d}}\n' \
    $((after[0] - before[0])) $((after[1] - before[1])) \
    $((after[2] - before[2])) $((after[3] - before[3])) > "$counters"
fi
exit $code
