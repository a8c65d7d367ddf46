#!/usr/bin/env python3
"""Runs docs/programs.md: its commands, and its programs in other languages.

    programs.py dev|release DIRECTORY

With `dev` the libraries are those that cargo built for its tests, which are put where the page installs them. With
`release` the page's own commands build and install them. What the page shows as printed is compared.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = pathlib.Path(sys.argv[2]).resolve()
IS_RELEASE = {"dev": False, "release": True}[sys.argv[1]]
BUILT = ROOT / "target" / "debug"

# Commands that build or install, from the root of a clone.
INSTALLS = ("make -C crates/c", "cp crates/c", "python3 -m venv", '"$HOME/.local/mdspace/bin/pip" install')

ENVIRONMENT = {
    **os.environ,
    "HOME": str(PLACE),
    "PATH": f"{BUILT}:{os.environ['PATH']}",
    "CARGO_HOME": os.environ.get("CARGO_HOME", str(pathlib.Path.home() / ".cargo")),
    "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(pathlib.Path.home() / ".rustup")),
    "PKG_CONFIG_PATH": str(PLACE / ".local/lib/pkgconfig"),
    "LD_LIBRARY_PATH": str(PLACE / ".local/lib"),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def run(words, directory=PLACE):
    print("$", *words, flush=True)
    done = subprocess.run(words, cwd=directory, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        raise SystemExit(f"status {done.returncode}: {words}")
    return done.stdout


def shell(script, directory=PLACE):
    return run(["bash", "-euo", "pipefail", "-c", script], directory)


def put_in_place():
    """Installs what cargo built for its tests."""
    library = BUILT / "deps" / "libmdspace_c.so"
    run(["make", "-C", str(ROOT / "crates/c"), "install", f"PREFIX={PLACE}/.local", f"LIBRARY={library}"])
    plugin = PLACE / "nbdkit"
    shutil.copytree(ROOT / "crates/c/nbdkit", plugin)
    run(["make", "-C", str(plugin)])
    shutil.copy(plugin / "nbdkit-mdspace-plugin.so", PLACE / ".local/lib")
    package = PLACE / "package/mdspace"
    shutil.copytree(ROOT / "crates/python/python/mdspace", package)
    shutil.copy(BUILT / "deps" / "lib_mdspace.so", package / "_mdspace.abi3.so")
    ENVIRONMENT["PYTHONPATH"] = f"{package.parent}:{ENVIRONMENT.get('PYTHONPATH', '')}"
    python = PLACE / ".local/mdspace/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nexec python3 "$@"\n')
    python.chmod(0o755)


def console(block):
    """Runs a block's commands, and compares what they print."""
    lines = block.splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    if all(command.startswith(INSTALLS) for command in commands):
        if IS_RELEASE:
            shell("\n".join(commands), ROOT)
        return len(commands)
    expected = [line for line in lines if not line.startswith("$ ")]
    printed = shell("\n".join(commands)).splitlines()
    if printed != expected:
        raise SystemExit(f"the page says {expected}")
    return len(commands)


def plugin_of_nbdkit():
    """The plugin writes only when asked, ends clean, and refuses what it cannot serve before it serves."""
    plugin = str(PLACE / ".local/lib/nbdkit-mdspace-plugin.so")
    data = PLACE / "data"
    data.write_bytes(os.urandom(30 << 20))
    members = [str(PLACE / name) for name in ("a.img", "b.img", "c.img")]

    def nbdkit(script, *words):
        words = ["nbdkit", "--unix", "-", "--run", script, plugin, *words]
        return subprocess.run(words, cwd=PLACE, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    def member_bytes():
        return [pathlib.Path(member).read_bytes() for member in members]

    before = member_bytes()
    for words, said in [
        ([], "no members"),
        (["colour=red", *members], "colour: no such parameter"),
        (["force=perhaps", *members], "perhaps"),
        ([members[0]], "too few members"),
        (members, "read-only"),
    ]:
        done = nbdkit('nbdcopy data "$uri"', *words)
        if done.returncode == 0 or said not in done.stderr:
            raise SystemExit(f"nbdkit {words}: {done}")
    if member_bytes() != before:
        raise SystemExit("a refusal changed a member")
    copied = nbdkit('nbdcopy --flush data "$uri"', *members, "write=true")
    read = subprocess.run(["mdspace", "read", *members], cwd=PLACE, env=ENVIRONMENT, capture_output=True, check=False)
    if copied.returncode != 0 or read.stdout != data.read_bytes():
        raise SystemExit(f"nbdkit wrote other bytes: {copied}, {read.stderr}")
    if "state       clean" not in run(["mdspace", "examine", *members]):
        raise SystemExit("nbdkit left the array dirty")
    overlaid = nbdkit('dd if=/dev/zero bs=1M count=1 status=none | nbdcopy - "$uri"', *members, "write=true", "overlay=ov")
    if overlaid.returncode != 0 or not (PLACE / "ov").is_dir():
        raise SystemExit(f"nbdkit with an overlay: {overlaid}")
    again = subprocess.run(["mdspace", "read", *members], cwd=PLACE, env=ENVIRONMENT, capture_output=True, check=False)
    if again.stdout != read.stdout:
        raise SystemExit("a write to the overlay reached a member")


def same_words():
    """An error is in the words of the command, in each language."""
    (PLACE / "letter").write_text("not a member")
    python = str(PLACE / ".local/mdspace/bin/python")
    script = "import mdspace\ntry: mdspace.open(['letter'])\nexcept mdspace.Error as error: print(error)"
    text = run([python, "-c", script]).strip()
    command = subprocess.run(
        ["mdspace", "read", "letter"], cwd=PLACE, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if command.returncode != 2 or text not in " ".join(command.stderr.split()):
        raise SystemExit(f"the command says {command.stderr!r}, and the package {text!r}")


def main():
    page = (ROOT / "docs/programs.md").read_text()
    if not IS_RELEASE:
        put_in_place()
    names = iter(re.findall(r"^`(\w+\.(?:c|py))` reads", page, re.MULTILINE))
    commands = programs = 0
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if kind == "sh":
            shell(block)
        elif kind == "console":
            commands += console(block)
        else:
            name = next(names)
            assert name.endswith({"c": ".c", "python": ".py"}[kind]), (kind, name)
            (PLACE / name).write_text(block)
            programs += 1
    same_words()
    plugin_of_nbdkit()
    print(f"{programs} programs and {commands} commands of the page")


main()
