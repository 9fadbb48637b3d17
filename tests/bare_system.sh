#!/usr/bin/env bash
# Proves that ./ladder and ./ladder test work on a bare Debian 12. For maintainers, as root; ctest does not run it.
#   tests/bare_system.sh [--work-tree] [--mirror URL] [FOLDER]
# The system goes to FOLDER (1.2 GB), which is kept, or to a temporary folder, which is removed.
# --work-tree tests the files as they are here instead of the commit HEAD; URL is by default the one that apt uses here.
set -euo pipefail
source_of=commit mirror='' system=''
while (($#)); do
    case $1 in
        --work-tree) source_of=work-tree ;;
        --mirror) mirror=$2; shift ;;
        -*) echo "usage: tests/bare_system.sh [--work-tree] [--mirror URL] [FOLDER]" >&2; exit 2 ;;
        *) system=$(realpath "$1") ;;
    esac
    shift
done
root=$(realpath "$(dirname "$0")/..")
# shellcheck disable=SC2016  # apt-get fills in $(REPO_URI)
: "${mirror:=$(apt-get indextargets --format '$(REPO_URI)' 'Release: bookworm' 'Component: main' | sed q)}"
[[ $mirror ]] || { echo "bare_system: apt has no Debian 12 source here: name one with --mirror" >&2; exit 1; }

temporary=''
[[ $system ]] || temporary=$(mktemp -d /var/tmp/bare_system.XXXXXX) system=$temporary
clean_up() {
    local folder process  # of an interrupted run, which would go on writing:
    while process=$(find /proc -maxdepth 2 -name root -lname "$system" 2>/dev/null | cut -d/ -f3 | sed q)
          [[ $process ]]; do
        kill -KILL "$process" || true
    done
    for folder in dev proc; do
        if mountpoint -q "$system/$folder"; then umount --lazy "$system/$folder"; fi
    done
    # One file system only: should a mount be left, its files are not ours to remove.
    if [[ $temporary ]]; then rm -rf --one-file-system "$temporary"; fi
}
trap clean_up EXIT

fail() { echo "bare_system: $*" >&2; exit 1; }
# Runs a command line in the project's folder inside, with nothing of this machine's environment but a proxy.
inside() {
    chroot "$system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ${http_proxy+http_proxy="$http_proxy"} \
        bash -c "cd '/root/flash ladder' && $1" </dev/null
}
timed() {  # timed NAME COMMAND: its output goes to the terminal and to $system/NAME.log
    local start=$SECONDS status=0
    echo "---- $2"
    inside "$2" 2>&1 | tee "$system/$1.log" || status=$?
    seconds=$((SECONDS - start))
    echo "---- $2: status $status after $seconds s"
    [[ $status == 0 ]] || fail "$2 ended with $status"
}

[[ -z $(ls -A "$system" 2>/dev/null) ]] || fail "$system is not empty, so it may not be bare"
debootstrap --variant=minbase --include=git,ca-certificates bookworm "$system" "$mirror" >/dev/null
cp /etc/resolv.conf /etc/hosts "$system/etc"
mount -t proc proc "$system/proc"
mount --bind /dev "$system/dev"
if [[ $source_of == commit ]]; then
    git clone --quiet "$root" "$system/root/flash ladder"
else
    mkdir "$system/root/flash ladder"
    tar -C "$root" --exclude=./build --exclude=./.git -c . | tar -C "$system/root/flash ladder" -x
fi

timed first ./ladder
timed second ./ladder
((seconds < 30)) || fail "the second ./ladder took $seconds s"
if grep -q '^==>' "$system/second.log"; then fail 'the second ./ladder did set-up work'; fi
timed test './ladder test'
echo "bare_system: all is well"
