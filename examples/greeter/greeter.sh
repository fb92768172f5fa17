#!/bin/sh
# Greets whoever is named by the first argument.
echo "Helo, ${1:-world}"
