#!/usr/bin/env python3
"""The scripts and makefiles on other systems' tools: what macOS lacks is refused, other awks and
busybox's tools give the same files, packages are looked for where Homebrew puts them."""

import glob
import os
import re
import shutil
import subprocess
import time

from suite import BUILD, Skip, run_tests

HERE = os.getcwd()

# One line each that a Mac's tools, bash 3.2 or make 3.81 don't take, and what must be named.
PLANTED = {
    "x.sh": ["sed -i 's/a/b/' f", "cat f | sed -r 's/a+/b/'", "sed 's/a\\+/b/' f", "sed -n '/a/{p}' f",
             "grep 'a\\|b' f", "grep -oP '\\d' f", "x=$(date -d yesterday)", "date +%s%N", "stat -c %s f",
             "y=$(readlink -f \"$0\")", "timeout 5 true", "if true; then nproc; fi", "mapfile -t lines < f",
             "readarray lines < f", "declare -A table", "echo \"${x^^}\"", "echo ${x,}", "make &>> log",
             "make |& tee log", "ls | xargs -r rm", "find . -printf '%s'", "find -name x", "install -D a b/c",
             "log=$(mktemp)", "d=$(mktemp -d)", "echo -e 'a'", "echo -n a", "cp -- a b", "ls --color", "sort -V f",
             "head -n -1 f", "tail -1 f", "wait -n", "[[ -v x ]]", "cat /proc/cpuinfo", "for a in \"${list[@]}\"; do :; done",
             "! md5sum f", "A=1 sha256sum f", "printf '%(%s)T'", "awk '{ print strftime(1) }' f"],
    "x.mk": ["X := $(file < f)", ".ONESHELL:", "X != ls", "X := $(let a,b,$a)", "X ::= a", "define f =",
             "a b &: c", "X := $(shell readlink -f a)", "\t$Qtimeout 5 a", "\t@sed -i s/a/b/ f",
             "b/%: b/%.o\nb/app/%: b/app/%.o x", "a: private X := b"],
}
RIGHT = {
    "x.sh": ["sed -i.bak 's/a/b/' f", "sed -E 's/a+|b/c/' f", "grep -E 'a|b' f", "date +%s", "mktemp \"${TMPDIR:-/tmp}/x.XXXXXX\"",
             "# timeout 5 true", "command -v nproc > /dev/null && nproc", "echo \"no timeout here\"", "for_timeout=5", "tail -n 1 f",
             "echo \"$a\" | tr a b", "sed -n '/a/{p;}' f", "x=${list[@]+\"${list[@]}\"}", "grep -n -i a f", "git grep -- a", "echo a-e",
             "printf '%s\\n' a", "a && b || c; d & e", "[ \"$(uname -s)\" = Linux ] || exit 0; timeout 5 a"],
    "x.mk": ["X := $(or a,b)", "define f", "b/app/%: b/app/%.o x\nb/%: b/%.o", "b/%.o: %.c\nb/x/%.o: y/%.c", "b/%_a: b/%.o\nb/%_b: b/%.o",
             "# timeout", "X := $(shell cat a)", "a: b\n\techo c", "X = a"],
}


def portable(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text + "\n")
    return subprocess.run(["tools/portable", path], capture_output=True, text=True)


def test_what_a_mac_lacks_is_refused(folder):
    for name, lines in PLANTED.items():
        for line in lines:
            r = portable(folder, name, line)
            assert r.returncode == 1 and r.stdout.startswith(f"{folder}/{name}:"), (line, r)


def test_what_every_system_has_is_taken(folder):
    for name, lines in RIGHT.items():
        for line in lines:
            r = portable(folder, name, line)
            assert r.returncode == 0 and not r.stdout + r.stderr, (line, r)


def test_lint_looks_at_every_script(folder):
    """Also at those that are not yet committed, and at names that differ in nothing but case."""
    shutil.copytree("tools", os.path.join(folder, "tools"))
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a"]
    subprocess.run(git + ["init", "-q"], check=True)
    for name in ("new", "Same/a", "same/b"):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write("#!/bin/sh\nsed -i s/a/b/ f\n" if name == "new" else "text\n")
    r = subprocess.run(["tools/lint-scripts"], cwd=folder, capture_output=True, text=True)
    assert r.returncode == 1 and "new:2: sed: " in r.stdout and "only: /same\n" in r.stdout, r


def toolboxes(folder):
    """PATHs with other systems' tools in front; macOS's own awk is original-awk."""
    common = ("awk sed grep cut tr sort head tail wc cksum basename dirname cat cp mv rm mkdir ln cmp tee seq date xargs find "
              "mktemp install uniq sh").split()
    wanted = {name: ["awk"] for name in ("original-awk", "mawk", "gawk")}
    if shutil.which("busybox"):
        applets = subprocess.run(["busybox", "--list"], capture_output=True, text=True).stdout.split()
        wanted["busybox"] = [name for name in common if name in applets]
    for box, names in wanted.items():
        path = shutil.which(box)
        if not path:
            continue
        bin_ = os.path.join(folder, box)
        os.mkdir(bin_)
        for name in names:
            os.symlink(path, os.path.join(bin_, name))
        yield box, dict(os.environ, PATH=f"{bin_}:{os.environ['PATH']}")


def scripts_say(env, build):
    """What every script that the build runs writes."""
    kernels, said = sorted(glob.glob("src/gpu/kernels/*.gpu")), {}
    for command in (["sh", "tools/embed", "web", *sorted(glob.glob("web/*.*"))],
                    ["sh", "tools/gpu-table", "all", *kernels], ["sh", "tools/gpu-table", "file", kernels[0]],
                    ["awk", "-f", "tools/gpu-text", *kernels], ["awk", "-f", "tools/include-order", "src/cpu/cpu.c", "README.md"],
                    ["awk", "-f", "tools/portable", "Makefile", *glob.glob("tools/*.mk"), "tools/deps", os.path.join(build, "wrong")],
                    ["sh", "tools/standin-flags"], ["sh", "tools/deps", "--check"],
                    ["sh", "test/run", "-o", "src/a_test.c src/b_test.c src/c_test.c src/d_test.c", "-r", os.path.join(build, "totals"), build]):
        r = subprocess.run(command, env=env, capture_output=True, text=True)
        out = re.sub(r"\d+ s\b", "", r.stdout)
        if command[1] == "test/run":  # programs run at once: lines come in any order
            out = "\n".join(sorted(out.split("\n")))
        said[" ".join(command[:4])] = r.returncode, out, r.stderr
    return said


def test_scripts_write_the_same_with_other_tools(folder):
    build = os.path.join(folder, "build")
    os.makedirs(os.path.join(build, "src"))
    os.makedirs(os.path.join(build, "test"))
    os.symlink(os.path.join(HERE, BUILD, "test/limit_cli"), os.path.join(build, "test/limit_cli"))
    with open(os.path.join(build, "wrong"), "w") as f:
        f.write("#!/bin/sh\ncat f | sed -r 's/a+/b/'\nd=$(mktemp -d)\n")
    for name, what in (("a", "echo '[  PASSED  ] 2 test(s).'"), ("b", "echo '[  FAILED  ] 1 test(s), listed below:'; exit 1"),
                       ("c", "echo '[  PASSED  ] 3 test(s).'; echo '[  FAILED  ] group 9: 2 test(s), listed below:'; exit 2"),
                       ("d", "echo '[  SKIPPED ] group 9: 4 test(s), listed below:'; echo '[  SKIPPED ] one'")):
        path = os.path.join(build, "src", name + "_test")
        with open(path, "w") as f:
            f.write(f"#!/bin/sh\n{what}\n")
        os.chmod(path, 0o755)
    plain, n = scripts_say(os.environ, build), 0
    run = [said for name, said in plain.items() if "test/run" in name][0]
    assert run[0] == 1 and "5 passed, 3 failed, 4 skipped" in run[1] and "[  SKIPPED ] one" in run[1], run
    refused = [said for name, said in plain.items() if "tools/portable" in name][0]
    assert refused[0] == 1 and refused[1].count("\n") == 2, refused
    for box, env in toolboxes(folder):
        n += 1
        for command, said in scripts_say(env, build).items():
            assert said == plain[command], f"{box}: {command}: {said} {plain[command]}"[:2000]
    if not n:
        raise Skip("install original-awk, mawk or busybox")


class Mac:
    """A folder of stand-ins for what tools/deps asks on a Mac. Packages are files NAME.pc in the
    folders where Homebrew has them: lib/pkgconfig, opt/NAME/lib/pkgconfig, and its own for the system's."""

    def __init__(self, folder, homebrew=True, machine="arm64", compiler=True, pkg_config=True, in_path=True, prefix=None):
        self.bin, self.brew = os.path.join(folder, "bin"), os.path.join(folder, "brew")
        self.shims, self.log = os.path.join(folder, "shims"), os.path.join(folder, "installed")
        for d in (self.bin, self.shims, self.brew + "/bin", self.brew + "/lib/pkgconfig"):
            os.makedirs(d)
        self.script(self.bin, "uname", f"case $1 in -m) echo {machine} ;; *) echo Darwin ;; esac")
        self.script(self.bin, "xcode-select", f"exit {0 if compiler else 2}")
        if pkg_config:
            self.add_pkg_config()
        else:
            self.script(self.bin, "pkg-config", "exit 127")
        if homebrew:
            brew = f"""if [ "$1" = --prefix ]; then echo {prefix or self.brew}; else
                echo "$@" >> {self.log}
                [ -e {self.brew}/broken ] || for p; do case $p in
                    curl | libedit | openssl) mkdir -p {self.brew}/opt/$p/lib/pkgconfig
                        case $p in curl) n=libcurl ;; *) n=$p ;; esac; : > {self.brew}/opt/$p/lib/pkgconfig/$n.pc ;;
                    jansson) : > {self.brew}/lib/pkgconfig/jansson.pc ;; esac; done; fi"""
            self.script(self.brew + "/bin", "brew", brew)
            if in_path:
                os.symlink(self.brew + "/bin/brew", self.bin + "/brew")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PKG_CONFIG", "HOMEBREW", "MAKE"))}
        self.env["PATH"] = self.bin + ":" + self.env["PATH"]
        if homebrew and not prefix:
            self.env["HOMEBREW_PREFIX"] = self.brew
        self.has("lib/pkgconfig", "libpcre2-8", "libutf8proc", "libxxhash", "libevent_openssl", "libevent", "cmocka")

    def script(self, folder, name, text):
        with open(os.path.join(folder, name), "w") as f:
            f.write(f"#!/bin/sh\n{text}\n")
        os.chmod(f.name, 0o755)

    def add_pkg_config(self):
        self.script(self.bin, "pkg-config", f"""[ "$1" != --version ] || exit 0
            what=$1; for name; do case $name in --*) ;; *)
            found=; for d in $(echo "${{PKG_CONFIG_PATH:-}}" | tr : ' ') {self.brew}/lib/pkgconfig {self.shims}; do
                [ -n "$found" ] || [ ! -e "$d/$name.pc" ] || found=$d; done
            [ -n "$found" ] || exit 1
            case $what in --cflags) printf '%s ' "-I$found" ;; --libs) printf '%s ' "-L$found" ;; esac ;; esac; done""")

    def has(self, where, *names):
        folder = os.path.join(self.brew, where)
        os.makedirs(folder, exist_ok=True)
        for name in names:
            open(os.path.join(folder, name + ".pc"), "w").close()

    def deps(self, *args):
        r = subprocess.run(["tools/deps", *args], env=self.env, capture_output=True, text=True)
        assert r.stderr.count("\n") <= 1, r.stderr
        return r.returncode, r.stdout, r.stderr


def test_a_mac_without_homebrew_is_told_how_to_install_it(folder):
    code, out, err = Mac(folder, homebrew=False).deps()
    assert code == 1 and "missing: jansson" in err and "/bin/bash -c \"$(curl -fsSL https://" in err, err


def test_a_mac_without_a_compiler_is_told_how_to_install_it(folder):
    code, out, err = Mac(folder, compiler=False).deps()
    assert code == 1 and err.endswith("xcode-select --install\n"), err


def test_on_a_mac_what_is_missing_is_named_in_one_line(folder):
    mac = Mac(folder)
    code, out, err = mac.deps("--check")
    assert code == 1 and err == "tools/deps: missing: jansson libedit curl openssl; tools/deps installs that\n", err


def test_homebrews_packages_are_found_where_it_keeps_them_apart(folder):
    mac = Mac(folder, in_path=False)  # and its folder is not in PATH
    code, out, err = mac.deps()
    assert code == 0 and not err, err
    with open(mac.log) as f:
        assert f.read() == "install --quiet jansson libedit curl openssl\n"
    config = os.path.join(folder, "b/config.mk")
    subprocess.run(["make", f"B={folder}/b", config], env=mac.env, check=True, capture_output=True)
    with open(config) as f:
        text = f.read()
    for part in ("brew/opt/curl/lib", "brew/opt/libedit/lib", "brew/opt/openssl/lib", "-L" + mac.brew + "/lib"):
        assert part in text, (part, text)


def test_the_systems_own_libraries_will_do(folder):
    mac = Mac(folder)
    mac.has("lib/pkgconfig", "jansson")
    mac.has("opt/openssl@3/lib/pkgconfig", "openssl")
    mac.has("../shims", "libedit", "libcurl")
    assert mac.deps("--check") == (0, "", "")


def test_a_mac_without_pkg_config_is_given_it(folder):
    mac = Mac(folder, pkg_config=False)
    code, out, err = mac.deps("--check")
    assert code == 1 and "missing: pkgconf jansson" in err, err


def test_homebrew_for_the_other_processor_is_refused(folder):
    code, out, err = Mac(os.path.join(folder, "a"), prefix="/usr/local").deps("--check")
    assert code == 1 and "Intel" in err, err
    code, out, err = Mac(os.path.join(folder, "b"), prefix="/opt/homebrew", machine="x86_64").deps("--check")
    assert code == 1 and "arch -arm64" in err, err


def test_packages_that_are_not_found_after_installing_are_named(folder):
    mac = Mac(folder)
    open(mac.brew + "/broken", "w").close()
    code, out, err = mac.deps()
    assert code == 1 and err == "tools/deps: installed, but still not found: jansson libedit curl openssl\n", err


def test_warnings_are_errors_when_asked_only():
    def commands(*args):
        return subprocess.run(["make", "-n", "V=1", f"B={BUILD}", "-W", "src/base/err.c", *args, f"{BUILD}/src/base/err.o"],
                              env={k: v for k, v in os.environ.items() if k != "WERROR" and not k.startswith("MAKE")},
                              capture_output=True, text=True, check=True).stdout
    assert "-Wall" in commands() and "-Werror" not in commands()
    assert "-Werror" in commands("WERROR=1")


def test_a_program_out_of_time_ends_with_its_children(folder):
    limit, mark = os.path.join(BUILD, "test/limit_cli"), os.path.join(folder, "mark")
    began = time.monotonic()
    r = subprocess.run([limit, "1", "sh", "-c", f"(sleep 3; : > {mark}) & sleep 300"])
    assert r.returncode == 124 and time.monotonic() - began < 200
    time.sleep(3)
    assert not os.path.exists(mark)
    for command, code in (("exit 7", 7), ("kill -9 $$", 137), ("true", 0)):
        assert subprocess.run([limit, "100", "sh", "-c", command]).returncode == code


if __name__ == "__main__":
    run_tests(globals())
