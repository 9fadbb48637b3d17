#!/usr/bin/env bash
# Proves that the emulator builds and runs on arm64, and counts there what it counts on x86-64. It makes a Debian 12 of
# that kind, whose programs qemu translates; so it takes hours. For maintainers, as root; ctest does not run it.
#   tests/arm64_system.sh [--work-tree] [--mirror URL] [FOLDER]
# The system goes to FOLDER (1.2 GB), which is kept, or to a temporary folder, which is removed.
# --work-tree tests the files as they are here instead of the commit HEAD; URL is by default the one that apt uses here.
set -euo pipefail
source_of=commit mirror='' system=''
while (($#)); do
    case $1 in
        --work-tree) source_of=work-tree ;;
        --mirror) mirror=$2; shift ;;
        -*) echo "usage: tests/arm64_system.sh [--work-tree] [--mirror URL] [FOLDER]" >&2; exit 2 ;;
        *) system=$(realpath "$1") ;;
    esac
    shift
done
root=$(realpath "$(dirname "$0")/..")
fail() { echo "arm64_system: $*" >&2; exit 1; }
# shellcheck disable=SC2016  # apt-get fills in $(REPO_URI)
: "${mirror:=$(apt-get indextargets --format '$(REPO_URI)' 'Release: bookworm' 'Component: main' | sed q)}"
[[ $mirror ]] || fail 'apt has no Debian 12 source here: name one with --mirror'

temporary='' mounted='' registered=''
kinds=/proc/sys/fs/binfmt_misc  # of programs that the kernel gives to an interpreter
[[ $system ]] || temporary=$(mktemp -d /var/tmp/arm64_system.XXXXXX) system=$temporary
clean_up() {
    local folder process  # of an interrupted run, which would go on writing:
    while process=$(find /proc -maxdepth 2 -name root -lname "$system" 2>/dev/null | cut -d/ -f3 | sed q)
          [[ $process ]]; do
        kill -KILL "$process" || true
    done
    for folder in dev proc; do
        if mountpoint -q "$system/$folder"; then umount --lazy "$system/$folder"; fi
    done
    if [[ $registered ]]; then echo -1 >$kinds/flashladder-arm64; fi
    if [[ $mounted ]]; then umount $kinds; fi
    # One file system only: should a mount be left, its files are not ours to remove.
    if [[ $temporary ]]; then rm -rf --one-file-system "$temporary"; fi
}
trap clean_up EXIT

# Runs a command line in the project's folder inside, with nothing of this machine's environment but a proxy.
inside() {
    chroot "$system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ${http_proxy+http_proxy="$http_proxy"} \
        bash -c "cd '/root/flash ladder' && $1" </dev/null
}
timed() {  # timed NAME COMMAND: its output goes to the terminal and to $system/NAME.log
    local start=$SECONDS status=0
    echo "---- $2"
    inside "$2" 2>&1 | tee "$system/$1.log" || status=$?
    echo "---- $2: status $status after $((SECONDS - start)) s"
    [[ $status == 0 ]] || fail "$2 ended with $status"
}

if [[ ! -e $kinds/register ]]; then mount -t binfmt_misc binfmt_misc $kinds; mounted=yes; fi
if [[ $(uname -m) != aarch64 ]] && ! grep -qs '^flags:.*F' $kinds/qemu-aarch64; then
    qemu=$(command -v qemu-aarch64-static) || fail 'the package qemu-user-static is not installed'
    # An ELF file of 64 bits for machine 0xb7. F: the interpreter is opened now, for inside it would not be found.
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    printf '%s' ":flashladder-arm64:M::$magic:$mask:$qemu:F" >$kinds/register
    registered=yes
fi

[[ -z $(ls -A "$system" 2>/dev/null) ]] || fail "$system is not empty, so it may not be bare"
debootstrap --arch=arm64 --variant=minbase --include=git,ca-certificates bookworm "$system" "$mirror" >/dev/null
cp /etc/resolv.conf /etc/hosts "$system/etc"
mount -t proc proc "$system/proc"
mount --bind /dev "$system/dev"
if [[ $source_of == commit ]]; then
    git clone --quiet "$root" "$system/root/flash ladder"
else
    mkdir "$system/root/flash ladder"
    tar -C "$root" --exclude=./build --exclude=./.git -c . | tar -C "$system/root/flash ladder" -x
fi

timed run './ladder run --no-timing --seed 1'
timed count './ladder count --check docs/results/counts.json'
# Not ./ladder test, which has hundreds of programs to build; nor ctest, whose time limits are a processor's.
programs='emulator-parts emulator-counters emulator-failures ptx ptx-failures ptx-counts races'
for rung in "$root"/solutions/[0-9]*; do rung=${rung##*/} programs+=" rung-${rung%%-*}"; done
timed build "cmake --build --preset cpu --target $programs"
timed test "for program in $programs; do echo \$program; build/cpu/bin/\$program || exit; done"
echo "arm64_system: all is well"
