#!/bin/sh
# Fails until greeter.sh greets as a polite program should.
expected="Hello, Ada"
actual=$(sh "$(dirname "$0")/greeter.sh" Ada)
if [ "$actual" = "$expected" ]; then
    echo "PASS: greeter.sh says \"$actual\""
else
    echo "FAIL: greeter.sh says \"$actual\" instead of \"$expected\""
    exit 1
fi
