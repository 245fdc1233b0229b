#!/bin/sh
# Does a stranger with an empty machine get through the README? newcomer.sh [--keep]
#
# Clones the committed HEAD into an empty folder and runs the README's commands to the letter, with
# nothing in the environment but an empty HOME and the PATH. Then lints with the network cut off, and
# builds and tests on every other CPython from 3.10 to 3.15 that the PATH or pyenv has.
set -eu
cd "$(dirname "$0")/.."

keep=no
[ "${1:-}" = --keep ] && keep=yes
[ -z "$(git status --porcelain)" ] || echo "newcomer: only what is committed is tried; this tree has changes" >&2

room=$(mktemp -d)
clone=$room/pellucid
table=$room/table
broken=$room/broken
# Called through ./dev, the PATH begins with the tools of our own .venv, which a newcomer has not got.
path=$(printf %s "$PATH" | tr : '\n' | grep -v "^$PWD/.venv/bin\$" | paste -s -d : -)
git clone --quiet "$PWD" "$clone"
mkdir "$room/home"
: >"$table"

# attempt NAME COMMAND [VARIABLE=VALUE...]: runs it in the clone and writes a line of the table.
attempt() {
    name=$1 command=$2
    shift 2
    log=$room/log-$(wc -l <"$table" | tr -d ' ')
    echo "newcomer: $name: $command"
    begun=$(date +%s)
    outcome=passed
    (cd "$clone" && env -i HOME="$room/home" PATH="$path" "$@" sh -euc "$command") >"$log" 2>&1 </dev/null ||
        outcome=FAILED
    printf '%-8s %5d s   %-28s %s\n' "$outcome" $(($(date +%s) - begun)) "$name" "$command" >>"$table"
    if [ "$outcome" = passed ]; then tail -n 1 "$log"; else
        tail -n 60 "$log"
        touch "$broken"
    fi
}

version_of() {
    "$1" -c '
import platform, sys, sysconfig, venv, ensurepip
print("%d.%d.%d" % sys.version_info[:3], sys.base_prefix)
is_supported = (3, 10) <= sys.version_info < (3, 16) and not sysconfig.get_config_var("Py_GIL_DISABLED")
sys.exit(not is_supported or platform.python_implementation() != "CPython")
' 2>/dev/null
}

# The lines of the README's sh blocks, without their comments.
sed -n '/^```sh$/,/^```$/p' README.md | sed -e '/^```/d' -e 's/ *#.*//' -e '/^$/d' >"$room/commands"
while read -r command; do
    case $command in
    pip\ *)
        # "Your own environment": a fresh one, and the package must be found from elsewhere. pip calls
        # cargo itself; where that is rustup's, which wants its owner's HOME, we name the toolchain it stands for.
        python3 -m venv "$room/own"
        attempt "README" "$command && cd / && python -c 'import pellucid; print(pellucid.__file__)'" \
            PATH="$room/own/bin:$(rustc --print sysroot)/bin:$path"
        ;;
    *" && ../env/bin/pip "*) attempt "README" "$command" PATH="$(rustc --print sysroot)/bin:$path" ;;
    *) attempt "README" "$command" ;;
    esac
done <"$room/commands"

# A proxy that refuses every connection: what was fetched once is enough.
nowhere=http://127.0.0.1:9
attempt "offline" "./dev lint" http_proxy=$nowhere https_proxy=$nowhere all_proxy=$nowhere

seen=$(version_of python3)
for python in $(seq 10 15 | sed 's/^/python3./') /usr/bin/python3 /usr/local/bin/python3 \
    "$(pyenv root 2>/dev/null || echo "$HOME/.pyenv")"/versions/*/bin/python3; do
    version=$(version_of "$python") || continue
    echo "$seen" | grep -qxF "$version" && continue
    seen=$(printf '%s\n%s' "$seen" "$version")
    attempt "Python ${version%% *}" "PYTHON=$(command -v "$python") ./dev test"
done

echo
cat "$table"
if [ -e "$broken" ] || [ $keep = yes ]; then
    echo "newcomer: the clone and the logs are in $room"
else
    rm -rf "$room"
fi
[ ! -e "$broken" ]
