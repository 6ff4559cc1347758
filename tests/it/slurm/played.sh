#!/bin/sh
# Plays Slurm's programs, by the name under which it is started. Each job is a folder; tests change its
# state there. A running job's batch script runs here.
me=${0##*/}
d=${0%/*}/..
if [ -e "$d/away" ] && [ "$me" != srun ]; then
  echo "$me: error: Unable to contact slurm controller (connect failure)" >&2
  exit 1
fi

# Starts the node of job $1. What asked for it may be ended at any time.
start() {
  setsid sh "$d/played.sh" node "$d/jobs/$1" >/dev/null 2>&1 </dev/null &
  # From then on it has a session of its own.
  until [ -s "$d/jobs/$1/pid" ]; do sleep 0.02; done
}

if [ "$1" = node ]; then
  j=$2
  echo $$ >"$j/pid"
  cd / || exit 1
  sleep "$(cat "$j/../../delay" 2>/dev/null || echo 0)"
  export SLURM_JOB_ID="${j##*/}" SLURM_STEP_ID=4 SLURM_EXPORT_ENV=NONE
  sh "$j/script" >"$(cat "$j/output")" 2>&1 &
  script=$!
  echo $script >"$j/script-pid"
  wait $script
  [ "$(cat "$j/state")" != "RUNNING None" ] || echo "COMPLETED None" >"$j/state"
  exit 0
fi

case $me in
sbatch)
  echo "$*" >>"$d/submitted"
  if [ -s "$d/refusal" ]; then cat "$d/refusal" >&2; exit 1; fi
  case "$*" in *--gpus-per-node*)
    if [ -e "$d/old" ]; then echo "sbatch: unrecognized option '--gpus-per-node=1'" >&2; exit 1; fi ;;
  esac
  # Its answer never ends, also where nobody reads it.
  if [ -e "$d/flood" ]; then trap '' PIPE; while :; do echo flood; done 2>/dev/null; fi
  n=$(($(ls "$d/jobs" | wc -l) + 1))
  until mkdir "$d/jobs/$n" 2>/dev/null; do n=$((n + 1)); done
  j=$d/jobs/$n
  for word; do
    case $word in
    --job-name=*) echo "${word#*=}" >"$j/name" ;;
    --output=*) echo "${word#*=}" >"$j/output" ;;
    esac
    script=$word
  done
  cp "$script" "$j/script"
  cat "$d/first" >"$j/state"
  case $(cat "$j/state") in
  RUNNING*) start "$n" ;;
  FAILED*) echo "this node does not see the program" >"$(cat "$j/output")" ;;
  esac
  if [ -e "$d/cut" ]; then
    rm "$d/cut"
    p=$PPID
    until case $(cat "/proc/$p/comm") in agent*) true ;; *) false ;; esac do
      p=$(ps -o ppid= -p "$p" | tr -d ' ')
    done
    kill -9 "$p"
    sleep 1
  fi
  echo "$n" ;;
scontrol)
  case "$*" in
  *"show hostnames"*) printf '%s\n' node1 node2 ;;
  *"show partition"*)
    echo "PartitionName=gpu Default=YES DefaultTime=$(cat "$d/default-time") MaxTime=01:00:00" ;;
  *)
    for n; do :; done
    j=$d/jobs/$n
    if [ ! -s "$j/state" ]; then echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; fi
    if [ -e "$j/start" ]; then rm "$j/start"; echo "RUNNING None" >"$j/state"; start "$n"; fi
    read -r state reason <"$j/state"
    echo "JobId=$n JobName=$(cat "$j/name") JobState=$state Reason=$reason Dependency=(null)" \
      "Requeue=0 Restarts=$(cat "$j/restarts" 2>/dev/null || echo 0) RunTime=00:00:01 TimeLimit=00:10:00" \
      "StartTime=2030-01-02T03:04:05 NodeList=$(cat "$d/nodes" 2>/dev/null || echo node1)" ;;
  esac ;;
squeue)
  names=
  for word; do case $word in --name=*) names=,${word#*=}, ;; esac; done
  for j in "$d"/jobs/*; do
    [ -s "$j/state" ] || continue
    read -r state reason <"$j/state"
    case $state in PENDING | RUNNING | COMPLETING) ;; *) continue ;; esac
    case "$*" in
    *--states=PENDING*) [ "$state" = PENDING ] && echo "${j##*/}" ;;
    *) case $names in *,"$(cat "$j/name")",*) echo "${j##*/} $(cat "$j/name") $state" ;; esac ;;
    esac
  done
  exit 0 ;;
scancel)
  echo "$*" >>"$d/cancelled"
  for n; do :; done
  j=$d/jobs/$n
  [ -d "$j" ] || { echo "scancel: error: Invalid job id $n" >&2; exit 1; }
  case "$*" in
  *--signal=USR1*) kill -USR1 "$(cat "$j/script-pid")" ;;
  *)
    echo "CANCELLED None" >"$j/state"
    [ ! -s "$j/pid" ] || kill -9 -- "-$(cat "$j/pid")" ;;
  esac
  exit 0 ;;
srun)
  case $1 in
  --nodes=*)
    # A step of the job in which it is called: the program once on each node.
    n=0
    status=0
    nodes=${1#*=}
    while [ "$1" != /bin/sh ]; do shift; done
    while [ $n -lt "$nodes" ]; do
      if [ "$(cat "$d/lost-node" 2>/dev/null)" != $n ]; then
        SLURM_NODEID=$n SLURM_PROCID=$n SLURM_NNODES=$nodes SLURM_JOB_NODELIST='node[1-2]' "$@" || status=$?
      fi
      n=$((n + 1))
    done
    exit $status ;;
  esac
  echo "$*" >>"$d/steps"
  while [ "$1" != env ]; do
    case $1 in --jobid=*) n=${1#*=} ;; esac
    shift
  done
  if [ -s "$d/step-refusal" ]; then cat "$d/step-refusal" >&2; exit 1; fi
  case $(cat "$d/jobs/$n/state") in RUNNING*) exec "$@" ;; esac
  echo "srun: error: Unable to confirm allocation for job $n: Invalid job id specified" >&2
  exit 1 ;;
sacct)
  cat "$d/accounts" ;;
esac
