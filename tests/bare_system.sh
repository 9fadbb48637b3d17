#!/usr/bin/env bash
# Proves that ./ladder and ./ladder test work on a bare Debian. For maintainers, as root; ctest does not run it.
#   tests/bare_system.sh [SUITE]      bookworm, trixie, forky, sid: all that debootstrap can make; bookworm by default
#       --compiler clang++-19         installs Debian's package of it, and builds with CXX=clang++-19
#       --command LINE                instead of ./ladder, ./ladder again and ./ladder test; may be repeated
#       --results FILE                appends a line for each command, as CSV
#       --work-tree                   tests the files as they are here instead of the commit HEAD
#       --arch arm64                  emulates the other architecture where this machine has not got it, but its compiler
#       --keep FOLDER                 the system goes there and stays (1.2 GB); otherwise it is removed
#       --mirror URL                  instead of the one that apt uses here
set -euo pipefail
usage() { sed -n '3,/^set /{/^set /!s/^# //p}' "$0" >&2; exit 2; }
suite=bookworm compiler='' commands=() results='' source_of=commit architecture='' system='' mirror=''
while (($#)); do
    if [[ $1 =~ ^--(compiler|command|results|arch|keep|mirror)$ && $# == 1 ]]; then usage; fi
    case $1 in
        --compiler) compiler=$2; shift ;;
        --command) commands+=("$2"); shift ;;
        --results) results=$(realpath "$2"); shift ;;
        --work-tree) source_of=work-tree ;;
        --arch) architecture=$2; shift ;;
        --keep) system=$(realpath "$2"); shift ;;
        --mirror) mirror=$2; shift ;;
        -*) usage ;;
        *) suite=$1 ;;
    esac
    shift
done
((${#commands[@]})) || commands=(./ladder ./ladder './ladder test')
# shellcheck source=tests/debian_system.sh
source "$(dirname "$0")/debian_system.sh"

make_system "$suite" "$architecture"
name="Debian $(cat "$system/etc/debian_version") $suite $(chroot "$system" dpkg --print-architecture)"
commit=$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || true)
[[ $source_of == commit ]] || commit+=' and changes'
copy_project "$source_of"
if [[ $architecture == arm64 && ! $compiler && $(uname -m) != aarch64 ]]; then
    compiler=cross-g++
    lend_compiler
elif [[ $compiler ]]; then
    install inside "${compiler/clang++/clang}"      # the package clang-19 has clang++-19
    inside "command -v $compiler" >/dev/null || fail "$suite has no $compiler"  # apt took the name for a pattern
fi

exec 3>&1
summary='' before=''
for command in "${commands[@]}"; do
    echo "---- $command"
    status=0
    # The subshell's standard error has nothing but the times: of the pipeline, of which tee takes next to none.
    times=$(TIMEFORMAT='%0R %U %S'; { time inside "$command" 2>&1 | tee "$system/command.log" >&3; } 2>&1) || status=$?
    read -r seconds user sys <<<"${times##*$'\n'}"
    # shellcheck disable=SC2016  # it is expanded inside
    version=$(inside '${CXX:-c++} --version 2>/dev/null | head -n 1')
    cpu=$(awk "BEGIN { printf \"%.0f\", $user + $sys }")
    row="$name,${version:-no compiler},\"${command//\"/\"\"}\",$status,$seconds,$cpu"
    echo "---- $row"
    summary+=$row$'\n'
    if [[ $results ]]; then
        [[ -s $results ]] || echo 'system,compiler,command,status,seconds,CPU seconds,commit' >"$results"
        echo "$row,$commit" >>"$results"
    fi
    [[ $status == 0 ]] || fail "$command ended with $status"
    if [[ $command == "$before" ]]; then  # said again, it has nothing left to set up
        ((seconds < 30)) || fail "the second $command took $seconds s"
        if grep -q '^==>' "$system/command.log"; then fail "the second $command did set-up work"; fi
    fi
    before=$command
done
printf '\nsystem,compiler,command,status,seconds,CPU seconds\n%s' "$summary"
echo "bare_system: all is well"
