#!/bin/sh
# networkTopologyScriptFileName of the compose stack: the third number of an address is the rack.
for address in "$@"; do
  case "$address" in
    10.75.2.*) echo /rack2 ;;
    *) echo /rack1 ;;
  esac
done
