# What the first process of every machine does. It runs in namespaces of its own; the environment says which machine it is
# (MACHINE), and where its files (FOLDER) and the programs (PROGRAMS) are.
set -euo pipefail

# Gives the machine its name, and its files fixed places: /mnt is its folder, /opt has the programs.
take_place() {
  mount --make-rprivate /
  printf '%s' "$MACHINE" >/proc/sys/kernel/hostname
  mount --bind "$FOLDER" /mnt
  mount --bind "$PROGRAMS" /opt
}

# keep NAME COMMAND…: runs the command in the background, and starts it again when it ends.
keep() {
  local name=$1
  shift
  while :; do
    "$@" >>"/mnt/log/$name.log" 2>&1 || true
    printf '%s has ended and is started again\n' "$name" >>"/mnt/log/$name.log"
    sleep 1
  done &
}
