#!/bin/sh
# Chat templates against Jinja2 itself (test/tmpl/oracle.py). Needs a Python that has it.
for python in python3 /usr/bin/python3; do
    if "$python" -c 'import jinja2' 2> /dev/null; then
        exec "$python" test/tmpl/oracle.py "$1/test/tmpl_cli"
    fi
done
echo "skip templates against Jinja2 (install python3-jinja2)"
