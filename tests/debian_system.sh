# Bare Debian systems in folders, for the tests that need one. Sourced by them; as root, on any Debian.
#   make_system SUITE [ARCHITECTURE]   into the folder $system, which is kept, or into a temporary one, which is removed.
#                                      SUITE: what debootstrap and $mirror know: bookworm, trixie, forky, sid, ...
#   copy_project [work-tree]           the commit HEAD, or the files as they are, to the folder inside() works in
#   inside COMMAND                     runs a command line there
#   lend_compiler                      this machine's g++ for arm64, as cross-g++: it need not be translated
#   install inside|here PACKAGE...     Debian's packages, in the system or on this machine
# $mirror is by default the one that apt uses here. A script that sources this leaves the EXIT trap to it.
# shellcheck shell=bash
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
system=${system-} mirror=${mirror-} temporary='' mounted='' registered=''
kinds=/proc/sys/fs/binfmt_misc  # of programs that the kernel gives to an interpreter

fail() { echo "$(basename "$0" .sh): $*" >&2; exit 1; }

here() { bash -c "$1"; }
install() {
    local log
    log=$("$1" "{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${*:2}; } 2>&1") ||
        fail "could not install ${*:2}: $(tail -n 3 <<<"$log")"
}

clean_up() {
    local folder process
    [[ $system ]] || return 0
    # Processes of an interrupted run would go on writing.
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

emulate_arm64() {  # qemu translates its programs, also inside
    local magic mask
    command -v qemu-aarch64-static >/dev/null || install here qemu-user-static
    if [[ ! -e $kinds/register ]]; then mount -t binfmt_misc binfmt_misc $kinds; mounted=yes; fi
    if ! grep -qs '^flags:.*F' $kinds/qemu-aarch64 $kinds/flashladder-arm64; then
        # An ELF file of 64 bits for machine 0xb7. F: the interpreter is opened now, for inside it would not be found.
        magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
        mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
        printf '%s' ":flashladder-arm64:M::$magic:$mask:$(command -v qemu-aarch64-static):F" >$kinds/register
        registered=yes
    fi
}

# Files alone, of the packages and of the libraries that their programs load. That system's own binutils may come later,
# and take the names below /usr/bin.
lend_compiler() {
    local target=aarch64-linux-gnu packages programs file
    command -v $target-g++ >/dev/null || install here g++-$target
    packages=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "*-$target" "*-$target-base" '*-arm64-cross*' |
        sed -n 's/^installed //p')
    # shellcheck disable=SC2086  # several names
    dpkg -L $packages | while read -r file; do [[ -d $file && ! -L $file ]] || echo "$file"; done |
        tar -C / -c --no-recursion -T - 2>/dev/null | tar -C "$system" -x --keep-directory-symlink
    programs="$(find /usr/lib/gcc-cross/$target -type f -perm /111) /usr/lib/gcc-cross/$target/*/liblto_plugin.so
              $(echo /usr/$target/bin/*) /usr/bin/$target-g++"
    for file in /usr/$target/bin/*; do cp --remove-destination -L "$file" "$system$file"; done
    cp -L /usr/bin/$target-g++ "$system/usr/bin/cross-g++"
    # shellcheck disable=SC2086
    { ldd $programs 2>/dev/null || true; } | grep -o '/[^ :]*' | sort -u | while read -r file; do
        [[ -e $system$file ]] || { mkdir -p "$system${file%/*}" && cp -L "$file" "$system$file"; }
    done
}

# shellcheck disable=SC2016  # apt-get fills in $(REPO_URI)
mirror_here() { apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Component: main' | sed q; }

make_system() {
    local suite=$1 architecture=${2:-$(dpkg --print-architecture)} script=/usr/share/debootstrap/scripts/$1 log
    command -v debootstrap >/dev/null || install here debootstrap
    if [[ $architecture == arm64 && $(uname -m) != aarch64 ]]; then emulate_arm64; fi
    : "${mirror:=$(mirror_here)}"
    if [[ ! $mirror ]]; then apt-get update -q >/dev/null && mirror=$(mirror_here); fi  # a new machine has no lists
    [[ $mirror ]] || fail 'apt has no Debian source here: name one with --mirror'
    [[ -e $script ]] || script=/usr/share/debootstrap/scripts/sid  # a suite that is younger than debootstrap here

    [[ $system ]] || temporary=$(mktemp -d "/var/tmp/$(basename "$0" .sh).XXXXXX") system=$temporary
    mkdir -p "$system"
    chmod 755 "$system"  # apt downloads as another user
    [[ -z $(ls -A "$system" 2>/dev/null) ]] || fail "$system is not empty, so it may not be bare"
    log=$(debootstrap --arch="$architecture" --variant=minbase --include=git,ca-certificates \
        "$suite" "$system" "$mirror" "$script" 2>&1) || fail "debootstrap made no $suite: $(tail -n 3 <<<"$log")"
    cp /etc/resolv.conf /etc/hosts "$system/etc"
    echo 'Acquire::Check-Valid-Until "false";' >"$system/etc/apt/apt.conf.d/late-mirror"  # sid's lists last a week
    mount -t proc proc "$system/proc"
    mount --bind /dev "$system/dev"
}

copy_project() {
    if [[ ${1-} == work-tree ]]; then
        mkdir "$system/root/flash ladder"
        tar -C "$root" --exclude=./build --exclude=./.git -c . | tar -C "$system/root/flash ladder" -x
    else
        git clone --quiet "$root" "$system/root/flash ladder"
    fi
}

# Nothing of this machine's environment but a proxy.
inside() {
    chroot "$system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ${http_proxy+http_proxy="$http_proxy"} \
        ${compiler:+CXX="$compiler"} bash -c "cd '/root/flash ladder' && $1" </dev/null
}
