#!/bin/sh
# A compiler's launcher: keeps what the compiler says in OBJECT.log, for ResourceReport.cmake; says it if it fails.
previous=
for argument; do
    if [ "$previous" = -o ]; then object=$argument; fi
    previous=$argument
done
"$@" >"$object.log" 2>&1 || { status=$?; cat "$object.log"; exit $status; }
