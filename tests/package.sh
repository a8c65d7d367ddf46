#!/bin/bash
# The Debian package, installed into a directory of its own: the command runs, its pages of the manual are read without a
# complaint, bash completes its subcommands and options, and the units name what is installed.
#
#   package.sh PACKAGE DIRECTORY [EMULATOR]    with the program that runs commands of the package's processor
set -euo pipefail
package=$1 emulator=${3:-}
cd "$2"

mkdir -p root/var/lib/dpkg/{info,updates}
touch root/var/lib/dpkg/status
binary=root/usr/bin/mdspace
depends=$(dpkg-deb -f "$package" Depends)
forced=(--force-not-root --force-bad-path)
[ -z "$emulator" ] || forced+=(--force-architecture)
# The directory does not have this system's libraries.
[ -z "$depends" ] || forced+=(--force-depends)
dpkg --root="$PWD/root" "${forced[@]}" --log=/dev/null -i "$package"
dpkg --root="$PWD/root" -s mdspace

mdspace() { $emulator "$binary" "$@"; }
mdspace --version
if [ "$(readelf --program-headers "$binary" | grep -c INTERP)" = 0 ]; then
    [ -z "$depends" ]
else
    [[ $depends == *"libc6 (>= "* ]]
fi
[ -z "$(nm "$binary" 2>/dev/null)" ] || { echo "not stripped"; exit 1; }

pages=0
for page in root/usr/share/man/man1/*.1.gz; do
    complaints=$(zcat "$page" | groff -k -man -Tutf8 -wmac -wchar 2>&1 >/dev/null)
    [ -z "$complaints" ] || { echo "$page: $complaints"; exit 1; }
    pages=$((pages + 1))
done
# A page for the command, and one for each subcommand that its help names.
commands=$(mdspace --help | sed -n '/^Commands:/,/^$/p' | awk '/^  [a-z]/ { print $1 }')
[ -n "$commands" ]
for command in $commands; do
    [ "$command" = help ] || [ -e "root/usr/share/man/man1/mdspace-$command.1.gz" ] || { echo "no page: $command"; exit 1; }
done
[[ $(zcat root/usr/share/man/man1/mdspace-create.1.gz | groff -man -Tascii -P-cbou) == *--metadata* ]]

complete_words() { # the words of a line, the last of which is to be completed
    bash -c '
        source "$0"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        _mdspace mdspace "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo "${COMPREPLY[*]}"' root/usr/share/bash-completion/completions/mdspace "$@"
}
[ "$(complete_words mdspace re | tr ' ' '\n' | LC_ALL=C sort | xargs)" = "re-add read remove replace" ]
[[ $(complete_words mdspace serve --tls-) == *--tls-certificates* ]]

for unit in root/usr/lib/systemd/system/mdspace{@.service,@.socket,-scrub@.service,-scrub@.timer,-monitor.service,-monitor@.service,-web.service,-incremental@.service}; do
    [ -s "$unit" ]
done
program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' root/usr/lib/systemd/system/mdspace@.service)
[ -x "root$program" ]
[ -s root/usr/share/doc/mdspace/64-mdspace.rules ]
[ -z "$(find root -path '*udev/rules.d*')" ] # it is for the administrator to take
echo "installed: $(mdspace --version), $pages pages, completions, units"
