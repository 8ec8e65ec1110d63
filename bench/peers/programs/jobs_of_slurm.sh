#!/bin/sh
# Short jobs by Slurm, as root: munged, slurmctld and slurmd on this host, with no delay that a parameter asks for. They are
# one array, which its controller takes as one request, and each is recorded in a file. Prints how many seconds it took from the
# submission until all have been recorded.
#
#     jobs_of_slurm.sh JOBS CPUS FOLDER
set -eu
jobs=$1 cpus=$2 folder=$3
export SLURM_CONF="$folder/slurm.conf"
mkdir -p "$folder/munge" "$folder/state"
chmod 755 "$folder/munge"
head -c 1024 /dev/urandom >"$folder/key"
chmod 600 "$folder/key"
host=$(hostname -s)
cat >"$SLURM_CONF" <<END
ClusterName=bench
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=6837
SlurmdPort=6838
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmctldDebug=error
SlurmdDebug=error
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=1,default_queue_depth=100
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/jobs
MinJobAge=10
MaxArraySize=$((jobs + 1))
MaxJobCount=$((2 * jobs + 1000))
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
END
printf 'CgroupPlugin=cgroup/v1\n' >"$folder/cgroup.conf"
: >"$folder/jobs"

munged --force --foreground --key-file="$folder/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" >"$folder/munged.out" 2>&1 &
munged=$!
slurmctld= slurmd=
finish() {
    for daemon in $slurmd $slurmctld $munged; do kill "$daemon" 2>/dev/null || true; done
    wait
}
trap finish EXIT
trap 'exit 1' INT TERM
# Waits a moment; the first daemon that has ended is the end of the script as well.
pause() {
    for daemon in $slurmd $slurmctld $munged; do
        if ! kill -0 "$daemon" 2>/dev/null; then
            find "$folder" -name '*.out' -o -name '*.log' | xargs tail -n 3 >&2
            exit 1
        fi
    done
    sleep 0.05
}
until [ -S "$folder/munge/socket" ]; do pause; done
slurmctld -D -f "$SLURM_CONF" >"$folder/slurmctld.out" 2>&1 &
slurmctld=$!
slurmd -D -f "$SLURM_CONF" -N "$host" >"$folder/slurmd.out" 2>&1 &
slurmd=$!
until [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; do pause; done

printf '#!/bin/sh\ntrue\n' >"$folder/job"
begun=$(date +%s.%N)
sbatch -n 1 -a "1-$jobs" -o /dev/null -D / "$folder/job" >"$folder/submitted"
until [ "$(wc -l <"$folder/jobs")" -ge "$jobs" ]; do pause; done
ended=$(date +%s.%N)
if [ "$(grep -c 'JobState=COMPLETED' "$folder/jobs")" -ne "$jobs" ]; then
    echo "some jobs have not completed: $(grep -v 'JobState=COMPLETED' "$folder/jobs" | head -n 1)" >&2
    exit 1
fi
echo "$begun $ended" | awk '{ print $2 - $1 }'
