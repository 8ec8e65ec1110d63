"""A cable that loses frames: copies them between two interfaces, and leaves some out.

    lossy.py plain INTERFACE              frames of INTERFACE become those of a real network card
    lossy.py lose INTERFACE INTERFACE PERCENT

Frames of a virtual cable have no checksums and may be longer than a real one; so they are no frames
that somebody else could pass on, and each end is made plain first.
"""

import array
import fcntl
import random
import select
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
# Checksums by the sender; segmentation of TCP and in general: what the kernel calls them.
SET_TX_CHECKSUM, SET_TSO, SET_GSO = 0x17, 0x1F, 0x24


def make_plain(interface):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for what in (SET_GSO, SET_TSO, SET_TX_CHECKSUM):
        value = array.array("B", struct.pack("II", what, 0))
        request = struct.pack("16sP", interface.encode(), value.buffer_info()[0])
        fcntl.ioctl(sender, SIOCETHTOOL, request + bytes(40 - len(request)))


def opened(interface):
    everything = 0x0003
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(everything))
    frames.bind((interface, everything))
    frames.setblocking(False)
    return frames


def lose(ends, percent):
    lots = random.Random(1)
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    print("ready", flush=True)
    while True:
        for end in select.select(ends, [], [])[0]:
            for _ in range(64):
                try:
                    frame, address = end.recvfrom(70000)
                except BlockingIOError:
                    break
                if address[2] == socket.PACKET_OUTGOING or lots.uniform(0, 100) < percent:
                    continue
                try:
                    other[end].send(frame)
                except OSError:
                    # A full queue loses frames, too.
                    pass


if sys.argv[1] == "plain":
    make_plain(sys.argv[2])
else:
    lose([opened(name) for name in sys.argv[2:4]], float(sys.argv[4]))
