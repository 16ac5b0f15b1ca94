#!/bin/sh
# A pod for the sessions of one sandbox container: a command for the backend "command".
#
#     export ARPO_SANDBOX=command ARPO_SANDBOX_COMMAND="deploy/kubernetes/sandbox-pod.sh registry.example/arpo-sandbox:1"
#
# Creates a pod, waits until it runs, connects its standard input and output to these here, and deletes it at the end. Its
# errors are what the cluster says. Variables:
#     KUBECTL  with options, such as "kubectl --context lab --namespace sandboxes"
#     POD      the manifest: pods/baseline.yaml (the default), pods/restricted.yaml, or a copy of yours
#     SLOTS    directories for groups of sessions, as many as Sandbox(sessions=) asks for (64)
#     WAIT     seconds until the pod has to run; fewer than Sandbox(start_wait=) (240)
set -u
kubectl=${KUBECTL:-kubectl}
name=arpo-sandbox-$(od -An -N5 -tx1 /dev/urandom | tr -d ' \n')
image=$1
for program; do :; done # the last word is the server's program; base64 keeps it one word of YAML
program=$(printf %s "$program" | base64 | tr -d '\n')
# a user that nothing else on the node has: the kernel counts processes by user, across containers
user=$(($(od -An -N2 -tu2 /dev/urandom) * 256 + 1048576))
mounts='' volumes='' slot=0
while [ "$slot" -lt "${SLOTS:-64}" ]; do
    mounts="$mounts, {name: slot-$slot, mountPath: /slots/$slot}"
    volumes="$volumes, {name: slot-$slot, emptyDir: {medium: Memory, sizeLimit: 128Mi}}"
    slot=$((slot + 1))
done

state='{.status.phase} {.status.conditions[?(@.status=="False")].message}'
state="$state {.status.containerStatuses[*].state.*.reason} {.status.containerStatuses[*].state.*.message}"
events='{range .items[*]}{.reason}: {.message}{"\n"}{end}'
delete() { $kubectl delete pod "$name" --ignore-not-found --wait=false --grace-period=5 >&2; }
fail() {
    echo "the pod has not started: $1" >&2
    $kubectl get events --field-selector "involvedObject.name=$name,type=Warning" -o jsonpath="$events" | tail -n 3 >&2
    exit 1
}

sed -e "s|NAME|$name|g" -e "s|IMAGE|$image|" -e "s|PROGRAM|$program|" -e "s|USER|$user|g" -e "s|CLIENT|$(hostname)/$PPID|" \
    -e "s|, MOUNTS|$mounts|" -e "s|, VOLUMES|$volumes|" "${POD:-$(dirname "$0")/pods/baseline.yaml}" |
    $kubectl create -f - >&2 || exit 1
trap 'delete > /dev/null' EXIT
deadline=$(($(date +%s) + ${WAIT:-240}))
while :; do
    now=$($kubectl get pod "$name" -o jsonpath="$state") || exit 1
    case $now in
    Running*) break ;;
    *ErrImage* | *ImagePullBackOff* | *InvalidImage* | *ContainerConfigError* | *RunContainerError* | Failed* | Succeeded*) fail "$now" ;;
    esac
    [ "$(date +%s)" -lt "$deadline" ] || fail "$now"
    sleep 0.5
done
$kubectl attach --stdin --quiet --container=sandbox "$name"
