#!/bin/busybox sh
# PID 1 of the guest: bring the machine up, then take commands from the host until it hangs up.
#
# The control port carries, from the host, one line per command:      RUN <id> <base64 of a script>
# and to the host, one answer per command, in order of completion:    DONE <id> <status> <bytes>\n<output>
# Commands run side by side, so that a hung mount does not silence the others. One loop writes all answers.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
need virtio_pci virtio_blk virtio_net virtio_console virtio_rng

ip link set lo up
ip link set eth0 up && ip addr add 10.0.2.15/24 dev eth0 && ip route add default via 10.0.2.2
tar -x -f /dev/vda -C /

port=
for entry in /sys/class/virtio-ports/*; do
  [ "$(cat "$entry/name")" = control ] && port=/dev/${entry##*/}
done
[ -n "$port" ] || { echo "no control port"; poweroff -f; }
exec 3<>"$port"
mkfifo /run/finished
exec 4<>/run/finished

echo "READY $(cut -d' ' -f1 /proc/uptime) $(uname -r)" >&3
(
  while read -r id status <&4; do
    # A command can leave children behind that still write: send a copy of what is there now, so the length is true.
    head -c 8388608 "/run/$id.out" > /run/answer
    echo "DONE $id $status $(wc -c < /run/answer)" >&3
    cat /run/answer >&3
    rm -f "/run/$id.out" "/run/$id.sh"
  done
) &

while read -r verb id script <&3; do
  [ "$verb" = RUN ] || continue
  echo "$script" | base64 -d > "/run/$id.sh"
  ( cd /job; sh "/run/$id.sh" > "/run/$id.out" 2>&1 < /dev/null 3>&- 4>&-; echo "$id $?" >&4 ) &
done
poweroff -f
